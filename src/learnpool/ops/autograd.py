"""What makes the operators differentiable: their backward formulas, and where plain operations replace them.

In ordinary backward only x and the parameters are saved, and the formula is another operator; that one's derivative is
the vector-Jacobian product of the reference's backward, in plain operations, so derivatives of any order exist. A
formula for reverse mode would silently give forward mode a tangent of zero, so forward mode runs the decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..program import decode
from . import reference, vmap
from .rows import clamp_mix
from .transforms import (
    any_requires_grad,
    bind_redispatch,
    call_backward,
    call_below,
    choose_form,
    needs_decomposition,
)
from .window import Window

# gradients of an operator's tensors, from: the tensors, the other arguments, which tensors need one, incoming gradients
Formula = Callable[..., Sequence[Tensor | None]]


def make_kernel(
    operator: Any, tensors: int, formula: Formula, decomposition: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The autograd kernel of an operator whose first ``tensors`` arguments are tensors; and what it records of a call.

    ``torch.library.register_autograd`` covers reverse mode alone, neither forward mode nor torch.func. The second is
    ``apply(None, rest, *tensors)``, for ordinary calls without the way through the dispatcher and back.
    """
    redispatch = bind_redispatch(operator)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keyset: Any, rest: Sequence[Any], *inputs: Tensor) -> Any:
            ctx.save_for_backward(*inputs)
            ctx.rest = rest
            if keyset is None:  # a direct call
                return call_below(operator, *inputs, *rest)
            return redispatch(keyset, *inputs, *rest)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return None, None, *formula(ctx.saved_tensors, ctx.rest, ctx.needs_input_grad[2:], *grads)

    name = operator.name().replace("::", "_").removesuffix(".default")
    named: Any = type(name, (Function,), {})  # autograd's node is named after the class
    apply = named.apply

    def kernel(keyset: Any, *inputs: Any) -> Any:
        if needs_decomposition():
            return decomposition(*inputs)
        if torch.is_grad_enabled() and any_requires_grad(*inputs):
            return apply(keyset, inputs[tensors:], *inputs[:tensors])
        return redispatch(keyset, *inputs)

    return kernel, apply


def pool_formula(
    tensors: Sequence[Tensor], rest: Sequence[Any], needed: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of ``learnpool::pool``, by ``learnpool::pool_backward``."""
    return keep_needed(call_backward(torch.ops.learnpool.pool_backward, grad, *tensors, *rest, needed), needed)


def pool_backward_formula(
    tensors: Sequence[Tensor], rest: Sequence[Any], needed: Sequence[bool], *grads: Tensor
) -> list[Tensor | None]:
    """The second derivative: what reaches grad, x, weight and mix through the reference's backward."""
    program, *window, output_mask = rest

    def backward(grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor) -> tuple[Tensor | None, ...]:
        return reference.backward(grad, x, weight, mix, program, Window.from_arguments(*window), output_mask)

    return compute_vjp(backward, tensors, needed, grads)


def keep_needed(grads: Sequence[Tensor], needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """None in place of the empty tensors an operator returns for gradients of x, weight and mix nobody needs."""
    dx, dweight, dmix = grads
    return dx if needed[0] else None, dweight if needed[1] else None, dmix if needed[2] else None


def compute_vjp(
    function: Callable[..., Sequence[Tensor | None]],
    inputs: Sequence[Tensor],
    needed: Sequence[bool],
    grads: Sequence[Tensor],
) -> list[Tensor | None]:
    """The gradients of ``inputs`` through a function of plain operations; differentiable again if autograd is on."""
    sources = [i for i in range(len(inputs)) if needed[i]]
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # A view of each input is the edge of this graph, so that gradients of its other uses stay out.
        edges = [t.view_as(t) if needed[i] else t.detach() for i, t in enumerate(inputs)]
        pairs = [(y, g) for y, g in zip(function(*edges), grads, strict=True) if y is not None and y.requires_grad]
        values: Sequence[Tensor | None] = [None] * len(sources)
        if pairs:
            outputs, incoming = zip(*pairs, strict=True)
            values = torch.autograd.grad(
                outputs, [edges[i] for i in sources], incoming, create_graph=create_graph, allow_unused=True
            )
    result: list[Tensor | None] = [None] * len(inputs)
    for i, value in zip(sources, values, strict=True):
        result[i] = value
    return result


@dataclass(frozen=True)
class StaticArguments:
    """The arguments of a call that are no tensors, as one object: torch.func would flatten a tuple in every call."""

    program: tuple[int, ...]
    window: Window
    output_mask: tuple[bool, ...] = ()

    @property
    def arguments(self) -> tuple[Any, ...]:
        """In the order of the operators' schemas."""
        return self.program, *self.window.arguments, *([self.output_mask] if self.output_mask else [])


class PoolFunction(torch.autograd.Function):
    """``learnpool::pool`` in the form torch.func can differentiate; it cannot use the formula of a custom operator.

    It serves a single derivative; under nested ones the operator itself becomes plain operations.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, mix: Tensor, static: StaticArguments) -> Tensor:
        return torch.ops.learnpool.pool(x, weight, mix, *static.arguments)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.static = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def vmap(info: Any, axes: Any, *inputs: Any) -> Any:
        *tensors, static = inputs
        return vmap.batch_pool(_bind(PoolFunction, static), info.batch_size, static.window.dims, axes, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        needed = tuple(ctx.needs_input_grad[:3])
        static = replace(ctx.static, output_mask=needed)
        return *keep_needed(PoolBackwardFunction.apply(*grads, *ctx.saved_tensors, static), needed), None  # type: ignore[no-untyped-call]


class PoolBackwardFunction(torch.autograd.Function):
    """``learnpool::pool_backward`` for the class above."""

    @staticmethod
    def forward(
        grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, static: StaticArguments
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.ops.learnpool.pool_backward(grad, x, weight, mix, *static.arguments)  # type: ignore[no-any-return]

    setup_context = staticmethod(PoolFunction.setup_context)

    @staticmethod
    def vmap(info: Any, axes: Any, *inputs: Any) -> Any:
        *tensors, static = inputs
        call = _bind(PoolBackwardFunction, static)
        return vmap.batch_pool_backward(call, info.batch_size, static.window.dims, static.output_mask, axes, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """For ordinary autograd around torch.func; nested torch.func gets plain operations instead."""
        needed = ctx.needs_input_grad[:4]
        return *pool_backward_formula(ctx.saved_tensors, ctx.static.arguments, needed, *grads), None


def apply_pool_function(x: Tensor, weight: Tensor, mix: Tensor, program: tuple[int, ...], *window: Any) -> Any:
    """``learnpool::pool`` inside one derivative of torch.func."""
    static = StaticArguments(program, Window.from_arguments(*window))
    return PoolFunction.apply(x, weight, mix, static)  # type: ignore[no-untyped-call]


def clamp_and_pool(x: Tensor, weight: Tensor, mix: Tensor, program: tuple[int, ...], *window: Any) -> Any:
    """``learnpool::pool`` where it becomes plain operations, which cannot have its rule for gradients at a border."""
    mix = clamp_mix(mix, decode(program).domains, choose_form())
    return torch.ops.learnpool.pool(x, weight, mix, program, *window)


def _bind(function: Any, static: StaticArguments) -> Callable[..., Any]:
    def call(*tensors: Tensor) -> Any:
        return function.apply(*tensors, static)

    return call
