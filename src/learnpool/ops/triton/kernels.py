"""The kernels. Forward: a tile of regions. Backward: a tile of cells and all windows that touch it, in one kernel.

``backward`` computes what reaches the responses of the windows over its tile and keeps it on the chip, then every cell
gathers what its windows send it: no atomics, and the same bits every time. Where a window is too large for that, or
parameters differ from region to region, two kernels do the same through memory: ``send`` writes what reaches the
responses, ``gather`` sums it for each cell, and ``reduce`` sums parameter gradients. Sums over windows are finished by
``torch.sum`` of the partial sums each program leaves.
"""

import triton
import triton.language as tl

from .regions import (
    UNROLLED,
    backpropagate,
    evaluate,
    find_offset,
    find_places,
    find_start,
    find_tile,
    read_cell,
    respond,
    widen,
)


@triton.jit
def find_parameter(stride, c, d, h, w, SHARED: tl.constexpr):
    """The offset of each lane's parameters, a single number where all lanes share them."""
    if SHARED:
        return 0
    else:
        return c * stride[1] + d * stride[2] + h * stride[3] + w * stride[4]


@triton.jit
def forward(
    x,
    weight,
    mix,
    y,
    sizes,  # C, D, H, W of x
    outputs,  # C, D, H, W of y
    x_stride,  # N, C, D, H, W; so are the next
    y_stride,
    weight_stride,  # rows, C, D, H, W; 0 where shared
    mix_stride,
    NODES: tl.constexpr,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    LAST: tl.constexpr,
    SHARED: tl.constexpr,
    WIDE: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``y``: each program pools one tile of regions."""
    n, c, d, h, w = find_tile(tl.program_id(0), outputs, TILE, LAST)
    n, c, d, h, w, alive = find_places(n, c, d, h, w, outputs, TILE, LAST, WIDE, BLOCK)
    start = find_start(d, h, w, WINDOW)
    state, dots = respond(
        x, weight, n * x_stride[0] + c * x_stride[1], find_parameter(weight_stride, c, d, h, w, SHARED),
        weight_stride[0], start, alive, sizes[1:], x_stride[2:], NEEDS, WEIGHTS, WINDOW, SHARED, ACC, BLOCK,
    )  # fmt: skip
    mix_base = find_parameter(mix_stride, c, d, h, w, False)
    values, _, _ = evaluate(state, dots, mix, mix_base, mix_stride[0], alive, NODES, WINDOW, ACC, BLOCK)
    offset = find_offset(y_stride, n, c, d, h, w)
    tl.store(y + offset, values[0].to(y.dtype.element_ty), mask=alive)


@triton.jit
def find_response_grads(
    grad,
    x,
    weight,
    mix,
    n,
    c,
    d,
    h,
    w,
    alive,
    sizes,
    grad_stride,
    x_stride,
    weight_stride,
    mix_stride,
    NODES: tl.constexpr,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    WINDOW: tl.constexpr,
    SHARED: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What reaches the responses of each lane's window (a mean's share per cell), and which taps hold the extremes."""
    start = find_start(d, h, w, WINDOW)
    base = n * x_stride[0] + c * x_stride[1]
    state, dots = respond(
        x, weight, base, find_parameter(weight_stride, c, d, h, w, SHARED), weight_stride[0], start, alive,
        sizes[1:], x_stride[2:], NEEDS, WEIGHTS, WINDOW, SHARED, ACC, BLOCK,
    )  # fmt: skip
    mix_base = find_parameter(mix_stride, c, d, h, w, False)
    values, proportions, cells = evaluate(state, dots, mix, mix_base, mix_stride[0], alive, NODES, WINDOW, ACC, BLOCK)
    offset = find_offset(grad_stride, n, c, d, h, w)
    received = tl.load(grad + offset, mask=alive, other=0.0).to(ACC)
    leaves, c_dots, c_mixes = backpropagate(received, values, proportions, NODES, ACC, BLOCK)
    return (leaves[0], leaves[1], leaves[2] / cells), c_dots, c_mixes, (state[1], state[3]), start, base


@triton.jit
def fetch(source, place, alive, FUSED: tl.constexpr):
    """What a window sends: from other lanes of this program, or from memory."""
    if FUSED:
        return tl.gather(source, place, 0)
    else:
        return tl.load(source + place, mask=alive, other=0)


@triton.jit
def find_window(
    v, j, length, KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr
):
    """On one axis, the ``j``-th window back from the last that begins at or before a cell: place, tap, does it meet."""
    window = (v + PADDING) // STRIDE - j
    distance = (v + PADDING) % STRIDE + j * STRIDE
    tap = distance // DILATION
    meets = (window >= 0) & (window < length) & (tap < KERNEL)
    if DILATION != 1:
        meets = meets & (distance % DILATION == 0)
    return window, tap, meets


@triton.jit
def add_window(
    total,
    number,
    leaves,
    c_dots,
    winners,
    weight,
    c,
    d,
    h,
    w,
    alive,
    outputs,
    place_stride,
    place_base,
    weight_stride,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    WINDOW: tl.constexpr,
    FUSED: tl.constexpr,
    ACC: tl.constexpr,
):
    """Add what one of the windows over each cell sends it."""
    back_d = WINDOW[6][0] - 1 - number // (WINDOW[6][1] * WINDOW[6][2])
    back_h = WINDOW[6][1] - 1 - number // WINDOW[6][2] % WINDOW[6][1]
    back_w = WINDOW[6][2] - 1 - number % WINDOW[6][2]
    od, tap_d, in_d = find_window(d, back_d, outputs[1], WINDOW[0][0], WINDOW[1][0], WINDOW[2][0], WINDOW[3][0])
    oh, tap_h, in_h = find_window(h, back_h, outputs[2], WINDOW[0][1], WINDOW[1][1], WINDOW[2][1], WINDOW[3][1])
    ow, tap_w, in_w = find_window(w, back_w, outputs[3], WINDOW[0][2], WINDOW[1][2], WINDOW[2][2], WINDOW[3][2])
    meets = alive & in_d & in_h & in_w
    tap = (tap_d * WINDOW[0][1] + tap_h) * WINDOW[0][2] + tap_w
    place = c * place_stride[0] + od * place_stride[1] + oh * place_stride[2] + ow * place_stride[3] + place_base
    if FUSED:
        place = tl.where(meets, place, 0).to(tl.int32)
    weight_base = c * weight_stride[1] + od * weight_stride[2] + oh * weight_stride[3] + ow * weight_stride[4] + tap
    share = tl.zeros_like(total)
    for row in tl.static_range(WEIGHTS):
        at_tap = tl.load(weight + (weight_base + row * weight_stride[0]), mask=meets, other=0.0).to(ACC)
        share += fetch(c_dots[row], place, meets, FUSED) * at_tap
    if NEEDS[2]:
        share += fetch(leaves[2], place, meets, FUSED)
    if NEEDS[0]:
        share += tl.where(fetch(winners[0], place, meets, FUSED) == tap, fetch(leaves[0], place, meets, FUSED), 0.0)
    if NEEDS[1]:
        share += tl.where(fetch(winners[1], place, meets, FUSED) == tap, fetch(leaves[1], place, meets, FUSED), 0.0)
    return total + tl.where(meets, share, 0.0)


@triton.jit
def sum_windows(
    leaves,
    c_dots,
    winners,
    weight,
    c,
    d,
    h,
    w,
    alive,
    outputs,
    place_stride,
    place_base,
    weight_stride,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    WINDOW: tl.constexpr,
    FUSED: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each lane's cell receives ``Σ_d c_d w_d[tap] + c_mean / n + c_max [tap is the maximum]`` from each window.

    Windows come in the order of rising coordinates, as in PyTorch's own pools. ``place_base`` and ``place_stride`` say
    where the numbers of a window are: a lane, or an offset in memory.
    """
    total = tl.zeros([BLOCK], ACC)
    if WINDOW[6][0] * WINDOW[6][1] * WINDOW[6][2] <= UNROLLED:
        for number in tl.static_range(WINDOW[6][0] * WINDOW[6][1] * WINDOW[6][2]):
            total = add_window(
                total, number, leaves, c_dots, winners, weight, c, d, h, w, alive, outputs, place_stride, place_base,
                weight_stride, NEEDS, WEIGHTS, WINDOW, FUSED, ACC,
            )  # fmt: skip
    else:
        for number in range(WINDOW[6][0] * WINDOW[6][1] * WINDOW[6][2]):
            total = add_window(
                total, number, leaves, c_dots, winners, weight, c, d, h, w, alive, outputs, place_stride, place_base,
                weight_stride, NEEDS, WEIGHTS, WINDOW, FUSED, ACC,
            )  # fmt: skip
    return total


@triton.jit
def find_first_window(cell, KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr):
    """The first window that may touch a tile of cells from ``cell`` on."""
    return tl.maximum(cell + PADDING - (KERNEL - 1) * DILATION + STRIDE - 1, 0) // STRIDE


@triton.jit
def owns(place, first, SIZE: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr):
    """Whether the first cell of a window that exists lies in the tile: true for one tile of each window."""
    anchor = tl.maximum(place * STRIDE - PADDING, 0)
    return (anchor >= first) & (anchor < first + SIZE)


@triton.jit
def store_sum(partial, row, value, TILE: tl.constexpr, PER_CHANNEL: tl.constexpr, BLOCK: tl.constexpr):
    """The sum over a program's lanes, or over those of each channel, into one row of its partial sums."""
    if PER_CHANNEL:
        sums = tl.sum(tl.reshape(value, [BLOCK // TILE[0], TILE[0]]), 0)
        tl.store(partial + row * TILE[0] + tl.arange(0, TILE[0]), sums)
    else:
        tl.store(partial + row, tl.sum(value, 0))


@triton.jit
def backward(
    grad,
    x,
    weight,
    mix,
    dx,
    partial,  # [programs, WEIGHTS * taps + mixes, channels of a tile or 1]
    sizes,
    outputs,
    grad_stride,
    x_stride,
    dx_stride,
    weight_stride,
    mix_stride,
    NODES: tl.constexpr,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    MIXES: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,  # of cells
    WINDOWS: tl.constexpr,  # the tile of windows that covers it
    LAST: tl.constexpr,
    SHARED: tl.constexpr,
    PER_CHANNEL: tl.constexpr,
    MASK: tl.constexpr,  # which gradients are wanted: x, weight, mix
    WIDE: tl.constexpr,
    ACC: tl.constexpr,
    REGIONS: tl.constexpr,  # lanes for windows
    BLOCK: tl.constexpr,  # lanes for cells
):
    """``dx`` for a tile of cells, and partial sums of the parameters' gradients over the windows that begin in it."""
    n, c0, d0, h0, w0 = find_tile(tl.program_id(0), sizes, TILE, LAST)
    first_d = find_first_window(d0, WINDOW[0][0], WINDOW[1][0], WINDOW[2][0], WINDOW[3][0])
    first_h = find_first_window(h0, WINDOW[0][1], WINDOW[1][1], WINDOW[2][1], WINDOW[3][1])
    first_w = find_first_window(w0, WINDOW[0][2], WINDOW[1][2], WINDOW[2][2], WINDOW[3][2])
    image, c, d, h, w, alive = find_places(n, c0, first_d, first_h, first_w, outputs, WINDOWS, LAST, WIDE, REGIONS)
    leaves, c_dots, c_mixes, winners, start, base = find_response_grads(
        grad, x, weight, mix, image, c, d, h, w, alive, sizes, grad_stride, x_stride, weight_stride, mix_stride,
        NODES, NEEDS, WEIGHTS, WINDOW, SHARED, ACC, REGIONS,
    )  # fmt: skip

    owned = alive & owns(d, d0, TILE[1], WINDOW[1][0], WINDOW[2][0])
    owned = owned & owns(h, h0, TILE[2], WINDOW[1][1], WINDOW[2][1])
    owned = owned & owns(w, w0, TILE[3], WINDOW[1][2], WINDOW[2][2])
    rows = WEIGHTS * WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2] + MIXES
    if PER_CHANNEL:
        rows = rows * TILE[0]
    own_partial = partial + tl.program_id(0).to(tl.int64) * rows
    if MASK[1]:
        for tap in tl.static_range(WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2]):
            cell, exists, _ = read_cell(x, base, start, owned, tap, sizes[1:], x_stride[2:], WINDOW, ACC)
            for row in tl.static_range(WEIGHTS):
                product = tl.where(exists, c_dots[row] * cell, 0.0)
                number = row * WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2] + tap
                store_sum(own_partial, number, product, TILE, PER_CHANNEL, REGIONS)
    if MASK[2]:
        for row in tl.static_range(MIXES):
            number = WEIGHTS * WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2] + row
            store_sum(own_partial, number, tl.where(owned, c_mixes[row], 0.0), TILE, PER_CHANNEL, REGIONS)

    if MASK[0]:
        n, c, d, h, w, alive = find_places(n, c0, d0, h0, w0, sizes, TILE, LAST, WIDE, BLOCK)
        if LAST:
            steps = (1, WINDOWS[2] * WINDOWS[3] * TILE[0], WINDOWS[3] * TILE[0], TILE[0])
        else:
            steps = (WINDOWS[1] * WINDOWS[2] * WINDOWS[3], WINDOWS[2] * WINDOWS[3], WINDOWS[3], 1)
        place_base = -(c0 * steps[0] + first_d * steps[1] + first_h * steps[2] + first_w * steps[3])
        total = sum_windows(
            leaves, c_dots, winners, weight, c, d, h, w, alive, outputs, steps, place_base, weight_stride,
            NEEDS, WEIGHTS, WINDOW, True, ACC, BLOCK,
        )  # fmt: skip
        offset = find_offset(dx_stride, n, c, d, h, w)
        tl.store(dx + offset, total.to(dx.dtype.element_ty), mask=alive)


@triton.jit
def send(
    grad,
    x,
    weight,
    mix,
    sent,  # what reaches maximum, minimum, mean, inner products, mixes: those the tree has, one after the other
    taps,  # which taps hold maximum and minimum
    rows,  # numbers in one of them
    sizes,
    outputs,
    grad_stride,
    x_stride,
    sent_stride,
    weight_stride,
    mix_stride,
    NODES: tl.constexpr,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    MIXES: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    LAST: tl.constexpr,
    SHARED: tl.constexpr,
    WIDE: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What reaches the responses of every window, into memory."""
    n, c, d, h, w = find_tile(tl.program_id(0), outputs, TILE, LAST)
    n, c, d, h, w, alive = find_places(n, c, d, h, w, outputs, TILE, LAST, WIDE, BLOCK)
    leaves, c_dots, c_mixes, winners, _, _ = find_response_grads(
        grad, x, weight, mix, n, c, d, h, w, alive, sizes, grad_stride, x_stride, weight_stride, mix_stride,
        NODES, NEEDS, WEIGHTS, WINDOW, SHARED, ACC, BLOCK,
    )  # fmt: skip
    place = find_offset(sent_stride, n, c, d, h, w)
    for i in tl.static_range(3):
        if NEEDS[i]:
            tl.store(sent + place, leaves[i], mask=alive)
            sent += rows
            if i < 2:
                tl.store(taps + place, winners[i], mask=alive)
                taps += rows
    for row in tl.static_range(WEIGHTS):
        tl.store(sent + place, c_dots[row], mask=alive)
        sent += rows
    for row in tl.static_range(MIXES):
        tl.store(sent + place, c_mixes[row], mask=alive)
        sent += rows


@triton.jit
def gather(
    sent,
    taps,
    rows,
    weight,
    dx,
    sizes,
    outputs,
    sent_stride,
    dx_stride,
    weight_stride,
    NEEDS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    LAST: tl.constexpr,
    WIDE: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``dx`` from what ``send`` wrote."""
    n, c, d, h, w = find_tile(tl.program_id(0), sizes, TILE, LAST)
    n, c, d, h, w, alive = find_places(n, c, d, h, w, sizes, TILE, LAST, WIDE, BLOCK)
    leaves = ()
    winners = ()
    for i in tl.static_range(3):
        leaves = leaves + (sent,)
        if NEEDS[i]:
            sent += rows
        if i < 2:
            winners = winners + (taps,)
            if NEEDS[i]:
                taps += rows
    c_dots = ()
    for _ in tl.static_range(WEIGHTS):
        c_dots = c_dots + (sent,)
        sent += rows
    total = sum_windows(
        leaves, c_dots, winners, weight, c, d, h, w, alive, outputs, sent_stride[1:], n * sent_stride[0],
        weight_stride, NEEDS, WEIGHTS, WINDOW, False, ACC, BLOCK,
    )  # fmt: skip
    offset = find_offset(dx_stride, n, c, d, h, w)
    tl.store(dx + offset, total.to(dx.dtype.element_ty), mask=alive)


@triton.jit
def split(number, sizes):
    """A flat number as coordinates C, D, H, W; what is left is the image."""
    w, number = number % sizes[3], number // sizes[3]
    h, number = number % sizes[2], number // sizes[2]
    d, number = number % sizes[1], number // sizes[1]
    c, number = number % sizes[0], number // sizes[0]
    return number, c, d, h, w


@triton.jit
def reduce(
    x,
    sent,  # the first row that has a parameter
    rows,
    partial,  # [chunks, ROWS, parameters, taps]
    steps,  # blocks of windows a program sums
    images,
    sizes,
    kept,  # C, D, H, W of the parameter, 1 where it is shared
    shared,  # C, D, H, W of what is summed, 1 where it is not
    x_stride,
    sent_stride,
    ROWS: tl.constexpr,
    WINDOW: tl.constexpr,  # of one tap for a mix
    HAS_CELLS: tl.constexpr,  # an inner product's gradient meets the cells, a mix's does not
    WIDE: tl.constexpr,
    ACC: tl.constexpr,
    KEPT: tl.constexpr,  # lanes: parameters, and windows summed side by side
    SUMMED: tl.constexpr,
):
    """Gradients of one tap of some parameters, summed over a chunk of the windows that share them."""
    taps: tl.constexpr = WINDOW[0][0] * WINDOW[0][1] * WINDOW[0][2]
    count = kept[0] * kept[1] * kept[2] * kept[3]
    blocks = tl.cdiv(count, KEPT)
    tap, block, chunk = tl.program_id(0) % taps, tl.program_id(0) // taps % blocks, tl.program_id(0) // taps // blocks
    if WIDE:
        chunk = chunk.to(tl.int64)
    parameter = block * KEPT + tl.arange(0, KEPT)
    over, kept_c, kept_d, kept_h, kept_w = split(parameter, kept)  # over: 0 where there is a parameter
    sums = ()
    for _row in tl.static_range(ROWS):
        sums = sums + (tl.zeros([KEPT, SUMMED], ACC),)
    for step in range(steps):
        n, c, d, h, w = split((chunk * steps + step) * SUMMED + tl.arange(0, SUMMED), shared)
        n, c, d, h, w = widen(
            n[None, :], c[None, :] + kept_c[:, None], d[None, :] + kept_d[:, None], h[None, :] + kept_h[:, None],
            w[None, :] + kept_w[:, None], WIDE,
        )  # fmt: skip
        alive = (over == 0)[:, None] & (n < images)
        place = find_offset(sent_stride, n, c, d, h, w)
        if HAS_CELLS:
            start = find_start(d, h, w, WINDOW)
            base = n * x_stride[0] + c * x_stride[1]
            cell, alive, _counted = read_cell(x, base, start, alive, tap, sizes[1:], x_stride[2:], WINDOW, ACC)
        new = ()
        own = sent + place
        for row in tl.static_range(ROWS):
            received = tl.load(own, mask=alive, other=0.0)
            own += rows
            if HAS_CELLS:
                received = tl.where(alive, received * cell, 0.0)
            new = new + (sums[row] + received,)
        sums = new
    for row in tl.static_range(ROWS):
        place = ((chunk.to(tl.int64) * ROWS + row) * count + parameter) * taps + tap
        tl.store(partial + place, tl.sum(sums[row], 1), mask=parameter < count)
