"""Geometry, once: where a pooling window's taps fall, for any number of spatial dimensions."""

from __future__ import annotations

import inspect
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

Size = int | Sequence[int]
LARGEST = 2**31 - 1  # no number of a window is larger, as in PyTorch's own pools
TAPS = 2**24  # no window has more
Index = tuple[Any, ...]  # an ellipsis for batch and channels, then a slice per spatial axis


class Tap(NamedTuple):
    """One tap of the window, and the part of the map where the cell under it exists."""

    number: int  # in the kernel, row by row
    regions: Index  # of the output: those that have this cell
    cells: Index  # of the input: the cells themselves, one per such region


@dataclass(frozen=True)
class Window:
    """kernel, stride, padding, dilation (a number per spatial axis) and the two switches of PyTorch's pools."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False
    count_include_pad: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        dims: int,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> Window:
        """The window as a user writes it, legal where ``nn.MaxPool2d``'s is; errors begin with ``name``."""
        for what, value in (("ceil_mode", ceil_mode), ("count_include_pad", count_include_pad)):
            if not isinstance(value, bool):
                raise TypeError(f"{name}: {what} must be True or False, got {value!r}")
        kernel = _expand(name, "kernel_size", kernel_size, dims)
        no_stride = stride is None or (isinstance(stride, (tuple, list)) and len(stride) == 0)
        window = cls(
            kernel,
            kernel if no_stride else _expand(name, "stride", stride, dims),
            _expand(name, "padding", padding, dims),
            _expand(name, "dilation", dilation, dims),
            ceil_mode,
            count_include_pad,
        )
        window.check(name)
        return window

    def check(self, name: str) -> None:
        """Raise ValueError unless every axis has the same legal numbers as in PyTorch's max pooling."""
        for what in ("stride", "padding", "dilation"):
            if len(getattr(self, what)) != self.dims:
                numbers = getattr(self, what)
                raise ValueError(f"{name}: {what} must have {self.dims} numbers like the kernel, got {list(numbers)}")
        for what, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            values, word = getattr(self, what), "kernel_size" if what == "kernel" else what
            if any(value < least for value in values):
                raise ValueError(f"{name}: {word} must be at least {least}, got {format_size(values)}")
            if any(value > LARGEST for value in values):
                raise ValueError(f"{name}: {word} must be at most {LARGEST}, got {format_size(values)}")
        if math.prod(self.kernel) > TAPS:
            raise ValueError(f"{name}: kernel_size must have at most {TAPS} taps, got {format_size(self.kernel)}")
        if any(p > k // 2 for p, k in zip(self.padding, self.kernel, strict=True)):
            kernel, padding = format_size(self.kernel), format_size(self.padding)
            raise ValueError(f"{name}: padding must be at most half of kernel_size {kernel}, got {padding}")

    @classmethod
    def from_arguments(
        cls,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool = False,
    ) -> Window:
        """The window in a call of an operator: the inverse of ``arguments``; nothing is checked."""
        return cls(tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode, count_include_pad)

    @property
    def dims(self) -> int:
        return len(self.kernel)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The window as the operators take it, in the order of their schema."""
        return self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode, self.count_include_pad

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Output sizes for the spatial ``size``; free of branches, so that a traced size needs no guard."""
        return tuple(
            _compute_output_length(n, k, s, p, d, self.ceil_mode)
            for n, k, s, p, d in zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )

    def taps(self, size: Sequence[int]) -> Iterator[Tap]:
        """Taps in row-major order; a tap that lies outside for every region is left out."""
        axes = zip(size, self.output_size(size), self.kernel, self.stride, self.padding, self.dilation, strict=True)
        for taps in itertools.product(*(list(_iter_axis(*numbers)) for numbers in axes)):
            places, regions, cells = zip(*taps, strict=True)
            number = 0
            for place, k in zip(places, self.kernel, strict=True):
                number = number * k + place
            yield Tap(number, (..., *regions), (..., *cells))

    def count_cells(
        self, size: Sequence[int], divide: bool = True, *, device: torch.device, dtype: torch.dtype
    ) -> Tensor:
        """The cells of each region that exist, ``[*output_size]``; with ``divide`` what an average divides by.

        Then ``count_include_pad`` counts padding too, but never the overhang of ceil mode, and a region without any
        cell (only possible with dilation) counts 1, so that its average is 0.
        """
        total = torch.ones((), device=device, dtype=dtype)
        for axis, (n, out) in enumerate(zip(size, self.output_size(size), strict=True)):
            k, s, p, d = self.kernel[axis], self.stride[axis], self.padding[axis], self.dilation[axis]
            cell = torch.arange(out, device=device)[:, None] * s - p + torch.arange(k, device=device) * d
            inside = cell < n + p if divide and self.count_include_pad else (cell >= 0) & (cell < n)
            total = total[..., None] * inside.sum(1).to(dtype)
        return total.clamp(min=1) if divide else total


def _compute_output_length(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    last = n + 2 * p - d * (k - 1) - 1  # where the last whole window may begin
    if not ceil_mode:
        return last // s + 1
    out = (last + s - 1) // s + 1
    if p + s <= d * (k - 1) + 1:
        return out
    # The last window must begin inside the input or its left padding; with a larger stride it might not.
    return torch.sym_min(out, (n + p - 1) // s + 1)  # type: ignore[no-any-return]


def _iter_axis(n: int, out: int, k: int, s: int, p: int, d: int) -> Iterator[tuple[int, slice, slice]]:
    for tap in range(k):
        offset = tap * d - p
        first = max(0, -(offset // s))
        last = min(out, (n - 1 - offset) // s + 1)
        if first < last:
            yield tap, slice(first, last), slice(first * s + offset, (last - 1) * s + offset + 1, s)


def _expand(name: str, what: str, value: object, dims: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(values) == 1:
        values *= dims
    if any(isinstance(number, bool) or not hasattr(number, "__index__") for number in values):
        raise TypeError(f"{name}: {what} must be an int or a tuple of {dims} ints, got {value!r}")
    if len(values) != dims:
        raise ValueError(f"{name}: {what} must be one int or {dims}, got {value!r}")
    return tuple(operator.index(number) for number in values)


def format_size(numbers: Sequence[int]) -> str:
    """``(3, 3)`` as ``3×3``, for messages."""
    return "×".join(str(number) for number in numbers)


def get_memory_format(x: Tensor, dims: int) -> torch.memory_format:
    """The memory format of a pool's output: channels_last where x's strides say so, as in PyTorch's pools."""
    if dims == 1 or x.dim() != dims + 2:
        return torch.contiguous_format
    shape, stride = x.shape, x.stride()
    extent = 0
    for axis in (1, *range(dims + 1, 1, -1), 0):
        if shape[axis] == 0 or stride[axis] < extent or (axis == 1 and stride[axis] == 0):
            return torch.contiguous_format
        if axis == 0 and extent == stride[1]:
            return torch.contiguous_format  # C = H = W = 1: both layouts have these strides
        extent = stride[axis] * shape[axis]
    return torch.channels_last if dims == 2 else torch.channels_last_3d


def empty_output(shape: Sequence[int], x: Tensor, dims: int) -> Tensor:
    """An uninitialised tensor of ``shape``, with ``x``'s dtype and device and the memory format of a pool of ``x``."""
    return torch.empty(tuple(shape), dtype=x.dtype, device=x.device, memory_format=get_memory_format(x, dims))


def fill_signature(function: Callable[..., Any], source: Callable[..., Any]) -> inspect.Signature:
    """The signature of ``function``, its ``*args`` and ``**kwargs`` spelled out by the parameters of ``source``.

    The arguments of a window are written down once and passed on by many; this shows them to ``help`` and editors.
    """
    own = inspect.signature(function)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    remaining = [parameter for parameter in own.parameters.values() if parameter.kind not in variable]
    if len(remaining) == len(own.parameters):
        return own
    passed = [
        parameter for parameter in inspect.signature(source).parameters.values() if parameter.name not in own.parameters
    ]
    return own.replace(parameters=sorted(remaining + passed, key=lambda parameter: parameter.kind))


def check_arguments(name: str, signature: inspect.Signature, args: Any, kwargs: Any) -> None:
    """Raise TypeError in the words of ``name`` if the arguments do not fit its signature."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
