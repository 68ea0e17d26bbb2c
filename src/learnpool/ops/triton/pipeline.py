"""From the cells of regions to values, and from gradients back to what cells need: respond, evaluate, backpropagate.

The same equations, conventions and order of sums as ``ops/reference.py``, for a block of regions at once. Responses and
nodes come as compile-time tuples, so each program is unrolled into straight code. ``regions.py`` lists the constants.
"""

import triton
import triton.language as tl

from ...program import Op
from . import responses
from .regions import UNROLLED, find_offset, find_parameter, find_start, is_finite, read_cell, read_scalar, read_weight

LEAF = tl.constexpr(int(Op.LEAF))
MIX = tl.constexpr(int(Op.MIX))
GATE = tl.constexpr(int(Op.GATE))
GATE_BY = tl.constexpr(int(Op.GATE_BY))


@triton.jit
def add_tap(
    states, n, thetas, x, weight, base, weight_base, row_stride, start, alive, tap, size, stride,
    PASS: tl.constexpr, RESPONSES: tl.constexpr, WINDOW: tl.constexpr, SHARED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """One more tap of one pass, for every response."""
    cell, exists, counted = read_cell(x, base, start, alive, tap, size, stride, WINDOW, ACC)
    if PASS == 0:
        n += exists.to(tl.int32)
    new = ()
    for r in tl.static_range(len(RESPONSES)):
        w = cell
        if RESPONSES[r][1] >= 0:
            w = read_weight(weight, weight_base + RESPONSES[r][1] * row_stride + tap, alive, SHARED, ACC)
        if PASS == 0:
            new = new + (responses.add(states[r], cell, exists, counted, w, thetas[r], tap, RESPONSES[r][0]),)
        else:
            new = new + (responses.add_again(states[r], cell, exists, thetas[r], RESPONSES[r][0]),)
    return new, n


@triton.jit
def respond(
    x, weight, mix, base, weight_base, mix_base, weight_rows, mix_rows, start, alive, size, stride,
    RESPONSES: tl.constexpr, PASSES: tl.constexpr, MIXES: tl.constexpr, SCALARS: tl.constexpr, WINDOW: tl.constexpr,
    TAPS: tl.constexpr, SHARED: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The finished state of each response, its number in mix, and how many cells of each lane's region exist.

    ``start`` is the place of the first tap on each axis, ``base`` the offset of the lane's image and channel.
    """
    states = ()
    thetas = ()
    for r in tl.static_range(len(RESPONSES)):
        states = states + (responses.begin(RESPONSES[r][0], ACC, BLOCK),)
        thetas = thetas + (read_scalar(mix, mix_base, mix_rows, alive, RESPONSES[r][2], MIXES, SCALARS, ACC),)
    n = tl.zeros([BLOCK], tl.int32)
    for p in tl.static_range(PASSES):
        if TAPS <= UNROLLED:
            for tap in tl.static_range(TAPS):
                states, n = add_tap(
                    states, n, thetas, x, weight, base, weight_base, weight_rows, start, alive, tap, size, stride,
                    p, RESPONSES, WINDOW, SHARED, ACC,
                )  # fmt: skip
        else:
            for tap in range(TAPS):
                states, n = add_tap(
                    states, n, thetas, x, weight, base, weight_base, weight_rows, start, alive, tap, size, stride,
                    p, RESPONSES, WINDOW, SHARED, ACC,
                )  # fmt: skip
    if WINDOW[7]:
        n = tl.full([BLOCK], TAPS, ACC)
    else:
        n = n.to(ACC)
    finished = ()
    for r in tl.static_range(len(RESPONSES)):
        row = weight_base + RESPONSES[r][1] * weight_rows
        finished = finished + (
            responses.finish(states[r], n, thetas[r], weight, row, alive, RESPONSES[r][0], WINDOW, TAPS, SHARED, ACC),
        )
    return finished, thetas, n


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
    return grad * (left - right), pass_on(grad, p), pass_on(grad, 1 - p)


@triton.jit
def pass_on(grad, share):
    """``grad share``; where one of them is exactly 0 the other is not read, be it infinite or NaN."""
    return tl.where((grad == 0) | (share == 0), 0.0, grad * share)


@triton.jit
def evaluate(
    states, mix, mix_base, row_stride, alive,
    NODES: tl.constexpr, MIXES: tl.constexpr, SCALARS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The value of each node, the proportion of each inner one, and what the value that decides it is multiplied by.

    From the back of the program to its root: ``values`` are those of the nodes behind the present one.
    """
    values = ()
    proportions = ()
    scales = ()
    for i in tl.static_range(len(NODES) - 1, -1, -1):
        tl.static_assert(NODES[i][0] >= 0 and NODES[i][0] <= GATE_BY, "unknown operation of a node")
        if NODES[i][0] == LEAF:
            p = states[NODES[i][1]][0]
            scale = p
            value = p
        else:
            if NODES[i][0] == GATE:
                p = tl.sigmoid(states[NODES[i][1]][0])
            else:
                p = read_scalar(mix, mix_base, row_stride, alive, NODES[i][2], MIXES, SCALARS, ACC)
            scale = p
            if NODES[i][0] == GATE_BY:
                bias = read_scalar(mix, mix_base, row_stride, alive, NODES[i][3], MIXES, SCALARS, ACC)
                p = tl.sigmoid(p * values[NODES[i][6] - i - 1] + bias)
            value = blend(p, values[NODES[i][4] - i - 1], values[NODES[i][5] - i - 1])
        values = (value,) + values
        proportions = (p,) + proportions
        scales = (scale,) + scales
    return values, proportions, scales


@triton.jit
def add_at(numbers, value, PLACE: tl.constexpr):
    """The tuple with ``value`` added to one of its numbers."""
    return numbers[:PLACE] + (numbers[PLACE] + value,) + numbers[PLACE + 1 :]


@triton.jit
def backpropagate(grad, values, proportions, scales, RESPONSES: tl.constexpr, NODES: tl.constexpr, MIXES: tl.constexpr):
    """What reaches each response and the rows of mix that learn, from the root to the leaves."""
    c_nodes = (grad,)
    c_responses = ()
    for _ in tl.static_range(len(RESPONSES)):
        c_responses = c_responses + (tl.zeros_like(grad),)
    c_rows = ()
    for i in tl.static_range(len(NODES)):
        if NODES[i][0] == LEAF:
            c_responses = add_at(c_responses, c_nodes[i], NODES[i][1])
        else:
            p = proportions[i]
            c_p, c_left, c_right = blend_backward(c_nodes[i], p, values[NODES[i][4]], values[NODES[i][5]])
            c_nodes = c_nodes + (c_left, c_right)  # breadth first: these are the next places
            if NODES[i][0] == MIX:
                if NODES[i][2] < MIXES:
                    c_rows = c_rows + (c_p,)
            else:
                slope = c_p * (p * (1 - p))  # σ' = σ (1 − σ); a closed gate stays so, one that is not read gets nothing
                c_s = tl.where((p == 0) | (p == 1) | (c_nodes[i] == 0), 0.0, slope)
                if NODES[i][0] == GATE:
                    c_responses = add_at(c_responses, c_s, NODES[i][1])
                else:
                    c_nodes = c_nodes + (c_s * scales[i],)
                    c_rows = c_rows + (c_s * values[NODES[i][6]],)
                    if NODES[i][3] >= 0:
                        c_rows = c_rows + (c_s,)
    return c_responses, c_rows


@triton.jit
def find_slots(
    grad, x, weight, mix, n, c, d, h, w, alive, sizes, grad_stride, x_stride, weight_stride, mix_stride,
    RESPONSES: tl.constexpr, NODES: tl.constexpr, PASSES: tl.constexpr, MIXES: tl.constexpr, SCALARS: tl.constexpr,
    WINDOW: tl.constexpr, TAPS: tl.constexpr, SHARED: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The slots of all responses of each lane's window, and what reaches the rows of mix that learn, in ROWS' order."""
    start = find_start(d, h, w, WINDOW)
    base = n * x_stride[0] + c * x_stride[1]
    mix_base = find_parameter(mix_stride, c, d, h, w, False)
    states, thetas, cells = respond(
        x, weight, mix, base, find_parameter(weight_stride, c, d, h, w, SHARED), mix_base, weight_stride[0],
        mix_stride[0], start, alive, sizes[1:], x_stride[2:], RESPONSES, PASSES, MIXES, SCALARS, WINDOW, TAPS, SHARED,
        ACC, BLOCK,
    )  # fmt: skip
    values, proportions, scales = evaluate(states, mix, mix_base, mix_stride[0], alive, NODES, MIXES, SCALARS, ACC)
    offset = find_offset(grad_stride, n, c, d, h, w)
    c = tl.load(grad + offset, mask=alive, other=0.0).to(ACC)
    c_responses, c_rows = backpropagate(c, values, proportions, scales, RESPONSES, NODES, MIXES)
    slots = ()
    for r in tl.static_range(len(RESPONSES)):
        own, c_theta = responses.send(c_responses[r], states[r], cells, thetas[r], RESPONSES[r][0], TAPS)
        slots = slots + (own,)
        if RESPONSES[r][2] >= 0 and RESPONSES[r][2] < MIXES:
            c_rows = c_rows + (c_theta,)
    return slots, c_rows, start, base
