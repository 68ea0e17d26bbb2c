"""PyTorch's own pools as data: read from a module or from a functional call, written as a module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch import nn

from ..ops.window import Size, Window, format_size

POOL_MODULES: dict[type[nn.Module], tuple[str, int]] = {
    getattr(nn, f"{function.title()}Pool{dims}d"): (function, dims) for function in ("max", "avg") for dims in (1, 2, 3)
}


class Obstacle(Enum):
    """Why a pool cannot be replaced, as far as its code tells; the value is what the report says."""

    ADAPTIVE = "adaptive: its windows differ in size"
    ADAPTIVE_COMPUTED = "adaptive, to a size that is computed in forward: give example="
    OTHER = "neither a maximum nor an average"
    CHANNELS_LAST = "channels last: pools take maps as [N, C, …]"
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
        return self in (Obstacle.ADAPTIVE, Obstacle.ADAPTIVE_COMPUTED, Obstacle.OTHER, Obstacle.CHANNELS_LAST)

    @property
    def needs_example(self) -> bool:
        return not self.by_nature and self is not Obstacle.ARGUMENTS


ADAPTIVE_MODULES: dict[type[nn.Module], tuple[str, int]] = {
    getattr(nn, f"Adaptive{function.title()}Pool{dims}d"): (function, dims)
    for function in ("max", "avg")
    for dims in (1, 2, 3)
}
OTHER_MODULES: dict[type[nn.Module], Obstacle] = {
    **dict.fromkeys(ADAPTIVE_MODULES, Obstacle.ADAPTIVE),
    **{getattr(nn, f"LPPool{dims}d"): Obstacle.OTHER for dims in (1, 2, 3)},
    **dict.fromkeys((nn.FractionalMaxPool2d, nn.FractionalMaxPool3d), Obstacle.OTHER),
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
    def key(self) -> tuple[Any, ...]:
        """What a route tells calls of different pools at one location by."""
        return (self.kind, *self.window.arguments, self.return_indices, self.divisor_override)

    @property
    def window(self) -> Window:
        return Window.of(self.title, self.dims, *self.geometry)

    @property
    def geometry(self) -> tuple[Any, ...]:
        return (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.count_include_pad)

    @property
    def new_geometry(self) -> dict[str, Any]:
        """The window of a learned pool in this one's place, as a layer's arguments: the same."""
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        counts = {} if self.kind == "max" else {"count_include_pad": self.count_include_pad}
        return {name: getattr(self, name) for name in names} | counts

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

    def covers(self, size: Sequence[int]) -> bool:
        """Whether one window holds the whole of a map."""
        window = self.window
        return all(k >= n for k, n in zip(window.kernel, size, strict=True)) and not any(window.padding)

    def build_module(self) -> nn.Module:
        """The PyTorch layer that computes this pool."""
        cls: Any = getattr(nn, self.title)
        if self.kind == "max":
            window = self.kernel_size, self.stride, self.padding, self.dilation, self.return_indices, self.ceil_mode
            return cls(*window)  # type: ignore[no-any-return]
        more = () if self.dims == 1 else (self.divisor_override,)
        arguments = self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, *more
        return cls(*arguments)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class GlobalPool:
    """The mean or maximum of the whole map: an adaptive pool to one cell, ``x.mean((2, 3))``, or a window as large."""

    function: str  # max or avg
    dims: int
    keepdim: bool = True  # [N, C, 1, 1], not [N, C]
    return_indices: bool = False
    window_pool: TorchPool | None = None  # that covers the map, if it is written so

    kind = "global"
    label = "the whole map"

    @property
    def key(self) -> tuple[Any, ...]:
        how = "adaptive" if self.window_pool is None else "window"
        return (self.kind, how, self.function, self.dims, self.keepdim, self.return_indices)

    @property
    def refusal(self) -> str | None:
        return "return_indices: a learned pool has none" if self.return_indices else None

    def build_module(self) -> nn.Module:
        """The PyTorch layer that computes this pool."""
        if self.window_pool is not None:
            return self.window_pool.build_module()
        cls: Any = getattr(nn, f"Adaptive{self.function.title()}Pool{self.dims}d")
        return cls(1)  # type: ignore[no-any-return]


def is_one_cell(output_size: Any, dims: int) -> bool:
    """Whether an adaptive pool of this output size covers the whole map."""
    return output_size == 1 or (isinstance(output_size, (tuple, list)) and tuple(output_size) == (1,) * dims)


def find_pool_class(module: nn.Module) -> type[nn.Module] | None:
    """The PyTorch max or average pool a module is or derives from."""
    return next((cls for cls in (*POOL_MODULES, *ADAPTIVE_MODULES) if isinstance(module, cls)), None)


def read_module(module: nn.Module) -> TorchPool | GlobalPool | None:
    """A module as data; None unless it computes exactly what PyTorch's own pool does (it may change defaults)."""
    cls = find_pool_class(module)
    if cls is None or "forward" in module.__dict__ or type(module).forward is not cls.forward:
        return None
    if type(module).__call__ is not nn.Module.__call__:
        return None
    if cls in ADAPTIVE_MODULES:
        function, dims = ADAPTIVE_MODULES[cls]
        is_global = is_one_cell(module.output_size, dims)
        return GlobalPool(function, dims, True, getattr(module, "return_indices", False)) if is_global else None
    kind, dims = POOL_MODULES[cls]
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "count_include_pad")
    options = {
        name: getattr(module, name) for name in (*names, "return_indices", "divisor_override") if hasattr(module, name)
    }
    return TorchPool(kind, dims, **options)
