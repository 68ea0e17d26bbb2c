"""The leaves of the grammar: what is read from a region **x** of N cells.

====================  ==============================  ================================================
``Max()  Min()``      max x_i, min x_i
``Avg()``             mean x_i
``Std()``             standard deviation of x_i
``Filter()``          v · x                           v learned, or fixed ``values``
``Blur()``            Σ v_i x_i / Σ v_i               v fixed: binomial; sums over existing cells
``Soft(beta)``        Σ x_i e^{βx_i} / Σ e^{βx_i}     β learned or fixed; 0 is Avg, ±∞ are Max and Min
``LogSumExp(r)``      ln(mean e^{r x_i}) / r          r learned or fixed, in [0.1, 100]
``Power(p)``          (mean max(x_i, ε)^p)^{1/p}      p learned or fixed, in [1, 64]; or of abs(x_i)
``Rank()``            Σ_k w_k x_(k)                   w learned, or fixed; x_(1) is the largest cell
``Median()``          the middle of the sorted cells
====================  ==============================  ================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from .nodes import (
    OPEN,
    UNBOUNDED,
    Domain,
    Leaf,
    check_number,
    check_switch,
    encode_value,
    encode_values,
    flatten_values,
)

__all__ = ["Avg", "Blur", "Filter", "LogSumExp", "Max", "Median", "Min", "Power", "Rank", "Soft", "Std"]


class Code(IntEnum):
    """The kind of a node in a program; kernels in other languages use the same numbers."""

    MAX = 0
    AVG = 1
    FILTER = 2
    MIX = 3
    GATE = 4
    FIXED = 5  # a Mix that does not learn; its a follows
    MIN = 6
    STD = 7
    SOFT = 8  # 1, or 0 and β; LSE, POWER and ABS_POWER alike
    LSE = 9
    POWER = 10
    ABS_POWER = 11
    RANK = 12  # 0, or the number of taps and their values; CONSTANT_FILTER and BLUR alike
    CONSTANT_FILTER = 13
    BLUR = 14
    GATE_BY = 15  # a Gate that a third child decides; 1 if it has a bias
    MEDIAN = 16


class Kind(IntEnum):
    """The kind of a response; kernels in other languages use the same numbers."""

    MAX = 0
    MIN = 1
    AVG = 2
    DOT = 3
    STD = 4
    SOFT = 5
    LSE = 6
    POWER = 7
    ABS_POWER = 8
    RANK = 9
    BLUR = 10
    MEDIAN = 11


class Reading(NamedTuple):
    """How a leaf is read: with nothing but the cells, with a row of weight, or with a number from its domain."""

    kind: Kind
    taps: bool = False
    domain: Domain | None = None


READINGS = {
    Code.MAX: Reading(Kind.MAX),
    Code.MIN: Reading(Kind.MIN),
    Code.AVG: Reading(Kind.AVG),
    Code.FILTER: Reading(Kind.DOT, taps=True),
    Code.CONSTANT_FILTER: Reading(Kind.DOT, taps=True),
    Code.STD: Reading(Kind.STD),
    Code.SOFT: Reading(Kind.SOFT, domain=UNBOUNDED),
    Code.LSE: Reading(Kind.LSE, domain=(0.1, 100.0)),
    Code.POWER: Reading(Kind.POWER, domain=(1.0, 64.0)),
    Code.ABS_POWER: Reading(Kind.ABS_POWER, domain=(1.0, 64.0)),
    Code.RANK: Reading(Kind.RANK, taps=True),
    Code.BLUR: Reading(Kind.BLUR, taps=True),
    Code.MEDIAN: Reading(Kind.MEDIAN),
}


class Max(Leaf):
    """``max x_i``."""

    __slots__ = ()
    _code = Code.MAX


class Min(Leaf):
    """``min x_i``."""

    __slots__ = ()
    _code = Code.MIN


class Avg(Leaf):
    """``mean x_i``."""

    __slots__ = ()
    _code = Code.AVG


class Std(Leaf):
    """The standard deviation, ``sqrt(mean (x_i − mean)²)``; its gradient is 0 where all cells are equal."""

    __slots__ = ()
    _code = Code.STD


class _TapLeaf(Leaf):
    """A leaf with one number for each tap: learned, or the given ``values``."""

    __slots__ = ("learn", "shape", "values")
    values: tuple[float, ...] | None
    shape: tuple[int, ...] | None  # of the values, if they were given in rows

    def __init__(self, values: Any = None, learn: bool | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        check_switch(name, "learn", learn, none=True)
        if (values is None) != (learn is None or learn):
            raise ValueError(f"{name}: values and learn=False belong together, got values={values!r}, learn={learn!r}")
        self.values, self.shape = (None, None) if values is None else flatten_values(name, values)
        self.learn = values is None

    def _options(self) -> str:
        return "" if self.values is None else f", values={list(self.values)!r}, learn=False"


class Filter(_TapLeaf):
    """``v · x`` with a learned filter ``v``, or fixed ``values``, one for each tap row by row, and ``learn=False``."""

    __slots__ = ()
    _code = Code.FILTER

    def _encode(self, kernel: tuple[int, ...] | None) -> Iterable[int]:
        return (Code.FILTER,) if self.values is None else (Code.CONSTANT_FILTER, *encode_values(self.values))


class Rank(_TapLeaf):
    """``Σ_k w_k x_(k)``: one weight for each place in the sorted region, the largest cell first; starts as the average.

    ``values`` with ``learn=False`` are fixed weights: ``[1, 0, …]`` is the maximum, ``[…, 0, 1]`` the minimum. Where a
    region has fewer cells than the window has taps, each cell takes the weights of its part of the order, so that
    maximum, minimum and average stay exact, and the median of an odd number of taps; ``Median()`` is exact with any.
    Equal cells keep the order of the taps, and NaN counts as largest.
    """

    __slots__ = ()
    _code = Code.RANK

    def _encode(self, kernel: tuple[int, ...] | None) -> Iterable[int]:
        return (Code.RANK, 0) if self.values is None else (Code.RANK, *encode_values(self.values))


class Median(Leaf):
    """The median of the cells that exist: the middle of the sorted region, or the mean of the middle two.

    NaN counts as largest. Of equal cells the one of the lowest tap is first in the order, as in ``Rank``.
    """

    __slots__ = ()
    _code = Code.MEDIAN


class Blur(Leaf):
    """``Σ v_i x_i / Σ v_i`` over existing cells; ``v`` is binomial, such as ``[1, 2, 1] / 4``, or ``values``.

    Values may be 0; at a border where only cells of such values exist, 0 / 0 is NaN.
    """

    __slots__ = ("shape", "values")
    values: tuple[float, ...] | None
    shape: tuple[int, ...] | None  # as in Filter
    _code = Code.BLUR

    def __init__(self, values: Any = None) -> None:
        super().__init__()
        self.values, self.shape = (None, None) if values is None else flatten_values("Blur", values)
        if self.values is not None and (min(self.values) < 0 or max(self.values) == 0):
            raise ValueError(f"Blur: values must be at least 0 and not all 0, got {list(self.values)}")

    def _encode(self, kernel: tuple[int, ...] | None) -> Iterable[int]:
        values = self.values or (None if kernel is None else make_binomial(kernel))
        return self._code, *((OPEN,) if values is None else encode_values(values))

    def _options(self) -> str:
        return "" if self.values is None else f", values={list(self.values)!r}"


class _ScalarLeaf(Leaf):
    """A leaf with one number θ, learned or fixed, that stays in its domain."""

    __slots__ = ("learn", "theta")
    _letter: ClassVar[str]

    def __init__(self, theta: float, learn: bool = True) -> None:
        super().__init__()
        name = type(self).__name__
        self.theta = check_number(name, self._letter, theta, READINGS[self._code].domain or (0, 0))
        check_switch(name, "learn", learn)
        self.learn = learn

    def _encode(self, kernel: tuple[int, ...] | None) -> Iterable[int]:
        return (self._code, 1) if self.learn else (self._code, 0, encode_value(self.theta))

    def _starts(self) -> tuple[float, ...]:
        return (self.theta,) if self.learn else ()

    def _options(self) -> str:
        return f", {self._letter}={self.theta!r}" + ("" if self.learn else ", learn=False")


class Soft(_ScalarLeaf):
    """``Σ x_i e^{βx_i} / Σ e^{βx_i}``: β = 0 is average, large β maximum, −β minimum; fixed β = 1 is SoftPool."""

    __slots__ = ()
    _code, _letter = Code.SOFT, "beta"

    def __init__(self, beta: float = 1.0, learn: bool = True) -> None:
        super().__init__(beta, learn)


class LogSumExp(_ScalarLeaf):
    """``ln(mean e^{r x_i}) / r``: from the average (small r) to the maximum (large r)."""

    __slots__ = ()
    _code, _letter = Code.LSE, "r"

    def __init__(self, r: float = 1.0, learn: bool = True) -> None:
        super().__init__(r, learn)


class Power(_ScalarLeaf):
    """``(mean max(x_i, ε)^p)^{1/p}``, ε = 1e-6: GeM over windows; ``absolute=True`` is the power mean of ``|x_i|``."""

    __slots__ = ("absolute",)
    _code, _letter = Code.POWER, "p"

    def __init__(self, p: float = 3.0, learn: bool = True, absolute: bool = False) -> None:
        super().__init__(p, learn)
        check_switch("Power", "absolute", absolute)
        self.absolute = absolute

    def _encode(self, kernel: tuple[int, ...] | None) -> Iterable[int]:
        _, *rest = super()._encode(kernel)
        return (Code.ABS_POWER if self.absolute else Code.POWER), *rest

    def _options(self) -> str:
        return super()._options() + (", absolute=True" if self.absolute else "")


def make_binomial(kernel: Sequence[int]) -> tuple[float, ...]:
    """The binomial filter of a window, row by row, with sum 1: for 3×3 the outer product of [1, 2, 1] / 4."""
    values = [1.0]
    for k in kernel:
        row = [math.comb(k - 1, i) / 2 ** (k - 1) for i in range(k)]
        values = [value * factor for value in values for factor in row]
    return tuple(values)
