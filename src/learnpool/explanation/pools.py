"""What ``explain`` knows of one pool: a value for each node of its tree, and where its regions lie."""

from __future__ import annotations

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
    regions: Grid | None = None  # where its regions lie in the batch's first image
