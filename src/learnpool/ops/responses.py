"""The kinds of responses: every number that is read from a region, with its gradients, in plain PyTorch.

A *unit* is one kind. The loops of ``reference.py`` hand it the cells of all regions tap by tap, ``[N, C, *output]``:

===================  ============================================================================================
``passes``           how often it has to see the taps
``add(p, cell)``     one tap in pass p; nothing is written in place, so the same code serves exporters and autograd
``finish()``         y, the response
``send(c)``          takes c, what reaches the response, and returns the gradient of θ (None if there is no θ)
``receive(cell)``    what one cell gets
``weight(cell)``     what the weight of one tap gets; of one place, for a unit whose weights belong to places
===================  ============================================================================================

θ is the learned number of a unit, w the weight of the present tap, n the cells of a region that exist. Differences are
taken from an extreme x* of the region, so that nothing overflows; the result does not depend on x*, so autograd may
treat it as a constant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..program import Kind

EPSILON = 1e-6  # below it, a power mean sees a cell as this


class Cell(NamedTuple):
    """The cells under one tap."""

    number: int  # of the tap, from 0, row by row
    x: Tensor  # 0 where there is none
    exists: Tensor | None  # None: everywhere

    def keep(self, value: Any, other: Any = 0) -> Any:
        """``value`` where there is a cell, else ``other``."""
        return value if self.exists is None else torch.where(self.exists, value, other)

    def take(self, wins: Tensor) -> Tensor:
        """``wins`` where there is a cell."""
        return wins if self.exists is None else wins & self.exists


class Counts(NamedTuple):
    """How many cells a region has."""

    n: Tensor  # that exist
    divisor: Tensor  # of an average: with padding if count_include_pad says so, and at least 1


class Unit:
    """A response with its state.

    ``like`` has the output's shape ``[N, C, *output]``; ``row`` is the unit's row of weight, ``[C|1, *grid|1, taps]``,
    and ``theta`` its row of mix, ``[C|1, *grid|1]``.
    """

    passes = 1
    by_place = False  # whether its weights belong to places in an order, not to taps
    row: Tensor
    theta: Tensor

    def __init__(self, like: Tensor, counts: Counts) -> None:
        self.like, self.n, self.divisor = like, counts.n, counts.divisor

    def get_weight(self, cell: Cell) -> Tensor:
        """w at a tap."""
        return self.row[..., cell.number]

    def look(self, x: Tensor) -> None:
        """All passes but the last at once, for the cells ``[..., L]`` of one region each; see ``reduce``."""
        raise NotImplementedError(f"{type(self).__name__} needs taps")

    @staticmethod
    def collect(value: Tensor) -> Tensor:
        """What a pass adds to a sum: the value under a tap; for ``reduce`` the sum over all cells."""
        return value

    def add(self, p: int, cell: Cell) -> None:
        raise NotImplementedError

    def finish(self) -> Tensor:
        raise NotImplementedError

    def send(self, c: Tensor) -> Tensor | None:
        self.c = c
        return None

    def receive(self, cell: Cell) -> Tensor:
        raise NotImplementedError

    def weight(self, cell: Cell) -> Tensor:
        raise NotImplementedError


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


class _Exponential(Unit):
    """What Soft and LogSumExp share: x* with the largest θx, d = x − x*, e = exp(θd), and the means of d under e."""

    passes = 2

    def __init__(self, like: Tensor, counts: Counts) -> None:
        super().__init__(like, counts)
        self.star, self.key = torch.zeros_like(like), torch.full_like(like, -torch.inf)
        self.found = torch.zeros_like(like, dtype=torch.bool)
        self.e0 = self.e1 = self.e2 = torch.zeros_like(like)

    def weigh(self, cell: Cell) -> tuple[Tensor, Tensor]:
        """d and e of a cell; both 0 where e is, so that −inf beside ordinary cells counts for nothing."""
        d = cell.x - self.star
        gone = (self.theta * d).detach().exp() == 0
        gone = gone if cell.exists is None else gone | ~cell.exists
        d = torch.where(gone, 0, d)
        return d, torch.where(gone, 0, (self.theta * d).exp())

    def add(self, p: int, cell: Cell) -> None:
        if p == 0:
            key = (self.theta * cell.x).detach()
            wins = cell.take((key > self.key) | key.isnan() | ~self.found)
            self.key = torch.where(wins, key, self.key)
            self.star = torch.where(wins, cell.x.detach(), self.star)
            self.found = self.found | wins
        else:
            d, e = self.weigh(cell)
            self.e0 = self.e0 + self.collect(e)
            self.e1 = self.e1 + self.collect(e * d)
            self.e2 = self.e2 + self.collect(e * d * d)

    def look(self, x: Tensor) -> None:
        self.star = x.detach().gather(-1, (self.theta * x).detach().argmax(-1, keepdim=True))


class Soft(_Exponential):
    """y = Σ x_i e^{θx_i} / Σ e^{θx_i}; with p_i = e_i / Σe, ∂y/∂x_i = p_i (1 + θ (x_i − y)), ∂y/∂θ = E[d²] − E[d]²."""

    def finish(self) -> Tensor:
        self.mean = self.e1 / self.e0
        return self.star + self.mean

    def send(self, c: Tensor) -> Tensor:
        self.c = c / self.e0
        return c * (self.e2 / self.e0 - self.mean * self.mean)

    def receive(self, cell: Cell) -> Tensor:
        d, e = self.weigh(cell)
        return self.c * e * (1 + self.theta * (d - self.mean))


class LogSumExp(_Exponential):
    """y = x* + ln(Σe / n) / θ; ∂y/∂x_i = e_i / Σe, ∂y/∂θ = (E[d] − ln(Σe / n) / θ) / θ."""

    def finish(self) -> Tensor:
        self.log = (self.e0 / self.n).log() / self.theta
        return self.star + self.log

    def send(self, c: Tensor) -> Tensor:
        self.c = c / self.e0
        return c * (self.e1 / self.e0 - self.log) / self.theta

    def receive(self, cell: Cell) -> Tensor:
        return self.c * self.weigh(cell)[1]


class Power(Unit):
    """y = (Σ u_i^θ / n)^{1/θ} with u = max(x, ε); ∂y/∂x_i = (u_i / y)^{θ−1} / n, 0 for x ≤ ε.

    ∂y/∂θ = (y / θ) (t / s − ln(s / n) / θ) with v = u / max u, s = Σ v^θ, t = Σ v^θ ln v.
    """

    passes = 2

    def __init__(self, like: Tensor, counts: Counts) -> None:
        super().__init__(like, counts)
        self.top = torch.full_like(like, EPSILON)
        self.s = self.t = torch.zeros_like(like)

    def lift(self, x: Tensor) -> Tensor:
        """u of a cell."""
        return torch.where(x <= EPSILON, EPSILON, x)

    def slope(self, x: Tensor) -> Tensor:
        """∂u/∂x."""
        return torch.where(x <= EPSILON, 0.0, torch.ones_like(x))

    def add(self, p: int, cell: Cell) -> None:
        u = self.lift(cell.x)
        if p == 0:
            self.top = torch.where(cell.take((u > self.top) | u.isnan()), u.detach(), self.top)
        else:
            log = (u / self.top).log()
            v = cell.keep((self.theta * log).exp())
            self.s, self.t = self.s + self.collect(v), self.t + self.collect(cell.keep(v * log))

    def look(self, x: Tensor) -> None:
        self.top = self.lift(x).detach().amax(-1, keepdim=True)

    def finish(self) -> Tensor:
        self.log = (self.s / self.n).log() / self.theta
        self.y = self.top * self.log.exp()
        return self.y

    def send(self, c: Tensor) -> Tensor:
        self.c = c / self.n
        return c * self.y / self.theta * (self.t / self.s - self.log)

    def receive(self, cell: Cell) -> Tensor:
        ratio = ((self.theta - 1) * (self.lift(cell.x) / self.y).log()).exp()
        return self.c * ratio * self.slope(cell.x)


class AbsPower(Power):
    """``Power`` of |x|: the power mean that ``nn.LPPool2d`` is up to a factor; ∂u/∂x is the sign of x."""

    def lift(self, x: Tensor) -> Tensor:
        return super().lift(x.abs())

    def slope(self, x: Tensor) -> Tensor:
        return super().slope(x.abs()) * x.sign()


class Rank(Unit):
    """y = Σ_j share_j x_(j), x_(0) the largest; equal cells by tap, NaN largest. ∂y/∂x_(j) = share_j.

    With K taps and n cells, share_j = Σ_k w_k K |[j/n, (j+1)/n) ∩ [k/K, (k+1)/K)|; for n = K that is w_j. A share of
    exactly 0 does not read its cell. Sorting needs all cells of a region at once, so this unit alone keeps them.
    """

    by_place = True

    def __init__(self, like: Tensor, counts: Counts) -> None:
        super().__init__(like, counts)
        self.cells: list[Tensor] = []
        self.exist: list[Tensor] = []
        self.at: dict[int, int] = {}  # tap -> its index among those seen

    def add(self, p: int, cell: Cell) -> None:
        self.at[cell.number] = len(self.cells)
        self.cells.append(cell.x.expand_as(self.like))
        self.exist.append(cell.take(torch.ones_like(self.like, dtype=torch.bool)))

    def finish(self) -> Tensor:
        if not self.cells:  # no region has any
            self.cells, self.exist = [self.like], [torch.zeros_like(self.like, dtype=torch.bool)]
        x, exist = torch.stack(self.cells, -1), torch.stack(self.exist, -1)  # [N, C, *output, seen]
        exporting = (
            torch.onnx.is_in_onnx_export()
        )  # ONNX has no stable sort; there is no gradient to give to equal cells
        known = torch.where(exist, x.detach(), -torch.inf)
        order = (known.sort(-1, True) if exporting else known.sort(dim=-1, descending=True, stable=True)).indices
        if not exporting:
            missing = (~exist).gather(-1, order).to(torch.int8)
            order = order.gather(-1, missing.sort(dim=-1, stable=True).indices)  # cells that do not exist come last
        self.order = order
        self.sorted = torch.where(exist.gather(-1, order), x.gather(-1, order), 0)
        taps, seen = self.row.shape[-1], len(self.cells)
        overlaps = _compute_overlaps(taps, seen, self.like)[self.n.to(torch.int64)]  # [*output|1, j, k]
        self.overlaps = overlaps
        shares = (overlaps[..., k] * self.row[..., k : k + 1] for k in range(taps))
        self.shares = torch.stack(list(shares)).sum(0)  # [C|1, *output|1, seen]
        return _multiply(self.shares, self.sorted).sum(-1)

    def send(self, c: Tensor) -> None:
        self.c, self.place = c, self.order.argsort(-1)  # the place of each tap in the order

    def receive(self, cell: Cell) -> Tensor:
        shares = self.shares.expand_as(self.sorted).gather(-1, self.place)
        return self.c * shares[..., self.at[cell.number]]

    def weight(self, cell: Cell) -> Tensor:
        return self.c * _multiply(self.overlaps[..., cell.number], self.sorted).sum(-1)


def _multiply(share: Any, x: Tensor) -> Tensor:
    """``share x``; a share of exactly 0 does not read x, be it infinite or NaN, but has its derivative."""
    plain = share * x
    return torch.where((share == 0) & ~x.isfinite(), 0, plain)


def _compute_overlaps(taps: int, seen: int, like: Tensor) -> Tensor:
    """How much of weight k the j-th of n cells takes, ``[n, j, k]`` for all n: exact quotients of integers."""
    n = torch.arange(seen + 1, device=like.device)[:, None, None]
    j, k = torch.arange(seen, device=like.device)[:, None], torch.arange(taps, device=like.device)
    whole = (torch.minimum((j + 1) * taps, (k + 1) * n) - torch.maximum(j * taps, k * n)).clamp(min=0)
    return torch.where(j < n, whole, 0).to(like.dtype) / n.clamp(min=1)


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
}
