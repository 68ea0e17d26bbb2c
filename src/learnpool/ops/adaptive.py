"""Pooling into a given number of regions, usually one: Max, Avg and Mix over PyTorch's adaptive windows.

Adaptive windows differ in size, so there are no masks and filters, and every tree reduces to
``A max + (1 − A) mean`` with one A computed from its proportions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..tree import Code, Program, Tree, decode, reject_code
from . import reference
from .operator import check_parameter, check_tensor
from .transforms import Form, choose_form


def pool(name: str, x: Tensor, tree: Tree, mix: Tensor, output_size: Any, dims: int) -> Tensor:
    """``tree`` over the regions of ``F.adaptive_max_pool2d``; ``mix`` is ``[M, C|1, *output|1]``."""
    check_tree(name, tree)
    size = get_output_size(name, x, output_size, dims)
    decoded = decode(tree.program)
    check_parameter(name, "mix", mix, x, decoded.mixes, x.shape[-dims - 1], size, ())
    wide = mix.to(reference.get_accumulation_dtype(x.dtype))
    maximum = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[dims - 1](x, size)
    mean = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[dims - 1](x, size)  # type: ignore[arg-type]
    inputs = compute_share_of_max(decoded, wide), maximum.to(wide.dtype), mean.to(wide.dtype)
    if choose_form() is Form.FORWARD_MODE:  # BlendFunction has a formula for backward alone
        return reference.blend(*inputs).to(x.dtype)
    return BlendFunction.apply(*inputs).to(x.dtype)  # type: ignore[no-untyped-call, no-any-return]


def compute_share_of_max(program: Program, mix: Tensor) -> Tensor:
    """A of the root, ``[C|1, *output|1]``: 1 for Max, 0 for Avg, ``a A_left + (1 − a) A_right`` for a Mix."""
    one = mix.new_ones((1,) * (mix.dim() - 1))
    shares = [one] * len(program.nodes)
    for place in reversed(range(len(program.nodes))):
        node = program.nodes[place]
        match node.code:
            case Code.MAX:
                continue
            case Code.AVG:
                shares[place] = one * 0
                continue
            case Code.MIX:
                a = mix[node.parameter]
            case Code.FIXED:
                a = one * node.a
            case Code.MIN | Code.FILTER | Code.GATE:
                raise ValueError(f"adaptive windows have neither masks nor Min, got {node.code.name}")
            case _:
                reject_code(node.code)
        shares[place] = a * shares[node.left] + (1 - a) * shares[node.right]
    return shares[0]


def check_tree(name: str, tree: Any) -> None:
    """Raise unless ``tree`` is of Max, Avg and Mix."""
    if not isinstance(tree, Tree):
        raise TypeError(f"{name}: tree must be a tree such as Mix(Max(), Avg()), got {tree!r}")
    decoded = decode(tree.program)
    if decoded.weights or decoded.has_min:
        wanted = "adaptive windows have neither masks nor Min: tree must be of Max, Avg and Mix"
        raise ValueError(f"{name}: {wanted}, got {tree!r}")


def expand_output_size(name: str, output_size: Any, dims: int) -> tuple[int | None, ...]:
    """``output_size`` as one number per axis; None keeps the input's."""
    sizes = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * dims
    for n in sizes:
        if n is not None and (isinstance(n, bool) or not isinstance(n, int)):
            raise TypeError(f"{name}: output_size must be one or {dims} ints (or None), got {output_size!r}")
    if len(sizes) != dims or any(n is not None and n < 1 for n in sizes):
        raise ValueError(f"{name}: output_size must be one or {dims} positive ints (or None), got {output_size!r}")
    return sizes


def get_output_size(name: str, x: Any, output_size: Any, dims: int) -> tuple[int, ...]:
    """The output size for input ``x``."""
    check_tensor(name, x, dims)
    sizes = expand_output_size(name, output_size, dims)
    return tuple(length if n is None else n for length, n in zip(x.shape[-dims:], sizes, strict=True))


class BlendFunction(torch.autograd.Function):
    """``p left + (1 − p) right`` with the reference's rule at 0 and 1, and its gradients."""

    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return reference.blend(p, left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        p, left, right = ctx.saved_tensors
        c_p, c_left, c_right = reference.blend_backward(grads[0], p, left, right)
        return reference.sum_to_parameter(c_p, p.shape), c_left, c_right
