"""The paper's network for small images (its Table A1): convolutions, two pools, and a vote of the last map's cells.

An ``mlpconv`` is one 1×1 convolution. Every convolution has a bias, and all but the classifier a ReLU. What the paper
leaves to its predecessor, deeply supervised nets (Lee et al. 2015), is here too: a linear classifier on every 3×3
convolution in training, Gaussian start values, and a learning rate of its own for each kind of parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ..ops.window import Window
from ..parameters import TreeParameters
from .sizes import make_pools, scale_channels

INITS = ("dsn", "kaiming")
NORMS = ("none", "batch")
STRIDED = "conv"  # in place of a pool's name: stride-2 convolutions


@dataclass(frozen=True)
class Table:
    """A column of Table A1; ``Table(size=64, channels=3, classes=17)`` is one for other images, as CIFAR10's."""

    size: int | tuple[int, int]  # of an image
    channels: int
    classes: int
    conv: tuple[int, int, int, int, int, int] = (128, 128, 192, 192, 256, 256)
    mlpconv: tuple[int, int, int] = (128, 192, 256)
    second: int = 3  # window of the second pool

    def __post_init__(self) -> None:
        for what, least in (("channels", 1), ("classes", 2)):
            if getattr(self, what) < least:
                raise ValueError(f"dsn: {what} must be at least {least}, got {getattr(self, what)}")
        if min(self.image) < 4:
            raise ValueError(f"dsn: images must be at least 4×4 for two pools, got {self.image[0]}×{self.image[1]}")

    @property
    def image(self) -> tuple[int, int]:
        return (self.size, self.size) if isinstance(self.size, int) else self.size


MNIST = Table(28, 1, 10, second=2)
TABLES = {
    "mnist": MNIST,
    "fashion-mnist": MNIST,
    "cifar10": Table(32, 3, 10),
    "cifar100": Table(32, 3, 100, (192, 192, 192, 192, 192, 192), (96, 192, 192)),
    "svhn": Table(32, 3, 10, (128, 128, 320, 320, 384, 384), (96, 256, 256)),
    "digits": Table(8, 1, 10),
}


class Votes(NamedTuple):
    """The output of a supervised network in training: its own votes, and those of its heads in order."""

    votes: Tensor
    heads: list[Tensor]


