"""The kinds of responses for a block of lanes at once: the formulas of ``ops/responses.py``, in Triton.

A kind is a line of ``UNITS`` and a case in each of these parts; no other file knows kinds:

=============  =====================================================================================================
``begin``      the state before the first tap
``add``        one tap; ``w`` is the weight at that tap, ``theta`` the kind's number in mix
``add_again``  one tap in a second pass, for kinds that need the extreme of the region first
``finish``     the state after the last tap: y first, then what ``send`` needs
``send``       takes what reaches y, and returns the *slots*, the few numbers a cell needs, and the gradient of theta
``receive``    what one cell gets from one region, of its slots
``weight``     what the weight at one tap gets from one region
``place``      for a kind whose weights belong to places: what ``weight`` is then given, of the region's slots
=============  =====================================================================================================

Slots pass through other lanes or through memory, so each has the dtype of sums; so does the number of a tap, which is
exact below 2²⁴.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from ...program import Kind
from . import rank

MAX = tl.constexpr(int(Kind.MAX))
MIN = tl.constexpr(int(Kind.MIN))
AVG = tl.constexpr(int(Kind.AVG))
DOT = tl.constexpr(int(Kind.DOT))
STD = tl.constexpr(int(Kind.STD))
SOFT = tl.constexpr(int(Kind.SOFT))
LSE = tl.constexpr(int(Kind.LSE))
POWER = tl.constexpr(int(Kind.POWER))
ABS_POWER = tl.constexpr(int(Kind.ABS_POWER))
RANK = tl.constexpr(int(Kind.RANK))
BLUR = tl.constexpr(int(Kind.BLUR))
MEDIAN = tl.constexpr(int(Kind.MEDIAN))
NUMBER = tl.constexpr(-1)  # not a kind: a row of mix, whose gradient is sent as it is
EPSILON = tl.constexpr(1e-6)  # as in ``ops/responses.py``


class Unit(NamedTuple):
    """What the host has to know of a kind."""

    slots: int
    passes: int = 1
    by_tap: bool = False  # one slot for each tap, ``receive`` is given its own; of two, then one for each place
    load: int = 1  # a program covers a part as large as this many others
    taps: int | None = None  # the most it can have; the reference serves larger windows


UNITS = {
    Kind.MAX: Unit(2),
    Kind.MIN: Unit(2),
    Kind.AVG: Unit(1),
    Kind.DOT: Unit(1),
    Kind.STD: Unit(3),
    Kind.SOFT: Unit(4, passes=2, load=2),
    Kind.LSE: Unit(3, passes=2, load=2),
    Kind.POWER: Unit(3, passes=2, load=2),
    Kind.ABS_POWER: Unit(3, passes=2, load=2),
    Kind.RANK: Unit(2, by_tap=True, load=8, taps=25),
    Kind.BLUR: Unit(1),
    Kind.MEDIAN: Unit(1, by_tap=True, load=8, taps=25),
}


@triton.jit
def begin(KIND: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr):
    zero = tl.zeros([BLOCK], ACC)
    none = tl.full([BLOCK], -1, tl.int32)
    if KIND == MAX:
        return (tl.full([BLOCK], float("-inf"), ACC), none)
    elif KIND == MIN:
        return (tl.full([BLOCK], float("inf"), ACC), none)
    elif KIND == AVG:
        return (zero, tl.zeros([BLOCK], tl.int32))
    elif KIND == DOT:
        return (zero,)
    elif KIND == STD:  # the first cell, whether there is one, Σd, Σd²
        return (zero, none, zero, zero)
    elif KIND == SOFT or KIND == LSE:  # x*, theta x*, whether there is one; Σe, Σed, Σed²
        return (zero, zero, none, zero, zero, zero)
    elif KIND == POWER or KIND == ABS_POWER:  # max u, s, t
        return (tl.full([BLOCK], EPSILON, ACC), zero, zero)
    elif KIND == RANK or KIND == MEDIAN:  # for each tap the cell and whether there is one
        return ()
    elif KIND == BLUR:
        return (zero, zero)
    else:
        tl.static_assert(False, "unknown kind of a response")


@triton.jit
def add(state, x, exists, counted, w, theta, tap, KIND: tl.constexpr):
    if KIND == MAX:
        return win(state, x, exists, x > state[0], tap)
    elif KIND == MIN:
        return win(state, x, exists, x < state[0], tap)
    elif KIND == AVG:
        return (state[0] + x, state[1] + counted.to(tl.int32))
    elif KIND == DOT:  # where there is no cell, 0 times an infinite weight would be NaN
        return (tl.where(exists, state[0] + w * x, state[0]),)
    elif KIND == STD:
        star = tl.where(exists & (state[1] < 0), x, state[0])
        d = tl.where(exists, x - star, 0.0)
        return (star, tl.where(exists, 0, state[1]), state[2] + d, state[3] + d * d)
    elif KIND == SOFT or KIND == LSE:
        key = theta * x
        wins = exists & ((key > state[1]) | (key != key) | (state[2] < 0))
        return (tl.where(wins, x, state[0]), tl.where(wins, key, state[1]), tl.where(wins, tap, state[2])) + state[3:]
    elif KIND == POWER or KIND == ABS_POWER:
        u = lift(x, KIND)
        return (tl.where(exists & ((u > state[0]) | (u != u)), u, state[0]), state[1], state[2])
    elif KIND == RANK or KIND == MEDIAN:
        return state + (x, exists)
    elif KIND == BLUR:
        return (tl.where(exists, state[0] + w * x, state[0]), tl.where(exists, state[1] + w, state[1]))


@triton.jit
def add_again(state, x, exists, theta, KIND: tl.constexpr):
    if KIND == SOFT or KIND == LSE:
        d, e = weigh(x, state[0], theta)
        d, e = tl.where(exists, d, 0.0), tl.where(exists, e, 0.0)
        return state[:3] + (state[3] + e, state[4] + e * d, state[5] + e * d * d)
    elif KIND == POWER or KIND == ABS_POWER:
        log = tl.log(lift(x, KIND) / state[0])
        v = tl.where(exists, tl.exp(theta * log), 0.0)
        return (state[0], state[1] + v, state[2] + tl.where(exists, v * log, 0.0))
    else:
        return state


@triton.jit
def finish(
    state, n, theta,
    weight,  # and ``offset``: where the row of a kind whose weights belong to places lies
    offset, alive,
    KIND: tl.constexpr, WINDOW: tl.constexpr, TAPS: tl.constexpr, SHARED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    if KIND == AVG:
        divisor = n
        if not WINDOW[7]:
            divisor = tl.maximum(state[1], 1).to(n.dtype)
        return (state[0] / divisor, divisor)
    elif KIND == STD:
        mean = state[2] / n
        variance = state[3] / n - mean * mean
        return (tl.sqrt(tl.where(variance < 0, 0.0, variance)), state[0], mean)
    elif KIND == SOFT:
        mean = state[4] / state[3]
        return (state[0] + mean, state[0], mean) + state[3:]
    elif KIND == LSE:
        log = tl.log(state[3] / n) / theta
        return (state[0] + log, state[0], log) + state[3:]
    elif KIND == POWER or KIND == ABS_POWER:
        log = tl.log(state[1] / n) / theta
        return (state[0] * tl.exp(log), state[1], state[2], log)
    elif KIND == RANK:
        ranks = rank.find_ranks(state, TAPS)
        shares = rank.find_shares(ranks, n, weight, offset, alive, WINDOW, TAPS, SHARED, ACC)
        return rank.finish_rank(state, n, ranks, shares, TAPS)
    elif KIND == MEDIAN:
        ranks = rank.find_ranks(state, TAPS)
        return rank.finish_rank(state, n, ranks, rank.find_median_shares(ranks, n, TAPS), TAPS)
    elif KIND == BLUR:
        return (state[0] / state[1], state[1])
    else:
        return state


@triton.jit
def send(c, state, n, theta, KIND: tl.constexpr, TAPS: tl.constexpr):
    if KIND == MAX or KIND == MIN:
        return (c, state[1].to(c.dtype)), c
    elif KIND == AVG:
        return (c / state[1],), c
    elif KIND == DOT:
        return (c,), c
    elif KIND == STD:
        return (tl.where(state[0] == 0, 0.0, c / (n * state[0])), state[1], state[2]), c
    elif KIND == SOFT:
        slope = c * (state[5] / state[3] - state[2] * state[2])
        return (c / state[3], state[1], state[2], theta), slope
    elif KIND == LSE:
        return (c / state[3], state[1], theta), c * (state[4] / state[3] - state[2]) / theta
    elif KIND == POWER or KIND == ABS_POWER:
        return (c / n, state[0], theta), c * state[0] / theta * (state[2] / state[1] - state[3])
    elif KIND == RANK or KIND == MEDIAN:
        return rank.send_rank(c, state, n, TAPS), c
    elif KIND == BLUR:
        return (c / state[1],), c


@triton.jit
def receive(slots, x, w, tap, KIND: tl.constexpr):
    if KIND == MAX or KIND == MIN:
        return tl.where(slots[1] == tap, slots[0], 0.0)
    elif KIND == AVG or KIND == RANK or KIND == MEDIAN:
        return slots[0]
    elif KIND == DOT or KIND == BLUR:
        return slots[0] * w
    elif KIND == STD:
        return slots[0] * (x - slots[1] - slots[2])
    elif KIND == SOFT:
        d, e = weigh(x, slots[1], slots[3])
        return slots[0] * e * (1 + slots[3] * (d - slots[2]))
    elif KIND == LSE:
        return slots[0] * weigh(x, slots[1], slots[2])[1]
    elif KIND == POWER or KIND == ABS_POWER:
        ratio = slots[0] * tl.exp((slots[2] - 1) * tl.log(lift(x, KIND) / slots[1]))
        slope = tl.where(x <= EPSILON, 0.0, 1.0)
        if KIND == ABS_POWER:
            slope -= tl.where(x >= -EPSILON, 0.0, 1.0)
        return ratio * slope


@triton.jit
def weight(slot, x, exists, KIND: tl.constexpr):
    if KIND == DOT:
        return tl.where(exists, slot * x, 0.0)
    elif KIND == RANK or KIND == NUMBER:
        return slot


@triton.jit
def place(slots, number, KIND: tl.constexpr, WINDOW: tl.constexpr, TAPS: tl.constexpr):
    tl.static_assert(KIND == RANK, "only the weights of ranks belong to places")
    return rank.find_place(slots, number, WINDOW, TAPS)


@triton.jit
def win(state, x, exists, better, tap):
    """An extreme and its tap: NaN wins and the last of several stays; of equal cells the first stays."""
    wins = exists & (better | (x != x) | (state[1] < 0))
    return (tl.where(wins, x, state[0]), tl.where(wins, tap, state[1]))


@triton.jit
def weigh(x, star, theta):
    """d = x − x* and e = exp(theta d); both 0 where e is, so that −inf beside ordinary cells counts for nothing."""
    d = x - star
    e = tl.exp(theta * d)
    return tl.where(e == 0, 0.0, d), e


@triton.jit
def lift(x, KIND: tl.constexpr):
    """max(x, ε), or of |x|; NaN stays."""
    if KIND == ABS_POWER:
        x = tl.abs(x)
    return tl.where(x <= EPSILON, EPSILON, x)
