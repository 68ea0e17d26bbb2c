"""The same function from PyTorch's own operations: a max pooling, a convolution per mask or filter, and the tree.

Slower than the operator, but understood by exporters (ONNX, ExecuTorch), forward-mode AD and nested torch.func.
Nothing branches on the input's size, so the size may be a symbol. It differs from the operator in one case: an infinite
or NaN weight gives NaN in a region that reaches into the padding, as in a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..tree import Program, decode
from . import reference
from .reference import Blend, Responses, get_accumulation_dtype
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


def forward(
    x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], window: Window, blend: Blend = reference.blend
) -> Tensor:
    """Pool ``x`` by the tree, as ``reference.forward`` does."""
    decoded = decode(tuple(program))
    batch = x if x.dim() == window.dims + 2 else x.unsqueeze(0)
    values, _ = reference.evaluate(decoded, compute_responses(batch, weight, decoded, window), mix, blend)
    y = values[0].to(x.dtype)
    return y if x.dim() == window.dims + 2 else y.squeeze(0)


def blend_finite(p: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``p left + (1 − p) right`` and no more: three operations instead of a dozen, and NaN beside infinities."""
    return p * left + (1 - p) * right


def compute_responses(x: Tensor, weight: Tensor, program: Program, window: Window) -> Responses:
    """Maximum, minimum, mean and inner products of every region of ``[N, C, *size]``."""
    dtype = get_accumulation_dtype(x.dtype)
    wide, masks = x.to(dtype), weight.to(dtype)
    maximum = minimum = mean = None
    cells = torch.ones((), dtype=dtype, device=x.device)
    if program.has_max:
        maximum = _max_pool(x, window).to(dtype)
    if program.has_min:
        minimum = -_max_pool(-x, window).to(dtype)
    if program.has_avg:
        cells = count_cells(wide, window)
        mean = sum_regions(wide, window) / cells
    varies_by_region = any(not isinstance(n, int) or n != 1 for n in weight.shape[2 : 2 + window.dims])
    if varies_by_region and program.weights:
        patches = _gather_patches(wide, window)  # [N, C, *output, *kernel]
        dots = [(patches * masks[d]).flatten(-window.dims).sum(-1) for d in range(program.weights)]
    else:
        dots = [_convolve(wide, masks[d].reshape(-1, 1, *window.kernel), window) for d in range(program.weights)]
    return Responses(maximum, None, minimum, None, mean, cells, dots)


def sum_regions(x: Tensor, window: Window, padding: float = 0.0) -> Tensor:
    """The sum of each region's cells; a cell of the padding is ``padding``."""
    return _convolve(x, torch.ones((1, 1, *window.kernel), dtype=x.dtype, device=x.device), window, padding)


def count_cells(x: Tensor, window: Window) -> Tensor:
    """What an average divides by, as in ``Window.count_cells``: a number, or ``[1, 1, *output]`` where edges differ."""
    new: dict[str, Any] = {"dtype": x.dtype, "device": x.device}
    if not window.ceil_mode and (window.count_include_pad or not any(window.padding)):
        return torch.full((), float(math.prod(window.kernel)), **new)
    cells = sum_regions(torch.ones((1, 1, *x.shape[2:]), **new), window, float(window.count_include_pad))
    return cells.clamp(min=1) if max(window.dilation) > 1 else cells  # only dilation makes a region without any


def _convolve(x: Tensor, w: Tensor, window: Window, padding: float = 0.0) -> Tensor:
    """``w · x`` of every region, w ``[C|1, 1, *kernel]``."""
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
