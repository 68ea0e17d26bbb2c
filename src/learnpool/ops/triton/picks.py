"""The kernel of stochastic pooling: which cell of a region is picked, by the equations of ``ops/stochastic.py``.

Random numbers are hashes of image, channel and place, bit for bit those of ``ops/uniform.py``: a GPU picks the cells a
CPU picks. Names in capitals are those of ``regions.py``.
"""

import triton
import triton.language as tl

from .regions import UNROLLED, find_offset, find_places, find_start, find_tile, is_finite, read_cell


@triton.jit
def mix_bits(v):
    """``uniform._mix``."""
    v = (v ^ (v >> 16)) * tl.full([1], 0x7FEB352D, tl.uint32)
    v = (v ^ (v >> 15)) * tl.full([1], 0x846CA68B, tl.uint32)
    return v ^ (v >> 16)


@triton.jit
def hash_index(index, low, high):
    """``uniform._hash``."""
    return mix_bits(mix_bits(index + low) ^ high)


@triton.jit
def draw_uniform(seed, n, c, place, ACC: tl.constexpr):
    """The number in [0, 1) of each lane's output; ``place`` is its flat index in the map."""
    key = tl.load(seed + n)
    low, high = key.to(tl.uint32), (key >> 32).to(tl.uint32)
    channel = 2 * c.to(tl.uint32)
    one = tl.full([1], 1, tl.uint32)
    low, high = hash_index(channel, low, high), hash_index(channel + one, low, high)
    return (hash_index(place.to(tl.uint32), low, high) >> 8).to(ACC) * (2.0**-24)


@triton.jit
def add_likelihood(total, count, x, base, start, alive, tap, size, stride, WINDOW: tl.constexpr, ACC: tl.constexpr):
    """One more tap: what is above zero, NaN included, and how many cells exist."""
    cell, exists, _ = read_cell(x, base, start, alive, tap, size, stride, WINDOW, ACC)
    return total + tl.where(cell < 0, 0.0, cell), count + exists.to(tl.int32)


@triton.jit
def pick_tap(
    value, winner, passed, total, flat, sample, x, base, start, alive, tap, size, stride,
    RANDOM: tl.constexpr, WINDOW: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """One more tap: the last with a likelihood that begins at or before the threshold wins; or its expected part."""
    cell, exists, _ = read_cell(x, base, start, alive, tap, size, stride, WINDOW, ACC)
    likelihood = tl.where(flat, exists.to(ACC), tl.where(cell < 0, 0.0, cell))
    if RANDOM:
        picked = (likelihood > 0) & (passed <= sample * total)
        value = tl.where(picked, cell, value)
        winner = tl.where(picked, tap, winner)
    else:
        value += tl.where(likelihood == 0, 0.0, likelihood / total * cell)  # beside −inf too
    return value, winner, passed + likelihood


@triton.jit
def pick(
    x,
    seed,  # one for each image; any pointer if not RANDOM
    y, taps,
    sizes,  # C, D, H, W of x
    outputs,  # C, D, H, W of y
    x_stride,  # N, C, D, H, W; so is the next
    y_stride,  # of y and taps
    RANDOM: tl.constexpr,  # pick by chance, or take the expected cell
    WRITES: tl.constexpr,  # "y", or "taps": the number of the picked tap, −1 for none
    WINDOW: tl.constexpr, TILE: tl.constexpr, LAST: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The picked or the expected cell of a tile of regions, or its tap."""
    n, c, d, h, w = find_tile(tl.program_id(0), outputs, TILE, LAST)
    n, c, d, h, w, alive = find_places(n, c, d, h, w, outputs, TILE, LAST, WIDE, BLOCK)
    start = find_start(d, h, w, WINDOW)
    base = n * x_stride[0] + c * x_stride[1]
    total, count = tl.zeros([BLOCK], ACC), tl.zeros([BLOCK], tl.int32)
    if WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2] <= UNROLLED:
        for tap in tl.static_range(WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2]):
            total, count = add_likelihood(
                total, count, x, base, start, alive, tap, sizes[1:], x_stride[2:], WINDOW, ACC
            )
    else:
        for tap in range(WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2]):
            total, count = add_likelihood(
                total, count, x, base, start, alive, tap, sizes[1:], x_stride[2:], WINDOW, ACC
            )
    flat = total == 0
    total = tl.where(flat, count.to(ACC), total)

    value, passed = tl.zeros([BLOCK], ACC), tl.zeros([BLOCK], ACC)
    winner = tl.full([BLOCK], -1, tl.int32)
    sample = passed
    if RANDOM:
        sample = draw_uniform(seed, n, c, (d * outputs[2] + h) * outputs[3] + w, ACC)
    if WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2] <= UNROLLED:
        for tap in tl.static_range(WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2]):
            value, winner, passed = pick_tap(
                value, winner, passed, total, flat, sample, x, base, start, alive, tap, sizes[1:], x_stride[2:],
                RANDOM, WINDOW, ACC,
            )  # fmt: skip
    else:
        for tap in range(WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2]):
            value, winner, passed = pick_tap(
                value, winner, passed, total, flat, sample, x, base, start, alive, tap, sizes[1:], x_stride[2:],
                RANDOM, WINDOW, ACC,
            )  # fmt: skip
    if RANDOM:
        finite = is_finite(total)
        value, winner = tl.where(finite, value, float("nan")), tl.where(finite, winner, -1)
    offset = find_offset(y_stride, n, c, d, h, w)
    if WRITES == "y":
        tl.store(y + offset, value.to(y.dtype.element_ty), mask=alive)
    else:
        tl.store(taps + offset, winner.to(taps.dtype.element_ty), mask=alive)
