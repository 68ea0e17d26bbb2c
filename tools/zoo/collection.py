"""The networks of the zoo: where each comes from, how it is built without a download, and the input it takes."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

# torchvision asks for two operators that its own library would define; beside CPU torch that library does not load.
_shim = torch.library.Library("torchvision", "FRAGMENT")
for _operator in ("nms", "qnms"):
    _shim.define(f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import pytorchcv.model_provider  # noqa: E402
import segmentation_models_pytorch as smp  # noqa: E402
import timm  # noqa: E402
import torchvision  # noqa: E402

# name: size of the (square) input
NETWORKS: dict[str, int] = {
    "torchvision/alexnet": 96, "torchvision/vgg11": 64, "torchvision/resnet18": 64, "torchvision/resnet50": 64,
    "torchvision/resnext50_32x4d": 64, "torchvision/densenet121": 64, "torchvision/googlenet": 96,
    "torchvision/inception_v3": 299, "torchvision/squeezenet1_0": 96, "torchvision/squeezenet1_1": 96,
    "torchvision/shufflenet_v2_x1_0": 64, "torchvision/segmentation.fcn_resnet50": 64, "timm/resnet26d": 64,
    "timm/resnetv2_50": 64, "timm/res2net50_26w_4s": 64, "timm/skresnet18": 64, "timm/resnest14d": 64,
    "timm/ecaresnet26t": 64, "timm/densenet121": 64, "timm/dla34": 64, "timm/dpn68b": 64, "timm/inception_v3": 128,
    "timm/inception_v4": 128, "timm/legacy_xception": 96, "timm/ese_vovnet19b_dw": 64, "timm/poolformer_s12": 64,
    "timm/nasnetalarge": 96, "timm/resnetblur50": 64, "timm/vit_tiny_r_s16_p8_224": 224, "smp/Unet-resnet18": 64,
    "smp/Unet-vgg11": 64, "smp/Unet-densenet121": 64, "smp/UnetPlusPlus-resnet18": 64, "smp/FPN-resnet18": 64,
    "smp/PAN-resnet18": 128, "smp/Linknet-resnet18": 64, "smp/DeepLabV3Plus-resnet18": 64, "smp/PSPNet-resnet18": 64,
    "pytorchcv/resnet10": 224, "pytorchcv/bninception": 224, "pytorchcv/squeezenet_v1_0": 224,
    "pytorchcv/shufflenet_g1_wd4": 224, "pytorchcv/peleenet": 224, "pytorchcv/vovnet27s": 224,
    "pytorchcv/darknet_tiny": 224, "pytorchcv/nin_cifar10": 32, "pytorchcv/densenet40_k12_cifar10": 32,
    "pytorchcv/fishnet99": 224,
}  # fmt: skip
# more of timm, which shrink their maps by strided convolutions alone
SHRINKING: dict[str, int] = {
    "timm/convnext_atto": 64, "timm/convnextv2_atto": 64, "timm/inception_next_atto": 64, "timm/edgenext_xx_small": 96,
    "timm/efficientnet_b0": 64, "timm/tf_efficientnet_b0": 64, "timm/tf_efficientnetv2_b0": 64,
    "timm/efficientnet_lite0": 64, "timm/tinynet_e": 64, "timm/mobilenetv1_100": 64, "timm/mobilenetv2_050": 64,
    "timm/mobilenetv3_small_050": 64, "timm/mobilenetv3_large_100": 64, "timm/mobilenetv4_conv_small_050": 64,
    "timm/mnasnet_small": 64, "timm/semnasnet_075": 64, "timm/fbnetc_100": 64, "timm/spnasnet_100": 64,
    "timm/hardcorenas_a": 64, "timm/mixnet_s": 64, "timm/tf_mixnet_s": 64, "timm/regnetx_002": 64,
    "timm/regnety_002": 64, "timm/regnetz_005": 64, "timm/nfnet_l0": 64, "timm/ghostnet_050": 64,
    "timm/repghostnet_050": 64, "timm/lcnet_050": 64, "timm/hgnetv2_b0": 64, "timm/repvgg_a0": 64,
    "timm/repvit_m0_9": 64, "timm/mobileone_s0": 64, "timm/fastvit_t8": 96, "timm/rexnet_100": 64,
    "timm/starnet_s050": 64, "timm/gernet_s": 64, "timm/darknet17": 64, "timm/mobilevit_xxs": 96,
    "timm/efficientvit_b0": 96,
}  # fmt: skip
# one of every kind: a module, functional calls, side branches, a U-Net; Inductor takes minutes for the large ones
COMPILED = {
    "torchvision/resnet18": "inductor",
    "torchvision/inception_v3": "aot_eager",
    "torchvision/googlenet": "aot_eager",
    "smp/Unet-resnet18": "aot_eager",
}


COMPILED_PLACES = {
    "torchvision/resnet18": "aot_eager",
    "timm/convnext_atto": "aot_eager",
    "timm/mobilenetv3_small_050": "inductor",
    "timm/tf_efficientnet_b0": "aot_eager",
    "timm/regnety_002": "aot_eager",
}
EXPORTED_PLACES = {"torchvision/resnet18", "timm/convnext_atto", "timm/mobilenetv3_small_050", "timm/regnety_002"}


def build(name: str) -> nn.Module:
    """The network of that name, from a fixed seed."""
    torch.manual_seed(0)
    library, _, rest = name.partition("/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, while they initialise
        net: Any
        if library == "torchvision":
            options = {"init_weights": False} if rest in ("googlenet", "inception_v3") else {}
            if rest.startswith("segmentation"):
                options = {"weights_backbone": None, "aux_loss": True}
            net = getattr(torchvision.models, rest.split(".")[0]) if "." in rest else torchvision.models
            net = getattr(net, rest.split(".")[-1])(weights=None, **options)
        elif library == "timm":
            net = timm.create_model(rest, pretrained=False)
        elif library == "smp":
            architecture, _, encoder = rest.partition("-")
            net = getattr(smp, architecture)(encoder, encoder_weights=None, classes=3)
        else:
            net = pytorchcv.model_provider.get_model(rest, pretrained=False)
    return net  # type: ignore[no-any-return]


def sample(name: str) -> torch.Tensor:
    """An input of that network: two images."""
    size = {**NETWORKS, **SHRINKING}[name]
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(2))
