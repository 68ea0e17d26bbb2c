"""Device functions, inlined into every kernel: the responses of a region, the tree over them, and the way back.

The same equations, conventions and order of sums as ``ops/reference.py``, for a block of lanes at once: a lane is one
window of one channel of one image. A tree's nodes come as a compile-time tuple, so each program is unrolled into
straight code. Names in capitals are compile-time constants:

=========  ===========================================================================================
NODES      (code, parameter, a, left, right) of each node, as ``tree.decode`` has them
WEIGHTS    rows of weight
NEEDS      whether the tree asks for the maximum, the minimum, the mean
WINDOW     kernel, stride, padding, dilation (three numbers each), whether no window of an axis is clipped
           (three), count_include_pad
TILE       channels, depth, rows and columns that one program covers
LAST       channels vary fastest from lane to lane, as channels_last has them in memory
ACC        the dtype sums are kept in
=========  ===========================================================================================

A function gets a whole compile-time tuple and the number of an entry, never the entry: before Triton 3.8 a tuple out of
a tuple cannot be an argument.
"""

import triton
import triton.language as tl

from ...tree import Code

MAX = tl.constexpr(int(Code.MAX))
AVG = tl.constexpr(int(Code.AVG))
FILTER = tl.constexpr(int(Code.FILTER))
MIX = tl.constexpr(int(Code.MIX))
GATE = tl.constexpr(int(Code.GATE))
FIXED = tl.constexpr(int(Code.FIXED))
MIN = tl.constexpr(int(Code.MIN))
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
def add_tap(
    state,
    dots,
    x,
    weight,
    base,
    weight_base,
    row_stride,
    start,
    alive,
    tap,
    size,
    stride,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    WINDOW: tl.constexpr,
    SHARED: tl.constexpr,
    ACC: tl.constexpr,
):
    """One more tap: NaN wins an extreme and the last of several stays; of equal cells the first stays."""
    maximum, argmax, minimum, argmin, total, cells = state
    cell, exists, counted = read_cell(x, base, start, alive, tap, size, stride, WINDOW, ACC)
    if NEEDS[0]:
        wins = exists & ((cell > maximum) | (cell != cell) | (argmax < 0))
        maximum = tl.where(wins, cell, maximum)
        argmax = tl.where(wins, tap, argmax)
    if NEEDS[1]:
        wins = exists & ((cell < minimum) | (cell != cell) | (argmin < 0))
        minimum = tl.where(wins, cell, minimum)
        argmin = tl.where(wins, tap, argmin)
    if NEEDS[2]:
        total += cell
        cells += counted.to(tl.int32)
    sums = ()
    for row in tl.static_range(WEIGHTS):
        w = read_weight(weight, weight_base + row * row_stride + tap, alive, SHARED, ACC)
        # where there is no cell, 0 times an infinite weight would be NaN
        sums = sums + (tl.where(exists, dots[row] + w * cell, dots[row]),)
    return (maximum, argmax, minimum, argmin, total, cells), sums


