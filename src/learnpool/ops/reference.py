"""The equations of the paper and their gradients, in plain PyTorch: read this beside the paper.

A region **x** is the cells under one window in one channel. Whatever the tree, a region is needed only through its
*responses*: a few numbers such as the maximum, the mean, and one inner product for each Filter and Gate
(``responses.py``). The tree is then evaluated on these numbers. Numbers in brackets are the paper's equations.

Conventions at edges and ties: maximum and mean run over the cells that exist, a mask or filter meets zero outside. Of
several equal maxima the first receives the gradient, as in PyTorch. NaN wins a maximum; of several NaNs the last
receives the gradient. Loops run over taps with strided slices, so memory is of the order of the output; in backward
they run in reverse, so that a cell's gradients are summed in PyTorch's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..program import Op, Program, decode
from .responses import UNITS, Max
from .rows import append_constants, clamp_mix, clamp_rows, drop_outward, get_accumulation_dtype
from .transforms import Form, choose_form
from .unit import Cell, Counts, Unit
from .window import Tap, Window

Blend = Callable[[Tensor, Tensor, Tensor], Tensor]


def forward(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], window: Window) -> Tensor:
    """Pool ``x`` by the tree: equations (1), (5), (10) and any other.

    ``weight`` is ``[D, C|1, *grid|1, *kernel]``, ``mix`` is ``[M, C|1, *grid|1]``.
    """
    decoded = decode(tuple(program))
    units, rows = compute_responses(x, weight, _clamp(mix, decoded), decoded, window)
    values, _ = evaluate(decoded, [unit.finish() for unit in units], rows)
    return values[0].to(x.dtype)


def backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    mix: Tensor,
    program: Sequence[int],
    window: Window,
    output_mask: Sequence[bool] = (True, True, True),
    ties: str = "first",
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x, weight and mix; None where ``output_mask`` is False.

    With c the gradient that reaches a response, every cell receives the sum over responses of c ∂y/∂x, for example
    ``Σ_d c_d w_d[tap] + c_mean / n + c_max [tap is the maximum]``, and ``∂w_d = Σ_regions c_d x``. The paper's (4),
    (9), (15) and (7), (11), (12), (13) are special cases. ``ties="all"`` pays every maximum, as printed there.
    """
    decoded = decode(tuple(program))
    dtype = get_accumulation_dtype(x.dtype)
    units, rows = compute_responses(x, weight, _clamp(mix, decoded), decoded, window)
    values, proportions = evaluate(decoded, [unit.finish() for unit in units], rows)
    c, c_rows = backpropagate(decoded, values, proportions, rows, grad.to(dtype))
    for unit, response, c_unit in zip(units, decoded.responses, c, strict=True):
        if isinstance(unit, Max):
            unit.ties = ties
        c_theta = unit.send(c_unit)
        if c_theta is not None:
            c_rows[response.scalar] = c_theta

    dx = x.new_zeros(x.shape, dtype=dtype) if output_mask[0] else None
    taps = weight.shape[weight.dim() - window.dims :].numel()
    dw = [x.new_zeros((*weight.shape[1 : 2 + window.dims], taps), dtype=dtype) for _ in range(decoded.weights)]
    learned = [(unit, r.weight) for unit, r in zip(units, decoded.responses, strict=True) if 0 <= r.weight < len(dw)]
    wide, size = x.to(dtype), x.shape[-window.dims :]
    for tap in reversed(list(window.taps(size))):
        cell = read_cell(wide, tap, window.output_size(size))
        if dx is not None:
            at_cells = dx[tap.cells]
            for unit in units:
                at_cells += unit.receive(cell)[tap.regions]
        if output_mask[1]:
            for unit, row in learned:
                if not unit.by_place:
                    _add_to_tap(dw[row], cell.number, cell.keep(unit.weight(cell)))
    for unit, row in learned if output_mask[1] else ():
        for number in range(taps) if unit.by_place else ():
            _add_to_tap(dw[row], number, unit.weight(Cell(number, unit.like, None)))
    dm = None
    if output_mask[2]:
        dm = x.new_zeros(mix.shape, dtype=dtype)
        for m in range(decoded.mixes):
            dm[m] = sum_to_parameter(c_rows[m], dm[m].shape)
        dm = drop_outward(mix, dm.to(mix.dtype), decoded.domains)  # in its own dtype, where it may overflow
    dweight = torch.stack(dw).reshape(weight.shape) if dw else torch.zeros_like(weight)
    return (
        None if dx is None else dx.to(x.dtype),
        dweight.to(weight.dtype) if output_mask[1] else None,
        dm,
    )


def compute_responses(
    x: Tensor, weight: Tensor, mix: Tensor, program: Program, window: Window
) -> tuple[list[Unit], Tensor]:
    """Every response of every region, tap by tap; and the rows of mix, constants too."""
    dtype = get_accumulation_dtype(x.dtype)
    size = x.shape[-window.dims :]
    weight, mix = append_constants(weight.to(dtype), mix.to(dtype), program, window.kernel)
    wide, output = x.to(dtype), window.output_size(size)
    like = wide.new_zeros((*x.shape[: -window.dims], *output))
    counts = Counts(*(window.count_cells(size, divide, device=x.device, dtype=dtype) for divide in (False, True)))
    units = make_units(program, like, counts, weight, mix, window)
    for p in range(max(unit.passes for unit in units)):
        for tap in window.taps(size):
            cell = read_cell(wide, tap, output)
            for unit in units:
                if p < unit.passes:
                    unit.add(p, cell)
    return units, mix


