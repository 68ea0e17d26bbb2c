"""The kernels. Forward: a tile of regions. Backward: a tile of cells and all windows that touch it, in one kernel.

``backward`` computes the slots of the windows over its tile and keeps them on the chip, then every cell gathers what
its windows send it: no atomics, and the same bits every time. Where a window is too large for that, or parameters
differ from region to region, two kernels do the same through memory: ``send`` writes the slots, ``gather`` sums for
each cell, and ``reduce`` sums parameter gradients. Sums over windows are finished by ``torch.sum`` of the partial sums
each program leaves. ``regions.py`` lists the constants.
"""

import triton
import triton.language as tl

from . import responses
from .gathering import sum_windows
from .pipeline import evaluate, find_slots, respond
from .regions import find_offset, find_parameter, find_places, find_start, find_tile, read_cell, widen


@triton.jit
def forward(
    x, weight, mix, y,
    sizes,  # C, D, H, W of x
    outputs,  # C, D, H, W of y
    x_stride,  # N, C, D, H, W; so are the next
    y_stride,
    weight_stride,  # rows, C, D, H, W; 0 where shared
    mix_stride,
    RESPONSES: tl.constexpr, NODES: tl.constexpr, PASSES: tl.constexpr, MIXES: tl.constexpr, SCALARS: tl.constexpr,
    WINDOW: tl.constexpr, TAPS: tl.constexpr, TILE: tl.constexpr, LAST: tl.constexpr, SHARED: tl.constexpr,
    WIDE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``y``: each program pools one tile of regions."""
    n, c, d, h, w = find_tile(tl.program_id(0), outputs, TILE, LAST)
    n, c, d, h, w, alive = find_places(n, c, d, h, w, outputs, TILE, LAST, WIDE, BLOCK)
    start = find_start(d, h, w, WINDOW)
    mix_base = find_parameter(mix_stride, c, d, h, w, False)
    states, _, _ = respond(
        x, weight, mix, n * x_stride[0] + c * x_stride[1], find_parameter(weight_stride, c, d, h, w, SHARED), mix_base,
        weight_stride[0], mix_stride[0], start, alive, sizes[1:], x_stride[2:], RESPONSES, PASSES, MIXES, SCALARS,
        WINDOW, TAPS, SHARED, ACC, BLOCK,
    )  # fmt: skip
    values, _, _ = evaluate(states, mix, mix_base, mix_stride[0], alive, NODES, MIXES, SCALARS, ACC)
    offset = find_offset(y_stride, n, c, d, h, w)
    tl.store(y + offset, values[0].to(y.dtype.element_ty), mask=alive)


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
    grad, x, weight, mix, dx,
    partial,  # [programs, WEIGHTS * taps + MIXES, channels of a tile or 1]
    sizes, outputs, grad_stride, x_stride, dx_stride, weight_stride, mix_stride,
    RESPONSES: tl.constexpr, NODES: tl.constexpr, PASSES: tl.constexpr, SLOTS: tl.constexpr, BY_TAP: tl.constexpr,
    LEARNED: tl.constexpr,  # the response of each row of weight
    ROWS: tl.constexpr,  # the rows of mix, in the order in which gradients come
    WEIGHTS: tl.constexpr, MIXES: tl.constexpr, SCALARS: tl.constexpr, WINDOW: tl.constexpr, TAPS: tl.constexpr,
    TILE: tl.constexpr,  # of cells
    WINDOWS: tl.constexpr,  # the tile of windows that covers it
    LAST: tl.constexpr, SHARED: tl.constexpr, PER_CHANNEL: tl.constexpr,
    MASK: tl.constexpr,  # which gradients are wanted: x, weight, mix
    WIDE: tl.constexpr, ACC: tl.constexpr,
    REGIONS: tl.constexpr,  # lanes for windows
    BLOCK: tl.constexpr,  # lanes for cells
):  # fmt: skip
    """``dx`` for a tile of cells, and partial sums of the parameters' gradients over the windows that begin in it."""
    n, c0, d0, h0, w0 = find_tile(tl.program_id(0), sizes, TILE, LAST)
    first_d = find_first_window(d0, WINDOW[0][0], WINDOW[1][0], WINDOW[2][0], WINDOW[3][0])
    first_h = find_first_window(h0, WINDOW[0][1], WINDOW[1][1], WINDOW[2][1], WINDOW[3][1])
    first_w = find_first_window(w0, WINDOW[0][2], WINDOW[1][2], WINDOW[2][2], WINDOW[3][2])
    image, c, d, h, w, alive = find_places(n, c0, first_d, first_h, first_w, outputs, WINDOWS, LAST, WIDE, REGIONS)
    slots, c_rows, start, base = find_slots(
        grad, x, weight, mix, image, c, d, h, w, alive, sizes, grad_stride, x_stride, weight_stride, mix_stride,
        RESPONSES, NODES, PASSES, MIXES, SCALARS, WINDOW, TAPS, SHARED, ACC, REGIONS,
    )  # fmt: skip

    owned = alive & owns(d, d0, TILE[1], WINDOW[1][0], WINDOW[2][0])
    owned = owned & owns(h, h0, TILE[2], WINDOW[1][1], WINDOW[2][1])
    owned = owned & owns(w, w0, TILE[3], WINDOW[1][2], WINDOW[2][2])
    numbers = WEIGHTS * TAPS + MIXES
    if PER_CHANNEL:
        numbers = numbers * TILE[0]
    own_partial = partial + tl.program_id(0).to(tl.int64) * numbers
    if MASK[1]:
        for tap in tl.static_range(TAPS):
            cell, exists, _ = read_cell(x, base, start, owned, tap, sizes[1:], x_stride[2:], WINDOW, ACC)
            for row in tl.static_range(WEIGHTS):
                if not BY_TAP[LEARNED[row]]:
                    product = responses.weight(slots[LEARNED[row]][0], cell, exists, RESPONSES[LEARNED[row]][0])
                    store_sum(own_partial, row * TAPS + tap, tl.where(owned, product, 0.0), TILE, PER_CHANNEL, REGIONS)
        for row in tl.static_range(WEIGHTS):
            if BY_TAP[LEARNED[row]]:
                for place in range(TAPS):
                    value = responses.place(slots[LEARNED[row]], place, RESPONSES[LEARNED[row]][0], WINDOW, TAPS)
                    store_sum(own_partial, row * TAPS + place, tl.where(owned, value, 0.0), TILE, PER_CHANNEL, REGIONS)
    if MASK[2]:
        for i in tl.static_range(len(ROWS)):
            number = WEIGHTS * TAPS + ROWS[i]
            store_sum(own_partial, number, tl.where(owned, c_rows[i], 0.0), TILE, PER_CHANNEL, REGIONS)

    if MASK[0]:
        n, c, d, h, w, alive = find_places(n, c0, d0, h0, w0, sizes, TILE, LAST, WIDE, BLOCK)
        if LAST:
            steps = (1, WINDOWS[2] * WINDOWS[3] * TILE[0], WINDOWS[3] * TILE[0], TILE[0])
        else:
            steps = (WINDOWS[1] * WINDOWS[2] * WINDOWS[3], WINDOWS[2] * WINDOWS[3], WINDOWS[3], 1)
        place_base = -(c0 * steps[0] + first_d * steps[1] + first_h * steps[2] + first_w * steps[3])
        cell = tl.load(x + find_offset(x_stride, n, c, d, h, w), mask=alive, other=0.0).to(ACC)
        total = sum_windows(
            slots, 0, cell, weight, c, d, h, w, alive, outputs, steps, place_base, weight_stride,
            RESPONSES, SLOTS, BY_TAP, WINDOW, TAPS, True, ACC, BLOCK,
        )  # fmt: skip
        offset = find_offset(dx_stride, n, c, d, h, w)
        tl.store(dx + offset, total.to(dx.dtype.element_ty), mask=alive)


@triton.jit
def send(
    grad, x, weight, mix,
    sent,  # the slots of all responses, then what reaches the rows of mix, one after the other
    rows,  # numbers in one of them
    sizes, outputs, grad_stride, x_stride, sent_stride, weight_stride, mix_stride,
    RESPONSES: tl.constexpr, NODES: tl.constexpr, PASSES: tl.constexpr, SLOTS: tl.constexpr, BY_TAP: tl.constexpr,
    ROWS: tl.constexpr, WEIGHTS: tl.constexpr, MIXES: tl.constexpr, SCALARS: tl.constexpr, WINDOW: tl.constexpr,
    TAPS: tl.constexpr, TILE: tl.constexpr, LAST: tl.constexpr, SHARED: tl.constexpr, MASK: tl.constexpr,
    WIDE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The slots of every window, into memory."""
    n, c, d, h, w = find_tile(tl.program_id(0), outputs, TILE, LAST)
    n, c, d, h, w, alive = find_places(n, c, d, h, w, outputs, TILE, LAST, WIDE, BLOCK)
    slots, c_rows, _, _ = find_slots(
        grad, x, weight, mix, n, c, d, h, w, alive, sizes, grad_stride, x_stride, weight_stride, mix_stride,
        RESPONSES, NODES, PASSES, MIXES, SCALARS, WINDOW, TAPS, SHARED, ACC, BLOCK,
    )  # fmt: skip
    sent += find_offset(sent_stride, n, c, d, h, w)
    if WIDE:
        rows = tl.cast(rows, tl.int64)
    for r in tl.static_range(len(RESPONSES)):
        if BY_TAP[r]:
            for i in tl.static_range(TAPS):
                tl.store(sent + (SLOTS[r] + i) * rows, slots[r][i], mask=alive)
            if MASK[1] and RESPONSES[r][1] >= 0 and RESPONSES[r][1] < WEIGHTS:
                for place in range(TAPS):
                    value = responses.place(slots[r], place, RESPONSES[r][0], WINDOW, TAPS)
                    tl.store(sent + (SLOTS[r] + TAPS + place) * rows, value, mask=alive)
        else:
            for i in tl.static_range(len(slots[r])):
                tl.store(sent + (SLOTS[r] + i) * rows, slots[r][i], mask=alive)
    for i in tl.static_range(len(ROWS)):
        tl.store(sent + (SLOTS[len(RESPONSES)] + ROWS[i]) * rows, c_rows[i], mask=alive)


@triton.jit
def gather(
    sent, rows, x, weight, dx, sizes, outputs, sent_stride, x_stride, dx_stride, weight_stride,
    RESPONSES: tl.constexpr, SLOTS: tl.constexpr, BY_TAP: tl.constexpr, WINDOW: tl.constexpr, TAPS: tl.constexpr,
    TILE: tl.constexpr, LAST: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``dx`` from what ``send`` wrote."""
    n, c, d, h, w = find_tile(tl.program_id(0), sizes, TILE, LAST)
    n, c, d, h, w, alive = find_places(n, c, d, h, w, sizes, TILE, LAST, WIDE, BLOCK)
    slots = ()
    for r in tl.static_range(len(RESPONSES)):
        own = ()
        for _ in tl.static_range(SLOTS[r + 1] - SLOTS[r]):  # a difference is a constant, an entry is not
            own = own + (sent,)
            sent += rows
        slots = slots + (own,)
    cell = tl.load(x + find_offset(x_stride, n, c, d, h, w), mask=alive, other=0.0).to(ACC)
    total = sum_windows(
        slots, rows, cell, weight, c, d, h, w, alive, outputs, sent_stride[1:], n * sent_stride[0], weight_stride,
        RESPONSES, SLOTS, BY_TAP, WINDOW, TAPS, False, ACC, BLOCK,
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
    x, sent, rows,
    partial,  # [chunks, parameters' rows, parameters, taps]
    steps,  # blocks of windows a program sums
    images, sizes,
    kept,  # C, D, H, W of the parameter, 1 where it is shared
    shared,  # C, D, H, W of what is summed, 1 where it is not
    x_stride, sent_stride,
    SOURCES: tl.constexpr,  # kind, first slot and whether there is one for each tap, for each of the parameters' rows
    WINDOW: tl.constexpr,  # of one tap for mix
    TAPS: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
    KEPT: tl.constexpr,  # lanes: parameters, and windows summed side by side
    SUMMED: tl.constexpr,
):  # fmt: skip
    """Gradients of one tap of some parameters, summed over a chunk of the windows that share them."""
    count = kept[0] * kept[1] * kept[2] * kept[3]
    blocks = tl.cdiv(count, KEPT)
    tap, block, chunk = tl.program_id(0) % TAPS, tl.program_id(0) // TAPS % blocks, tl.program_id(0) // TAPS // blocks
    if WIDE:
        chunk = chunk.to(tl.int64)
        rows = tl.cast(rows, tl.int64)
    parameter = block * KEPT + tl.arange(0, KEPT)
    over, kept_c, kept_d, kept_h, kept_w = split(parameter, kept)  # over: 0 where there is a parameter
    sums = ()
    for _row in tl.static_range(len(SOURCES)):
        sums = sums + (tl.zeros([KEPT, SUMMED], ACC),)
    for step in range(steps):
        n, c, d, h, w = split((chunk * steps + step) * SUMMED + tl.arange(0, SUMMED), shared)
        n, c, d, h, w = widen(
            n[None, :], c[None, :] + kept_c[:, None], d[None, :] + kept_d[:, None], h[None, :] + kept_h[:, None],
            w[None, :] + kept_w[:, None], WIDE,
        )  # fmt: skip
        alive = (over == 0)[:, None] & (n < images)
        own = sent + find_offset(sent_stride, n, c, d, h, w)
        start = find_start(d, h, w, WINDOW)
        base = n * x_stride[0] + c * x_stride[1]
        cell, exists, _counted = read_cell(x, base, start, alive, tap, sizes[1:], x_stride[2:], WINDOW, ACC)
        new = ()
        for row in tl.static_range(len(SOURCES)):
            slot = own + SOURCES[row][1] * rows
            if SOURCES[row][2]:
                slot += (TAPS + tap) * rows
            received = tl.load(slot, mask=alive, other=0.0)
            new = new + (sums[row] + responses.weight(received, cell, exists, SOURCES[row][0]),)
        sums = new
    for row in tl.static_range(len(SOURCES)):
        place = ((chunk.to(tl.int64) * len(SOURCES) + row) * count + parameter) * TAPS + tap
        tl.store(partial + place, tl.sum(sums[row], 1), mask=parameter < count)