class DSN(nn.Module):
    """``[N, channels, height, width]`` -> ``[N, classes]``, with heads in training ``Votes``; see ``dsn``."""

    def __init__(
        self,
        table: Table,
        pool: str,
        width: float,
        extra: int,
        supervise: bool,
        dropout: float,
        init: str,
        start: str,
        norm: str = "none",
    ) -> None:
        super().__init__()
        c1, c2, c3, c4, c5, c6 = (scale_channels("dsn", c, width) for c in table.conv)
        m1, m2, m3 = (scale_channels("dsn", m, width) for m in table.mlpconv)

        self.conv1 = nn.Conv2d(table.channels, c1, 3, padding=1)
        self.conv2 = nn.Conv2d(c1, c2, 3, padding=1)
        self.mlpconv1 = nn.Conv2d(c2, m1, 1)

        self.conv3 = nn.Conv2d(m1, c3, 3, padding=1)
        self.conv4 = nn.Conv2d(c3, c4, 3, padding=1)
        self.mlpconv2 = nn.Conv2d(c4, m2, 1)

        self.conv5 = nn.Conv2d(m2, c5, 3, padding=1)
        self.conv6 = nn.Conv2d(c5, c6, 3, padding=1)
        self.extra = nn.ModuleList(nn.Conv2d(c6, c6, 3, padding=1) for _ in range(extra))
        self.mlpconv3 = nn.Conv2d(c6, m3, 1)
        self.mlpconv4 = nn.Conv2d(m3, table.classes, 1)
        initialize(self, init)

        outgoing = {name: conv.out_channels for name, conv in self.named_children() if isinstance(conv, nn.Conv2d)}
        outgoing |= {f"extra{k}": c6 for k in range(extra)}
        del outgoing["mlpconv4"]
        self.norms = nn.ModuleDict({name: nn.BatchNorm2d(c) for name, c in outgoing.items()} if norm == "batch" else {})

        # Heads after the rest and pools last, so that neither changes what the others draw.
        first, second, third = compute_map_sizes(table, pool)
        inputs = {"conv1": (c1, first), "conv2": (c2, first), "conv3": (c3, second), "conv4": (c4, second)}
        inputs |= {"conv5": (c5, third), "conv6": (c6, third)} | {f"extra{k}": (c6, third) for k in range(extra)}
        self.heads = nn.ModuleDict()
        for name, (channels, (height, across)) in inputs.items() if supervise else ():
            self.heads[name] = nn.Linear(channels * height * across, table.classes)
        initialize(self.heads, init)
        if pool == STRIDED:
            self.pool1, self.pool2 = make_strided(table, (m1, m2), init)
        else:
            self.pool1, self.pool2 = make_pools(pool, (m1, m2), (second, third), start, kernels=(3, table.second))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor | Votes:
        heads: list[Tensor] = []

        x = self.relu("conv1", self.conv1(x), heads)
        x = self.relu("conv2", self.conv2(x), heads)
        x = self.relu("mlpconv1", self.mlpconv1(x), heads)
        x = self.dropout(self.pool1(x))  # 32 -> 16, MNIST 28 -> 14

        x = self.relu("conv3", self.conv3(x), heads)
        x = self.relu("conv4", self.conv4(x), heads)
        x = self.relu("mlpconv2", self.mlpconv2(x), heads)
        x = self.dropout(self.pool2(x))  # 16 -> 8, MNIST 14 -> 7

        x = self.relu("conv5", self.conv5(x), heads)
        x = self.relu("conv6", self.conv6(x), heads)
        for k, conv in enumerate(self.extra):
            x = self.relu(f"extra{k}", conv(x), heads)
        x = self.relu("mlpconv3", self.mlpconv3(x), heads)
        votes: Tensor = self.mlpconv4(x)  # [N, classes, 8, 8]
        votes = votes.mean((2, 3))
        return Votes(votes, heads) if heads else votes

    def relu(self, name: str, x: Tensor, heads: list[Tensor]) -> Tensor:
        """ReLU of a convolution, normalised first if it has a normalisation; its head, if it has one, is a classifier
        of what comes before the ReLU.
        """
        if name in self.norms:
            x = self.norms[name](x)
        if self.training and name in self.heads:
            heads.append(self.heads[name](x.flatten(1)))
        return F.relu(x)

    def remove_heads(self) -> None:
        """Train on without deep supervision, as DSN does after a while; the state_dict has no ``heads.*`` any more."""
        self.heads = nn.ModuleDict()

    def parameter_groups(self, weight_decay: float, pool_decay: float | None = None) -> list[dict[str, Any]]:
        """DSN's groups for an optimizer; ``factor`` is a multiple of the common rate, ``name`` says whose group it is.

        Biases learn twice as fast and are not decayed; the classifier at a tenth; heads at a thousandth, which is to
        fall with the iterations (``compute_head_factor``). Pools learn at the common rate and are decayed like other
        weights, unless ``pool_decay`` says otherwise.
        """
        kinds = {"weights": 1.0, "classifier": 0.1, "heads": 0.001}
        by_kind: dict[str, list[nn.Parameter]] = {}
        learned = {id(p) for pool in self.modules() if isinstance(pool, TreeParameters) for p in pool.parameters()}
        for name, parameter in self.named_parameters():
            kind = {"heads": "heads", "mlpconv4": "classifier"}.get(name.partition(".")[0], "weights")
            if id(parameter) in learned:
                kind = "pools"
            elif name.endswith("bias"):
                kind += ".bias"
            by_kind.setdefault(kind, []).append(parameter)
        groups: list[dict[str, Any]] = []
        for kind, parameters in by_kind.items():
            of, _, bias = kind.partition(".")
            decay = weight_decay if of != "pools" or pool_decay is None else pool_decay
            factor = kinds.get(of, 1.0) * (2 if bias else 1)
            groups.append(
                {"params": parameters, "name": kind, "factor": factor, "weight_decay": 0.0 if bias else decay}
            )
        return groups


