"""The operators of learnpool and everything PyTorch knows about each of them; read this file first.

====================================  ====================================================================
schema                                defined here, unless the compiled library has defined it for use from C++
kernel                                the reference; C++ (CPU) or Triton (CUDA, ROCm) where it is available
fake                                  shapes without values, for torch.compile and torch.export
decomposition                         in PyTorch's own operations, for exporters, forward mode and nested torch.func
formula                               gradients of its tensors, for autograd
vmap                                  a batch of calls as one call
flops                                 multiplications, for ``torch.utils.flop_counter``
====================================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import register_flop_formula

from . import autograd, cpu, decomposition, operator, stochastic, triton, vmap
from .transforms import Form, call_below, is_defined

LIBRARY = torch.library.Library("learnpool", "FRAGMENT")

_WINDOW = "int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode"
_POOL = f"Tensor x, Tensor weight, Tensor mix, int[] program, {_WINDOW}, bool count_include_pad"
_STOCHASTIC = f"Tensor x, Tensor? seed, {_WINDOW}"


class Operator(NamedTuple):
    """One operator; the fields are those of the table above."""

    name: str
    schema: str
    tensors: int  # how many of its arguments a gradient can reach; they come first
    kernel: Callable[..., Any]
    fake: Callable[..., Any]
    decomposition: Callable[..., Any]
    formula: autograd.Formula
    vmap: Callable[..., Any]
    flops: Callable[..., int] | None = None
    tags: tuple[torch.Tag, ...] = ()  # the stable ABI of the compiled library knows none


OPERATORS = (
    Operator(
        "pool",
        f"({_POOL}) -> Tensor",
        tensors=3,
        kernel=operator.pool,
        fake=operator.pool_fake,
        decomposition=decomposition.pool,
        formula=autograd.pool_formula,
        vmap=vmap.pool_rule,
        flops=operator.count_pool_flops,
    ),
    Operator(
        "pool_backward",
        f"(Tensor grad, {_POOL}, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
        tensors=4,
        kernel=operator.pool_backward,
        fake=operator.pool_backward_fake,
        decomposition=decomposition.pool_backward,
        formula=autograd.pool_backward_formula,
        vmap=vmap.pool_backward_rule,
        flops=operator.count_pool_backward_flops,
    ),
    Operator(
        "stochastic_pool",
        f"({_STOCHASTIC}) -> Tensor",
        tensors=1,
        kernel=stochastic.pool,
        fake=stochastic.pool_fake,
        decomposition=stochastic.pool_decomposition,
        formula=stochastic.pool_formula,
        vmap=stochastic.pool_rule,
        tags=(torch.Tag.pt2_compliant_tag,),
    ),
    Operator(
        "stochastic_pool_backward",
        f"(Tensor grad, {_STOCHASTIC}) -> Tensor",
        tensors=2,
        kernel=stochastic.pool_backward,
        fake=stochastic.pool_backward_fake,
        decomposition=stochastic.pool_backward_decomposition,
        formula=stochastic.pool_backward_formula,
        vmap=stochastic.pool_backward_rule,
        tags=(torch.Tag.pt2_compliant_tag,),
    ),
)


CALLS: dict[str, tuple[Any, Callable[..., Any]]] = {}  # by name: the operator, and what autograd records of a call


def call_operator(form: Form, name: str, rest: tuple[Any, ...], *tensors: Any) -> Any:
    """An operator as its autograd kernel would call it, but without the way through the dispatcher where it can."""
    operator, apply = CALLS[name]
    if form is Form.EAGER:
        return apply(None, rest, *tensors)
    if form is Form.NO_GRAD:
        return call_below(operator.default, *tensors, *rest)
    return operator(*tensors, *rest)


def register(op: Operator) -> None:
    """Register everything PyTorch has to know about an operator."""
    name = f"learnpool::{op.name}"
    if not is_defined(name):
        LIBRARY.define(op.name + op.schema, tags=op.tags)
    packet = getattr(torch.ops.learnpool, op.name)
    LIBRARY.impl(op.name, cpu.warn_once(op.kernel), "CompositeExplicitAutograd")
    torch.library.register_fake(name, op.fake, lib=LIBRARY)
    kernel, apply = autograd.make_kernel(packet.default, op.tensors, op.formula, op.decomposition)
    CALLS[op.name] = packet, apply
    LIBRARY.impl(op.name, kernel, "Autograd", with_keyset=True)
    torch.library.register_vmap(name, op.vmap, lib=LIBRARY)
    if op.flops is not None:
        register_flop_formula(packet)(op.flops)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Every operator of learnpool in terms of PyTorch's, for ``ExportedProgram.run_decompositions`` and ``make_fx``.

    Gradients, and stochastic pooling in training, are the loops of the reference, which write in place: ``make_fx``
    accepts them, ``run_decompositions`` does not.

    >>> program = torch.export.export(GatedPool2d(3, 2), (torch.randn(1, 3, 9, 9),))
    >>> plain = program.run_decompositions(decompositions())
    >>> any("learnpool" in str(node.target) for node in plain.graph.nodes)
    False
    """
    return {getattr(torch.ops.learnpool, op.name).default: op.decomposition for op in OPERATORS}


for _operator in OPERATORS:
    register(_operator)
for _name, _kernel in triton.KERNELS.items():
    LIBRARY.impl(_name, _kernel, "CUDA")  # ROCm's key too
