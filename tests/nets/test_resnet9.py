"""ResNet-9 and the fast network with any pools: counts, shapes, start values, mistakes."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from learnpool.nets import fast, resnet9
from learnpool.nets.fast import make_patch_filters

NETS = {"resnet9": resnet9, "fast": fast}


def count(net):
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def test_parameters():
    with torch.device("meta"):
        convs = 9 * (3 * 64 + 64 * 128 + 2 * 128**2 + 128 * 256 + 256 * 512 + 2 * 512**2)
        norms = 2 * (64 + 3 * 128 + 256 + 3 * 512)
        assert count(resnet9()) == convs + norms + 512 * 10
        assert count(resnet9(pools="gated")) == count(resnet9()) + 27
        convs = 9 * (24 * 64 + 64**2 + 64 * 256 + 3 * 256**2)
        assert count(fast()) == convs + 24 + 2 * (64 + 256 + 256) + 256 * 10
        assert count(fast(pools="gated")) == count(fast()) + 12


def test_strided_convolutions_instead_of_pools():
    net = resnet9(pools="conv", width=0.1)
    assert count(net) == count(resnet9(width=0.1))
    x = torch.randn(2, 3, 32, 32)
    assert net[:-5](x).shape == resnet9(width=0.1)[:-5](x).shape
    assert [type(layer) for name, layer in net.named_children() if "pool" in name] == [nn.Identity] * 3


@pytest.mark.parametrize(
    ("net", "shapes"),
    [
        (resnet9, {"conv2": (128, 32), "pool1": (128, 16), "pool2": (256, 8), "pool3": (512, 4), "last": (512, 1)}),
        (fast, {"whiten": (24, 31), "block1": (64, 15), "block2": (256, 7), "block3": (256, 3), "last": (256, 1)}),
    ],
)
def test_shapes_of_all_layers(net, shapes):
    with torch.device("meta"):
        x = torch.empty(2, 3, 32, 32)
        for name, layer in net(pools="gated").named_children():
            x = layer(x)
            if name in shapes:
                channels, edge = shapes[name]
                assert x.shape == (2, channels, edge, edge), name


def test_order_of_the_layers():
    assert [name for name, _ in fast().block1.named_children()] == [
        "conv1", "pool", "norm1", "gelu1", "conv2", "norm2", "gelu2",
    ]  # fmt: skip
    kinds = [type(layer).__name__ for layer in resnet9(width=0.1).conv1]
    assert kinds == ["Conv2d", "BatchNorm2d", "ReLU"]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("pools", ["max", "tree3+gated", "mixed:region_channel", "Mix(Max,Filter)", "gated:net"])
@pytest.mark.parametrize("size", [(16, 16), (28, 21)])
def test_any_pools_on_any_images(name, pools, size):
    net = NETS[name](7, pools=pools, width=0.1, size=size, channels=1)
    votes = net(torch.randn(2, 1, *size))
    assert votes.shape == (2, 7)
    votes.square().sum().backward()
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", NETS)
def test_pools_change_no_other_start_value(name):
    torch.manual_seed(0)
    plain = NETS[name](10, width=0.1).state_dict()
    torch.manual_seed(0)
    learned = NETS[name](10, pools="tree3+gated", width=0.1).state_dict()
    assert all(torch.equal(learned[key], value) for key, value in plain.items())


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (3, 32)}, "size must be larger for 3 pools"),
        ({"width": 0}, "width must be a number above 0, got 0"),
        ({"pools": "gatd"}, "gatd"),
    ],
)
def test_mistakes(name, options, message):
    if name == "resnet9" and "size" in options:
        options = {"size": (0, 32)}
    with pytest.raises(ValueError, match=message):
        NETS[name](10, **options)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_patch_filters_are_a_rotation_and_its_negative(channels):
    filters = make_patch_filters(channels).flatten(1)
    half = 4 * channels
    assert_close(filters[:half] @ filters[:half].T, torch.eye(half))
    assert_close(filters[half:], -filters[:half])


def test_the_first_convolution_is_not_learned():
    net = fast(width=0.1)
    assert not net.whiten.weight.requires_grad
    assert not any(m.weight.requires_grad for m in net.modules() if isinstance(m, nn.BatchNorm2d))


def test_convolutions_begin_as_copies():
    conv = fast(width=1.0).block2.conv1
    x = torch.randn(1, 64, 5, 5)
    assert_close(conv(x)[:, :64], x)
