"""What ``explain`` knows of one pool: a value for each node of its tree, and where its regions lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from ..ops.window import Window
from ..tree import Tree
from .positions import Grid

NEAR = 0.05  # a gate below it is near 0, above 1 − it near 1


@dataclass(frozen=True)
class MixExplanation:
    """A Mix, ``a left + (1 − a) right``: the proportions in use."""

    name: str
    left: str
    right: str
    learned: bool
    a: Tensor  # [C|1, *grid|1]

    @property
    def mean(self) -> float:
        return float(self.a.mean())

    @property
    def min(self) -> float:
        return float(self.a.min())

    @property
    def max(self) -> float:
        return float(self.a.max())


@dataclass(frozen=True)
class FilterExplanation:
    """A Filter, ``v · x``."""

    name: str
    weight: Tensor  # v, [C|1, *grid|1, *kernel]


@dataclass(frozen=True)
class ScalarExplanation:
    """A leaf with one number, ``β`` of Soft, ``r`` of LogSumExp or ``p`` of Power: the values in use."""

    name: str
    symbol: str
    value: Tensor  # [C|1, *grid|1]

    @property
    def mean(self) -> float:
        return float(self.value.mean())

    @property
    def min(self) -> float:
        return float(self.value.min())

    @property
    def max(self) -> float:
        return float(self.value.max())

    @property
    def reach(self) -> float:
        """How far from average to max, from 0 to 1; below 0 towards min. β and r count in units of the cells."""
        return 1 - 1 / max(self.mean, 1.0) if self.symbol == "p" else self.mean / (1 + abs(self.mean))

    @property
    def words(self) -> str:
        """``between average and max``."""
        return describe_reach(self.reach)


@dataclass(frozen=True)
class RankExplanation:
    """A Rank, ``Σ w_k x_(k)``: one weight for each place in the sorted region, the largest cell first."""

    name: str
    weight: Tensor  # [C|1, *grid|1, *kernel]

    @property
    def shares(self) -> list[float]:
        """The weights of the places, the mean where they differ by channel or region."""
        places = math.prod(self.weight.shape[self.weight.dim() // 2 + 1 :])
        mean: list[float] = self.weight.reshape(-1, places).mean(0).tolist()
        return mean

    @property
    def words(self) -> str:
        """``between average and max``, by where the weights lie; ``near the median`` if their peak is in the middle."""
        total, last = sum(self.shares), max(1, len(self.shares) - 1)
        if not total:
            return "no sum: a difference of cells"
        middle = sum(k * share for k, share in enumerate(self.shares)) / total / last
        peak = max(range(len(self.shares)), key=lambda k: self.shares[k])
        if abs(middle - 0.5) < NEAR and 0 < peak < last and self.shares[peak] > 0.5 * total:
            return "near the median"
        return describe_reach(1 - 2 * middle)


def describe_reach(reach: float) -> str:
    """Where between average (0), max (1) and min (−1) a pool lies, in words."""
    side = "max" if reach > 0 else "min"
    if abs(reach) < NEAR:
        return "near average"
    if abs(reach) > 1 - NEAR:
        return f"all but {side}" if abs(reach) <= 1 else f"beyond {side}"
    return f"between average and {side}"


@dataclass(frozen=True)
class GateExplanation:
    """A Gate, ``s left + (1 − s) right`` with s = σ(ω · x): its mask, and s over all regions of a batch (or None)."""

    name: str
    left: str
    right: str
    weight: Tensor  # ω, [C|1, *grid|1, *kernel]
    mean: float | None = None
    near_0: float | None = None  # part of all s below 0.05
    near_1: float | None = None  # above 0.95
    entropy: float | None = None  # mean of −s log₂ s − (1 − s) log₂(1 − s), in bits: 1 undecided, 0 decided
    map: Tensor | None = field(default=None, repr=False)  # s of the batch's first image, [C, *output]


@dataclass(frozen=True)
class PoolExplanation:
    """One pool of a network."""

    name: str
    tree: Tree
    share: str
    window: Window | None  # None: adaptive
    parameters: int
    tied_to: str | None  # the earlier pool it shares its parameters with
    mixes: tuple[MixExplanation, ...]
    gates: tuple[GateExplanation, ...]
    filters: tuple[FilterExplanation, ...]
    scalars: tuple[ScalarExplanation, ...] = ()
    ranks: tuple[RankExplanation, ...] = ()
    regions: Grid | None = None  # where its regions lie in the batch's first image
