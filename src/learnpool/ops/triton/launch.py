"""``learnpool::pool`` and ``learnpool::pool_backward`` by Triton: geometry, tiles and launches of the kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from ...program import Program, decode
from ..operator import POOL, POOL_BACKWARD, check, check_gradient
from ..rows import get_accumulation_dtype
from ..window import Window, empty_output, get_memory_format
from . import CaptureError, kernels, tiles
from .tiles import Map, Tile

FAR = 2**31 - 2**20  # offsets from here on need 64 bits
TAPS = 32  # the most taps whose windows stay on the chip in backward
OPTIONS = ("num_warps", "enable_fp_fusion")  # arguments for the compiler alone
STATIC = 16  # sizes of one pool that get a kernel of their own; further ones share one that takes any size

Numbers = tuple[int, ...]
_shapes: dict[Any, set[Any]] = {}


class Launch(NamedTuple):
    """One kernel with everything it is called with."""

    kernel: Any
    programs: int
    arguments: dict[str, Any]

    @classmethod
    def make(cls, kernel: Any, programs: int, arguments: dict[str, Any]) -> Launch:
        """A launch with those of the arguments that the kernel takes."""
        taken = (*kernel.arg_names, *OPTIONS)
        return cls(kernel, programs, {name: value for name, value in arguments.items() if name in taken})

    def run(self) -> None:
        self.kernel[(self.programs,)](**self.arguments)


class Call(NamedTuple):
    """A call of the operator in three dimensions."""

    program: Program
    window: Window
    shape: Map
    dtype: torch.dtype  # sums are kept in
    static: bool

    @property
    def constants(self) -> dict[str, Any]:
        """What every kernel has to know when it is compiled."""
        nodes = tuple((int(node.code), *node[1:]) for node in self.program.nodes)
        return {
            "NODES": nodes,
            "NEEDS": (self.program.has_max, self.program.has_min, self.program.has_avg),
            "WEIGHTS": self.program.weights,
            "WINDOW": describe_window(self.window, self.shape),
            "LAST": self.shape.last,
            "ACC": tl.float64 if self.dtype == torch.float64 else tl.float32,
            "enable_fp_fusion": True,  # multiply and add in one instruction, whatever this Triton's default is
        }

    @property
    def tiled(self) -> Map:
        """What tiles are chosen for: any number of images alike, and sizes alike in a kernel that takes any."""
        images = tiles.round_up(self.shape.images)
        if self.static:
            return self.shape._replace(images=images)
        sizes, outputs = (tuple(map(tiles.round_up, part)) for part in (self.shape.sizes, self.shape.outputs))
        return self.shape._replace(images=images, sizes=sizes, outputs=outputs)  # type: ignore[arg-type]

    def pass_numbers(self, numbers: Sequence[int]) -> tuple[Any, ...]:
        """Sizes and strides for a kernel: constants while it has few shapes."""
        return tuple(map(tl.constexpr, numbers)) if self.static else tuple(numbers)


def describe_window(window: Window, shape: Map) -> tuple[Any, ...]:
    """A window as kernels want it: its numbers, where it is never clipped, how far back windows reach over a cell."""
    axes = list(zip(shape.sizes[1:], shape.outputs[1:], *window.arguments[:4], strict=True))
    whole = tuple(p == 0 and (out - 1) * s + (k - 1) * d < n for n, out, k, s, p, d in axes)
    reach = tuple((k - 1) * d // s + 1 for _, _, k, s, _, d in axes)
    return (*window.arguments[:4], whole, window.count_include_pad, reach)


def pad_window(window: Window) -> Window:
    """The window with three axes; those in front have one cell."""
    front = 3 - window.dims
    pads = ((1,) * front, (1,) * front, (0,) * front, (1,) * front)
    kernel, stride, padding, dilation = (pad + values for pad, values in zip(pads, window.arguments[:4], strict=True))
    return Window(kernel, stride, padding, dilation, window.ceil_mode, window.count_include_pad)


def find_strides(tensor: Tensor, dims: int) -> Numbers:
    """Strides of ``[N, C, *dims]`` or ``[C, *dims]`` as N, C, D, H, W."""
    stride = tensor.stride()
    image = (0,) if tensor.dim() == dims + 1 else stride[:1]
    return (*image, stride[-dims - 1], *(0,) * (3 - dims), *stride[-dims:])


def find_parameter_strides(parameter: Tensor, dims: int) -> Numbers:
    """Strides of ``[rows, C|1, *grid|1, ...]`` as rows, C, D, H, W: 0 where it is shared."""
    stride, shape = parameter.stride(), parameter.shape
    rows, c, *grid = (0 if n == 1 and axis else s for axis, (n, s) in enumerate(zip(shape, stride, strict=True)))
    return (rows, c, *(0,) * (3 - dims), *grid[:dims])


def is_capturing(x: Tensor) -> bool:
    """Whether kernels go into a CUDA graph instead of being run."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def describe_call(name: str, x: Tensor, shape: Sequence[int], program: Sequence[int], window: Window) -> Call:
    """The call in three dimensions; its sizes are constants unless the same pool has met many."""
    dims = window.dims
    front = (1,) * (3 - dims)
    images = x.shape[0] if x.dim() == dims + 2 else 1
    last = get_memory_format(x, dims) != torch.contiguous_format
    sizes = (x.shape[-dims - 1], *front, *x.shape[-dims:])
    outputs = (x.shape[-dims - 1], *front, *shape[-dims:])
    full = Map(images, sizes, outputs, x.element_size(), last)  # type: ignore[arg-type]
    known = _shapes.setdefault((name, tuple(program), window, x.dtype, last), set())
    static = (sizes, x.stride()) in known
    if not static and len(known) < STATIC:
        if is_capturing(x):
            raise CaptureError(
                f"{name}: the first call with input {list(x.shape)} compiles a kernel, which is not possible while a "
                "CUDA graph is captured; call learnpool.ops.triton.warm_up(net, x) before"
            )
        known.add((sizes, x.stride()))
        static = True
    return Call(decode(tuple(program)), pad_window(window), full, get_accumulation_dtype(x.dtype), static)


