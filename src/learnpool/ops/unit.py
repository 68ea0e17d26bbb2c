"""What a kind of response has to say: the parts of a *unit*, and the cells and counts it is given.

The loops of ``reference.py`` hand a unit the cells of all regions tap by tap, ``[N, C, *output]``:

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


class Cell(NamedTuple):
    """The cells under one tap."""

    number: int  # of the tap, from 0, row by row
    x: Tensor  # 0 where there is none
    exists: Tensor | None  # None: everywhere

    def keep(self, value: Any) -> Any:
        """``value`` where there is a cell, else 0."""
        return value if self.exists is None else torch.where(self.exists, value, 0)

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
