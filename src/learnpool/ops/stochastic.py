"""Stochastic pooling (Zeiler and Fergus, 2013), an operator beside the tree's: it samples, so it is no tree.

A cell is picked with probability ``p_i = w_i / Σ w`` where ``w_i = max(x_i, 0)``. In training the output is the picked
cell, in evaluation ``Σ p_i x_i``. The original is defined after a ReLU; for any other input our rule is: a negative
cell is never picked while a positive one is there, and where no cell is positive all existing cells are equally likely
(an all-zero region gives 0 either way). NaN or +inf in a region gives NaN.

The random numbers are drawn outside, by torch's generator, one per output, and handed to the operator: it is a pure
function, safe to recompute (checkpointing) and to compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import decomposition, operator
from .autograd import differentiable, vjp
from .operator import LIBRARY, check_gradient, check_input
from .reference import accumulation_dtype
from .vmap import apart, images, lead
from .window import Window, empty

_INPUTS = "Tensor x, Tensor? sample, int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode"
LIBRARY.define(f"stochastic_pool({_INPUTS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
LIBRARY.define(f"stochastic_pool_backward(Tensor grad, {_INPUTS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


def forward(x: Tensor, sample: Tensor | None, window: Window) -> Tensor:
    """The picked cell of each region, or the expected one if there is no ``sample`` (uniform in [0, 1))."""
    return _pick(x, sample, window)[0].to(x.dtype)


def expected(x: Tensor, window: Window) -> Tensor:
    """``Σ p_i x_i``, as ``forward`` without sample, from convolutions: the form for exporters."""
    if x.dim() == window.dims + 1:
        return expected(x.unsqueeze(0), window).squeeze(0)
    wide = x.to(accumulation_dtype(x.dtype))
    w = wide.clamp(min=0)
    chance, weighed = decomposition.total(w, window), decomposition.total(w * w, window)
    mean = decomposition.total(wide, window) / decomposition.counts(wide, window)
    return torch.where(chance == 0, mean, weighed / chance).to(x.dtype)


def backward(grad: Tensor, x: Tensor, sample: Tensor | None, window: Window) -> Tensor:
    """The picked cell receives the gradient; in evaluation ``∂y/∂x_i = (2 x_i − y) / Σ w`` where ``x_i > 0``."""
    kind = accumulation_dtype(x.dtype)
    value, winner, total, flat = _pick(x, sample, window)
    delta = grad.to(kind)
    dx = torch.zeros_like(x, dtype=kind)
    for number, tap in reversed(list(enumerate(window.taps(x.shape[-window.dims :])))):
        if sample is not None:
            share = (winner[tap.regions] == number).to(kind)
        else:
            cell = x[tap.cells].to(kind)
            slope = torch.where(cell > 0, 2 * cell - value[tap.regions], 0)
            share = torch.where(flat[tap.regions], 1, slope) / total[tap.regions]
        dx[tap.cells] += delta[tap.regions] * share
    return dx.to(x.dtype)


def _pick(x: Tensor, sample: Tensor | None, window: Window) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value, picked tap, Σ w, and whether all cells are equally likely; each ``[N, C, *output]``."""
    kind = accumulation_dtype(x.dtype)
    size = x.shape[-window.dims :]
    shape = (*x.shape[: -window.dims], *window.output_size(size))
    total = x.new_zeros(shape, dtype=kind)  # not torch.zeros: under vmap it has to be a batch like x
    for tap in window.taps(size):
        total[tap.regions] += x[tap.cells].to(kind).clamp(min=0)
    flat = total == 0
    total = torch.where(flat, window.counts(size, device=x.device, dtype=kind), total)

    value = torch.zeros_like(total)
    passed = torch.zeros_like(total)  # Σ w of the taps so far
    winner = torch.full_like(total, -1, dtype=torch.int32)
    for number, tap in enumerate(window.taps(size)):
        cell = x[tap.cells].to(kind)
        w = torch.where(flat[tap.regions], 1, cell.clamp(min=0))
        if sample is None:
            value[tap.regions] += torch.where(w == 0, 0, w / total[tap.regions] * cell)  # beside −inf too
        else:  # the last cell with w > 0 that begins at or before the threshold
            picked = (w > 0) & (passed[tap.regions] <= sample[tap.regions] * total[tap.regions])
            value[tap.regions] = torch.where(picked, cell, value[tap.regions])
            winner[tap.regions] = torch.where(picked, number, winner[tap.regions])
            passed[tap.regions] += w
    if sample is not None:
        value = torch.where(total.isfinite(), value, torch.nan)
    return value, winner, total, flat


