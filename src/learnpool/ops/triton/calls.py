"""Calls of a pool as kernels see them: in three dimensions, with tiles, strides and compile-time constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from ...program import Program, decode
from ..rows import get_accumulation_dtype
from ..window import Window, get_memory_format
from . import CaptureError, tiles
from .responses import UNITS
from .tiles import Map, Tile

FAR = 2**31 - 2**20  # offsets from here on need 64 bits
FUSED_TAPS = 32  # the most taps of a window whose slots stay on the chip in backward
FUSED_SLOTS = 81  # the most of them that a cell selects from, where there are slots for each tap
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
    dims: int  # of the operator

    @property
    def taps(self) -> int:
        return math.prod(self.window.kernel)

    @property
    def slots(self) -> Numbers:
        """Where the slots of each response begin, and where the last ends."""
        places = [0]
        for response in self.program.responses:
            unit = UNITS[response.kind]
            places.append(places[-1] + unit.slots * (self.taps if unit.by_tap else 1))
        return tuple(places)

    @property
    def can_be_fused(self) -> bool:
        """Whether the slots of windows may stay on the chip in backward."""
        selects = any(UNITS[response.kind].by_tap for response in self.program.responses)
        windows = math.prod(describe_window(self.window, self.shape)[6])
        return self.taps <= FUSED_TAPS and not (selects and self.taps * windows > FUSED_SLOTS)

    @property
    def load(self) -> int:
        """How many times smaller than usual the part is that a program covers, so that it has enough registers."""
        units = [UNITS[response.kind] for response in self.program.responses]
        large = 2 if len(self.program.nodes) > tiles.FEW_NODES else 1
        many = self.taps > tiles.FEW_TAPS
        return max(large, *(unit.load * (2 if unit.by_tap and many else 1) for unit in units))

    @property
    def constants(self) -> dict[str, Any]:
        """What kernels have to know when they are compiled; ``regions.py`` says what it means."""
        program = self.program
        units = [UNITS[response.kind] for response in program.responses]
        owners = {response.weight: r for r, response in enumerate(program.responses)}
        rows = [row for node in program.nodes for row in (node.row, node.bias)]
        rows += [response.scalar for response in program.responses]
        return {
            "RESPONSES": tuple(tuple(map(int, response)) for response in program.responses),
            "NODES": tuple(tuple(map(int, node)) for node in program.nodes),
            "PASSES": max(unit.passes for unit in units),
            "SLOTS": self.slots,
            "BY_TAP": tuple(unit.by_tap for unit in units),
            "LEARNED": tuple(owners[row] for row in range(program.weights)),
            "ROWS": tuple(row for row in rows if 0 <= row < program.mixes),
            "WEIGHTS": program.weights,
            "MIXES": program.mixes,
            "SCALARS": program.scalars,
            "WINDOW": describe_window(self.window, self.shape),
            "TAPS": self.taps,
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

    def describe_tensors(self, **tensors: Tensor) -> dict[str, Any]:
        """Tensors by the names that kernels have for them, their strides, and the sizes of x and y."""
        numbers: dict[str, Numbers] = {"sizes": self.shape.sizes, "outputs": self.shape.outputs}
        for name, tensor in tensors.items():
            find = find_parameter_strides if name in ("weight", "mix") else find_strides
            numbers[f"{name}_stride"] = find(tensor, self.dims)
        arguments: dict[str, Any] = {name: self.pass_numbers(some) for name, some in numbers.items()}
        return arguments | tensors | {"WIDE": is_far(*tensors.values())}

    def pass_numbers(self, numbers: Sequence[int]) -> tuple[Any, ...]:
        """Sizes and strides for a kernel: constants while it has few shapes."""
        return tuple(map(tl.constexpr, numbers)) if self.static else tuple(numbers)


def describe_window(window: Window, shape: Map) -> tuple[Any, ...]:
    """A window as kernels want it: its numbers, where it is never clipped, how far back windows reach over a cell."""
    axes = list(zip(shape.sizes[1:], shape.outputs[1:], *window.arguments[:4], strict=True))
    whole = tuple(p == 0 and (out - 1) * s + (k - 1) * d < n for n, out, k, s, p, d in axes)
    reach = tuple((k - 1) * d // s + 1 for _, _, k, s, _, d in axes)
    return (*window.arguments[:4], whole, window.count_include_pad, reach, all(whole))


def pad_window(window: Window) -> Window:
    """The window with three axes; those in front have one cell."""
    front = 3 - window.dims
    pads = ((1,) * front, (1,) * front, (0,) * front, (1,) * front)
    kernel, stride, padding, dilation = (pad + values for pad, values in zip(pads, window.arguments[:4], strict=True))
    return Window(kernel, stride, padding, dilation, window.ceil_mode, window.count_include_pad)


def find_strides(tensor: Tensor, dims: int) -> Numbers:
    """Strides of ``[N, C, *dims]`` or ``[C, *dims]`` as N, C, D, H, W; 0 of a gradient that is not wanted."""
    if tensor.dim() <= dims:
        return (0,) * 5
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
    return Call(decode(tuple(program)), pad_window(window), full, get_accumulation_dtype(x.dtype), static, dims)


def is_far(*tensors: Tensor) -> bool:
    """Whether an offset into one of the tensors needs 64 bits."""
    return any(sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True) if n) >= FAR for t in tensors)


def describe_tile(tile: Tile, *others: Tile, lanes: int = 4) -> dict[str, Any]:
    """What a kernel has to know of its tile; with so many lanes a thread, also in other tiles it goes through."""
    most = max(map(tiles.count_lanes, (tile, *others)))
    return {"TILE": tile, "BLOCK": tiles.count_lanes(tile), "num_warps": min(16, max(1, most // (32 * lanes)))}
