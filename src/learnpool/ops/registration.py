"""The operators of learnpool and everything PyTorch knows about each of them; read this file first.

====================================  ====================================================================
schema                                defined here, unless the compiled library has defined it for use from C++
kernel                                the reference; C++ (CPU) or Triton (CUDA, ROCm) where it is available
fake                                  shapes without values, for torch.compile and torch.export
decomposition                         in PyTorch's own operations, for exporters, forward mode and nested torch.func
formula                               gradients of its tensors, for autograd
vmap                                  a batch of calls as one call
forms                                 what replaces a call of it where a backward formula does not serve
flops                                 multiplications, for ``torch.utils.flop_counter``
====================================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import register_flop_formula

from . import autograd, cpu, decomposition, operator, stochastic, triton, vmap
from .transforms import Form, call_below, choose_form, is_defined

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
    forms: dict[Form, Callable[..., Any]]
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
        forms={
            Form.FUNCTION: autograd.apply_pool_function,
            Form.NESTED: autograd.clamp_and_pool,
            Form.FORWARD_MODE: autograd.clamp_and_pool,
            Form.ONNX: decomposition.pool_for_onnx,
        },
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
        forms={},
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
        forms={Form.ONNX: stochastic.pool_for_onnx},
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
        forms={},
        tags=(torch.Tag.pt2_compliant_tag,),
    ),
)


class Call(NamedTuple):
    """An operator as functions call it."""

    operator: Any
    apply: Callable[..., Any]  # what autograd records of a call
    forms: dict[Form, Callable[..., Any]]


CALLS: dict[str, Call] = {}  # by name


def call_operator(name: str, rest: tuple[Any, ...], *tensors: Any) -> Any:
    """Call an operator in the form that PyTorch can differentiate, or export, here.

    Ordinary calls do what the autograd kernel would, without the way through the dispatcher and back.
    """
    operator, apply, forms = CALLS[name]
    form = choose_form(*tensors)
    if form is Form.EAGER:
        return apply(None, rest, *tensors)
    if form is Form.NO_GRAD:
        return call_below(operator.default, *tensors, *rest)
    return forms.get(form, operator)(*tensors, *rest)


def register(op: Operator) -> None:
    """Register everything PyTorch has to know about an operator."""
    name = f"learnpool::{op.name}"
    if not is_defined(name):
        LIBRARY.define(op.name + op.schema, tags=op.tags)
    packet = getattr(torch.ops.learnpool, op.name)
    LIBRARY.impl(op.name, cpu.warn_once(op.kernel), "CompositeExplicitAutograd")
    torch.library.register_fake(name, op.fake, lib=LIBRARY)
    kernel, apply = autograd.make_kernel(packet.default, op.tensors, op.formula, op.decomposition)
    CALLS[op.name] = Call(packet, apply, op.forms)
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