def compute_head_factor(iteration: int) -> float:
    """``(1 + 1e-4 · iteration)^−0.75``: how DSN lets the heads' learning rate fall."""
    return float((1 + 1e-4 * iteration) ** -0.75)


def initialize(net: nn.Module, init: str) -> None:
    """Start values: convolutions N(0, 0.05) as DSN's or Kaiming's, linear heads Xavier's, biases 0."""
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
            elif init == "dsn":
                nn.init.normal_(layer.weight, std=0.05)
            else:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def compute_map_sizes(table: Table, pool: str) -> list[tuple[int, int]]:
    """Height and width of the maps before, between and after the pools."""
    sizes = [table.image]
    for kernel in (3, table.second):
        padding = (kernel - 1) // 2 if pool == STRIDED else 0
        window = Window.of("dsn", 2, kernel, 2, padding, ceil_mode=pool != STRIDED)
        height, across = window.output_size(sizes[-1])
        sizes.append((height, across))
    return sizes


def make_strided(table: Table, channels: Sequence[int], init: str) -> list[nn.Module]:
    """Convolutions with the pools' windows and stride, padded by 1 where 3×3, and a ReLU."""
    layers: list[nn.Module] = []
    for kernel, c in zip((3, table.second), channels, strict=True):
        layers.append(nn.Sequential(nn.Conv2d(c, c, kernel, 2, padding=(kernel - 1) // 2), nn.ReLU()))
        initialize(layers[-1], init)
    return layers


def dsn(
    data: str | Table = "cifar10",
    pool: str = "max",
    *,
    width: float = 1.0,
    extra_convs: int = 0,
    supervise: bool = True,
    dropout: float = 0.5,
    init: str = "dsn",
    start: str = "paper",
    norm: str = "none",
) -> DSN:
    """The network of the paper's Table A1 for a data set by name, or for the images a ``Table`` describes.

    ``pool`` is a name as ``learnpool.parse`` reads it (``tree3+gated`` is the paper's best on CIFAR10), or ``conv`` for
    convolutions of stride 2. ``width`` scales all channels but those of the image and the classes; ``extra_convs`` go
    after the sixth convolution. With ``supervise`` every 3×3 convolution has a classifier of its own, ``heads.*``,
    until ``remove_heads``: in training the network then returns ``Votes``. ``init`` is ``dsn`` or ``kaiming``,
    ``start`` the pools' own, here the authors', where layers and networks outside the paper have ``spread``.
    ``norm="batch"`` normalises behind every convolution but the last, as the paper did not.

    >>> sum(p.numel() for p in dsn("cifar10", "tree3+gated", supervise=False).parameters())
    1859218
    """
    if isinstance(data, str) and data not in TABLES:
        raise ValueError(f"dsn: unknown data {data!r}; known: {', '.join(TABLES)}, or a Table of size and classes")
    if not isinstance(data, (str, Table)):
        raise TypeError(f"dsn: data must be a name or a Table, got {type(data).__name__}")
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ValueError(f"dsn: dropout must be a number of at least 0 and below 1, got {dropout!r}")
    if isinstance(extra_convs, bool) or not isinstance(extra_convs, int) or extra_convs < 0:
        raise ValueError(f"dsn: extra_convs must be an int of at least 0, got {extra_convs!r}")
    if init not in INITS:
        raise ValueError(f"dsn: init must be one of {', '.join(INITS)}, got {init!r}")
    if norm not in NORMS:
        raise ValueError(f"dsn: norm must be one of {', '.join(NORMS)}, got {norm!r}")
    table = TABLES[data] if isinstance(data, str) else data
    return DSN(table, pool, width, extra_convs, supervise, dropout, init, start, norm)
