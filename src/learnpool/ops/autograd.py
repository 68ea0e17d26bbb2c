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
from torch._C._functorch import unwrap_if_dead

from . import cpu, reference, vmap
from .calls import PoolArguments, call_below, takes_handle
from .clamp import clamp_proportions, drop_outward
from .transforms import Form, choose_form, needs_decomposition
from .window import Window

_AFTER_AUTOGRAD = torch._C._after_autograd_keyset

# gradients of an operator's tensors, from: the tensors, the other arguments, which tensors need one, incoming gradients
Formula = Callable[..., Sequence[Tensor | None]]


def make_function(operator: Any, formula: Formula) -> Any:
    """What autograd records of a call: ``apply(call, rest, *tensors)``; ``rest`` is what follows the tensors.

    ``call(rest, *tensors)`` is the operator below autograd.
    """

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, call: Callable[..., Any], rest: Sequence[Any], *tensors: Tensor) -> Any:
            ctx.save_for_backward(*tensors)
            ctx.rest = rest
            return call(rest, *tensors)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return None, None, *formula(ctx.saved_tensors, ctx.rest, ctx.needs_input_grad[2:], *grads)

    name = operator.name().replace("::", "_").removesuffix(".default")
    return type(name, (Function,), {})  # autograd's node is named after the class


def make_kernel(operator: Any, function: Any, tensors: int, decomposition: Callable[..., Any]) -> Any:
    """The autograd kernel of an operator whose first ``tensors`` arguments are tensors.

    ``torch.library.register_autograd`` covers reverse mode alone, neither forward mode nor torch.func.
    """
    redispatch = operator._handle.redispatch_boxed  # operator.redispatch is Python

    def kernel(keyset: Any, *inputs: Any) -> Any:
        if needs_decomposition():
            return decomposition(*inputs)
        if not (torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs)):
            return redispatch(keyset & _AFTER_AUTOGRAD, *inputs)

        def call(rest: Sequence[Any], *tensors: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                return redispatch(keyset & _AFTER_AUTOGRAD, *tensors, *rest)

        return function.apply(call, inputs[tensors:], *inputs[:tensors])

    return kernel


def call_backward(operator: Any, *inputs: Any) -> Any:
    """An operator in a backward formula; its own autograd kernel is there for second derivatives."""
    return call_below(operator, *inputs) if choose_form() is Form.NO_GRAD else operator(*inputs)


def bind_apply(function: Any) -> Callable[..., Any]:
    """``function.apply`` for calls outside torch.func, without the time it takes to ask whether this is one."""
    apply = super(torch.autograd.Function, function).apply

    def call(below: Callable[..., Any], rest: Sequence[Any], *tensors: Tensor) -> Any:
        # A tensor kept from inside a transform is a wrapper, through which autograd would not see the tensor itself.
        return apply(below, rest, *map(unwrap_if_dead, tensors))

    return call


def pool_formula(
    tensors: Sequence[Tensor], rest: Any, needed: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of ``learnpool::pool``, by ``learnpool::pool_backward``.

    ``rest`` may say that mix, as it is here, was to be clamped.
    """
    x, weight, mix = tensors
    form = choose_form(grad, x, weight, mix)
    registered = isinstance(rest, PoolArguments)
    if (
        registered
        and rest.handle is not None
        and form is Form.NO_GRAD
        and type(grad) is Tensor
        and takes_handle(*tensors)
    ):
        grads = cpu.pool_backward_by_handle(grad, x, weight, mix, rest.handle, *needed)
        return keep_needed(grads, needed)
    clamp = registered and rest.clamp
    mix = clamp_proportions(mix, form) if clamp else mix
    grads = call_backward(torch.ops.learnpool.pool_backward, grad, x, weight, mix, *rest, needed)
    dx, dweight, dmix = keep_needed(grads, needed)
    return dx, dweight, drop_outward(mix, dmix) if clamp and dmix is not None else dmix


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


def _bind(function: Any, static: StaticArguments) -> Callable[..., Any]:
    def call(*tensors: Tensor) -> Any:
        return function.apply(*tensors, static)

    return call
