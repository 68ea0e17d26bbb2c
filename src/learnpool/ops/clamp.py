"""``clamp(mix, 0, 1)`` with a gradient that lets a proportion leave the border again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .transforms import Form


def clamp_proportions(mix: Tensor, form: Form) -> Tensor:
    """``mix`` clamped to [0, 1]; ``form`` is what can be differentiated, or exported, here."""
    if form is Form.FORWARD_MODE:
        return ClampForward.apply(mix)  # type: ignore[no-untyped-call, no-any-return]
    if form is Form.NO_GRAD or form is Form.TORCHSCRIPT:
        return mix.clamp(0, 1)
    if form is Form.EAGER or form is Form.OVERRIDDEN:
        return ClampEager.apply(mix)  # type: ignore[no-untyped-call, no-any-return]
    return Clamp.apply(mix)  # type: ignore[no-untyped-call, no-any-return]


def drop_outward(clamped: Tensor, grad: Tensor) -> Tensor:
    """``grad``, but 0 where descent, which moves against it, would push a proportion at a border further out.

    What is no number stays, for those who look for it.
    """
    outward = (clamped - grad / grad.abs()).clamp(0, 1) == clamped  # a whole step, clamped, ends where it began
    return grad.masked_fill(outward, 0)


class Clamp(torch.autograd.Function):
    """``clamp(mix, 0, 1)``; at or beyond a border an outward gradient is dropped and an inward one passes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mix: Tensor) -> Tensor:
        return mix.clamp(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (mix,) = ctx.saved_tensors
        return drop_outward(mix.clamp(0, 1), *grads)


class ClampEager(torch.autograd.Function):
    """``Clamp`` outside all transforms, where a function without ``setup_context`` takes half the time."""

    @staticmethod
    def forward(ctx: Any, mix: Tensor) -> Tensor:
        ctx.save_for_backward(mix)
        return mix.clamp(0, 1)

    backward = staticmethod(Clamp.backward)


class ClampForward(Clamp):
    """``Clamp`` with a rule for forward mode; a class of its own, because torch.compile refuses functions with one."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        Clamp.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        (mix,), (tangent,) = ctx.saved_tensors, tangents
        return -drop_outward(mix.clamp(0, 1), -tangent)  # a tangent is the direction itself
