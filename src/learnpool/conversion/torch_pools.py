"""PyTorch's own pools as data: read from a module or from a functional call, written as a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..ops.window import Size, Window, format_size

POOL_MODULES: dict[type[nn.Module], tuple[str, int]] = {
    nn.MaxPool1d: ("max", 1),
    nn.MaxPool2d: ("max", 2),
    nn.MaxPool3d: ("max", 3),
    nn.AvgPool1d: ("avg", 1),
    nn.AvgPool2d: ("avg", 2),
    nn.AvgPool3d: ("avg", 3),
}
POOL_FUNCTIONS: dict[Callable[..., Any], tuple[str, int]] = {
    F.max_pool1d: ("max", 1),
    F.max_pool2d: ("max", 2),
    F.max_pool3d: ("max", 3),
    torch.max_pool1d: ("max", 1),
    torch.max_pool2d: ("max", 2),
    torch.max_pool3d: ("max", 3),
    F.max_pool1d_with_indices: ("max", 1),
    F.max_pool2d_with_indices: ("max", 2),
    F.max_pool3d_with_indices: ("max", 3),
    F.avg_pool1d: ("avg", 1),
    F.avg_pool2d: ("avg", 2),
    F.avg_pool3d: ("avg", 3),
}
_WITH_INDICES = (F.max_pool1d_with_indices, F.max_pool2d_with_indices, F.max_pool3d_with_indices)


class Obstacle(Enum):
    """Why a pool cannot be replaced, as far as its code tells; the value is what the report says."""

    ADAPTIVE = "adaptive: its windows differ in size"
    OTHER = "neither a maximum nor an average"
    PASSED_ON = "passed on as a value: example= shows where it is called"
    NO_SOURCE = "its source cannot be read: give example="
    COMPUTED = "its window is computed in forward: give example="
    ARGUMENTS = "its arguments are not those of a pool"
    DEFERRED = "in a generator or coroutine, which may run after forward: give example="
    OWN_FORWARD = "has a forward of its own: give example="
    THREADS = "its forward starts threads, where calls are not replaced: give example="

    @property
    def by_nature(self) -> bool:
        """Whether the pool is of a sort that is never replaced."""
        return self in (Obstacle.ADAPTIVE, Obstacle.OTHER)

    @property
    def needs_example(self) -> bool:
        return not self.by_nature and self is not Obstacle.ARGUMENTS


_OTHERS = (
    ("adaptive_max_pool", "AdaptiveMaxPool", Obstacle.ADAPTIVE),
    ("adaptive_avg_pool", "AdaptiveAvgPool", Obstacle.ADAPTIVE),
    ("lp_pool", "LPPool", Obstacle.OTHER),
)
OTHER_MODULES: dict[type[nn.Module], Obstacle] = {
    getattr(nn, f"{cls}{dims}d"): why for _, cls, why in _OTHERS for dims in (1, 2, 3)
} | {nn.FractionalMaxPool2d: Obstacle.OTHER, nn.FractionalMaxPool3d: Obstacle.OTHER}
OTHER_FUNCTIONS: dict[Callable[..., Any], Obstacle] = {
    getattr(F, f"{name}{dims}d"): why for name, _, why in _OTHERS for dims in (1, 2, 3)
}
_ARGUMENTS = {
    "max": ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    "avg": ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
}


@dataclass(frozen=True)
class TorchPool:
    """A max or average pool of PyTorch, with the arguments as its user wrote them."""

    kind: str  # max or avg
    dims: int
    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0
    dilation: Size = 1
    ceil_mode: bool = False
    count_include_pad: bool = False
    return_indices: bool = False
    divisor_override: int | None = None

    @property
    def window(self) -> Window:
        return Window.of(self.title, self.dims, *self.geometry)

    @property
    def geometry(self) -> tuple[Any, ...]:
        return (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.count_include_pad)

    @property
    def title(self) -> str:
        return f"{self.kind.title()}Pool{self.dims}d"

    @property
    def label(self) -> str:
        """``3×3, stride 2, padding 1``: the window, as far as it differs from the plainest."""
        window = self.window
        words = [format_size(window.kernel)]
        for word, numbers, plainest in (
            ("stride", window.stride, 0),
            ("padding", window.padding, 0),
            ("dilation", window.dilation, 1),
        ):
            if set(numbers) != {plainest}:
                words.append(f"{word} {numbers[0] if len(set(numbers)) == 1 else format_size(numbers)}")
        return ", ".join([*words, *(["ceil"] if self.ceil_mode else [])])

    @property
    def refusal(self) -> str | None:
        """Why no pool that learns can take this one's place."""
        if self.return_indices:
            return "return_indices: a learned pool has none"
        if self.divisor_override is not None:
            return "divisor_override: not an average of its window"
        return "a window of one cell: nothing to learn" if set(self.window.kernel) == {1} else None

    def build_module(self) -> nn.Module:
        """The PyTorch layer that computes this pool."""
        cls: Any = getattr(nn, self.title)
        if self.kind == "max":
            window = self.kernel_size, self.stride, self.padding, self.dilation, self.return_indices, self.ceil_mode
            return cls(*window)  # type: ignore[no-any-return]
        more = () if self.dims == 1 else (self.divisor_override,)
        arguments = self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, *more
        return cls(*arguments)  # type: ignore[no-any-return]


def is_same_pool(one: TorchPool | None, other: TorchPool | None) -> bool:
    """Whether two calls are of one pool, however their arguments are written."""
    if one is None or other is None:
        return one is other
    same = one.kind == other.kind and one.window == other.window
    return same and (one.return_indices, one.divisor_override) == (other.return_indices, other.divisor_override)


def find_pool_class(module: nn.Module) -> type[nn.Module] | None:
    """The PyTorch max or average pool a module is or derives from."""
    return next((cls for cls in POOL_MODULES if isinstance(module, cls)), None)


def read_module(module: nn.Module) -> TorchPool | None:
    """A module as data; None unless it computes exactly what PyTorch's own pool does (it may change defaults)."""
    cls = find_pool_class(module)
    if cls is None or "forward" in module.__dict__ or type(module).forward is not cls.forward:
        return None
    if type(module).__call__ is not nn.Module.__call__:
        return None
    kind, dims = POOL_MODULES[cls]
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "count_include_pad")
    options = {
        name: getattr(module, name) for name in (*names, "return_indices", "divisor_override") if hasattr(module, name)
    }
    return TorchPool(kind, dims, **options)


def read_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, TorchPool]:
    """A call of ``F.max_pool2d`` or one of its relatives: its input, and the rest as data."""
    kind, dims = POOL_FUNCTIONS[function]
    arguments = dict(zip(_ARGUMENTS[kind], args, strict=False))
    arguments.update(kwargs)
    x = arguments.pop("input", None)
    if kind == "avg":
        arguments.setdefault("count_include_pad", True)
    elif function in _WITH_INDICES:
        arguments["return_indices"] = True
    return x, TorchPool(kind, dims, **arguments)