def _clamp(mix: Tensor, program: Program) -> Tensor:
    """mix clamped; derivatives of any order have the operator's rule at a border, where a function can be applied."""
    form = choose_form()
    return clamp_mix(mix, program.domains, form) if form is Form.OPERATOR else clamp_rows(mix, program.domains)


def make_units(
    program: Program, like: Tensor, counts: Counts, weight: Tensor, mix: Tensor, window: Window
) -> list[Unit]:
    """A unit for each response, with its rows."""
    units = []
    for response in program.responses:
        unit = UNITS[response.kind](like, counts)
        if response.weight >= 0:
            unit.row = weight[response.weight].flatten(-window.dims)
        if response.scalar >= 0:
            unit.theta = mix[response.scalar]
        units.append(unit)
    return units


def read_cell(x: Tensor, tap: Tap, output: Sequence[int]) -> Cell:
    """The cells under a tap, as large as the output."""
    axes = zip(tap.regions[:0:-1], output[::-1], strict=True)
    pads = [n for part, out in axes for n in (part.start, out - part.stop)]
    if not any(pads):
        return Cell(tap.number, x[tap.cells], None)
    exists = torch.zeros(tuple(output), dtype=torch.bool, device=x.device)
    exists[tap.regions] = True
    return Cell(tap.number, F.pad(x[tap.cells], pads), exists)


def blend(p: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``p left + (1 − p) right``; a proportion of exactly 1 or 0 does not read the other side, be it inf or NaN."""
    # The plain formula has the right derivative in p; it is replaced where its value would be wrong.
    plain = p * left + (1 - p) * right
    only_left = (p == 1) & (~right.isfinite() | (left == 0))  # a zero keeps its sign
    only_right = (p == 0) & (~left.isfinite() | (right == 0))
    return torch.where(only_left, left, torch.where(only_right, right, plain))


def blend_backward(grad: Tensor, p: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What reaches p, left and right of a blend; nothing on a side that was not read."""
    return grad * (left - right), _pass_on(grad, p), _pass_on(grad, 1 - p)


def _pass_on(grad: Tensor, share: Tensor) -> Tensor:
    """``grad share``; where one of them is exactly 0 the other is not read, be it infinite or NaN."""
    product = grad * share
    return torch.where(((grad == 0) | (share == 0)) & ~product.isfinite(), 0, product)


def evaluate(
    program: Program, responses: Sequence[Tensor], mix: Tensor, blend: Blend = blend
) -> tuple[list[Tensor], list[Tensor]]:
    """The value of each node and the proportion of each inner one, from the back of the program to its root."""
    values: list[Any] = [None] * len(program.nodes)
    proportions: list[Any] = [None] * len(program.nodes)
    for place in reversed(range(len(program.nodes))):
        node = program.nodes[place]
        match node.op:
            case Op.LEAF:
                values[place] = responses[node.response]
                continue
            case Op.GATE:
                p = torch.sigmoid(responses[node.response])
            case Op.GATE_BY:
                bias = mix[node.bias] if node.bias >= 0 else 0
                p = torch.sigmoid(mix[node.row] * values[node.by] + bias)
            case Op.MIX:
                p = mix[node.row]
            case _:
                raise ValueError(f"unknown operation {node.op!r} of a node")
        proportions[place] = p
        values[place] = blend(p, values[node.left], values[node.right])
    return values, proportions


def backpropagate(
    program: Program, values: Sequence[Tensor], proportions: Sequence[Tensor], mix: Tensor, grad: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """What reaches each response and each row of mix when the root receives ``grad``: from the root to the leaves."""
    c_responses: list[Any] = [0] * len(program.responses)
    c_rows: list[Any] = [grad] * (program.mixes + len(program.scalars))
    c_nodes = [grad] * len(program.nodes)
    for place, node in enumerate(program.nodes):
        c, p = c_nodes[place], proportions[place]
        if node.op == Op.LEAF:
            c_responses[node.response] = c_responses[node.response] + c
            continue
        c_p, c_nodes[node.left], c_nodes[node.right] = blend_backward(c, p, values[node.left], values[node.right])
        if node.op == Op.MIX:
            c_rows[node.row] = c_p
            continue
        c_p = c_p * (p * (1 - p))  # σ' = σ (1 − σ); a closed gate stays closed, and one that is not read gets nothing
        c_s = torch.where((p == 0) | (p == 1) | ((c == 0) & ~c_p.isfinite()), 0, c_p)
        if node.op == Op.GATE:
            c_responses[node.response] = c_responses[node.response] + c_s
        else:
            c_nodes[node.by] = c_s * mix[node.row]
            c_rows[node.row] = c_s * values[node.by]
            if node.bias >= 0:
                c_rows[node.bias] = c_s
    return c_responses, c_rows


def _add_to_tap(dw: Tensor, number: int, value: Tensor) -> None:
    at_tap = dw[..., number]
    at_tap += sum_to_parameter(value, at_tap.shape)


def sum_to_parameter(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Sum ``[N, C, *output]`` (or unbatched) over all that share a parameter of ``shape`` ``[C|1, *grid|1]``."""
    full = torch.broadcast_shapes(value.shape, shape)
    return value.expand(full).sum_to_size(*shape)