def is_far(*tensors: Tensor) -> bool:
    """Whether an offset into one of the tensors needs 64 bits."""
    return any(sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True) if n) >= FAR for t in tensors)


def pool(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::pool``."""
    window = Window.from_arguments(*arguments)
    y = empty_output(check(POOL, x, weight, mix, program, window), x, window.dims)
    if y.numel():
        with torch.cuda.device_of(x):
            plan_forward(x, weight.contiguous(), mix.contiguous(), y, program, window).run()
    return y


def plan_forward(x: Tensor, weight: Tensor, mix: Tensor, y: Tensor, program: Sequence[int], window: Window) -> Launch:
    """The launch that writes ``y``."""
    call, dims = describe_call(POOL, x, y.shape, program, window), window.dims
    tile = tiles.choose_forward(call.tiled, call.window)
    arguments = {
        "x": x,
        "weight": weight,
        "mix": mix,
        "y": y,
        "sizes": call.pass_numbers(call.shape.sizes),
        "outputs": call.pass_numbers(call.shape.outputs),
        "x_stride": call.pass_numbers(find_strides(x, dims)),
        "y_stride": call.pass_numbers(find_strides(y, dims)),
        "weight_stride": call.pass_numbers(find_parameter_strides(weight, dims)),
        "mix_stride": call.pass_numbers(find_parameter_strides(mix, dims)),
        "SHARED": math.prod(weight.shape[1 : 2 + dims]) == 1,
        "WIDE": is_far(x, y, weight),
    }
    programs = tiles.count_tiles(call.shape.images, call.shape.outputs, tile)
    lanes = 4 if call.shape.last else max(4, 16 // x.element_size())  # of a thread; other numbers of halves spill
    return Launch(kernels.forward, programs, call.constants | arguments | describe_tile(tile, lanes=lanes))


def describe_tile(tile: Tile, *others: Tile, lanes: int = 4) -> dict[str, Any]:
    """What a kernel has to know of its tile; with so many lanes a thread, also in other tiles it goes through."""
    most = max(map(tiles.count_lanes, (tile, *others)))
    return {"TILE": tile, "BLOCK": tiles.count_lanes(tile), "num_warps": min(16, max(1, most // (32 * lanes)))}


def pool_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel of ``learnpool::pool_backward``."""
    *arguments, mask = rest
    window = Window.from_arguments(*arguments)
    check_gradient(POOL_BACKWARD, grad, x, check(POOL_BACKWARD, x, weight, mix, program, window))
    mask = tuple(bool(wanted) for wanted in mask)
    dx = empty_output(x.shape, x, window.dims) if mask[0] else x.new_empty((0,))
    if not grad.numel():
        zeros = (p.new_zeros(p.shape) if m else p.new_empty((0,)) for p, m in zip((weight, mix), mask[1:], strict=True))
        return (dx, *zeros)  # type: ignore[return-value]
    with torch.cuda.device_of(x):
        steps = plan_backward(grad, x, weight.contiguous(), mix.contiguous(), dx, program, window, mask)
        for launch in steps.launches:
            launch.run()
        sums = steps.sum_parameters()
    dw, dm = (
        total.reshape(p.shape).to(p.dtype) if wanted else p.new_empty((0,))
        for total, p, wanted in zip(sums, (weight, mix), mask[1:], strict=True)
    )
    return dx, dw, dm


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
    wanted = [p for p, m in zip((weight, mix), mask[1:], strict=True) if m and p.numel()]
    regional = any(math.prod(p.shape[2 : 2 + dims]) > 1 for p in wanted)
    per_channel = any(p.shape[1] > 1 for p in wanted)
    tile = None
    if not regional and math.prod(window.kernel) <= TAPS:
        channels = 1 if per_channel and not call.shape.last else call.shape.sizes[0]
        tile = tiles.choose_backward(call.tiled, call.window, channels, len(call.program.nodes))
    common: dict[str, Any] = call.constants | {
        "weight": weight,
        "sizes": call.pass_numbers(call.shape.sizes),
        "outputs": call.pass_numbers(call.shape.outputs),
        "weight_stride": call.pass_numbers(find_parameter_strides(weight, dims)),
        "WIDE": is_far(x, grad, dx, weight),
    }
    source: dict[str, Any] = {
        "grad": grad,
        "x": x,
        "mix": mix,
        "grad_stride": call.pass_numbers(find_strides(grad, dims)),
        "x_stride": call.pass_numbers(find_strides(x, dims)),
        "mix_stride": call.pass_numbers(find_parameter_strides(mix, dims)),
        "MIXES": call.program.mixes,
        "SHARED": math.prod(weight.shape[1 : 2 + dims]) == 1,
    }
    if tile is not None:
        return _plan_fused(call, tile, common | source, dx, weight, mix, mask, per_channel, dims)
    return _plan_through_memory(call, common, source, dx, weight, mix, mask, dims)


def _plan_fused(
    call: Call,
    tile: Tile,
    common: dict[str, Any],
    dx: Tensor,
    weight: Tensor,
    mix: Tensor,
    mask: tuple[bool, ...],
    per_channel: bool,
    dims: int,
) -> BackwardPlan:
    shape = call.shape
    windows = tiles.cover(tile, call.tiled, call.window)
    programs = tiles.count_tiles(shape.images, shape.sizes, tile)
    per_lane = per_channel and shape.last
    taps = math.prod(call.window.kernel)
    rows = call.program.weights * taps + call.program.mixes
    partial = torch.empty((programs, rows, tile[0] if per_lane else 1), dtype=call.dtype, device=weight.device)
    arguments = {
        "dx": dx,
        "partial": partial,
        "dx_stride": call.pass_numbers(find_strides(dx, dims) if mask[0] else (0,) * 5),
        "WINDOWS": windows,
        "PER_CHANNEL": per_lane,
        "MASK": mask,
        "REGIONS": tiles.count_lanes(windows),
    }
    many = math.prod(common["WINDOW"][6]) > 4  # windows over a cell: a thread has half the lanes, or lacks registers
    arguments |= describe_tile(tile, windows, lanes=2 if many else 4)
    launch = Launch(kernels.backward, programs, common | arguments)
    # programs are numbered image, channels, places, or in channels_last image, places, channels
    channel_tiles = -(-shape.sizes[0] // tile[0])
    places = programs // (shape.images * channel_tiles)
    outer, inner = (places, 1) if shape.last else (1, places)
    by_program = partial.view(shape.images, outer, channel_tiles, inner, rows, partial.shape[2])

    def sum_parameters() -> tuple[Tensor, Tensor]:
        sums = by_program.sum((0, 1, 3)).movedim(1, 0).flatten(1)  # [rows, channels, or tiles of them]
        split = sums.split((rows - call.program.mixes, call.program.mixes))
        dw, dm = (
            part[:, : shape.sizes[0]] if p.shape[1] > 1 else part.sum(1, keepdim=True)
            for part, p in zip(split, (weight, mix), strict=True)
        )
        return dw.unflatten(0, (-1, taps)).movedim(1, 2) if len(dw) else dw, dm  # taps behind channels

    return BackwardPlan([launch], sum_parameters)


def _plan_through_memory(
    call: Call,
    common: dict[str, Any],
    source: dict[str, Any],
    dx: Tensor,
    weight: Tensor,
    mix: Tensor,
    mask: tuple[bool, ...],
    dims: int,
) -> BackwardPlan:
    shape, program, grad = call.shape, call.program, source["grad"]
    like = empty_output(grad.shape, source["x"], dims)
    count = grad.numel()
    responses = program.has_max + program.has_min + program.has_avg
    sent = torch.empty((responses + program.weights + program.mixes, count), dtype=call.dtype, device=grad.device)
    taps = torch.empty((program.has_max + program.has_min, count), dtype=torch.int32, device=grad.device)
    common = common | {"WIDE": common["WIDE"] or count >= FAR}
    passed = {"sent": sent, "rows": count, "sent_stride": call.pass_numbers(find_strides(like, dims))}
    both = common | passed | {"taps": taps}
    tile = tiles.choose_forward(call.tiled, call.window)
    programs = tiles.count_tiles(shape.images, shape.outputs, tile)
    launches = [Launch(kernels.send, programs, both | source | describe_tile(tile))]
    if mask[0]:
        launches.append(plan_gather(call, both, dx, dims))
    partials = [weight[None], mix[None]]  # what has no row, or is not wanted, stays
    for i, wanted in enumerate(mask[1:]):
        parameter = partials[i][0]
        if wanted and parameter.numel():
            row = responses + i * program.weights
            launch = _plan_reduction(call, common | passed | source, parameter, row, i == 0, dims)
            launches.append(launch)
            partials[i] = launch.arguments["partial"]
    return BackwardPlan(launches, lambda: (partials[0].sum(0), partials[1].sum(0)))


def plan_gather(call: Call, passed: dict[str, Any], dx: Tensor, dims: int) -> Launch:
    """The launch that writes ``dx`` from what windows send, which lies in memory."""
    one = (1, 1, 1)
    cells = call.tiled._replace(outputs=call.tiled.sizes)
    tile = tiles.choose_forward(cells, Window(one, one, (0, 0, 0), one))
    arguments = describe_tile(tile) | {"dx": dx, "dx_stride": call.pass_numbers(find_strides(dx, dims))}
    programs = tiles.count_tiles(call.shape.images, call.shape.sizes, tile)
    return Launch.make(kernels.gather, programs, passed | arguments)


def _plan_reduction(
    call: Call, common: dict[str, Any], parameter: Tensor, row: int, has_cells: bool, dims: int
) -> Launch:
    shape = call.shape
    front = (1,) * (3 - dims)
    extent = (parameter.shape[1], *front, *parameter.shape[2 : 2 + dims])
    shared = tuple(1 if n == m else m for n, m in zip(extent, shape.outputs, strict=True))
    count, summed = math.prod(extent), shape.images * math.prod(shared)
    taps = math.prod(call.window.kernel) if has_cells else 1
    kept_lanes = min(128, tiles.round_up(count))
    summed_lanes = min(1024 // kept_lanes, tiles.round_up(summed))
    blocks, steps = taps * -(-count // kept_lanes), -(-summed // summed_lanes)
    chunks = max(1, min(tiles.PROGRAMS // blocks, steps))  # from the shape alone: the same sums on any GPU
    steps = -(-steps // chunks)
    partial = torch.empty((chunks, len(parameter), count, taps), dtype=call.dtype, device=parameter.device)
    one = (1, 1, 1)
    window = common["WINDOW"] if has_cells else (one, one, (0, 0, 0), one, (True, True, True), False, one)
    arguments = common | {
        "sent": common["sent"][row:],
        "partial": partial,
        "steps": steps,
        "images": shape.images,
        "kept": call.pass_numbers(extent),
        "shared": call.pass_numbers(shared),
        "ROWS": len(parameter),
        "WINDOW": window,
        "HAS_CELLS": has_cells,
        "KEPT": kept_lanes,
        "SUMMED": summed_lanes,
    }
    return Launch.make(kernels.reduce, blocks * chunks, arguments)
