"""The same function from PyTorch's own operations: a max pooling, a convolution per mask or filter, and the tree.

What is neither a maximum nor an inner product is read tap by tap from the padded input, by the units of the reference.
Slower than the operator, but understood by exporters (ONNX, ExecuTorch), forward-mode AD and nested torch.func.
Nothing branches on the input's size, so the size may be a symbol. It differs from the operator in one case: an infinite
or NaN weight gives NaN in a region that reaches into the padding, as in a convolution.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..program import Kind, Program, Response, decode
from . import reference
from .operator import POOL, check
from .reference import Blend
from .rows import append_constants, clamp_rows, get_accumulation_dtype
from .unit import Cell, Counts
from .window import Window

_MAX_POOLS: tuple[Callable[..., Any], ...] = (F.max_pool2d, F.max_pool3d)
_CONVOLUTIONS: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)


def pool(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *arguments: Any) -> Tensor:
    """``learnpool::pool`` in PyTorch's operations."""
    return forward(x, weight, mix, program, Window.from_arguments(*arguments))


def pool_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *rest: Any
) -> tuple[Tensor, ...]:
    """``learnpool::pool_backward`` in PyTorch's operations: the reference's."""
    *arguments, output_mask = rest
    grads = reference.backward(grad, x, weight, mix, program, Window.from_arguments(*arguments), output_mask)
    return tuple(like.new_empty((0,)) if g is None else g for g, like in zip(grads, (x, weight, mix), strict=True))


def pool_for_onnx(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *arguments: Any) -> Tensor:
    """``learnpool::pool`` in few operations, for ``torch.onnx.export``."""
    window = Window.from_arguments(*arguments)
    check(POOL, x, weight, mix, program, window)
    return forward(x, weight, mix, program, window, blend_finite)


def forward(
    x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], window: Window, blend: Blend = reference.blend
) -> Tensor:
    """Pool ``x`` by the tree, as ``reference.forward`` does."""
    decoded = decode(tuple(program))
    batch = x if x.dim() == window.dims + 2 else x.unsqueeze(0)
    responses, rows = compute_responses(batch, weight, clamp_rows(mix, decoded.domains), decoded, window)
    y = reference.evaluate(decoded, responses, rows, blend)[0][0].to(x.dtype)
    return y if x.dim() == window.dims + 2 else y.squeeze(0)


