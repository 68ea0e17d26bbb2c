"""``learnpool::pool`` and ``learnpool::pool_backward``: what they accept, compute and cost.

The reference is their kernel on every device that has no faster one; the fake gives shapes alone. Backward is an
operator too, and returns an empty tensor for a gradient nobody asked for. ``registration.py`` hands them to PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..program import Kind, Program, decode
from . import reference
from .window import Window, empty_output, format_size

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
POOL, POOL_BACKWARD = "learnpool::pool", "learnpool::pool_backward"


def pool(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::pool``."""
    window = Window.from_arguments(*arguments)
    shape = check(POOL, x, weight, mix, program, window)
    return empty_output(shape, x, window.dims).copy_(reference.forward(x, weight, mix, program, window))


def pool_fake(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *arguments: Any) -> Tensor:
    """The output of ``learnpool::pool`` without its values."""
    window = Window.from_arguments(*arguments)
    return empty_output(check(POOL, x, weight, mix, program, window), x, window.dims)


def pool_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel of ``learnpool::pool_backward``."""
    *arguments, output_mask = rest
    window = Window.from_arguments(*arguments)
    check_gradient(POOL_BACKWARD, grad, x, check(POOL_BACKWARD, x, weight, mix, program, window))
    dx, dw, dm = reference.backward(grad, x, weight, mix, program, window, output_mask)
    return (
        _empty(x) if dx is None else empty_output(x.shape, x, window.dims).copy_(dx),
        _empty(weight) if dw is None else dw,
        _empty(mix) if dm is None else dm,
    )


def pool_backward_fake(
    grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``learnpool::pool_backward`` without their values."""
    *arguments, output_mask = rest
    window = Window.from_arguments(*arguments)
    check_gradient(POOL_BACKWARD, grad, x, check(POOL_BACKWARD, x, weight, mix, program, window))
    return (
        empty_output(x.shape, x, window.dims) if output_mask[0] else _empty(x),
        weight.new_empty(weight.shape) if output_mask[1] else _empty(weight),
        mix.new_empty(mix.shape) if output_mask[2] else _empty(mix),
    )


def _empty(like: Tensor) -> Tensor:
    return like.new_empty((0,))


# Like PyTorch's own formulas, these count multiplications of inner products, two operations each, and nothing else.
def count_pool_flops(
    x: Any, weight: Any, mix: Any, program: Any, kernel: Any, *_: Any, out_shape: Any, **__: Any
) -> int:
    """For ``torch.utils.flop_counter``, which gives shapes in place of tensors."""
    return _count_products(program, kernel, out_shape)


def count_pool_backward_flops(
    grad: Any, x: Any, weight: Any, mix: Any, program: Any, kernel: Any, *rest: Any, **_: Any
) -> int:
    """The inner products again, and as many for each gradient they have a part in."""
    return _count_products(program, kernel, grad) * (1 + int(sum(rest[-1][:2])))


def _count_products(program: Sequence[int], kernel: Sequence[int], output: Sequence[int]) -> int:
    dots = sum(response.kind in (Kind.DOT, Kind.BLUR) for response in decode(tuple(program)).responses)
    return 2 * dots * math.prod(output) * math.prod(kernel)


def check(
    name: str,
    x: Tensor,
    weight: Tensor,
    mix: Tensor,
    program: Sequence[int],
    window: Window,
    words: tuple[str, str] = ("weight", "mix"),
) -> tuple[int, ...]:
    """The shape of the output; ValueError or TypeError, in one line that names the caller, if there is none.

    ``words`` is what the caller calls the two parameters.
    """
    shape = check_input(name, x, window)
    try:
        decoded = decode(tuple(program))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    channels, output = x.shape[-window.dims - 1], shape[-window.dims :]
    check_fixed_values(name, decoded, window.kernel)
    check_parameter(name, words[0], weight, x, decoded.weights, channels, output, window.kernel)
    check_parameter(name, words[1], mix, x, decoded.mixes, channels, output, ())
    return shape


