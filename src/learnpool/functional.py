"""The pools as functions; window arguments in the order of ``torch.nn.functional.max_pool2d``.

Parameters broadcast the obvious way. A proportion ``a`` goes against ``[C, OH, OW]``: a scalar for the whole layer,
``[C, 1, 1]`` per channel, ``[OH, OW]`` per region. Masks and filters do the same with the window's axes behind:
``[3, 3]``, ``[C, 1, 1, 3, 3]``, ``[OH, OW, 3, 3]``. Where there are several (``gates``, ``leaves``, ``weight``,
``mix``), their number comes first. Nothing is clamped here: a layer does that.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor

from .ops import adaptive, autograd, decomposition, operator, reference, stochastic
from .ops.window import Size, Window, format_size
from .tree import Avg, Gate, Max, Mix, Tree, complete

P = ParamSpec("P")


def run(
    name: str,
    x: Tensor,
    weight: Tensor,
    mix: Tensor,
    program: Sequence[int],
    window: Window,
    words: tuple[str, str] = ("weight", "mix"),
) -> Tensor:
    """Call the operator; when it refuses, say why in the words of the caller ``name``."""
    try:
        if torch.compiler.is_compiling():
            if _for_onnx():
                operator.check(name, x, weight, mix, program, window, words)
                return decomposition.forward(x, weight, mix, program, window, decomposition.smooth)
        elif autograd.forward_mode():
            pass
        elif not torch.is_grad_enabled():
            with torch._C._AutoDispatchBelowAutograd():  # the way through autograd is Python, and half of a small call
                return torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)  # type: ignore[no-any-return]
        elif autograd.levels() == 1:
            return autograd.Pool.apply(x, weight, mix, autograd.Spec(tuple(program), window))  # type: ignore[no-untyped-call, no-any-return]
        return torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)  # type: ignore[no-any-return]
    except (RuntimeError, TypeError, ValueError) as error:
        refusal = error
    operator.check(name, x, weight, mix, program, window, words)
    raise refusal


def none(x: Tensor, dims: int, taps: Sequence[int] = ()) -> Tensor:
    """No rows of a parameter, for a tree that needs none."""
    try:
        return x.new_empty((0, *(1,) * (dims + 1), *taps))
    except AttributeError:
        return torch.empty(0)  # the operator will refuse x


def run_stochastic(name: str, x: Tensor, window: Window, training: bool) -> Tensor:
    """Draw (in training) and call the operator."""
    shape = operator.check_input(name, x, window)
    sample = torch.rand(shape, dtype=reference.accumulation_dtype(x.dtype), device=x.device) if training else None
    if sample is None and _for_onnx():
        return stochastic.expected(x, window)
    return torch.ops.learnpool.stochastic_pool(x, sample, *window.arguments[:5])  # type: ignore[no-any-return]


def _for_onnx() -> bool:
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def _three(function: Callable[Concatenate[int, str, P], Tensor]) -> tuple[Callable[P, Tensor], ...]:
    """The 1d, 2d and 3d forms of a function of ``(dims, name, ...)``."""

    def form(dims: int) -> Callable[P, Tensor]:
        name = f"{function.__name__.lstrip('_')}{dims}d"

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            return function(dims, name, *args, **kwargs)

        signature = inspect.signature(function)
        call.__name__ = call.__qualname__ = name
        call.__signature__ = signature.replace(parameters=list(signature.parameters.values())[2:])  # type: ignore[attr-defined]
        del call.__wrapped__
        return call

    return form(1), form(2), form(3)


def _pool(
    dims: int,
    name: str,
    x: Tensor,
    tree: Tree,
    weight: Tensor | None,
    mix: Tensor | None,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """Any tree over every window of ``x``.

    ``weight`` is ``[D, ..., *kernel]``, one mask or filter for each Gate and Filter, breadth first from the root;
    ``mix`` is ``[M, ...]``, one proportion for each learned Mix. None where the tree has none.
    """
    if not isinstance(tree, Tree):
        raise TypeError(f"{name}: tree must be a tree such as Gate(Max(), Avg()), got {tree!r}")
    window = Window.of(name, dims, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)
    w = _rows(name, "weight", weight, x, dims, window.kernel)
    return run(name, x, w, _rows(name, "mix", mix, x, dims, ()), tree.program, window)


def _mixed_pool(
    dims: int,
    name: str,
    x: Tensor,
    a: Tensor | float,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """``a max + (1 - a) mean`` of every window, the paper's (1); a number outside [0, 1] extrapolates."""
    window = Window.of(name, dims, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)
    if isinstance(a, (int, float)) and not isinstance(a, bool) and isinstance(x, Tensor):
        a = torch.tensor(float(a), dtype=reference.accumulation_dtype(x.dtype), device=x.device)
    m = _rows(name, "a", a, x, dims, (), one=True)
    w = _rows(name, "weight", None, x, dims, window.kernel)
    return run(name, x, w, m, Mix(Max(), Avg()).program, window, ("weight", "a"))


