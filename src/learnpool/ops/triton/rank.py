"""``Rank`` and ``Median`` for a block of lanes: the place of each cell in the sorted region, and what weights get.

All cells of a region are in registers at once. A cell's rank is the number of cells before it, from comparing all
pairs; what depends on its rank is computed tap by tap, so nothing is ever permuted.
"""

import triton
import triton.language as tl

from .regions import read_weight


@triton.jit
def make_key(x, exists):
    """An integer that is larger for a larger cell: NaN has the largest, a cell that does not exist the smallest."""
    if x.dtype == tl.float64:
        bits = tl.where(x == 0, 0.0, x).to(tl.int64, bitcast=True)  # −0 and 0 are equal
        key = tl.where(x != x, 0x7FFFFFFFFFFFFFFF, bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF))
        return tl.where(exists, key, -0x8000000000000000)
    else:
        bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
        key = tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
        return tl.where(exists, key, -0x80000000)


@triton.jit
def find_ranks(state, TAPS: tl.constexpr):
    """The rank of each tap's cell: larger cells come before it, and equal ones of lower taps."""
    keys = ()
    for i in tl.static_range(TAPS):
        keys = keys + (make_key(state[2 * i], state[2 * i + 1]),)
    ranks = ()
    for i in tl.static_range(TAPS):
        rank = tl.zeros_like(keys[0]).to(tl.int32)
        for j in tl.static_range(TAPS):
            if j < i:
                rank += (keys[j] >= keys[i]).to(tl.int32)
            elif j > i:
                rank += (keys[j] > keys[i]).to(tl.int32)
        ranks = ranks + (rank,)
    return ranks


@triton.jit
def overlap(rank, place, n, TAPS: tl.constexpr):
    """n times the part of a weight that the cell of a rank takes: none if that is not positive.

    In n TAPS units the region's n cells lie side by side, TAPS units each, and so do its TAPS weights, n units each.
    """
    cell = rank.to(n.dtype) * TAPS
    weight = place * n
    return tl.minimum(cell + TAPS, weight + n) - tl.maximum(cell, weight)


@triton.jit
def find_shares(
    ranks, n, weight, offset, alive, WINDOW: tl.constexpr, TAPS: tl.constexpr, SHARED: tl.constexpr, ACC: tl.constexpr
):
    """The share of each tap's cell; where all cells exist, the weight of its rank."""
    shares = ()
    if WINDOW[7]:
        for i in tl.static_range(TAPS):
            shares = shares + (tl.load(weight + (offset + ranks[i]), mask=alive, other=0.0).to(ACC),)
        return shares
    else:
        for _ in tl.static_range(TAPS):
            shares = shares + (tl.zeros_like(n),)
        for place in range(TAPS):
            w = read_weight(weight, offset + place, alive, SHARED, ACC)
            new = ()
            for i in tl.static_range(TAPS):
                part = overlap(ranks[i], place, n, TAPS)
                new = new + (shares[i] + tl.where(part > 0, part * w, 0.0),)
            shares = new
        quotients = ()
        for i in tl.static_range(TAPS):
            quotients = quotients + (shares[i] / tl.maximum(n, 1.0),)
        return quotients


@triton.jit
def find_median_shares(ranks, n, TAPS: tl.constexpr):
    """1 for the middle of n cells, or 1/2 for each of the middle two."""
    shares = ()
    for i in tl.static_range(TAPS):
        rank = ranks[i].to(n.dtype)
        distance = 2 * rank + 1 - n
        beside = (distance * distance == 1) & (rank < n)
        shares = shares + (tl.where(distance == 0, 1.0, tl.where(beside, 0.5, 0.0)).to(n.dtype),)
    return shares


@triton.jit
def finish_rank(state, n, ranks, shares, TAPS: tl.constexpr):
    """y, then the shares, ranks and cells of all taps."""
    y = tl.zeros_like(n)
    cells = ()
    for i in tl.static_range(TAPS):
        y += tl.where(shares[i] == 0, 0.0, shares[i] * state[2 * i])  # a share of 0 does not read inf or NaN
        cells = cells + (state[2 * i],)
    return (y,) + shares + ranks + cells


@triton.jit
def send_rank(c, state, n, TAPS: tl.constexpr):
    """What the cell of each tap gets, then what ``find_place`` needs: c, n, the ranks and the cells."""
    slots = ()
    for i in tl.static_range(TAPS):
        slots = slots + (c * state[1 + i],)
    return slots + (c, n) + state[1 + TAPS :]


@triton.jit
def find_place(slots, place, WINDOW: tl.constexpr, TAPS: tl.constexpr):
    """What the weight of one place gets: c times the cells that take part of it."""
    c, n = slots[TAPS], slots[TAPS + 1]
    total = tl.zeros_like(c)
    for i in tl.static_range(TAPS):
        rank, x = slots[TAPS + 2 + i], slots[2 * TAPS + 2 + i]
        if WINDOW[7]:
            total = tl.where(rank == place, x, total)
        else:
            part = overlap(rank, place, n, TAPS)
            total += tl.where(part > 0, part * x, 0.0)
    if WINDOW[7]:
        return c * total
    else:
        return c * (total / tl.maximum(n, 1.0))
