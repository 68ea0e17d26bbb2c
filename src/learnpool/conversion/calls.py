"""Calls of torch functions where a pool stands or may stand, as data; and the same calls with another pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .convolutions import BEFORE, Convolution, Original, Slice, simplify
from .torch_pools import GlobalPool, Obstacle, TorchPool, is_one_cell

POOL_FUNCTIONS: dict[Callable[..., Any], tuple[str, int]] = {
    getattr(module, f"{function}_pool{dims}d{suffix}"): (function, dims)
    for module, function, suffix in ((F, "max", ""), (torch, "max", ""), (F, "max", "_with_indices"), (F, "avg", ""))
    for dims in (1, 2, 3)
}
_WITH_INDICES = (F.max_pool1d_with_indices, F.max_pool2d_with_indices, F.max_pool3d_with_indices)
ADAPTIVE_FUNCTIONS: dict[Callable[..., Any], tuple[str, int]] = {
    getattr(F, f"adaptive_{function}_pool{dims}d"): (function, dims)
    for function in ("max", "avg")
    for dims in (1, 2, 3)
}
OTHER_FUNCTIONS: dict[Callable[..., Any], Obstacle] = {
    getattr(F, f"lp_pool{dims}d"): Obstacle.OTHER for dims in (1, 2, 3)
}
MEAN_FUNCTIONS: dict[Callable[..., Any], str] = {
    torch.mean: "avg",
    Tensor.mean: "avg",
    torch.amax: "max",
    Tensor.amax: "max",
}
METHODS: dict[str, Callable[..., Any]] = {"mean": Tensor.mean, "amax": Tensor.amax}
CONVOLUTIONS: dict[Callable[..., Any], int] = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
SLICE = Tensor.__getitem__
FUNCTIONS = {*POOL_FUNCTIONS, *ADAPTIVE_FUNCTIONS, *OTHER_FUNCTIONS, *MEAN_FUNCTIONS, *CONVOLUTIONS, SLICE}
_ARGUMENTS = {
    "max": ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    "avg": ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "adaptive": ("input", "output_size", "return_indices"),
    "mean": ("input", "dim", "keepdim"),
    "convolution": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
}
_SPATIAL = {(2,): 1, (2, 3): 2, (-2, -1): 2, (2, 3, 4): 3, (-3, -2, -1): 3}  # axes of a map, and how many


@dataclass(frozen=True)
class Call:
    """A call at such a place: its input and the rest as data, or why it is never replaced."""

    input: Any
    original: Original | None = None
    obstacle: Obstacle | None = None

    def run(self, pool: nn.Module | None, function: Any, arguments: dict[str, Any], where: str) -> Tensor:
        """The call with ``pool`` in it, behind or before its convolution; without one, the convolution at stride 1."""
        x: Tensor = self.input
        if isinstance(self.original, Convolution):
            x = pool(x) if pool is not None and where == BEFORE else x
            x = function(**{**arguments, "input": x, "stride": 1})
            return x if pool is None or where == BEFORE else pool(x)
        assert pool is not None
        out: Tensor = pool(x)
        if isinstance(self.original, GlobalPool) and not self.original.keepdim:
            return out.flatten(-self.original.dims - 1)
        return out


def select_functions(kinds: Sequence[str]) -> set[Any]:
    """Those of ``FUNCTIONS`` that are looked for: pools always, others if their kind is asked for."""
    functions: set[Any] = {*POOL_FUNCTIONS, *ADAPTIVE_FUNCTIONS, *OTHER_FUNCTIONS}
    functions |= {*MEAN_FUNCTIONS} if "global" in kinds else set()
    functions |= {*CONVOLUTIONS} if {"strided", "shortcut"} & {*kinds} else set()
    return functions | ({SLICE} if "shortcut" in kinds else set())


def name_function(function: Any) -> str:
    return "slice" if function is SLICE else str(function.__name__)


def name_arguments(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name."""
    kind = "convolution" if function in CONVOLUTIONS else "mean" if function in MEAN_FUNCTIONS else "adaptive"
    if function in POOL_FUNCTIONS:
        kind = POOL_FUNCTIONS[function][0]
    return {**dict(zip(_ARGUMENTS[kind], args, strict=False)), **kwargs}


