"""``Rank`` and ``Median``: weights for the places of a sorted region."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .unit import Cell, Counts, Unit


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
        exporting = torch.onnx.is_in_onnx_export()  # to ONNX, which has no stable sort: only gradients would need it
        known = torch.where(exist, x.detach(), -torch.inf)
        order = (known.sort(-1, True) if exporting else known.sort(dim=-1, descending=True, stable=True)).indices
        if not exporting:
            missing = (~exist).gather(-1, order).to(torch.int8)
            order = order.gather(-1, missing.sort(dim=-1, stable=True).indices)  # cells that do not exist come last
        self.order = order
        self.sorted = torch.where(exist.gather(-1, order), x.gather(-1, order), 0)
        self.shares = self.find_shares(len(self.cells))
        return _multiply(self.shares, self.sorted).sum(-1)

    def find_shares(self, seen: int) -> Tensor:
        """The share of each place, ``[C|1, *output|1, seen]``."""
        taps = self.row.shape[-1]
        overlaps = _compute_overlaps(taps, seen, self.like)[self.n.to(torch.int64)]  # [*output|1, j, k]
        self.overlaps = overlaps
        shares = (overlaps[..., k] * self.row[..., k : k + 1] for k in range(taps))
        return torch.stack(list(shares)).sum(0)

    def send(self, c: Tensor) -> None:
        self.c, self.place = c, self.order.argsort(-1)  # the place of each tap in the order

    def receive(self, cell: Cell) -> Tensor:
        shares = self.shares.expand_as(self.sorted).gather(-1, self.place)
        return self.c * shares[..., self.at[cell.number]]

    def weight(self, cell: Cell) -> Tensor:
        return self.c * _multiply(self.overlaps[..., cell.number], self.sorted).sum(-1)


class Median(Rank):
    """y = the middle of the n sorted cells, or the mean of the middle two, which then get c / 2 each."""

    def find_shares(self, seen: int) -> Tensor:
        place = torch.arange(seen, dtype=self.like.dtype, device=self.like.device)
        distance = 2 * place + 1 - self.n[..., None]
        return torch.where(place < self.n[..., None], (1 - distance.abs() / 2).clamp(min=0), 0)


def find_median(x: Tensor) -> Tensor:
    """The median of the last axis, NaN largest; ``torch.median`` would take the lower of the middle two."""
    stable = not torch.onnx.is_in_onnx_export()  # as in Rank
    x, n = (x.sort(dim=-1, descending=True, stable=True) if stable else x.sort(-1, True)).values, x.shape[-1]
    return (x[..., (n - 1) // 2] + x[..., n // 2]) / 2


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
