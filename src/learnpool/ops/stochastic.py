"""Stochastic pooling (Zeiler and Fergus, 2013), an operator beside the tree's: it samples, so it is no tree.

A cell is picked with probability ``p_i = w_i / Σ w`` where ``w_i = max(x_i, 0)``. In training the output is the picked
cell, in evaluation ``Σ p_i x_i``. The original is defined after a ReLU; for any other input our rule is: a negative
cell is never picked while a positive one is there, and where no cell is positive all existing cells are equally likely
(an all-zero region gives 0 either way). A region with NaN or +inf gives NaN, and in training its cells receive no
gradient.

The equations below take uniform random numbers, one per output. The operator takes a seed for each image, drawn outside
by torch's generator, and derives the numbers from it (``uniform.py``). So it is a pure function, safe to recompute
(checkpointing) and to compile, and picks the same cells in every memory layout and with any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import decomposition
from .autograd import compute_vjp
from .operator import check_gradient, check_input
from .rows import get_accumulation_dtype
from .transforms import call_backward
from .uniform import draw_uniform
from .vmap import merge_images, move_batch_first, split_images
from .window import Window, empty_output

POOL, POOL_BACKWARD = "learnpool::stochastic_pool", "learnpool::stochastic_pool_backward"


def forward(x: Tensor, sample: Tensor | None, window: Window) -> Tensor:
    """The picked cell of each region, or the expected one if there is no ``sample`` (uniform in [0, 1))."""
    return _pick(x, sample, window)[0].to(x.dtype)


def pool_for_onnx(x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """``learnpool::stochastic_pool`` for ``torch.onnx.export``: plain operations in evaluation."""
    if seed is None:
        return compute_expected(x, Window.from_arguments(*arguments))
    return torch.ops.learnpool.stochastic_pool(x, seed, *arguments)  # type: ignore[no-any-return]


def compute_expected(x: Tensor, window: Window) -> Tensor:
    """``Σ p_i x_i``, as ``forward`` without sample, from convolutions: the form for exporters."""
    if x.dim() == window.dims + 1:
        return compute_expected(x.unsqueeze(0), window).squeeze(0)
    wide = x.to(get_accumulation_dtype(x.dtype))
    w = wide.clamp(min=0)
    total, squares = decomposition.sum_regions(w, window), decomposition.sum_regions(w * w, window)
    mean = decomposition.sum_regions(wide, window) / decomposition.count_cells(wide, window)
    return torch.where(total == 0, mean, squares / total).to(x.dtype)


def backward(grad: Tensor, x: Tensor, sample: Tensor | None, window: Window) -> Tensor:
    """The picked cell receives the gradient; in evaluation ``∂y/∂x_i = (2 x_i − y) / Σ w`` where ``x_i > 0``."""
    dtype = get_accumulation_dtype(x.dtype)
    value, winner, total, flat = _pick(x, sample, window)
    delta = grad.to(dtype)
    dx = torch.zeros_like(x, dtype=dtype)
    for number, tap in reversed(list(enumerate(window.taps(x.shape[-window.dims :])))):
        if sample is not None:
            share = (winner[tap.regions] == number).to(dtype)
        else:
            cell = x[tap.cells].to(dtype)
            slope = torch.where(cell > 0, 2 * cell - value[tap.regions], 0)
            share = torch.where(flat[tap.regions], 1, slope) / total[tap.regions]
        dx[tap.cells] += delta[tap.regions] * share
    return dx.to(x.dtype)


def _pick(x: Tensor, sample: Tensor | None, window: Window) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value, picked tap, Σ w, and whether all cells are equally likely; each ``[N, C, *output]``."""
    dtype = get_accumulation_dtype(x.dtype)
    size = x.shape[-window.dims :]
    shape = (*x.shape[: -window.dims], *window.output_size(size))
    total = x.new_zeros(shape, dtype=dtype)  # not torch.zeros: under vmap it has to be a batch like x
    for tap in window.taps(size):
        total[tap.regions] += x[tap.cells].to(dtype).clamp(min=0)
    flat = total == 0
    total = torch.where(flat, window.count_cells(size, device=x.device, dtype=dtype), total)

    value = torch.zeros_like(total)
    passed = torch.zeros_like(total)  # Σ w of the taps so far
    winner = torch.full_like(total, -1, dtype=torch.int32)
    for number, tap in enumerate(window.taps(size)):
        cell = x[tap.cells].to(dtype)
        w = torch.where(flat[tap.regions], 1, cell.clamp(min=0))
        if sample is None:
            value[tap.regions] += torch.where(w == 0, 0, w / total[tap.regions] * cell)  # beside −inf too
        else:  # the last cell with w > 0 that begins at or before the threshold
            picked = (w > 0) & (passed[tap.regions] <= sample[tap.regions] * total[tap.regions])
            value[tap.regions] = torch.where(picked, cell, value[tap.regions])
            winner[tap.regions] = torch.where(picked, number, winner[tap.regions])
            passed[tap.regions] += w
    if sample is not None:
        finite = total.isfinite()
        value, winner = torch.where(finite, value, torch.nan), torch.where(finite, winner, -1)
    return value, winner, total, flat


