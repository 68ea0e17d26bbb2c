"""What makes the operators differentiable: backward formulas, forward mode, torch.func and vmap.

In ordinary backward only x and the parameters are saved, and the formula is another operator; that one's derivative is
the vector-Jacobian product of the reference's backward, in plain operations, so derivatives of any order exist. A
formula registered for reverse mode gives forward mode a tangent of zero, silently, so there ``composition`` serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import decomposition, reference, vmap
from .operator import LIBRARY, Numbers, window_of
from .window import Window

_AFTER = torch._C._after_autograd_keyset
_DERIVATIVES = (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp)

Formula = Callable[..., tuple[Any, ...]]


def differentiable(name: str, save: Callable[..., None], formula: Formula, otherwise: Callable[..., Any]) -> None:
    """Give the operator ``name`` its backward ``formula``, and plain operations ``otherwise``, where it does not reach.

    ``torch.library.register_autograd`` would do for reverse mode; it knows nothing of the rest.
    """
    operator = getattr(torch.ops.learnpool, name).default

    def below(keyset: Any, inputs: Sequence[Any]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & _AFTER, *inputs)

    def forward(ctx: Any, keyset: Any, *inputs: Any) -> Any:
        save(ctx, inputs)
        return below(keyset, inputs)

    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *formula(ctx, ctx.needs_input_grad[1:], *gradients)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type(f"learnpool_{name}", (torch.autograd.Function,), members)

    def kernel(keyset: Any, *inputs: Any) -> Any:
        if forward_mode() or levels():
            return otherwise(*inputs)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs):
            return function.apply(keyset, *inputs)
        return below(keyset, inputs)

    LIBRARY.impl(name, kernel, "Autograd", with_keyset=True)


def forward_mode() -> bool:
    """Whether tangents may be about (``torch.autograd.forward_ad``, and torch.func's jvp, which uses it)."""
    return torch.autograd.forward_ad._current_level >= 0


def levels() -> int:
    """How many of torch.func's derivatives are being taken here, one inside the other."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return 0
    stack = torch._C._functorch.get_interpreter_stack() or []
    return sum(interpreter.key() in _DERIVATIVES for interpreter in stack)


def vjp(function: Any, inputs: Sequence[Tensor], asked: Sequence[bool], gradients: Sequence[Tensor]) -> list[Any]:
    """What reaches ``inputs`` through a function of plain operations; differentiable again where autograd asks."""
    wanted = [i for i in range(len(inputs)) if asked[i]]
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # A view of each input is the edge of this graph, so that its other uses do not answer for it.
        edges = [t.view_as(t) if asked[i] else t.detach() for i, t in enumerate(inputs)]
        pairs = [(y, g) for y, g in zip(function(*edges), gradients, strict=True) if y is not None and y.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(wanted)
        if pairs:
            outputs, grads = zip(*pairs, strict=True)
            found = torch.autograd.grad(
                outputs, [edges[i] for i in wanted], grads, create_graph=again, allow_unused=True
            )
    result: list[Any] = [None] * len(inputs)
    for i, gradient in zip(wanted, found, strict=True):
        result[i] = gradient
    return result


def _save(ctx: Any, inputs: Sequence[Any]) -> None:
    x, weight, mix, *ctx.rest = inputs
    ctx.save_for_backward(x, weight, mix)


def _formula(ctx: Any, asked: Sequence[bool], grad: Tensor) -> tuple[Any, ...]:
    mask = asked[:3]
    grads = torch.ops.learnpool.pool_backward(grad, *ctx.saved_tensors, *ctx.rest, mask)
    return (*(g if wanted else None for g, wanted in zip(grads, mask, strict=True)), *[None] * len(ctx.rest))


def plain(x: Tensor, weight: Tensor, mix: Tensor, program: Numbers, *numbers: Any) -> Tensor:
    """``learnpool::pool`` in PyTorch's operations."""
    return decomposition.forward(x, weight, mix, program, window_of(*numbers))


def _save_backward(ctx: Any, inputs: Sequence[Any]) -> None:
    grad, x, weight, mix, *ctx.rest = inputs
    ctx.save_for_backward(grad, x, weight, mix)


def _formula_backward(ctx: Any, asked: Sequence[bool], *gradients: Tensor) -> tuple[Any, ...]:
    program, *numbers, mask = ctx.rest
    found = _again(ctx.saved_tensors, asked, gradients, program, window_of(*numbers), mask)
    return (*found, *[None] * len(ctx.rest))


def _again(
    inputs: Sequence[Tensor], asked: Sequence[bool], gradients: Any, program: Numbers, window: Window, mask: Any
) -> list[Any]:
    """The second derivative: what reaches grad, x, weight and mix through the reference's backward."""

    def backward(grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor) -> tuple[Tensor | None, ...]:
        return reference.backward(grad, x, weight, mix, program, window, mask)

    return vjp(backward, inputs, asked, gradients)


def plain_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Numbers, *rest: Any
) -> tuple[Tensor, ...]:
    """``learnpool::pool_backward`` in PyTorch's operations."""
    *numbers, mask = rest
    found = reference.backward(grad, x, weight, mix, program, window_of(*numbers), mask)
    return tuple(like.new_empty((0,)) if g is None else g for g, like in zip(found, (x, weight, mix), strict=True))


@dataclass(frozen=True)
class Spec:
    """What is no tensor in a call; one leaf, where torch.func would take tuples apart again and again."""

    program: tuple[int, ...]
    window: Window
    mask: tuple[bool, ...] = (True, True, True)


class Pool(torch.autograd.Function):
    """The operator in the form torch.func can differentiate; it cannot use the formula of a custom operator.

    Once: under nested derivatives the operator itself becomes plain operations.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, mix: Tensor, spec: Spec) -> Tensor:
        inputs = x, weight, mix, spec.program, *spec.window.arguments
        return torch.ops.learnpool.pool(*inputs)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.spec = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def vmap(info: Any, at: Any, x: Tensor, weight: Tensor, mix: Tensor, spec: Spec) -> Any:
        def call(*tensors: Tensor) -> Any:
            return Pool.apply(*tensors, spec)  # type: ignore[no-untyped-call]

        return vmap.pool(call, info.batch_size, spec.window.dims, at, x, weight, mix)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        mask = tuple(ctx.needs_input_grad[:3])
        grads = Backward.apply(*gradients, *ctx.saved_tensors, replace(ctx.spec, mask=mask))  # type: ignore[no-untyped-call]
        return (*(g if wanted else None for g, wanted in zip(grads, mask, strict=True)), None)


class Backward(torch.autograd.Function):
    """``pool_backward`` for the class above."""

    @staticmethod
    def forward(grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, spec: Spec) -> tuple[Tensor, Tensor, Tensor]:
        inputs = grad, x, weight, mix, spec.program, *spec.window.arguments, spec.mask
        return torch.ops.learnpool.pool_backward(*inputs)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.spec = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def vmap(info: Any, at: Any, grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, spec: Spec) -> Any:
        def call(*tensors: Tensor) -> Any:
            return Backward.apply(*tensors, spec)  # type: ignore[no-untyped-call]

        return vmap.backward(call, info.batch_size, spec.window.dims, spec.mask, at, grad, x, weight, mix)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """For ordinary autograd around torch.func; torch.func around itself is given plain operations."""
        spec = ctx.spec
        found = _again(ctx.saved_tensors, ctx.needs_input_grad, gradients, spec.program, spec.window, spec.mask)
        return (*found, None)


differentiable("pool", _save, _formula, plain)
differentiable("pool_backward", _save_backward, _formula_backward, plain_backward)
