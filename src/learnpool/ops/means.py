"""Means with a learned number θ, by exponentials: ``Soft``, ``LogSumExp`` and ``Power``, from average to maximum."""

from __future__ import annotations

import torch
from torch import Tensor

from .unit import Cell, Counts, Unit

EPSILON = 1e-6  # below it, a power mean sees a cell as this


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