def read_call(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Call | None:
    """A call of one of ``FUNCTIONS``; None if no pool has a place there: a convolution of stride 1, a mean of rows."""
    if function in OTHER_FUNCTIONS:
        return Call(args[0] if args else kwargs.get("input"), obstacle=OTHER_FUNCTIONS[function])
    if function is SLICE:
        stride = _read_slice(args[1], args[0])
        return None if stride is None else Call(args[0], Slice(stride))
    arguments = name_arguments(function, args, kwargs)
    x = arguments.pop("input", None)
    if function in CONVOLUTIONS:
        convolution = _read_convolution(CONVOLUTIONS[function], **arguments)
        return None if convolution is None else Call(x, convolution)
    if function in MEAN_FUNCTIONS:
        dims = _read_axes(arguments, x)
        if dims is None:
            return Call(x, obstacle=Obstacle.CHANNELS_LAST) if _has_channels_last(arguments, x) else None
        return Call(x, GlobalPool(MEAN_FUNCTIONS[function], dims, arguments.get("keepdim", False)))
    if function in ADAPTIVE_FUNCTIONS:
        kind, dims = ADAPTIVE_FUNCTIONS[function]
        if not is_one_cell(arguments.get("output_size"), dims):
            return Call(x, obstacle=Obstacle.ADAPTIVE)
        return Call(x, GlobalPool(kind, dims, True, arguments.get("return_indices", False)))
    kind, dims = POOL_FUNCTIONS[function]
    if kind == "avg":
        arguments.setdefault("count_include_pad", True)
    elif function in _WITH_INDICES:
        arguments["return_indices"] = True
    return Call(x, simplify(TorchPool(kind, dims, **arguments)))


def _read_convolution(
    dims: int, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Convolution | None:
    steps = _expand(stride, dims)
    if set(steps) == {1}:
        return None
    if not isinstance(weight, Tensor):
        return Convolution(steps)  # torch.fx.symbolic_trace: there is no tensor to ask, and the stride is known
    kernel = tuple(weight.shape[2:])
    pads = (0,) * dims if isinstance(padding, str) else _expand(padding, dims)  # "valid"; "same" has no stride
    channels = weight.shape[1] * groups, weight.shape[0], groups
    return Convolution(steps, kernel, pads, _expand(dilation, dims), *channels, True)


def _expand(numbers: Any, dims: int) -> tuple[int, ...]:
    values = tuple(numbers) if isinstance(numbers, (tuple, list, torch.Size)) else (numbers,)
    return values * dims if len(values) == 1 else values


def _read_axes(arguments: dict[str, Any], x: Any) -> int | None:
    """How many spatial axes a mean is over, if it is over all those of a map and nothing else."""
    axes = arguments.get("dim")
    if not isinstance(axes, (tuple, list)) or set(arguments) - {"dim", "keepdim"}:
        return None
    dims = _SPATIAL.get(tuple(sorted(axes)))
    return dims if dims is None or x is None or x.dim() == dims + 2 else None


def _has_channels_last(arguments: dict[str, Any], x: Any) -> bool:
    """Whether a mean is over the map of ``[N, H, W, C]``; only the tensor itself tells."""
    axes = arguments.get("dim")
    if x is None or x.dim() not in (4, 5) or not isinstance(axes, (tuple, list)):
        return False
    return sorted(axis % x.dim() for axis in axes) == [*range(1, x.dim() - 1)]


def _read_slice(index: Any, x: Any) -> tuple[int, ...] | None:
    """The stride of ``x[:, :, ::2, ::2]`` or ``x[..., ::2, ::2]``; None for any other index.

    How many axes the map has is told by the tensor, or by an index of at least two of them.
    """
    if not isinstance(index, tuple) or not all(isinstance(part, slice) or part is Ellipsis for part in index):
        return None
    whole, from_last = slice(None), index[:1] == (Ellipsis,)
    steps = index[1:] if from_last else index[2:]
    dims = len(steps) if x is None else max(len(steps), x.dim() - 2)
    if not steps or dims > 3 or (x is None and dims == 1) or (x is not None and x.dim() < 3):
        return None
    if any(part is Ellipsis for part in index[1:]) or not (from_last or index[:2] == (whole, whole)):
        return None
    others = (whole,) * (dims - len(steps))
    steps = (*others, *steps) if from_last else (*steps, *others)
    if any(part.start not in (None, 0) or part.stop is not None for part in steps):
        return None
    stride = tuple(1 if part.step is None else part.step for part in steps)
    return stride if all(isinstance(s, int) and s >= 1 for s in stride) and max(stride) > 1 else None


def has_offset(index: Any) -> bool:
    """Whether an index takes every s-th cell but not from the first on: space to depth, which loses nothing."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, slice) and part.step is not None and part.start not in (None, 0) for part in parts)
