"""Rows of ``weight`` and ``mix`` as kernels read them: each learned number clamped to its domain, constants behind.

A proportion lies in [0, 1], a power in [1, 64], and so on (``leaves.READINGS``). The operator clamps, so every caller
computes the same; the gradient of a number at its border is dropped where descent would push it further out, and passes
where it leads back inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..program import UNBOUNDED, Domain, Program
from .transforms import Form


def get_accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums are kept in: float32 for the halves."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def clamp_rows(mix: Tensor, domains: Sequence[Domain]) -> Tensor:
    """``mix``, each row clamped to its domain; plain operations, whose gradient is 1 at a border and 0 beyond."""
    return _map_rows(_clamp, domains, mix)


def _clamp(row: Tensor, low: float, high: float) -> Tensor:
    """``row.clamp(low, high)``, whose gradient at a border itself is 1 up to torch 2.13 and 0 in torch 2.15."""
    if torch.onnx.is_in_onnx_export():  # which needs no gradient: one node
        return row.clamp(low, high)
    return torch.where(row < low, low, torch.where(row > high, high, row))


def drop_outward(mix: Tensor, grad: Tensor, domains: Sequence[Domain]) -> Tensor:
    """``grad``, but 0 where descent, which moves against it, would push a number at its border further out.

    NaN and infinite gradients are kept, so that GradScaler sees them. Borders are compared in the dtype of
    accumulation: in bfloat16 0.1 would be 0.1001, and that number at the border.
    """

    def drop(row: Tensor, g: Tensor, low: float, high: float) -> Tensor:
        row = row.to(get_accumulation_dtype(row.dtype))
        return g.masked_fill((((row <= low) & (g > 0)) | ((row >= high) & (g < 0))) & g.isfinite(), 0)

    return _map_rows(lambda g, low, high, row: drop(row, g, low, high), domains, grad, mix)


def clamp_mix(mix: Tensor, domains: Sequence[Domain], form: Form) -> Tensor:
    """``clamp_rows`` with the operator's gradient, outside an operator, where a function can be applied."""
    if form in (Form.NO_GRAD, Form.TORCHSCRIPT, Form.ONNX) or all(domain == UNBOUNDED for domain in domains):
        return clamp_rows(mix, domains)
    function = ClampForward if form is Form.FORWARD_MODE else Clamp
    return function.apply(mix, tuple(domains))  # type: ignore[no-any-return, no-untyped-call]


def append_constants(weight: Tensor, mix: Tensor, program: Program, kernel: Sequence[int]) -> tuple[Tensor, Tensor]:
    """``weight`` and ``mix`` with the program's constant rows behind the learned ones."""
    if program.filters:
        lead = weight.dim() - len(kernel)
        dtype = get_accumulation_dtype(weight.dtype)
        rows = [_make_row(weight, values, dtype).reshape(1, *(1,) * (lead - 1), *kernel) for values in program.filters]
        weight = torch.cat([weight.to(dtype), *(row.expand(-1, *weight.shape[1:]) for row in rows)])
    if program.scalars:
        dtype = get_accumulation_dtype(mix.dtype)
        mix = torch.cat([mix.to(dtype), *(mix.new_full((1, *mix.shape[1:]), a, dtype=dtype) for a in program.scalars)])
    return weight, mix


def _make_row(like: Tensor, values: Sequence[float], dtype: torch.dtype) -> Tensor:
    """A constant row; exporters take no ``torch.tensor`` inside a graph."""
    return torch.cat([like.new_full((1,), value, dtype=dtype) for value in values])


def _map_rows(f: Callable[..., Tensor], domains: Sequence[Domain], rows: Tensor, *others: Tensor) -> Tensor:
    """``f(row, low, high, *other rows)`` of every row; in one call where all have one domain."""
    if not domains:
        return rows
    if domains.count(domains[0]) == len(domains):
        return rows if domains[0] == UNBOUNDED else f(rows, *domains[0], *others)
    return torch.stack(
        [
            rows[m] if domain == UNBOUNDED else f(rows[m], *domain, *(other[m] for other in others))
            for m, domain in enumerate(domains)
        ]
    )


class Clamp(torch.autograd.Function):
    """``clamp_rows(mix)``; at or beyond a border an outward gradient is dropped and an inward one passes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mix: Tensor, domains: tuple[Domain, ...]) -> Tensor:
        return clamp_rows(mix, domains)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        mix, ctx.domains = inputs
        ctx.save_for_backward(mix)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (mix,) = ctx.saved_tensors
        return drop_outward(mix, grads[0], ctx.domains), None


class ClampForward(Clamp):
    """``Clamp`` with a rule for forward mode; a class of its own, because torch.compile refuses functions with one."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        Clamp.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        (mix,), tangent = ctx.saved_tensors, tangents[0]
        return -drop_outward(mix, -tangent, ctx.domains)  # a tangent is the direction itself