def _check(name: str, x: Tensor, sample: Tensor | None, window: Window) -> tuple[int, ...]:
    shape = check_input(name, x, window)
    if sample is not None:
        if tuple(sample.shape) != shape:
            raise ValueError(f"{name}: sample must have the output's shape {list(shape)}, got {list(sample.shape)}")
        if sample.dtype != accumulation_dtype(x.dtype) or sample.device != x.device:
            wanted, came = f"{accumulation_dtype(x.dtype)} on {x.device}", f"{sample.dtype} on {sample.device}"
            raise TypeError(f"{name}: sample must be {wanted}, got {came}")
    return shape


def window_of(numbers: Sequence[Any]) -> Window:
    """The window inside a call of these operators."""
    kernel, stride, padding, dilation, ceil_mode = numbers
    return operator.window_of(kernel, stride, padding, dilation, ceil_mode, False)


def _pool(x: Tensor, sample: Tensor | None, *numbers: Any) -> Tensor:
    window = window_of(numbers)
    shape = _check("learnpool::stochastic_pool", x, sample, window)
    return empty(shape, x, window.dims).copy_(forward(x, sample, window))


def _pool_fake(x: Tensor, sample: Tensor | None, *numbers: Any) -> Tensor:
    window = window_of(numbers)
    return empty(_check("learnpool::stochastic_pool", x, sample, window), x, window.dims)


def _backward(grad: Tensor, x: Tensor, sample: Tensor | None, *numbers: Any) -> Tensor:
    window = _check_backward(grad, x, sample, numbers)
    return empty(x.shape, x, window.dims).copy_(backward(grad, x, sample, window))


def _backward_fake(grad: Tensor, x: Tensor, sample: Tensor | None, *numbers: Any) -> Tensor:
    return empty(x.shape, x, _check_backward(grad, x, sample, numbers).dims)


def _check_backward(grad: Tensor, x: Tensor, sample: Tensor | None, numbers: Sequence[Any]) -> Window:
    name, window = "learnpool::stochastic_pool_backward", window_of(numbers)
    check_gradient(name, grad, x, _check(name, x, sample, window))
    return window


def _save(ctx: Any, inputs: Sequence[Any]) -> None:
    x, sample, *ctx.numbers = inputs
    ctx.save_for_backward(x, sample)


def _formula(ctx: Any, asked: Sequence[bool], grad: Tensor) -> tuple[Any, ...]:
    return (torch.ops.learnpool.stochastic_pool_backward(grad, *ctx.saved_tensors, *ctx.numbers), None, *[None] * 5)


def _save_backward(ctx: Any, inputs: Sequence[Any]) -> None:
    grad, x, sample, *ctx.numbers = inputs
    ctx.save_for_backward(grad, x, sample)


def _formula_backward(ctx: Any, asked: Sequence[bool], gradient: Tensor) -> tuple[Any, ...]:
    grad, x, sample = ctx.saved_tensors
    window = window_of(ctx.numbers)

    def again(grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (backward(grad, x, sample, window),)

    return (*vjp(again, (grad, x), asked, (gradient,)), None, *[None] * 5)


def _vmap(info: Any, at: Sequence[Any], *inputs: Any) -> tuple[Tensor, int]:
    """No parameters, so a batch is more images."""
    tensors, numbers = inputs[:-5], inputs[-5:]
    name, dims = ("stochastic_pool", "stochastic_pool_backward")[len(tensors) - 2], len(numbers[0])
    each = [None if t is None else lead(t, b, info.batch_size) for t, b in zip(tensors, at, strict=False)]
    y = getattr(torch.ops.learnpool, name)(*(None if t is None else images(t, dims) for t in each), *numbers)
    return apart(y, each[0], dims), 0  # type: ignore[arg-type]


for _name, _kernel, _fake, _keep, _slope, _plain in (
    ("stochastic_pool", _pool, _pool_fake, _save, _formula, forward),
    ("stochastic_pool_backward", _backward, _backward_fake, _save_backward, _formula_backward, backward),
):
    LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"learnpool::{_name}", _fake, lib=LIBRARY)
    torch.library.register_vmap(f"learnpool::{_name}", _vmap, lib=LIBRARY)
    differentiable(_name, _keep, _slope, lambda *inputs, plain=_plain: plain(*inputs[:-5], window_of(inputs[-5:])))
