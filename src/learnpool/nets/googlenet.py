"""GoogLeNet (Szegedy et al. 2015) as the paper trains it, with and without batch normalisation.

Four 3×3 pools of stride 2 can be learned; with gates they add 36 parameters. The nine 3×3 pools of stride 1 inside the
inception blocks stay max pools, as in the paper. Two classifiers on the way help in training.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..ops.window import Window
from .dsn import Votes
from .sizes import POOL, compute_map_sizes, initialize_by_kaiming, make_pools, scale_channels


class Block(NamedTuple):
    """Channels of an inception block: 1×1; 1×1 then 3×3; 1×1 then 5×5; 1×1 after the pool."""

    one: int
    reduce3: int
    three: int
    reduce5: int
    five: int
    pooled: int

    @property
    def out(self) -> int:
        return self.one + self.three + self.five + self.pooled


BLOCKS = {
    "3a": Block(64, 96, 128, 16, 32, 32),
    "3b": Block(128, 128, 192, 32, 96, 64),
    "4a": Block(192, 96, 208, 16, 48, 64),
    "4b": Block(160, 112, 224, 24, 64, 64),
    "4c": Block(128, 128, 256, 24, 64, 64),
    "4d": Block(112, 144, 288, 32, 64, 64),
    "4e": Block(256, 160, 320, 32, 128, 128),
    "5a": Block(256, 160, 320, 32, 128, 128),
    "5b": Block(384, 192, 384, 48, 128, 128),
}
SUPERVISED = ("4a", "4d")  # blocks with a classifier behind them


class Convolution(nn.Sequential):
    """Convolution and ReLU; with ``batch_norm`` a normalisation between them, and no bias."""

    def __init__(
        self, incoming: int, outgoing: int, kernel: int, stride: int = 1, padding: int = 0, *, batch_norm: bool = False
    ) -> None:
        conv = nn.Conv2d(incoming, outgoing, kernel, stride, padding, bias=not batch_norm)
        norm = [nn.BatchNorm2d(outgoing)] if batch_norm else []
        super().__init__(conv, *norm, nn.ReLU(inplace=True))


class Inception(nn.Module):
    """Four branches side by side; their maps are stacked."""

    def __init__(self, incoming: int, block: Block, batch_norm: bool) -> None:
        super().__init__()
        convolution = partial(Convolution, batch_norm=batch_norm)
        self.one = convolution(incoming, block.one, 1)
        self.three = nn.Sequential(
            convolution(incoming, block.reduce3, 1), convolution(block.reduce3, block.three, 3, padding=1)
        )
        self.five = nn.Sequential(
            convolution(incoming, block.reduce5, 1), convolution(block.reduce5, block.five, 5, padding=2)
        )
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), convolution(incoming, block.pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


class Classifier(nn.Sequential):
    """A classifier on the way: used in training alone."""

    def __init__(self, incoming: int, classes: int, width: float, batch_norm: bool) -> None:
        reduced, hidden = (scale_channels("googlenet", c, width) for c in (128, 1024))
        super().__init__(
            nn.AdaptiveAvgPool2d(4),  # 14 -> 4, as a 5×5 mean of stride 3 gives at 224 pixels
            Convolution(incoming, reduced, 1, batch_norm=batch_norm),
            nn.Flatten(),
            nn.Linear(16 * reduced, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.7),
            nn.Linear(hidden, classes),
        )


class GoogLeNet(nn.Module):
    """``[N, channels, size, size]`` -> ``[N, classes]``, in training ``Votes`` with those of two classifiers."""

    def __init__(
        self,
        classes: int,
        pool: str,
        batch_norm: bool,
        width: float,
        size: int,
        channels: int,
        supervise: bool,
        dropout: float,
        init: str,
        start: str,
    ) -> None:
        super().__init__()
        scale = partial(scale_channels, "googlenet", width=width)
        convolution = partial(Convolution, batch_norm=batch_norm)
        blocks = {name: Block(*map(scale, block)) for name, block in BLOCKS.items()}
        c1, reduced, c2 = scale(64), scale(64), scale(192)
        pools = Window.of("googlenet", 2, POOL, 2, ceil_mode=True)
        sizes = compute_map_sizes("googlenet", size, 4, pools, Window.of("googlenet", 2, 7, 2, 3))

        self.conv1 = convolution(channels, c1, 7, 2, 3)  # 224 -> 112
        self.norm1 = nn.Identity() if batch_norm else nn.LocalResponseNorm(5)
        self.reduce2 = convolution(c1, reduced, 1)
        self.conv2 = convolution(reduced, c2, 3, padding=1)
        self.norm2 = nn.Identity() if batch_norm else nn.LocalResponseNorm(5)
        incoming, inception = c2, {}
        for name, block in blocks.items():
            inception[name] = Inception(incoming, block, batch_norm)
            incoming = block.out
        self.inception = nn.ModuleDict(inception)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(incoming, classes)
        self.heads = nn.ModuleDict()
        for name in SUPERVISED if supervise else ():
            self.heads[name] = Classifier(blocks[name].out, classes, width, batch_norm)
        initialize(self, init)
        # Pools last, so that they change nothing that the others draw.
        inputs = (c1, c2, blocks["3b"].out, blocks["4e"].out)
        self.pool1, self.pool2, self.pool3, self.pool4 = make_pools(pool, inputs, sizes, start)

    def forward(self, x: Tensor) -> Tensor | Votes:
        heads: list[Tensor] = []
        x = self.norm1(self.pool1(self.conv1(x)))  # 224 -> 112 -> 56
        x = self.pool2(self.norm2(self.conv2(self.reduce2(x))))  # 56 -> 28
        for name, block in self.inception.items():
            x = block(x)
            if self.training and name in self.heads:
                heads.append(self.heads[name](x))
            if name == "3b":
                x = self.pool3(x)  # 28 -> 14
            elif name == "4e":
                x = self.pool4(x)  # 14 -> 7
        votes: Tensor = self.linear(self.dropout(x.mean((2, 3))))
        return Votes(votes, heads) if heads else votes

    def remove_heads(self) -> None:
        """Go on without the classifiers on the way; the state_dict has no ``heads.*`` any more."""
        self.heads = nn.ModuleDict()


def initialize(net: nn.Module, init: str) -> None:
    """Xavier's start values, and biases of 0.2 in convolutions, as Caffe's replication has them."""
    if initialize_by_kaiming("googlenet", net, init):
        return
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0.2 if isinstance(layer, nn.Conv2d) else 0.0)


def googlenet(
    classes: int = 1000,
    *,
    pool: str = "max",
    batch_norm: bool = False,
    width: float = 1.0,
    size: int = 224,
    channels: int = 3,
    supervise: bool = True,
    dropout: float = 0.4,
    init: str = "caffe",
    start: str = "paper",
) -> GoogLeNet:
    """The network for square images of ``size`` pixels; ``pool`` names its four pools of stride 2.

    ``width`` scales all channels and hidden layers but those of the image and the classes. With ``supervise`` there are
    two more classifiers, ``heads.*``, until ``remove_heads``: in training the network then returns ``Votes``. ``init``
    is ``caffe``, the start values of Caffe's replication, or ``kaiming``; ``start`` is the pools' own, here
    the authors', where layers and networks outside the paper have ``spread``.

    >>> sum(p.numel() for p in googlenet(10, pool="gated", width=0.25, size=64, supervise=False).parameters())
    379082
    """
    return GoogLeNet(classes, pool, batch_norm, width, size, channels, supervise, dropout, init, start)
