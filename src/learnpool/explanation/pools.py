"""What ``explain`` knows of one pool: a value for each node of its tree, and where its regions lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ..formatting import format_number
from ..ops.window import Window
from ..tree import Tree
from .positions import Grid

NEAR = 0.05  # a gate below it is near 0, above 1 − it near 1


@dataclass(frozen=True)
class FilterExplanation:
    """A Filter, ``v · x``."""

    name: str
    weight: Tensor  # v, [C|1, *grid|1, *kernel]


@dataclass(frozen=True)
class NumberExplanation:
    """A learned number, such as a gate's gain ``g``: the values in use."""

    name: str
    symbol: str
    value: Tensor  # [C|1, *grid|1]

    @property
    def count(self) -> int:
        return self.value.numel()

    @property
    def mean(self) -> float:
        return float(self.value.mean())

    @property
    def min(self) -> float:
        return float(self.value.min())

    @property
    def max(self) -> float:
        return float(self.value.max())


@dataclass(frozen=True)
class MixExplanation(NumberExplanation):
    """A Mix, ``a left + (1 − a) right``: the proportions in use."""

    left: str
    right: str
    learned: bool

    @property
    def a(self) -> Tensor:
        return self.value


@dataclass(frozen=True)
class ScalarExplanation(NumberExplanation):
    """A leaf with one number, ``β`` of Soft, ``r`` of LogSumExp or ``p`` of Power."""

    @property
    def reaches(self) -> tuple[float, float]:
        """How far from average to max its least and its largest number lie, from 0 to 1; below 0 towards min."""
        return self._get_reach(self.min), self._get_reach(self.max)

    def _get_reach(self, value: float) -> float:
        """β and r count in units of the cells."""
        return 1 - 1 / max(value, 1.0) if self.symbol == "p" else value / (1 + abs(value))

    @property
    def words(self) -> str:
        """``between average and max``, or ``from below average to above average`` where its numbers differ."""
        low, high = map(describe_reach, self.reaches)
        if low == high:
            return low
        words = f"from {low} to {high}"
        return words.replace("between average and min", "below average").replace(
            "between average and max", "above average"
        )


@dataclass(frozen=True)
class RankExplanation:
    """A Rank, ``Σ w_k x_(k)``: one weight for each place in the sorted region, the largest cell first."""

    name: str
    weight: Tensor  # [C|1, *grid|1, *kernel]

    @property
    def rows(self) -> Tensor:
        """The weights of every channel and region, ``[R, places]``."""
        return self.weight.flatten(self.weight.dim() // 2 + 1).flatten(0, -2)

    @property
    def shares(self) -> list[float]:
        """The weights of the places, the mean where they differ by channel or region."""
        mean: list[float] = self.rows.mean(0).tolist()
        return mean

    @property
    def words(self) -> str:
        """``between average and max``, by where the weights lie; where they differ, that of their mean."""
        rows = self.rows
        differs = float((rows - rows.mean(0)).abs().sum(1).max()) > NEAR
        return f"mean of {len(rows)}: " * differs + describe_weights(self.shares)


def describe_weights(weights: Sequence[float]) -> str:
    """``near the median``, ``near average, times 2.00``: weights of places in words, their sum apart."""
    total, size = sum(weights), sum(map(abs, weights))
    if not math.isfinite(total):
        return "not finite"
    if size <= NEAR:
        return f"{'near ' * (size > 0)}zero"
    if abs(total) <= NEAR * size:
        return "no sum: a difference of cells"
    words = describe_order([weight / total for weight in weights])
    return words if abs(total - 1) <= NEAR else f"{words}, times {format_number(total)}"


def describe_order(weights: Sequence[float]) -> str:
    """Weights of sum 1: by the pool from which at most a tenth of them differs, else by their centre and spread."""
    n = len(weights)
    cut = round((n - 1 / sum(w * w for w in weights)) / 2)  # 1 / Σ w² is how many places have weights, if all are equal
    cut = min(max(cut, 0), (n - 1) // 2)
    middle = "near the median" if cut == (n - 1) // 2 else "near a trimmed mean"
    known = {"near average": range(n), middle: range(cut, n - cut), "all but max": {0}, "all but min": {n - 1}}
    peak = max(range(n), key=weights.__getitem__)
    known |= {"near the mean of max and min": {0, n - 1}, f"near cell {peak + 1} of {n}, largest first": {peak}}
    away = {words: sum(abs(w - (k in at) / len(at)) for k, w in enumerate(weights)) / 2 for words, at in known.items()}
    nearest = min(away, key=away.__getitem__)
    if away[nearest] <= 2 * NEAR + 1e-6:
        return nearest
    places = [1 - 2 * k / (n - 1) for k in range(n)]  # from max, 1, to min, −1
    reach = sum(w * place for w, place in zip(weights, places, strict=True))
    if abs(reach) > 1:
        return f"beyond {'max' if reach > 0 else 'min'}"
    if sum(w for w in weights if w < 0) < -2 * NEAR:
        return "weights of both signs"
    if abs(reach) >= NEAR:
        return describe_reach(reach)
    spread = sum(w * place**2 for w, place in zip(weights, places, strict=True)) * n / sum(p**2 for p in places)
    if abs(spread - 1) < 2 * NEAR:
        return "near average"
    return f"between average and the {'median' if spread < 1 else 'mean of max and min'}"


def describe_reach(reach: float) -> str:
    """Where between average (0), max (1) and min (−1) a pool lies, in words."""
    side = "max" if reach > 0 else "min"
    if not math.isfinite(reach):
        return "not finite"
    if abs(reach) < NEAR:
        return "near average"
    return f"all but {side}" if abs(reach) > 1 - NEAR else f"between average and {side}"


@dataclass(frozen=True)
class GateExplanation:
    """A Gate, ``s left + (1 − s) right``, and s over all regions of a batch (or None).

    ``s = σ(ω · x)`` with a mask ω, or ``s = σ(g t + b)`` with what the tree ``by`` gives as t, and no mask.
    """

    name: str
    left: str
    right: str
    weight: Tensor | None  # ω, [C|1, *grid|1, *kernel]
    mean: float | None = None
    near_0: float | None = None  # part of all s below 0.05
    near_1: float | None = None  # above 0.95
    entropy: float | None = None  # mean of −s log₂ s − (1 − s) log₂(1 − s), in bits: 1 undecided, 0 decided
    map: Tensor | None = field(default=None, repr=False)  # s of the batch's first image, [C, *output]
    by: Tree | None = None
    g: NumberExplanation | None = None
    b: NumberExplanation | None = None

    @property
    def numbers(self) -> list[NumberExplanation]:
        """The learned g and b, as far as the gate has them."""
        return [number for number in (self.g, self.b) if number is not None]


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
