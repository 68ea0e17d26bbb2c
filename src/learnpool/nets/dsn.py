"""The paper's network for small images (its Table A1): convolutions, two pools, and a vote of the last map's cells.

An ``mlpconv`` is one 1×1 convolution. Every convolution has a bias, and all but the classifier a ReLU.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ..names import parse
from ..parameters import Learned, tie
from ..window import Window


class Table(NamedTuple):
    """A data set's column of Table A1."""

    size: int  # height and width of an image
    channels: int
    conv: tuple[int, int, int, int, int, int]
    mlpconv: tuple[int, int, int]
    classes: int
    second: int = 3  # window of the second pool


TABLES = {
    "mnist": Table(28, 1, (128, 128, 192, 192, 256, 256), (128, 192, 256), 10, second=2),
    "cifar10": Table(32, 3, (128, 128, 192, 192, 256, 256), (128, 192, 256), 10),
    "cifar100": Table(32, 3, (192, 192, 192, 192, 192, 192), (96, 192, 192), 100),
    "svhn": Table(32, 3, (128, 128, 320, 320, 384, 384), (96, 256, 256), 10),
}


class DSN(nn.Module):
    """``[N, channels, size, size]`` -> ``[N, classes]``; see ``dsn``."""

    def __init__(self, table: Table, pool: str, width: float) -> None:
        super().__init__()
        c1, c2, c3, c4, c5, c6 = (max(1, round(width * c)) for c in table.conv)
        m1, m2, m3 = (max(1, round(width * m)) for m in table.mlpconv)

        self.conv1 = nn.Conv2d(table.channels, c1, 3, padding=1)
        self.conv2 = nn.Conv2d(c1, c2, 3, padding=1)
        self.mlpconv1 = nn.Conv2d(c2, m1, 1)

        self.conv3 = nn.Conv2d(m1, c3, 3, padding=1)
        self.conv4 = nn.Conv2d(c3, c4, 3, padding=1)
        self.mlpconv2 = nn.Conv2d(c4, m2, 1)

        self.conv5 = nn.Conv2d(m2, c5, 3, padding=1)
        self.conv6 = nn.Conv2d(c5, c6, 3, padding=1)
        self.mlpconv3 = nn.Conv2d(c6, m3, 1)
        self.mlpconv4 = nn.Conv2d(m3, table.classes, 1)

        # Last, so that what a pool draws does not change the other weights.
        self.pool1, self.pool2 = pools(pool, table, m1, m2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.relu(self.mlpconv1(x))
        x = self.dropout(self.pool1(x))  # 32 -> 16, MNIST 28 -> 14

        x = F.relu(self.conv3(x))
        x = F.relu(self.conv4(x))
        x = F.relu(self.mlpconv2(x))
        x = self.dropout(self.pool2(x))  # 16 -> 8, MNIST 14 -> 7

        x = F.relu(self.conv5(x))
        x = F.relu(self.conv6(x))
        x = F.relu(self.mlpconv3(x))
        votes: Tensor = self.mlpconv4(x)  # [N, classes, 8, 8]
        return votes.mean((2, 3))


def pools(name: str, table: Table, *channels: int) -> list[nn.Module]:
    """The two pools a name means, of known sizes: stride 2, no padding, ceil mode; those ``:net`` share one set."""
    made: list[nn.Module] = []
    size: tuple[int, ...] = (table.size, table.size)
    for index, (kernel, c) in enumerate(zip((3, table.second), channels, strict=True)):
        size = Window.of("dsn", 2, kernel, 2, ceil_mode=True).output_size(size)
        made.append(parse(name).part(index).layer(kernel, 2, ceil_mode=True, channels=c, grid=size))
    tied = [layer for layer in made if isinstance(layer, Learned) and layer.share == "net"]
    if tied:
        tie(tied)
    return made


def dsn(data: str = "cifar10", pool: str = "max", *, width: float = 1.0) -> DSN:
    """The network of the paper's Table A1 for ``mnist``, ``cifar10``, ``cifar100`` or ``svhn``.

    ``pool`` is a name as ``learnpool.parse`` reads it: ``tree3+gated`` is the paper's best on CIFAR10. ``width`` scales
    all channels but those of the image and the classes.

    >>> sum(p.numel() for p in dsn("cifar10", "tree3+gated").parameters())
    1859218
    """
    if data not in TABLES:
        raise ValueError(f"dsn: unknown data {data!r}; known: {', '.join(TABLES)}")
    if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0 < width < math.inf:
        raise ValueError(f"dsn: width must be a number above 0, got {width!r}")
    return DSN(TABLES[data], pool, width)
