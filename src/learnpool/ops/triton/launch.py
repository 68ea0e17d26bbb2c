"""``learnpool::pool`` and ``learnpool::pool_backward`` by Triton: which kernels are launched, with which tiles."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...program import Program, decode
from .. import operator
from ..operator import POOL, POOL_BACKWARD, check, check_gradient
from ..rows import clamp_rows, drop_outward, get_accumulation_dtype
from ..window import Window, empty_output
from . import kernels, tiles
from .calls import Call, Launch, describe_call, describe_tile, find_strides, is_far
from .responses import NUMBER, UNITS
from .tiles import Tile


def is_supported(program: Sequence[int], window: Window) -> bool:
    """Whether there are kernels for every response of the program over so many taps."""
    taps = math.prod(window.kernel)
    return all(taps <= (UNITS[response.kind].taps or taps) for response in decode(tuple(program)).responses)


@lru_cache(maxsize=256)
def make_filters(filters: tuple[tuple[float, ...], ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Constant rows of weight, copied to a device once: nothing can be copied while a CUDA graph is captured."""
    return torch.tensor(filters, dtype=dtype, device=device)


def prepare(weight: Tensor, mix: Tensor, program: Program, kernel: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Parameters as kernels read them: contiguous, numbers in their domains, constant filters behind those that learn.

    Constant numbers are compile-time constants.
    """
    if program.filters:
        dtype = get_accumulation_dtype(weight.dtype)
        rows = make_filters(program.filters, dtype, weight.device).reshape(-1, *(1,) * (mix.dim() - 1), *kernel)
        weight = torch.cat([weight.to(dtype), rows.expand(-1, *weight.shape[1:])]) if program.weights else rows
    return weight.contiguous(), clamp_rows(mix, program.domains).contiguous()


def pool(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::pool``."""
    window = Window.from_arguments(*arguments)
    y = empty_output(check(POOL, x, weight, mix, program, window), x, window.dims)
    if not is_supported(program, window):
        return operator.pool(x, weight, mix, program, *arguments)
    if y.numel():
        with torch.cuda.device_of(x):
            plan_forward(x, weight, mix, y, program, window).run()
    return y


def plan_forward(x: Tensor, weight: Tensor, mix: Tensor, y: Tensor, program: Sequence[int], window: Window) -> Launch:
    """The launch that writes ``y``."""
    call = describe_call(POOL, x, y.shape, program, window)
    weight, mix = prepare(weight, mix, call.program, window.kernel)
    tile = tiles.choose_forward(call.tiled, call.window, call.load)
    arguments = call.describe_tensors(x=x, weight=weight, mix=mix, y=y)
    arguments["SHARED"] = math.prod(weight.shape[1 : 2 + window.dims]) == 1
    programs = tiles.count_tiles(call.shape.images, call.shape.outputs, tile)
    lanes = 4 if call.shape.last else max(4, 16 // x.element_size())  # of a thread; other numbers of halves spill
    arguments |= call.constants | describe_tile(tile, lanes=max(1, lanes // call.load))
    return Launch.make(kernels.forward, programs, arguments)


def pool_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel of ``learnpool::pool_backward``."""
    *arguments, mask = rest
    window = Window.from_arguments(*arguments)
    check_gradient(POOL_BACKWARD, grad, x, check(POOL_BACKWARD, x, weight, mix, program, window))
    if not is_supported(program, window):
        return operator.pool_backward(grad, x, weight, mix, program, *rest)
    mask = tuple(bool(wanted) for wanted in mask)
    dx = empty_output(x.shape, x, window.dims) if mask[0] else x.new_empty((0,))
    if not grad.numel():
        zeros = (p.new_zeros(p.shape) if m else p.new_empty((0,)) for p, m in zip((weight, mix), mask[1:], strict=True))
        return (dx, *zeros)  # type: ignore[return-value]
    with torch.cuda.device_of(x):
        steps = plan_backward(grad, x, weight, mix, dx, program, window, mask)
        for launch in steps.launches:
            launch.run()
        sums = steps.sum_parameters()
    dw, dm = (
        total.reshape(p.shape).to(p.dtype) if wanted else p.new_empty((0,))
        for total, p, wanted in zip(sums, (weight, mix), mask[1:], strict=True)
    )
    return dx, dw, drop_outward(mix, dm, decode(tuple(program)).domains) if mask[2] else dm


class BackwardPlan(NamedTuple):
    """Kernels to launch one after the other, and what then makes the parameters' gradients of their partial sums."""

    launches: list[Launch]
    sum_parameters: Callable[[], tuple[Tensor, Tensor]]


def plan_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    mix: Tensor,
    dx: Tensor,
    program: Sequence[int],
    window: Window,
    mask: tuple[bool, ...],
) -> BackwardPlan:
    """One kernel if the windows over a tile of cells fit on the chip and no gradient is summed region by region."""
    call, dims = describe_call(POOL_BACKWARD, x, grad.shape, program, window), window.dims
    weight, mix = prepare(weight, mix, call.program, window.kernel)
    counts = (call.program.weights, call.program.mixes)  # rows that learn: constants lie behind them
    wanted = [p for p, rows, m in zip((weight, mix), counts, mask[1:], strict=True) if rows and m]
    regional = any(math.prod(p.shape[2 : 2 + dims]) > 1 for p in wanted)
    per_channel = any(p.shape[1] > 1 for p in wanted)
    tile = None
    if not regional and call.can_be_fused:
        channels = 1 if per_channel and not call.shape.last else call.shape.sizes[0]
        tile = tiles.choose_backward(call.tiled, call.window, channels, call.load)
    common = call.constants | call.describe_tensors(grad=grad, x=x, weight=weight, mix=mix, dx=dx)
    common |= {"SHARED": math.prod(weight.shape[1 : 2 + dims]) == 1, "MASK": mask}
    if tile is not None:
        return _plan_fused(call, tile, common, per_channel)
    return _plan_through_memory(call, common)


def _plan_fused(call: Call, tile: Tile, common: dict[str, Any], per_channel: bool) -> BackwardPlan:
    shape, weights, mixes = call.shape, call.program.weights, call.program.mixes
    windows = tiles.cover(tile, call.tiled, call.window)
    programs = tiles.count_tiles(shape.images, shape.sizes, tile)
    per_lane = per_channel and shape.last
    rows = weights * call.taps + mixes
    partial = torch.empty((programs, rows, tile[0] if per_lane else 1), dtype=call.dtype, device=common["x"].device)
    many = math.prod(common["WINDOW"][6]) > 4 or call.load > 2  # then a thread has fewer lanes, or lacks registers
    lanes = 1 if call.load > 8 else 2 if many else 4
    arguments = describe_tile(tile, windows, lanes=lanes) | {
        "partial": partial,
        "WINDOWS": windows,
        "PER_CHANNEL": per_lane,
        "REGIONS": tiles.count_lanes(windows),
    }
    # programs are numbered image, channels, places, or in channels_last image, places, channels
    channel_tiles = -(-shape.sizes[0] // tile[0])
    places = programs // (shape.images * channel_tiles)
    outer, inner = (places, 1) if shape.last else (1, places)
    by_program = partial.view(shape.images, outer, channel_tiles, inner, rows, partial.shape[2])

    def sum_parameters() -> tuple[Tensor, Tensor]:
        sums = by_program.sum((0, 1, 3)).movedim(1, 0).flatten(1)  # [rows, channels, or tiles of them]
        dw, dm = (
            part[:, : shape.sizes[0]] if p.shape[1] > 1 else part.sum(1, keepdim=True)
            for part, p in zip(sums.split((rows - mixes, mixes)), (common["weight"], common["mix"]), strict=True)
        )
        return dw.unflatten(0, (-1, call.taps)).movedim(1, 2) if len(dw) else dw, dm  # taps behind channels

    return BackwardPlan([Launch.make(kernels.backward, programs, common | arguments)], sum_parameters)


def _plan_through_memory(call: Call, common: dict[str, Any]) -> BackwardPlan:
    shape, program, grad = call.shape, call.program, common["grad"]
    like = empty_output(grad.shape, common["x"], call.dims)
    sent = torch.empty((call.slots[-1] + program.mixes, grad.numel()), dtype=call.dtype, device=grad.device)
    common = common | {
        "sent": sent,
        "rows": grad.numel(),
        "sent_stride": call.pass_numbers(find_strides(like, call.dims)),
        "WIDE": common["WIDE"] or is_far(sent),
    }
    tile = tiles.choose_forward(call.tiled, call.window, call.load)
    programs = tiles.count_tiles(shape.images, shape.outputs, tile)
    lanes = describe_tile(tile, lanes=max(1, 4 // call.load))
    launches = [Launch.make(kernels.send, programs, common | lanes)]
    if common["MASK"][0]:
        launches.append(plan_gather(call, common))
    sources: list[Any] = [  # of the rows of weight, and of mix
        [(int(program.responses[r].kind), call.slots[r], common["BY_TAP"][r]) for r in common["LEARNED"]],
        [(NUMBER.value, call.slots[-1] + row, False) for row in range(program.mixes)],
    ]
    sums = [common["weight"][None, :0], common["mix"][None, :0]]
    for i, wanted in enumerate(common["MASK"][1:]):
        if wanted and sources[i]:
            launches.append(_plan_reduction(call, common, sums[i][0], tuple(sources[i])))
            sums[i] = launches[-1].arguments["partial"]
    return BackwardPlan(launches, lambda: (sums[0].sum(0), sums[1].sum(0)))


def plan_gather(call: Call, common: dict[str, Any]) -> Launch:
    """The launch that writes ``dx`` from the slots of windows, which lie in memory."""
    one = (1, 1, 1)
    cells = call.tiled._replace(outputs=call.tiled.sizes)
    tile = tiles.choose_forward(cells, Window(one, one, (0, 0, 0), one))
    programs = tiles.count_tiles(call.shape.images, call.shape.sizes, tile)
    return Launch.make(kernels.gather, programs, common | describe_tile(tile))


def _plan_reduction(call: Call, common: dict[str, Any], parameter: Tensor, sources: tuple[Any, ...]) -> Launch:
    shape, dims = call.shape, call.dims
    front = (1,) * (3 - dims)
    extent = (parameter.shape[1], *front, *parameter.shape[2 : 2 + dims])
    shared = tuple(1 if n == m else m for n, m in zip(extent, shape.outputs, strict=True))
    count, summed = math.prod(extent), shape.images * math.prod(shared)
    taps = math.prod(parameter.shape[2 + dims :])
    kept_lanes = min(128, tiles.round_up(count))
    summed_lanes = min(1024 // kept_lanes, tiles.round_up(summed))
    blocks, steps = taps * -(-count // kept_lanes), -(-summed // summed_lanes)
    chunks = max(1, min(tiles.PROGRAMS // blocks, steps))  # from the shape alone: the same sums on any GPU
    steps = -(-steps // chunks)
    partial = torch.empty((chunks, len(sources), count, taps), dtype=call.dtype, device=parameter.device)
    one = (1, 1, 1)
    no_cells = (one, one, (0, 0, 0), one, (False, False, False), False, one, False)  # what mix has
    arguments = {
        "partial": partial,
        "steps": steps,
        "images": shape.images,
        "kept": call.pass_numbers(extent),
        "shared": call.pass_numbers(shared),
        "SOURCES": sources,
        "WINDOW": no_cells if parameter.dim() == 2 + dims else common["WINDOW"],
        "TAPS": taps,
        "KEPT": kept_lanes,
        "SUMMED": summed_lanes,
    }
    return Launch.make(kernels.reduce, blocks * chunks, common | arguments)