@triton.jit
def respond(
    x,
    weight,
    base,
    weight_base,
    row_stride,
    start,
    alive,
    size,
    stride,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    WINDOW: tl.constexpr,
    SHARED: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Maximum, argmax, minimum, argmin, sum and number of cells of each lane's region, and its inner products.

    ``start`` is the place of the first tap on each axis, ``base`` the offset of the lane's image and channel.
    """
    none = tl.full([BLOCK], -1, tl.int32)
    lowest, highest = tl.full([BLOCK], float("-inf"), ACC), tl.full([BLOCK], float("inf"), ACC)
    state = (lowest, none, highest, none, tl.zeros([BLOCK], ACC), tl.zeros([BLOCK], tl.int32))
    dots = ()
    for _ in tl.static_range(WEIGHTS):
        dots = dots + (tl.zeros([BLOCK], ACC),)
    if WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2] <= UNROLLED:
        for tap in tl.static_range(WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2]):
            state, dots = add_tap(
                state, dots, x, weight, base, weight_base, row_stride, start, alive, tap, size, stride,
                NEEDS, WEIGHTS, WINDOW, SHARED, ACC,
            )  # fmt: skip
    else:
        for tap in range(WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2]):
            state, dots = add_tap(
                state, dots, x, weight, base, weight_base, row_stride, start, alive, tap, size, stride,
                NEEDS, WEIGHTS, WINDOW, SHARED, ACC,
            )  # fmt: skip
    return state, dots


@triton.jit
def blend(p, left, right):
    """``p left + (1 − p) right``; a proportion of exactly 1 or 0 does not read the other side."""
    plain = p * left + (1 - p) * right
    only_left = (p == 1) & ((is_finite(right) == 0) | (left == 0))  # a zero keeps its sign
    only_right = (p == 0) & ((is_finite(left) == 0) | (right == 0))
    return tl.where(only_left, left, tl.where(only_right, right, plain))


@triton.jit
def blend_backward(grad, p, left, right):
    """What reaches p, left and right of a blend; nothing on a side that was not read."""
    unsafe = is_finite(grad) == 0
    c_left = tl.where((p == 0) & unsafe, 0.0, grad * p)
    c_right = tl.where((p == 1) & unsafe, 0.0, grad * (1 - p))
    return grad * (left - right), c_left, c_right


@triton.jit
def evaluate_node(
    values,
    responses,
    dots,
    mix,
    mix_base,
    row_stride,
    alive,
    NODES: tl.constexpr,
    PLACE: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Value and proportion of one node; ``values`` are those of the nodes behind it."""
    tl.static_assert(NODES[PLACE][0] >= 0 and NODES[PLACE][0] <= MIN, "unknown code of a node")
    if NODES[PLACE][0] == MAX:
        return responses[0], responses[0]
    elif NODES[PLACE][0] == MIN:
        return responses[1], responses[1]
    elif NODES[PLACE][0] == AVG:
        return responses[2], responses[2]
    elif NODES[PLACE][0] == FILTER:
        return dots[NODES[PLACE][1]], dots[NODES[PLACE][1]]
    elif NODES[PLACE][0] == GATE:
        p = tl.sigmoid(dots[NODES[PLACE][1]])
        return blend(p, values[NODES[PLACE][3] - PLACE - 1], values[NODES[PLACE][4] - PLACE - 1]), p
    elif NODES[PLACE][0] == MIX:
        p = tl.load(mix + (mix_base + NODES[PLACE][1] * row_stride), mask=alive, other=0.0).to(ACC)
        return blend(p, values[NODES[PLACE][3] - PLACE - 1], values[NODES[PLACE][4] - PLACE - 1]), p
    elif NODES[PLACE][0] == FIXED:
        p = tl.full([BLOCK], NODES[PLACE][2], ACC)
        return blend(p, values[NODES[PLACE][3] - PLACE - 1], values[NODES[PLACE][4] - PLACE - 1]), p


@triton.jit
def evaluate(
    state,
    dots,
    mix,
    mix_base,
    row_stride,
    alive,
    NODES: tl.constexpr,
    WINDOW: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The value of each node and the proportion of each inner one; and how many cells each mean is over."""
    if WINDOW[4][0] and WINDOW[4][1] and WINDOW[4][2]:
        cells = tl.full([BLOCK], WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2], ACC)
    else:
        cells = tl.maximum(state[5], 1).to(ACC)
    responses = (state[0], state[2], state[4] / cells)
    values = ()
    proportions = ()
    for i in tl.static_range(len(NODES)):
        value, p = evaluate_node(
            values, responses, dots, mix, mix_base, row_stride, alive,
            NODES, len(NODES) - 1 - i, ACC, BLOCK,
        )  # fmt: skip
        values = (value,) + values
        proportions = (p,) + proportions
    return values, proportions, cells


@triton.jit
def backpropagate_node(c, leaves, c_nodes, c_dots, c_mixes, p, values, NODES: tl.constexpr, PLACE: tl.constexpr):
    """Hand what reaches one node to its children, its parameter or its response."""
    tl.static_assert(NODES[PLACE][0] >= 0 and NODES[PLACE][0] <= MIN, "unknown code of a node")
    c_max, c_min, c_mean = leaves
    if NODES[PLACE][0] == MAX:
        c_max = c_max + c
    elif NODES[PLACE][0] == MIN:
        c_min = c_min + c
    elif NODES[PLACE][0] == AVG:
        c_mean = c_mean + c
    elif NODES[PLACE][0] == FILTER:
        c_dots = c_dots + (c,)
    elif NODES[PLACE][0] == GATE or NODES[PLACE][0] == MIX or NODES[PLACE][0] == FIXED:
        c_p, c_left, c_right = blend_backward(c, p, values[NODES[PLACE][3]], values[NODES[PLACE][4]])
        c_nodes = c_nodes + (c_left, c_right)  # breadth first: these are the next two places
        if NODES[PLACE][0] == GATE:  # σ' = σ (1 − σ); a gate that is exactly 0 or 1 stays there
            c_dots = c_dots + (tl.where((p == 0) | (p == 1), 0.0, c_p * (p * (1 - p))),)
        elif NODES[PLACE][0] == MIX:
            c_mixes = c_mixes + (c_p,)
    return (c_max, c_min, c_mean), c_nodes, c_dots, c_mixes


@triton.jit
def backpropagate(grad, values, proportions, NODES: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """What reaches maximum, minimum, mean, each inner product and each mix when the root receives ``grad``."""
    zero = tl.zeros([BLOCK], ACC)
    leaves = (zero, zero, zero)
    c_nodes = (grad,)
    c_dots = ()
    c_mixes = ()
    for i in tl.static_range(len(NODES)):
        leaves, c_nodes, c_dots, c_mixes = backpropagate_node(
            c_nodes[i], leaves, c_nodes, c_dots, c_mixes, proportions[i], values, NODES, i
        )
    return leaves, c_dots, c_mixes
