"""Pooling into a given number of regions, usually one: leaves without taps over PyTorch's adaptive windows.

Adaptive windows differ in size, so there are no masks, filters and ranks; every other leaf is a reduction over the
cells of a region. ``Gate(l, r, by=…)`` works, because statistics decide instead of the raw cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional as F

from ..program import Kind, Op, Program, decode
from ..tree import Tree
from . import reference
from .operator import check_parameter, check_tensor
from .rank import find_median
from .responses import reduce
from .rows import append_constants, clamp_mix, get_accumulation_dtype
from .transforms import Form, choose_form

_MAX_POOLS: tuple[Callable[..., Any], ...] = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
_AVG_POOLS: tuple[Callable[..., Any], ...] = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)


def pool(name: str, x: Tensor, tree: Tree, mix: Tensor, output_size: Any, dims: int) -> Tensor:
    """``tree`` over the regions of ``F.adaptive_max_pool2d``; ``mix`` is ``[M, C|1, *output|1]``."""
    program = check_tree(name, tree)
    size = get_output_size(name, x, output_size, dims)
    check_parameter(name, "mix", mix, x, program.mixes, x.shape[-dims - 1], size, ())
    wide = clamp_mix(mix, program.domains, choose_form()).to(get_accumulation_dtype(x.dtype))
    rows = append_constants(wide, wide, program, ())[1]
    # BlendFunction has a formula for backward alone
    blend: Any = reference.blend if choose_form() is Form.FORWARD_MODE else BlendFunction.apply
    values, _ = reference.evaluate(program, compute_responses(x, rows, program, size), rows, blend)
    return values[0].to(x.dtype)


def compute_responses(x: Tensor, rows: Tensor, program: Program, size: Sequence[int]) -> list[Tensor]:
    """Every response of every region, ``[N, C, *output]``."""
    dims, responses = len(size), []
    for kind, _, scalar in program.responses:
        match kind:
            case Kind.MAX:
                y = _MAX_POOLS[dims - 1](x, size)
            case Kind.MIN:
                y = -_MAX_POOLS[dims - 1](-x, size)
            case Kind.AVG:
                y = _AVG_POOLS[dims - 1](x, size)
            case Kind.MEDIAN:
                regions = _iter_regions(x.to(rows.dtype), None, size)
                y = torch.stack([find_median(cells) for cells, _ in regions], -1).unflatten(-1, tuple(size))
            case _:
                theta = rows[scalar] if scalar >= 0 else None
                regions = _iter_regions(x.to(rows.dtype), theta, size)
                y = torch.stack([reduce(kind, *region) for region in regions], -1).unflatten(-1, tuple(size))
        responses.append(y.to(rows.dtype))
    return responses


def _iter_regions(x: Tensor, theta: Tensor | None, size: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The cells ``[N, C, L]`` of every region, row by row, with its ``theta`` ``[C|1]``; bounds as in PyTorch."""
    dims = len(size)
    for place in itertools.product(*map(range, size)):
        parts = zip(place, x.shape[-dims:], size, strict=True)
        bounds: Any = (..., *(slice(i * n // out, -(-(i + 1) * n // out)) for i, n, out in parts))
        cells = x[bounds].flatten(-dims)
        if theta is None:
            yield cells, None
        else:
            index: Any = (..., *(min(i, n - 1) for i, n in zip(place, theta.shape[1:], strict=True)))
            yield cells, theta[index]


def check_tree(name: str, tree: Any) -> Program:
    """The program of ``tree``, every leaf of which has to work on windows of any size."""
    if not isinstance(tree, Tree):
        raise TypeError(f"{name}: tree must be a tree such as Mix(Max(), Avg()), got {tree!r}")
    find = decode.__wrapped__ if is_compiling() else decode  # Dynamo warns of a cache, and does not use it
    program = find(tree.program)
    if any(node.op == Op.GATE for node in program.nodes) or any(r.weight >= 0 for r in program.responses):
        wanted = "windows of many sizes have no taps: tree must be without Filter, Rank, Blur, and Gate needs by=…"
        raise ValueError(f"{name}: {wanted}, got {tree!r}")
    return program


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
