"""ResNet-9, David Page's network for fast training on CIFAR-10: four convolutions, three pools, two residual blocks.

Its pools are 3×3 of stride 2 with a padding of 1 and come behind convolution, normalisation and ReLU.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from ..ops.window import Window
from .dsn import STRIDED
from .sizes import compute_map_sizes, make_pools, scale_channels

CHANNELS = (64, 128, 256, 512)
SCALE = 1 / 8  # of the votes


class Residual(nn.Module):
    """``x + f(x)`` with two convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(make_convolution(channels, channels), make_convolution(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.convs(x)
        return out


class Scale(nn.Module):
    """``factor · x``."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x

    def extra_repr(self) -> str:
        return f"{self.factor:g}"


def resnet9(
    classes: int = 10,
    *,
    pools: str = "max",
    width: float = 1.0,
    size: tuple[int, int] = (32, 32),
    channels: int = 3,
    start: str = "spread",
) -> nn.Sequential:
    """The network for images of ``size``; ``pools`` are named as ``learnpool.parse`` reads them, or ``conv``: strided
    convolutions instead of pools.

    ``width`` scales all channels but those of the image and the classes; ``start`` is the pools' own.

    >>> sum(p.numel() for p in resnet9(pools="gated", width=0.25).parameters())
    412971
    """
    c1, c2, c3, c4 = (scale_channels("resnet9", c, width) for c in CHANNELS)
    stride = 2 if pools == STRIDED else 1
    layers: dict[str, nn.Module] = {
        "conv1": make_convolution(channels, c1),
        "conv2": make_convolution(c1, c2, stride),
        "pool1": nn.Identity(),  # 32 -> 16
        "residual1": Residual(c2),
        "conv3": make_convolution(c2, c3, stride),
        "pool2": nn.Identity(),  # 16 -> 8
        "conv4": make_convolution(c3, c4, stride),
        "pool3": nn.Identity(),  # 8 -> 4
        "residual2": Residual(c4),
        "last": nn.AdaptiveMaxPool2d(1),
        "flat": nn.Flatten(),
        "linear": nn.Linear(c4, classes, bias=False),
        "scale": Scale(SCALE),
    }
    net = nn.Sequential(OrderedDict(layers))
    if pools == STRIDED:
        return net
    # Pools last, so that they change nothing that the others draw.
    sizes = compute_map_sizes("resnet9", size, 3, Window.of("resnet9", 2, 3, 2, padding=1))
    net.pool1, net.pool2, net.pool3 = make_pools(pools, (c2, c3, c4), sizes, start, padding=1, ceil_mode=False)
    return net


def make_convolution(incoming: int, outgoing: int, stride: int = 1) -> nn.Sequential:
    """3×3 convolution, batch normalisation, ReLU."""
    conv = nn.Conv2d(incoming, outgoing, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outgoing), nn.ReLU(inplace=True))