def check_fixed_values(name: str, program: Program, kernel: Sequence[int]) -> None:
    """Raise unless fixed filters and ranks have a value for each tap."""
    if program.taps not in (None, taps := math.prod(kernel)):
        size = format_size(kernel)
        raise ValueError(f"{name}: fixed values must be {taps}, one for each tap of {size}, got {program.taps}")


def check_input(name: str, x: Tensor, window: Window) -> tuple[int, ...]:
    """The shape of the output of any pool over ``window``."""
    window.check(name)
    dims = window.dims
    if dims not in (1, 2, 3):
        raise ValueError(f"{name}: kernel must have 1, 2 or 3 numbers, got {dims}")
    check_tensor(name, x, dims)
    output = window.output_size(x.shape[-dims:])
    if any(n < 1 for n in output):
        kernel, padding, dilation = map(format_size, (window.kernel, window.padding, window.dilation))
        actual = f"window {kernel} with padding {padding} and dilation {dilation}"
        raise ValueError(f"{name}: {actual} does not fit into input {format_size(x.shape[-dims:])}")
    return (*x.shape[:-dims], *output)


def check_tensor(name: str, x: Any, dims: int) -> None:
    """``x`` is ``[N, C, *dims]`` or ``[C, *dims]``, of a float dtype, empty at most in N."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: input must be a tensor, got {type(x).__name__}")
    if x.layout != torch.strided:
        raise TypeError(f"{name}: input must be a strided tensor, got {str(x.layout).removeprefix('torch.')}")
    if x.dtype not in FLOATS:
        raise TypeError(f"{name}: input must be float16, bfloat16, float32 or float64, got {_format_dtype(x.dtype)}")
    if x.dim() not in (dims + 1, dims + 2):
        raise ValueError(f"{name}: input must have {dims + 1} or {dims + 2} dimensions, got shape {list(x.shape)}")
    if any(n == 0 for n in x.shape[-dims - 1 :]):
        raise ValueError(f"{name}: only the batch may be empty, got shape {list(x.shape)}")


def check_parameter(
    name: str,
    what: str,
    p: Tensor,
    x: Tensor,
    rows: int,
    channels: int,
    output: Sequence[int],
    taps: Sequence[int],
) -> None:
    """``p`` is ``[rows, C|1, *output|1, *taps]``, on x's device, of x's dtype or float32."""
    if p.dtype not in (torch.float32, x.dtype):
        own = "" if x.dtype == torch.float32 else f" or {_format_dtype(x.dtype)}"
        raise TypeError(f"{name}: {what} must be float32{own} like the input, got {_format_dtype(p.dtype)}")
    if p.device != x.device:
        raise ValueError(f"{name}: {what} must be on the input's device {x.device}, got {p.device}")
    lead = 2 + len(output)
    if p.dim() != lead + len(taps):
        raise ValueError(f"{name}: {what} must have {lead + len(taps)} dimensions, got shape {list(p.shape)}")
    if p.shape[0] != rows:
        actual = f"shape {list(p.shape)}" if p.shape[0] else "none"
        raise ValueError(f"{name}: the tree needs {rows} row{'s' * (rows != 1)} of {what}, got {actual}")
    if tuple(p.shape[lead:]) != tuple(taps):
        raise ValueError(f"{name}: {what} must have {format_size(taps)} taps, got {format_size(p.shape[lead:])}")
    for n, full in zip(p.shape[1:lead], (channels, *output), strict=True):
        if n != 1 and n != full:
            expected = f"{channels} channels and {format_size(output)} regions (or 1 of each)"
            raise ValueError(f"{name}: {what} must be for {expected}, got {format_size(p.shape[1:lead])}")


def check_gradient(name: str, grad: Tensor, x: Tensor, shape: Sequence[int]) -> None:
    """``grad`` is what flows into an output of ``shape``."""
    if tuple(grad.shape) != tuple(shape):
        raise ValueError(f"{name}: grad must have the output's shape {list(shape)}, got {list(grad.shape)}")
    if grad.dtype != x.dtype or grad.device != x.device:
        expected, actual = f"{_format_dtype(x.dtype)} on {x.device}", f"{_format_dtype(grad.dtype)} on {grad.device}"
        raise TypeError(f"{name}: grad must be {expected} like the input, got {actual}")


def _format_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