def _gated_pool(
    dims: int,
    name: str,
    x: Tensor,
    mask: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """``s max + (1 - s) mean`` with ``s = sigmoid(mask · x)`` of every window, the paper's (5)."""
    window = Window.of(name, dims, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)
    w = _rows(name, "mask", mask, x, dims, window.kernel, one=True)
    m = _rows(name, "mix", None, x, dims, ())
    return run(name, x, w, m, Gate(Max(), Avg()).program, window, ("mask", "mix"))


def _tree_pool(
    dims: int,
    name: str,
    x: Tensor,
    gates: Tensor | None,
    leaves: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """The complete tree of filters under gates, the paper's (10); left is what a gate's sigmoid multiplies.

    ``leaves`` is ``[L, ..., *kernel]`` from left to right, L a power of two; ``gates`` is ``[L - 1, ..., *kernel]``,
    root first, breadth first (None if there is one leaf).
    """
    window = Window.of(name, dims, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)
    v = _rows(name, "leaves", leaves, x, dims, window.kernel)
    w = _rows(name, "gates", gates, x, dims, window.kernel)
    levels = v.shape[0].bit_length()
    if v.shape[0] == 0 or v.shape[0] != 2 ** (levels - 1):
        raise ValueError(f"{name}: leaves must be 1, 2, 4, 8, … filters, got {v.shape[0]}")
    if w.shape[0] != v.shape[0] - 1:
        raise ValueError(f"{name}: {v.shape[0]} leaves need {v.shape[0] - 1} gates, got {w.shape[0]}")
    if w.shape[0]:
        if v.dtype != w.dtype or v.device != w.device:
            came = f"{w.dtype} on {w.device} and {v.dtype} on {v.device}"
            raise TypeError(f"{name}: gates and leaves must be of one dtype and device, got {came}")
        try:
            extent = torch.broadcast_shapes(v.shape[1:], w.shape[1:])
        except RuntimeError:
            came = f"{list(w.shape[1:])} and {list(v.shape[1:])}"
            raise ValueError(f"{name}: gates and leaves must broadcast, got {came}") from None
        v = torch.cat([w.expand(-1, *extent), v.expand(-1, *extent)])
    m = _rows(name, "mix", None, x, dims, ())
    return run(name, x, v, m, complete(levels, name).program, window, ("leaves", "mix"))


def _stochastic_pool(
    dims: int,
    name: str,
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    training: bool = True,
) -> Tensor:
    """One cell of every window, picked with probability ``max(x, 0) / sum``; the expected one if not training.

    Where no cell of a window is positive, all are equally likely.
    """
    return run_stochastic(name, x, Window.of(name, dims, kernel_size, stride, padding, dilation, ceil_mode), training)


def _adaptive_pool(dims: int, name: str, x: Tensor, tree: Tree, mix: Tensor | None, output_size: Any = 1) -> Tensor:
    """A tree of Max, Avg and Mix over the regions of ``F.adaptive_max_pool2d``; by default the whole map."""
    return adaptive.pool(name, x, tree, _rows(name, "mix", mix, x, dims, ()), output_size, dims)


def _rows(name: str, what: str, p: Any, x: Tensor, dims: int, taps: Sequence[int], *, one: bool = False) -> Tensor:
    """``[rows, ..., *taps]`` as the operator's ``[rows, C|1, *grid|1, *taps]``; ``one`` row comes without its axis."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: input must be a tensor, got {type(x).__name__}")
    if p is None and not one:
        return none(x, dims, taps)
    if not isinstance(p, Tensor):
        raise TypeError(f"{name}: {what} must be a tensor, got {type(p).__name__}")
    lead = 0 if one else 1
    inner = p.dim() - lead - len(taps)
    if inner < 0 or inner > dims + 1:
        axes = ["C", "L"] if dims == 1 else ["C", "OH", "OW"] if dims == 2 else ["C", "OD", "OH", "OW"]
        full = ", ".join([*([] if one else ["rows"]), *axes, *map(str, taps)])
        raise ValueError(f"{name}: {what} must broadcast against [{full}], got shape {list(p.shape)}")
    if tuple(p.shape[p.dim() - len(taps) :]) != tuple(taps):
        raise ValueError(
            f"{name}: {what} must have {format_size(taps)} taps, got {format_size(p.shape[p.dim() - len(taps) :])}"
        )
    return p.reshape(*(p.shape[:lead] if lead else (1,)), *(1,) * (dims + 1 - inner), *p.shape[lead:])


pool1d, pool2d, pool3d = _three(_pool)
mixed_pool1d, mixed_pool2d, mixed_pool3d = _three(_mixed_pool)
gated_pool1d, gated_pool2d, gated_pool3d = _three(_gated_pool)
tree_pool1d, tree_pool2d, tree_pool3d = _three(_tree_pool)
stochastic_pool1d, stochastic_pool2d, stochastic_pool3d = _three(_stochastic_pool)
adaptive_pool1d, adaptive_pool2d, adaptive_pool3d = _three(_adaptive_pool)
