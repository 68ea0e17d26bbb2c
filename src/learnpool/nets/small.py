"""A small network of the usual kind, for small images; its pools are PyTorch's, for ``learnpool.convert`` to swap."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

CHANNELS = 24


def small(classes: int, channels: int, size: tuple[int, int]) -> nn.Sequential:
    """Twice: two 3×3 convolutions with batch normalisation and a 3×3 max pool of stride 2; then a linear layer.

    >>> small(10, 1, (8, 8))(torch.zeros(1, 1, 8, 8)).shape
    torch.Size([1, 10])
    """
    cells = math.prod(-(-edge // 4) for edge in size)  # both pools halve, rounding up
    layers: dict[str, nn.Module] = {
        "conv1": make_convolution(channels, CHANNELS),
        "conv2": make_convolution(CHANNELS, CHANNELS),
        "pool1": nn.MaxPool2d(3, stride=2, padding=1),
        "conv3": make_convolution(CHANNELS, 2 * CHANNELS),
        "conv4": make_convolution(2 * CHANNELS, 2 * CHANNELS),
        "pool2": nn.MaxPool2d(3, stride=2, padding=1),
        "flat": nn.Flatten(),
        "linear": nn.Linear(2 * CHANNELS * cells, classes),
    }
    return nn.Sequential(OrderedDict(layers))


def make_convolution(incoming: int, outgoing: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(incoming, outgoing, 3, padding=1, bias=False), nn.BatchNorm2d(outgoing), nn.ReLU())
