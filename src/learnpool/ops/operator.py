"""``learnpool::pool`` and ``learnpool::pool_backward``: the reference as operators PyTorch knows.

The reference is their kernel on every device that has no faster one. Backward is an operator too, and does no work for
gradients nobody asked for. ``derivative.py`` makes them differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..tree import decode
from . import cpu, reference  # noqa: F401  (loading the kernels registers them)
from .window import Window, empty, format_size

LIBRARY = torch.library.Library("learnpool", "FRAGMENT")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

_WINDOW = "int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode, bool count_include_pad"
_INPUTS = f"Tensor x, Tensor weight, Tensor mix, int[] program, {_WINDOW}"
if not torch._C._jit_get_schemas_for_operator("learnpool::pool"):  # the compiled library, where there is one, has them
    LIBRARY.define(f"pool({_INPUTS}) -> Tensor")
    LIBRARY.define(f"pool_backward(Tensor grad, {_INPUTS}, bool[3] output_mask) -> (Tensor, Tensor, Tensor)")

Numbers = Sequence[int]


def check(
    name: str,
    x: Tensor,
    weight: Tensor,
    mix: Tensor,
    program: Numbers,
    window: Window,
    words: tuple[str, str] = ("weight", "mix"),
) -> tuple[int, ...]:
    """The shape of the output; ValueError or TypeError, in one line that names the caller, if there is none.

    ``words`` is what the caller calls the two parameters.
    """
    shape = check_input(name, x, window)
    try:
        plan = decode(tuple(program))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    channels, output = x.shape[-window.dims - 1], shape[-window.dims :]
    check_parameter(name, words[0], weight, x, plan.weights, channels, output, window.kernel)
    check_parameter(name, words[1], mix, x, plan.mixes, channels, output, ())
    return shape


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
        came = f"window {kernel} with padding {padding} and dilation {dilation}"
        raise ValueError(f"{name}: {came} does not fit into input {format_size(x.shape[-dims:])}")
    return (*x.shape[:-dims], *output)


def check_tensor(name: str, x: Any, dims: int) -> None:
    """``x`` is ``[N, C, *dims]`` or ``[C, *dims]``, of a float dtype, empty at most in N."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: input must be a tensor, got {type(x).__name__}")
    if x.layout != torch.strided:
        raise TypeError(f"{name}: input must be a strided tensor, got {str(x.layout).removeprefix('torch.')}")
    if x.dtype not in FLOATS:
        raise TypeError(f"{name}: input must be float16, bfloat16, float32 or float64, got {_word(x.dtype)}")
    if x.dim() not in (dims + 1, dims + 2):
        raise ValueError(f"{name}: input must have {dims + 1} or {dims + 2} dimensions, got shape {list(x.shape)}")
    if any(n == 0 for n in x.shape[-dims - 1 :]):
        raise ValueError(f"{name}: only the batch may be empty, got shape {list(x.shape)}")


def check_parameter(
    name: str, what: str, p: Tensor, x: Tensor, rows: int, channels: int, output: Numbers, taps: Numbers
) -> None:
    """``p`` is ``[rows, C|1, *output|1, *taps]``, on x's device, of x's dtype or float32."""
    if p.dtype not in (torch.float32, x.dtype):
        wanted = "float32 like the input" if x.dtype == torch.float32 else f"float32 or {_word(x.dtype)} like the input"
        raise TypeError(f"{name}: {what} must be {wanted}, got {_word(p.dtype)}")
    if p.device != x.device:
        raise ValueError(f"{name}: {what} must be on the input's device {x.device}, got {p.device}")
    lead = 2 + len(output)
    if p.dim() != lead + len(taps):
        raise ValueError(f"{name}: {what} must have {lead + len(taps)} dimensions, got shape {list(p.shape)}")
    if p.shape[0] != rows:
        raise ValueError(f"{name}: the tree needs {rows} rows of {what}, got shape {list(p.shape)}")
    if tuple(p.shape[lead:]) != tuple(taps):
        raise ValueError(f"{name}: {what} must have {format_size(taps)} taps, got {format_size(p.shape[lead:])}")
    for n, full in zip(p.shape[1:lead], (channels, *output), strict=True):
        if n != 1 and n != full:
            wanted = f"{channels} channels and {format_size(output)} regions (or 1 of each)"
            raise ValueError(f"{name}: {what} must be for {wanted}, got {format_size(p.shape[1:lead])}")


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _pool(
    x: Tensor,
    weight: Tensor,
    mix: Tensor,
    program: Numbers,
    kernel: Numbers,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Tensor:
    window = window_of(kernel, stride, padding, dilation, ceil_mode, count_include_pad)
    shape = check("learnpool::pool", x, weight, mix, program, window)
    return empty(shape, x, window.dims).copy_(reference.forward(x, weight, mix, program, window))


def _pool_fake(x: Tensor, weight: Tensor, mix: Tensor, program: Numbers, *numbers: Any) -> Tensor:
    window = window_of(*numbers)
    shape = check("learnpool::pool", x, weight, mix, program, window)
    return empty(shape, x, window.dims)


def _pool_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    mix: Tensor,
    program: Numbers,
    kernel: Numbers,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    ceil_mode: bool,
    count_include_pad: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    window = window_of(kernel, stride, padding, dilation, ceil_mode, count_include_pad)
    _check_backward(grad, x, weight, mix, program, window)
    dx, dw, dm = reference.backward(grad, x, weight, mix, program, window, output_mask)
    return (
        _nothing(x) if dx is None else empty(x.shape, x, window.dims).copy_(dx),
        _nothing(weight) if dw is None else dw,
        _nothing(mix) if dm is None else dm,
    )


def _pool_backward_fake(
    grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Numbers, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *numbers, mask = rest
    window = window_of(*numbers)
    _check_backward(grad, x, weight, mix, program, window)
    return (
        empty(x.shape, x, window.dims) if mask[0] else _nothing(x),
        weight.new_empty(weight.shape) if mask[1] else _nothing(weight),
        mix.new_empty(mix.shape) if mask[2] else _nothing(mix),
    )


def _check_backward(grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Numbers, window: Window) -> None:
    name = "learnpool::pool_backward"
    check_gradient(name, grad, x, check(name, x, weight, mix, program, window))


def check_gradient(name: str, grad: Tensor, x: Tensor, shape: Sequence[int]) -> None:
    """``grad`` is what flows into an output of ``shape``."""
    if tuple(grad.shape) != tuple(shape):
        raise ValueError(f"{name}: grad must have the output's shape {list(shape)}, got {list(grad.shape)}")
    if grad.dtype != x.dtype or grad.device != x.device:
        wanted, came = f"{_word(x.dtype)} on {x.device}", f"{_word(grad.dtype)} on {grad.device}"
        raise TypeError(f"{name}: grad must be {wanted} like the input, got {came}")


def window_of(
    kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, ceil_mode: bool, count_include_pad: bool
) -> Window:
    """The window inside an operator call."""
    return Window(tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode, count_include_pad)


def _nothing(like: Tensor) -> Tensor:
    return like.new_empty((0,))


for _name, _kernel, _fake in (("pool", _pool, _pool_fake), ("pool_backward", _pool_backward, _pool_backward_fake)):
    LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"learnpool::{_name}", _fake, lib=LIBRARY)