def blend_finite(p: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``p left + (1 − p) right`` and no more: three operations instead of a dozen, and NaN beside infinities."""
    return p * left + (1 - p) * right


def compute_responses(
    x: Tensor, weight: Tensor, mix: Tensor, program: Program, window: Window
) -> tuple[list[Tensor], Tensor]:
    """Every response of every region of ``[N, C, *size]``, and the rows of mix, constants too."""
    dtype = get_accumulation_dtype(x.dtype)
    weight, mix = append_constants(weight.to(dtype), mix.to(dtype), program, window.kernel)
    values = [_respond(response, x, weight, window) for response in program.responses]
    if any(value is None for value in values):
        wide = x.to(dtype)
        padded, counts = _pad(wide, window), Counts(_count_existing(wide, window), count_cells(wide, window))
        like = _get_tap(padded, window, (0,) * window.dims)
        units = reference.make_units(program, like, counts, weight, mix, window)
        taps = [(unit, i) for i, unit in enumerate(units) if values[i] is None]
        exists = None
        if window.ceil_mode or any(window.padding):
            exists = _pad(torch.ones(x.shape[2:], dtype=dtype, device=x.device)[None, None], window)[0, 0] > 0
        for p in range(max(unit.passes for unit, _ in taps)):
            for number, place in enumerate(itertools.product(*map(range, window.kernel))):
                there = None if exists is None else _get_tap(exists, window, place)
                cell = Cell(number, _get_tap(padded, window, place), there)
                for unit, _ in taps:
                    if p < unit.passes:
                        unit.add(p, cell)
        for unit, i in taps:
            values[i] = unit.finish()
    return [value for value in values if value is not None], mix


def _respond(response: Response, x: Tensor, weight: Tensor, window: Window) -> Tensor | None:
    """A response that PyTorch has an operation for; None for the others."""
    dtype = weight.dtype
    match response.kind:
        case Kind.MAX:
            return _max_pool(x, window).to(dtype)
        case Kind.MIN:
            return -_max_pool(-x, window).to(dtype)
        case Kind.AVG:
            wide = x.to(dtype)
            return sum_regions(wide, window) / count_cells(wide, window)
        case Kind.DOT:
            return _multiply(x.to(dtype), weight[response.weight], window)
        case Kind.BLUR:
            wide, row = x.to(dtype), weight[response.weight]
            ones = torch.ones((1, 1, *x.shape[2:]), dtype=dtype, device=x.device)
            return _multiply(wide, row, window) / _multiply(ones, row[:1], window)
        case _:
            return None


def _multiply(x: Tensor, row: Tensor, window: Window) -> Tensor:
    """The inner product of every region with a row of weight, ``[C|1, *grid|1, *kernel]``."""
    if all(isinstance(n, int) and n == 1 for n in row.shape[1 : 1 + window.dims]):
        return _convolve(x, row.reshape(-1, 1, *window.kernel), window)
    return (_gather_patches(x, window) * row).flatten(-window.dims).sum(-1)  # [N, C, *output, *kernel]


def _get_tap(padded: Tensor, window: Window, place: tuple[int, ...]) -> Tensor:
    """The cells under one tap, as large as the output; bounds count from the end, so that a size may be a symbol."""
    slices = []
    for k, s, d, t in zip(window.kernel, window.stride, window.dilation, place, strict=True):
        behind = d * (k - 1 - t)
        slices.append(slice(t * d, -behind if behind else None, s))
    index: Any = (..., *slices)
    return padded[index]


def _count_existing(x: Tensor, window: Window) -> Tensor:
    return count_cells(x, replace(window, count_include_pad=False), least=0)


def sum_regions(x: Tensor, window: Window, padding: float = 0.0) -> Tensor:
    """The sum of each region's cells; a cell of the padding is ``padding``."""
    return _convolve(x, torch.ones((1, 1, *window.kernel), dtype=x.dtype, device=x.device), window, padding)


def count_cells(x: Tensor, window: Window, least: int = 1) -> Tensor:
    """What an average divides by, as in ``Window.count_cells``: a number, or ``[1, 1, *output]`` where edges differ."""
    new: dict[str, Any] = {"dtype": x.dtype, "device": x.device}
    if not window.ceil_mode and (window.count_include_pad or not any(window.padding)):
        return torch.full((), float(math.prod(window.kernel)), **new)
    cells = sum_regions(torch.ones((1, 1, *x.shape[2:]), **new), window, float(window.count_include_pad))
    return cells.clamp(min=least) if max(window.dilation) > 1 else cells  # only dilation makes a region without any


def _convolve(x: Tensor, w: Tensor, window: Window, padding: float = 0.0) -> Tensor:
    """``w · x`` of every region, w ``[C|1, 1, *kernel]``."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):  # it would convolve in half precision, the operator does not
            return _convolve(x, w, window, padding)
    channels = x.shape[1]
    built_in = not padding and not window.ceil_mode  # the convolution can pad by itself
    padded, pad = (x, window.padding) if built_in else (_pad(x, window, padding), 0)
    w = w.expand(channels, *w.shape[1:])
    return _CONVOLUTIONS[window.dims - 1](padded, w, None, window.stride, pad, window.dilation, channels)


def _gather_patches(x: Tensor, window: Window) -> Tensor:
    """The cells of every region, ``[N, C, *output, *kernel]``."""
    cells = _pad(x, window)
    numbers = zip(window.output_size(x.shape[2:]), window.kernel, window.stride, window.dilation, strict=True)
    for axis, (out, k, s, d) in enumerate(numbers, 2):
        place = torch.arange(out, device=x.device)[:, None] * s + torch.arange(k, device=x.device) * d
        cells = cells.index_select(axis, place.flatten()).unflatten(axis, (out, k)).movedim(axis + 1, -1)
    return cells


def _max_pool(x: Tensor, window: Window) -> Tensor:
    # Some ONNX runtimes keep a ceil-mode window that begins behind the input; with explicit padding there is none.
    pad: tuple[int, ...] = window.padding
    if window.ceil_mode:
        x, pad = _pad(x, window, -math.inf, -math.inf), (0,) * window.dims
    if window.dims == 1:  # F.max_pool1d would fix a traced size
        flat = (1, *window.kernel), (1, *window.stride), (0, *pad), (1, *window.dilation)
        return F.max_pool2d(x.unsqueeze(2), *flat).squeeze(2)
    return _MAX_POOLS[window.dims - 2](x, window.kernel, window.stride, pad, window.dilation)  # type: ignore[no-any-return]


def _pad(x: Tensor, window: Window, value: float = 0.0, overhang: float = 0.0) -> Tensor:
    """``x`` with its padding of ``value``, and in ceil mode ``overhang`` behind it.

    With this much behind, floor mode has ceil mode's windows: those that begin inside the input or its left padding.
    """
    padding = [n for p in reversed(window.padding) for n in (p, p)]
    over = [0] * len(padding)
    if window.ceil_mode:
        numbers = zip(window.kernel, window.stride, window.padding, window.dilation, strict=True)
        over = [n for k, s, p, d in reversed(list(numbers)) for n in (0, min(s, d * (k - 1) + 1 - p) - 1)]
    if value == overhang:
        padding, over = [p + n for p, n in zip(padding, over, strict=True)], [0]
    x = F.pad(x, padding, value=value) if any(padding) else x
    return F.pad(x, over, value=overhang) if any(over) else x
