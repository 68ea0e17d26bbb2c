"""What each cell receives from the windows over it, from other lanes of its program or from memory.

``regions.py`` lists the constants. SLOTS says where the slots of each response begin, and where the last ends.
"""

import triton
import triton.language as tl

from . import responses
from .regions import UNROLLED


@triton.jit
def fetch(source, place, alive, FUSED: tl.constexpr):
    """One slot of a window: from other lanes of this program, or from memory."""
    if FUSED:
        return tl.gather(source, place, 0)
    else:
        return tl.load(source + place, mask=alive, other=0)


@triton.jit
def fetch_at_tap(slots, place, alive, tap, rows, TAPS: tl.constexpr, FUSED: tl.constexpr):
    """Of a response with slots for each tap, that of ``tap``."""
    if FUSED:
        value = tl.gather(slots[0], place, 0)
        for i in tl.static_range(1, TAPS):
            value = tl.where(tap == i, tl.gather(slots[i], place, 0), value)
        return value
    else:
        return tl.load(slots[0] + (place + tap.to(tl.int64) * rows), mask=alive, other=0)


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
def sum_windows(
    slots, rows, cell, weight, c, d, h, w, alive, outputs, place_stride, place_base, weight_stride,
    RESPONSES: tl.constexpr, SLOTS: tl.constexpr, BY_TAP: tl.constexpr, WINDOW: tl.constexpr, TAPS: tl.constexpr,
    FUSED: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each lane's cell receives what every response of every window over it sends.

    Windows come in the order of rising coordinates, as in PyTorch's own pools. ``place_base`` and ``place_stride`` say
    where the slots of a window are: a lane, or an offset in memory, where ``rows`` numbers lie from slot to slot.
    """
    windows: tl.constexpr = WINDOW[6][0] * WINDOW[6][1] * WINDOW[6][2]
    unrolled: tl.constexpr = windows if windows <= UNROLLED else 1
    total = tl.zeros([BLOCK], ACC)
    for step in range(windows // unrolled):  # once, if all of them are unrolled
        for i in tl.static_range(unrolled):
            number = step * unrolled + i
            back_d = WINDOW[6][0] - 1 - number // (WINDOW[6][1] * WINDOW[6][2])
            back_h = WINDOW[6][1] - 1 - number // WINDOW[6][2] % WINDOW[6][1]
            back_w = WINDOW[6][2] - 1 - number % WINDOW[6][2]
            od, tap_d, in_d = find_window(d, back_d, outputs[1], WINDOW[0][0], WINDOW[1][0], WINDOW[2][0], WINDOW[3][0])
            oh, tap_h, in_h = find_window(h, back_h, outputs[2], WINDOW[0][1], WINDOW[1][1], WINDOW[2][1], WINDOW[3][1])
            ow, tap_w, in_w = find_window(w, back_w, outputs[3], WINDOW[0][2], WINDOW[1][2], WINDOW[2][2], WINDOW[3][2])
            meets = alive & in_d & in_h & in_w
            tap = (tap_d * WINDOW[0][1] + tap_h) * WINDOW[0][2] + tap_w
            place = (
                place_base + c * place_stride[0] + od * place_stride[1] + oh * place_stride[2] + ow * place_stride[3]
            )
            if FUSED:
                place = tl.where(meets, place, 0).to(tl.int32)
            own_weight = c * weight_stride[1] + od * weight_stride[2] + oh * weight_stride[3] + ow * weight_stride[4]
            share = tl.zeros_like(total)
            for r in tl.static_range(len(RESPONSES)):
                at_tap = total
                if RESPONSES[r][1] >= 0:
                    row = own_weight + tap + RESPONSES[r][1] * weight_stride[0]
                    at_tap = tl.load(weight + row, mask=meets, other=0.0).to(ACC)
                own = ()
                if BY_TAP[r]:
                    own = (fetch_at_tap(slots[r], place, meets, tap, rows, TAPS, FUSED),)
                else:
                    for slot in tl.static_range(SLOTS[r + 1] - SLOTS[r]):
                        own = own + (fetch(slots[r][slot], place, meets, FUSED),)
                share += responses.receive(own, cell, at_tap, tap, RESPONSES[r][0])
            total += tl.where(meets, share, 0.0)
    return total