def check(name: str, x: Tensor, seed: Tensor | None, window: Window) -> tuple[int, ...]:
    """The shape of the output; an error names what is wrong with the arguments."""
    shape = check_input(name, x, window)
    if seed is not None:
        images = x.shape[0] if x.dim() == window.dims + 2 else 1
        if tuple(seed.shape) != (images,):
            raise ValueError(f"{name}: seed must have a number for each of {images} images, got {list(seed.shape)}")
        if seed.dtype != torch.int64 or seed.device != x.device:
            actual = f"{seed.dtype} on {seed.device}"
            raise TypeError(f"{name}: seed must be {torch.int64} on {x.device}, got {actual}")
    return shape


def make_sample(x: Tensor, seed: Tensor | None, window: Window) -> Tensor | None:
    """The random numbers of every output of ``x``; none in evaluation."""
    if seed is None:
        return None
    size = window.output_size(x.shape[-window.dims :])
    channels = x.shape[-window.dims - 1]
    sample = draw_uniform(seed, channels, size, get_accumulation_dtype(x.dtype))
    return sample if x.dim() == window.dims + 2 else sample[0]


def pool(x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::stochastic_pool``."""
    window = Window.from_arguments(*arguments)
    shape = check(POOL, x, seed, window)
    return empty_output(shape, x, window.dims).copy_(forward(x, make_sample(x, seed, window), window))


def pool_fake(x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """The output of ``learnpool::stochastic_pool`` without its values."""
    window = Window.from_arguments(*arguments)
    return empty_output(check(POOL, x, seed, window), x, window.dims)


def pool_decomposition(x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """``learnpool::stochastic_pool`` in PyTorch's operations."""
    window = Window.from_arguments(*arguments)
    return compute_expected(x, window) if seed is None else forward(x, make_sample(x, seed, window), window)


def pool_formula(
    tensors: Sequence[Any], rest: Sequence[Any], needed: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """The gradient of ``learnpool::stochastic_pool``; a seed has none, and is among the rest."""
    return [call_backward(torch.ops.learnpool.stochastic_pool_backward, grad, *tensors, *rest)]


def pool_rule(info: Any, axes: Sequence[Any], x: Tensor, seed: Tensor | None, *arguments: Any) -> tuple[Tensor, int]:
    """``torch.library.register_vmap``: there are no parameters, so a batch is more images."""
    return _batch(torch.ops.learnpool.stochastic_pool, info.batch_size, axes, (x,), seed, arguments)


def pool_backward(grad: Tensor, x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::stochastic_pool_backward``."""
    window = Window.from_arguments(*arguments)
    check_gradient(POOL_BACKWARD, grad, x, check(POOL_BACKWARD, x, seed, window))
    dx = backward(grad, x, make_sample(x, seed, window), window)
    return empty_output(x.shape, x, window.dims).copy_(dx)


def pool_backward_fake(grad: Tensor, x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """The gradient of ``learnpool::stochastic_pool_backward`` without its values."""
    window = Window.from_arguments(*arguments)
    check_gradient(POOL_BACKWARD, grad, x, check(POOL_BACKWARD, x, seed, window))
    return empty_output(x.shape, x, window.dims)


def pool_backward_decomposition(grad: Tensor, x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """``learnpool::stochastic_pool_backward`` in PyTorch's operations."""
    window = Window.from_arguments(*arguments)
    return backward(grad, x, make_sample(x, seed, window), window)


def pool_backward_formula(
    tensors: Sequence[Any], rest: Sequence[Any], needed: Sequence[bool], grad_of_grad: Tensor
) -> list[Tensor | None]:
    """The second derivative: what reaches grad and x through ``backward``."""
    (grad, x), (seed, *arguments) = tensors, rest
    window = Window.from_arguments(*arguments)
    sample = make_sample(x, seed, window)

    def differentiate(grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (backward(grad, x, sample, window),)

    return compute_vjp(differentiate, (grad, x), needed, (grad_of_grad,))


def pool_backward_rule(
    info: Any, axes: Sequence[Any], grad: Tensor, x: Tensor, seed: Tensor | None, *arguments: Any
) -> tuple[Tensor, int]:
    """``torch.library.register_vmap``: a batch is more images."""
    call = torch.ops.learnpool.stochastic_pool_backward
    return _batch(call, info.batch_size, axes, (grad, x), seed, arguments)


def _batch(
    call: Any, size: int, axes: Sequence[Any], tensors: Sequence[Tensor], seed: Tensor | None, arguments: Sequence[Any]
) -> tuple[Tensor, int]:
    dims = len(arguments[0])
    members = [move_batch_first(t, axis, size) for t, axis in zip(tensors, axes, strict=False)]
    seeds = None if seed is None else move_batch_first(seed, axes[len(tensors)], size).flatten()
    y = call(*(merge_images(t, dims) for t in members), seeds, *arguments)
    return split_images(y, members[0], dims), 0
