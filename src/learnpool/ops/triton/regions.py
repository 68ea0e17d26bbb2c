"""Where tiles, regions and cells lie, and how they are read: device functions, inlined into every kernel.

A lane is one window, or one cell, of one channel of one image. Names in capitals are compile-time constants, in all
files of this folder:

=========  ===========================================================================================
RESPONSES  (kind, row of weight, row of mix) of each response, as ``program.decode`` has them
NODES      (op, response, row, bias, left, right, by) of each node
WEIGHTS    rows of weight that learn
MIXES      rows of mix that learn
SCALARS    the constants behind them
WINDOW     kernel, stride, padding, dilation (three numbers each), whether no window of an axis is clipped
           (three), count_include_pad, how many windows of an axis reach a cell (three), whether no window is
           clipped at all
TAPS       of the window
TILE       channels, depth, rows and columns that one program covers
LAST       channels vary fastest from lane to lane, as channels_last has them in memory
ACC        the dtype sums are kept in
=========  ===========================================================================================

A function gets a whole compile-time tuple and the number of an entry, never the entry: before Triton 3.8 a tuple out of
a tuple cannot be an argument.
"""

import triton
import triton.language as tl

UNROLLED = tl.constexpr(32)  # a window of more taps is a loop


@triton.jit
def find_tile(number, sizes, TILE: tl.constexpr, LAST: tl.constexpr):
    """The image, and the first channel, depth, row and column of a program's tile; ``sizes`` are C, D, H, W."""
    tiles_c, tiles_d = tl.cdiv(sizes[0], TILE[0]), tl.cdiv(sizes[1], TILE[1])
    tiles_h, tiles_w = tl.cdiv(sizes[2], TILE[2]), tl.cdiv(sizes[3], TILE[3])
    if LAST:
        c, number = number % tiles_c, number // tiles_c
    w, number = number % tiles_w, number // tiles_w
    h, number = number % tiles_h, number // tiles_h
    d, number = number % tiles_d, number // tiles_d
    if not LAST:
        c, number = number % tiles_c, number // tiles_c
    return number, c * TILE[0], d * TILE[1], h * TILE[2], w * TILE[3]


@triton.jit
def locate(lane, TILE: tl.constexpr, LAST: tl.constexpr):
    """Where in a tile each lane is: channel, depth, row, column; and which lanes are in it at all.

    On an axis of one place every lane is at 0, without a division; lanes behind the tile are not inside anyway.
    """
    c = tl.zeros_like(lane)
    place = lane
    if LAST:
        c = lane % TILE[0]
        place = lane // TILE[0]
    elif TILE[0] > 1:
        c = lane // (TILE[1] * TILE[2] * TILE[3])
        place = lane % (TILE[1] * TILE[2] * TILE[3])
    d = tl.zeros_like(lane)
    h = place // TILE[3]
    w = place % TILE[3]
    if TILE[1] > 1:
        d = h // TILE[2]
        h = h % TILE[2]
    return c, d, h, w, lane < TILE[0] * TILE[1] * TILE[2] * TILE[3]


@triton.jit
def widen(n, c, d, h, w, WIDE: tl.constexpr):
    """Coordinates as 64-bit numbers where offsets need them."""
    if WIDE:
        return n.to(tl.int64), c.to(tl.int64), d.to(tl.int64), h.to(tl.int64), w.to(tl.int64)
    else:
        return n, c, d, h, w


@triton.jit
def find_places(
    n, c, d, h, w, lengths, TILE: tl.constexpr, LAST: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    """Image, channel, depth, row and column of each lane of a tile that begins there, and which lie in ``lengths``."""
    lane_c, lane_d, lane_h, lane_w, alive = locate(tl.arange(0, BLOCK), TILE, LAST)
    n, c, d, h, w = widen(n, c + lane_c, d + lane_d, h + lane_h, w + lane_w, WIDE)
    alive = alive & (c < lengths[0]) & (d < lengths[1]) & (h < lengths[2]) & (w < lengths[3])
    return n, c, d, h, w, alive


@triton.jit
def find_offset(stride, n, c, d, h, w):
    """Where in memory a place is."""
    return n * stride[0] + c * stride[1] + d * stride[2] + h * stride[3] + w * stride[4]


@triton.jit
def find_start(d, h, w, WINDOW: tl.constexpr):
    """Depth, row and column of the first cell of a window."""
    return d * WINDOW[1][0] - WINDOW[2][0], h * WINDOW[1][1] - WINDOW[2][1], w * WINDOW[1][2] - WINDOW[2][2]


@triton.jit
def is_finite(value):
    return tl.abs(value) < float("inf")


@triton.jit
def read_cell(x, base, start, alive, tap, size, stride, WINDOW: tl.constexpr, ACC: tl.constexpr):
    """The cell under a tap, 0 where there is none; where it exists; where an average counts it."""
    d = start[0] + tap // (WINDOW[0][1] * WINDOW[0][2]) * WINDOW[3][0]
    h = start[1] + tap // WINDOW[0][2] % WINDOW[0][1] * WINDOW[3][1]
    w = start[2] + tap % WINDOW[0][2] * WINDOW[3][2]
    exists = alive
    counted = alive
    if not WINDOW[4][0]:
        exists = exists & (d >= 0) & (d < size[0])
        counted = counted & (d < size[0] + WINDOW[2][0])
    if not WINDOW[4][1]:
        exists = exists & (h >= 0) & (h < size[1])
        counted = counted & (h < size[1] + WINDOW[2][1])
    if not WINDOW[4][2]:
        exists = exists & (w >= 0) & (w < size[2])
        counted = counted & (w < size[2] + WINDOW[2][2])
    cell = tl.load(x + (base + d * stride[0] + h * stride[1] + w * stride[2]), mask=exists, other=0.0).to(ACC)
    if WINDOW[5]:
        return cell, exists, counted
    else:
        return cell, exists, exists


@triton.jit
def read_weight(weight, offset, alive, SHARED: tl.constexpr, ACC: tl.constexpr):
    """One number of a mask or filter: the same for all lanes if ``SHARED``, so that it is read once."""
    if SHARED:
        return tl.load(weight + offset).to(ACC)
    else:
        return tl.load(weight + offset, mask=alive, other=0.0).to(ACC)


@triton.jit
def read_scalar(
    mix, base, row_stride, alive, ROW: tl.constexpr, MIXES: tl.constexpr, SCALARS: tl.constexpr, ACC: tl.constexpr
):
    """One row of mix for each lane, or a constant; 0 without a row."""
    if ROW < 0:
        return tl.full(alive.shape, 0.0, ACC)
    elif ROW >= MIXES:
        return tl.full(alive.shape, SCALARS[ROW - MIXES], ACC)
    else:
        return tl.load(mix + (base + ROW * row_stride), mask=alive, other=0.0).to(ACC)


@triton.jit
def find_parameter(stride, c, d, h, w, SHARED: tl.constexpr):
    """The offset of each lane's parameters, a single number where all lanes share them."""
    if SHARED:
        return 0
    else:
        return c * stride[1] + d * stride[2] + h * stride[3] + w * stride[4]
