"""The kinds of responses: every number that is read from a region, with its gradients, in plain PyTorch.

Each is a unit (``unit.py`` lists the parts): most are here, means with a learned number in ``means.py``, and
those that sort in ``rank.py``. ``UNITS`` names them all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..program import Kind
from .means import AbsPower, LogSumExp, Power, Soft
from .rank import Median, Rank
from .unit import Cell, Counts, Unit


class Max(Unit):
    """y = max x_i; ∂y/∂x_i = [i = i*]. The first maximum receives the gradient; NaN wins, the last of several."""

    empty = -torch.inf  # the value of a region without a cell
    ties = "first"

    def __init__(self, like: Tensor, counts: Counts) -> None:
        super().__init__(like, counts)
        self.y = torch.full_like(like, self.empty)
        self.tap = torch.full_like(like, -1, dtype=torch.int32)  # that holds it

    def exceeds(self, x: Tensor) -> Tensor:
        return x > self.y

    def add(self, p: int, cell: Cell) -> None:
        wins = cell.take(self.exceeds(cell.x) | cell.x.isnan() | (self.tap < 0))
        self.y = torch.where(wins, cell.x, self.y)
        self.tap = torch.where(wins, cell.number, self.tap)

    def finish(self) -> Tensor:
        return self.y

    def receive(self, cell: Cell) -> Tensor:
        wins = self.tap == cell.number
        if self.ties == "all":  # as the paper prints it
            wins = (cell.x == self.y) | (cell.x.isnan() & self.y.isnan())
        return torch.where(wins, self.c, 0)


class Min(Max):
    """y = min x_i, in everything else like the maximum."""

    empty = torch.inf

    def exceeds(self, x: Tensor) -> Tensor:
        return x < self.y


class Avg(Unit):
    """y = Σ x_i / n; ∂y/∂x_i = 1 / n."""

    def __init__(self, like: Tensor, counts: Counts) -> None:
        super().__init__(like, counts)
        self.total = torch.zeros_like(like)

    def add(self, p: int, cell: Cell) -> None:
        self.total = self.total + cell.x

    def finish(self) -> Tensor:
        return self.total / self.divisor

    def send(self, c: Tensor) -> None:
        self.c = c / self.divisor

    def receive(self, cell: Cell) -> Tensor:
        return self.c


class Dot(Unit):
    """y = Σ w_i x_i: a filter, or the mask of a gate; ∂y/∂x_i = w_i, ∂y/∂w_i = x_i."""

    def __init__(self, like: Tensor, counts: Counts) -> None:
        super().__init__(like, counts)
        self.y = torch.zeros_like(like)

    def add(self, p: int, cell: Cell) -> None:
        self.y = self.y + cell.keep(self.get_weight(cell) * cell.x)

    def finish(self) -> Tensor:
        return self.y

    def receive(self, cell: Cell) -> Tensor:
        return self.c * self.get_weight(cell)

    def weight(self, cell: Cell) -> Tensor:
        return self.c * cell.x


class Blur(Dot):
    """y = Σ w_i x_i / Σ w_i over the cells that exist; ∂y/∂x_i = w_i / Σ w. The weights are constants."""

    def __init__(self, like: Tensor, counts: Counts) -> None:
        super().__init__(like, counts)
        self.total = torch.zeros_like(like)

    def add(self, p: int, cell: Cell) -> None:
        super().add(p, cell)
        self.total = self.total + cell.keep(self.get_weight(cell))

    def finish(self) -> Tensor:
        return self.y / self.total

    def send(self, c: Tensor) -> None:
        self.c = c / self.total


class Std(Unit):
    """y = sqrt(mean (x_i − μ)²); ∂y/∂x_i = (x_i − μ) / (n y), 0 where all cells are equal."""

    def __init__(self, like: Tensor, counts: Counts) -> None:
        super().__init__(like, counts)
        self.star = torch.full_like(like, torch.nan)  # the first cell
        self.found = torch.zeros_like(like, dtype=torch.bool)
        self.sum = self.squares = torch.zeros_like(like)

    def add(self, p: int, cell: Cell) -> None:
        self.star = torch.where(cell.take(~self.found), cell.x.detach(), self.star)
        self.found = self.found | cell.take(torch.ones_like(self.found))
        d = cell.x - self.star
        self.sum = self.sum + self.collect(cell.keep(d))
        self.squares = self.squares + self.collect(cell.keep(d * d))

    def look(self, x: Tensor) -> None:
        self.star, self.found = x[..., :1].detach(), torch.ones_like(self.found)

    def finish(self) -> Tensor:
        self.mean = self.sum / self.n
        variance = self.squares / self.n - self.mean * self.mean
        variance = torch.where(variance < 0, 0, variance)
        self.equal = variance == 0
        self.y = torch.where(self.equal, 0, torch.where(self.equal, 1, variance).sqrt())
        return self.y

    def send(self, c: Tensor) -> None:
        self.c = torch.where(self.equal, 0, c / (self.n * torch.where(self.equal, 1, self.y)))

    def receive(self, cell: Cell) -> Tensor:
        return self.c * (cell.x - self.star - self.mean)


def reduce(kind: Kind, x: Tensor, theta: Tensor | None) -> Tensor:
    """A response of all cells ``[..., L]`` of one region each, ``[...]``, by reductions instead of taps."""
    like = x.new_zeros((*x.shape[:-1], 1))
    n = like.new_full((), x.shape[-1])
    unit = UNITS[kind](like, Counts(n, n))
    if theta is not None:
        unit.theta = theta[..., None]
    unit.collect = lambda value: value.sum(-1, keepdim=True)  # type: ignore[method-assign]
    unit.look(x)
    unit.add(unit.passes - 1, Cell(0, x, None))
    return unit.finish().squeeze(-1)


UNITS: dict[Kind, type[Unit]] = {
    Kind.MAX: Max,
    Kind.MIN: Min,
    Kind.AVG: Avg,
    Kind.DOT: Dot,
    Kind.STD: Std,
    Kind.SOFT: Soft,
    Kind.LSE: LogSumExp,
    Kind.POWER: Power,
    Kind.ABS_POWER: AbsPower,
    Kind.RANK: Rank,
    Kind.BLUR: Blur,
    Kind.MEDIAN: Median,
}
