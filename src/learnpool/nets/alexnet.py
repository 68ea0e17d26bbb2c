"""AlexNet as the paper trains it: convolution, ReLU, local response normalisation, pool; grouped convolutions.

Its 60,965,224 parameters at 1,000 classes grow by 45 with ``tree2+gated``: a tree in the first pool, gates in the other
two. Pools are 3×3 of stride 2 in ceil mode, as Caffe's; at 227 pixels that makes no difference.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from ..ops.window import Window
from .sizes import POOL, compute_map_sizes, initialize_by_kaiming, make_pools, scale_channels

FEATURES = (96, 256, 384, 384, 256)  # channels of the convolutions
HIDDEN = 4096


def alexnet(
    classes: int = 1000,
    *,
    pools: str = "max",
    width: float = 1.0,
    size: int = 227,
    channels: int = 3,
    dropout: float = 0.5,
    init: str = "caffe",
    start: str = "paper",
) -> nn.Sequential:
    """The network for square images of ``size`` pixels; ``pools`` are named as ``learnpool.parse`` reads them.

    ``width`` scales all channels and hidden layers but those of the image and the classes. ``init`` is ``caffe``, the
    start values of Caffe's replication, or ``kaiming``, which suits a narrow network; ``start`` is the pools' own,
    here the authors', where layers and networks outside the paper have ``spread``.

    >>> sum(p.numel() for p in alexnet(10, pools="tree2+gated", width=0.125, size=67).parameters())
    325159
    """
    c1, c2, c3, c4, c5 = (scale_channels("alexnet", c, width, groups=2) for c in FEATURES)
    hidden = scale_channels("alexnet", HIDDEN, width)
    sizes = compute_map_sizes(
        "alexnet", size, 3, Window.of("alexnet", 2, POOL, 2, ceil_mode=True), Window.of("alexnet", 2, 11, 4)
    )
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, c1, 11, stride=4),  # 227 -> 55
        "relu1": nn.ReLU(inplace=True),
        "norm1": nn.LocalResponseNorm(5),
        "pool1": nn.Identity(),  # 55 -> 27
        "conv2": nn.Conv2d(c1, c2, 5, padding=2, groups=2),
        "relu2": nn.ReLU(inplace=True),
        "norm2": nn.LocalResponseNorm(5),
        "pool2": nn.Identity(),  # 27 -> 13
        "conv3": nn.Conv2d(c2, c3, 3, padding=1),
        "relu3": nn.ReLU(inplace=True),
        "conv4": nn.Conv2d(c3, c4, 3, padding=1, groups=2),
        "relu4": nn.ReLU(inplace=True),
        "conv5": nn.Conv2d(c4, c5, 3, padding=1, groups=2),
        "relu5": nn.ReLU(inplace=True),
        "pool5": nn.Identity(),  # 13 -> 6
        "flat": nn.Flatten(),
        "fc6": nn.Linear(c5 * math.prod(sizes[-1]), hidden),
        "relu6": nn.ReLU(inplace=True),
        "drop6": nn.Dropout(dropout),
        "fc7": nn.Linear(hidden, hidden),
        "relu7": nn.ReLU(inplace=True),
        "drop7": nn.Dropout(dropout),
        "fc8": nn.Linear(hidden, classes),
    }
    net = nn.Sequential(OrderedDict(layers))
    initialize(net, init)
    # Pools last, so that they change nothing that the others draw.
    net.pool1, net.pool2, net.pool5 = make_pools(pools, (c1, c2, c5), sizes, start)
    return net


def initialize(net: nn.Module, init: str) -> None:
    """Start values of Caffe's replication: N(0, 0.01), hidden layers N(0, 0.005), and some biases of 0.1."""
    if initialize_by_kaiming("alexnet", net, init):
        return
    biases = dict.fromkeys(("conv2", "conv4", "conv5", "fc6", "fc7"), 0.1)
    for name, layer in net.named_children():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(layer.weight, std=0.005 if name in ("fc6", "fc7") else 0.01)
            assert layer.bias is not None
            nn.init.constant_(layer.bias, biases.get(name, 0.0))
