"""The equations of the paper and their gradients, in plain PyTorch: read this beside the paper.

A region **x** is the cells under one window in one channel. Whatever the tree, a region is needed only through its
*responses*: the maximum and the minimum (and where they are), the mean, and one inner product for each Filter and Gate.
The tree is then evaluated on these few numbers. Numbers in brackets are the paper's equations.

Conventions at edges and ties: maximum and mean run over the cells that exist, a mask or filter meets zero outside. Of
several equal maxima the first receives the gradient, as in PyTorch. NaN wins a maximum; of several NaNs the last
receives the gradient. A minimum is ``−max(−x)`` in all of this. Loops run over taps with strided slices, so memory is
of the order of the output; in backward they run in reverse, so that a cell's gradients are summed in PyTorch's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..tree import Code, Program, decode, reject_code
from .window import Tap, Window

Blend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Responses(NamedTuple):
    """All a tree needs to know about its regions; each ``[N, C, *output]``, or None if the tree does not need it."""

    maximum: Tensor | None
    argmax: Tensor | None  # number of the tap that holds the maximum; −1 where a region has no cell
    minimum: Tensor | None
    argmin: Tensor | None
    mean: Tensor | None
    cells: Tensor  # [*output], how many each mean is over
    dots: list[Tensor]  # ω · x and v · x, in the order of weight


class ResponseGrads(NamedTuple):
    """What reaches the responses of a tree, and its mixes."""

    maximum: Tensor | None
    minimum: Tensor | None
    mean: Tensor | None
    dots: list[Tensor]
    mixes: list[Tensor]


def forward(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], window: Window) -> Tensor:
    """Pool ``x`` by the tree: equations (1), (5), (10) and any other.

    ``weight`` is ``[D, C|1, *grid|1, *kernel]``, ``mix`` is ``[M, C|1, *grid|1]``.
    """
    decoded = decode(tuple(program))
    values, _ = evaluate(decoded, compute_responses(x, weight, decoded, window), mix)
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

    With c the gradient that reaches a response, every tap receives
    ``Σ_d c_d w_d[tap] + c_mean / n + c_max [tap is the maximum]``, a minimum like a maximum, and
    ``∂w_d = Σ_regions c_d x``. The paper's (4), (9), (15) and (7), (11), (12), (13) are special cases. ``ties="all"``
    gives every maximum the gradient, as printed in the paper.
    """
    decoded = decode(tuple(program))
    dtype = get_accumulation_dtype(x.dtype)
    region = compute_responses(x, weight, decoded, window)
    c = backpropagate(decoded, *evaluate(decoded, region, mix), grad.to(dtype))
    c_mean = None if c.mean is None else c.mean / region.cells

    dx = torch.zeros(x.shape, dtype=dtype, device=x.device) if output_mask[0] else None
    dw = torch.zeros(weight.shape, dtype=dtype, device=x.device) if output_mask[1] else None
    masks = weight.to(dtype)
    for number, tap in reversed(list(enumerate(window.taps(x.shape[-window.dims :])))):
        if dx is not None:
            at_cells = dx[tap.cells]
            for d, c_dot in enumerate(c.dots):
                at_cells += c_dot[tap.regions] * select_tap(masks[d], tap)
            if c_mean is not None:
                at_cells += c_mean[tap.regions]
            if c.maximum is not None:
                wins = _holds_extreme(x, region.maximum, region.argmax, number, tap, ties)
                at_cells += torch.where(wins, c.maximum[tap.regions], 0)
            if c.minimum is not None:
                wins = _holds_extreme(x, region.minimum, region.argmin, number, tap, ties)
                at_cells += torch.where(wins, c.minimum[tap.regions], 0)
        if dw is not None:
            cells = x[tap.cells].to(dtype)
            for d, c_dot in enumerate(c.dots):
                at_tap = select_tap(dw[d], tap)
                at_tap += sum_to_parameter(c_dot[tap.regions] * cells, at_tap.shape)
    dm = None
    if output_mask[2]:
        dm = torch.zeros(mix.shape, dtype=dtype, device=x.device)
        for m, c_mix in enumerate(c.mixes):
            dm[m] = sum_to_parameter(c_mix, dm[m].shape)
    return (
        None if dx is None else dx.to(x.dtype),
        None if dw is None else dw.to(weight.dtype),
        None if dm is None else dm.to(mix.dtype),
    )


def compute_responses(x: Tensor, weight: Tensor, program: Program, window: Window) -> Responses:
    """Maximum, minimum, mean and inner products of every region, tap by tap."""
    dtype = get_accumulation_dtype(x.dtype)
    size = x.shape[-window.dims :]
    shape = (*x.shape[: -window.dims], *window.output_size(size))
    new: dict[str, Any] = {"dtype": dtype, "device": x.device}
    maximum = torch.full(shape, -torch.inf, **new) if program.has_max else None
    argmax = torch.full(shape, -1, dtype=torch.int32, device=x.device) if program.has_max else None
    minimum = torch.full(shape, torch.inf, **new) if program.has_min else None
    argmin = torch.full(shape, -1, dtype=torch.int32, device=x.device) if program.has_min else None
    total = torch.zeros(shape, **new) if program.has_avg else None
    dots = [torch.zeros(shape, **new) for _ in range(program.weights)]
    masks = weight.to(dtype)
    for number, tap in enumerate(window.taps(size)):
        cell = x[tap.cells].to(dtype)
        if maximum is not None and argmax is not None:
            wins = (cell > maximum[tap.regions]) | cell.isnan() | (argmax[tap.regions] < 0)
            maximum[tap.regions] = torch.where(wins, cell, maximum[tap.regions])
            argmax[tap.regions] = torch.where(wins, number, argmax[tap.regions])
        if minimum is not None and argmin is not None:
            wins = (cell < minimum[tap.regions]) | cell.isnan() | (argmin[tap.regions] < 0)
            minimum[tap.regions] = torch.where(wins, cell, minimum[tap.regions])
            argmin[tap.regions] = torch.where(wins, number, argmin[tap.regions])
        if total is not None:
            total[tap.regions] += cell
        for d, dot in enumerate(dots):
            dot[tap.regions] += select_tap(masks[d], tap) * cell
    cells = window.count_cells(size, **new)
    mean = None if total is None else total / cells
    return Responses(maximum, argmax, minimum, argmin, mean, cells, dots)


def blend(p: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``p left + (1 − p) right``; a proportion of exactly 1 or 0 does not read the other side, be it inf or NaN."""
    # The plain formula has the right derivative in p; it is replaced where its value would be wrong.
    plain = p * left + (1 - p) * right
    only_left = (p == 1) & (~right.isfinite() | (left == 0))  # a zero keeps its sign
    only_right = (p == 0) & (~left.isfinite() | (right == 0))
    return torch.where(only_left, left, torch.where(only_right, right, plain))


def blend_backward(grad: Tensor, p: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What reaches p, left and right of a blend; nothing on a side that was not read."""
    unsafe = ~grad.isfinite()
    return (
        grad * (left - right),
        torch.where((p == 0) & unsafe, 0, grad * p),
        torch.where((p == 1) & unsafe, 0, grad * (1 - p)),
    )


def evaluate(
    program: Program, region: Responses, mix: Tensor, blend: Blend = blend
) -> tuple[list[Tensor], list[Tensor]]:
    """The value of each node and the proportion of each inner one, from the back of the program to its root."""
    values: list[Any] = [region.cells] * len(program.nodes)
    proportions = [region.cells] * len(program.nodes)
    for place in reversed(range(len(program.nodes))):
        node = program.nodes[place]
        match node.code:
            case Code.MAX:
                values[place] = region.maximum
                continue
            case Code.MIN:
                values[place] = region.minimum
                continue
            case Code.AVG:
                values[place] = region.mean
                continue
            case Code.FILTER:
                values[place] = region.dots[node.parameter]
                continue
            case Code.GATE:
                p = torch.sigmoid(region.dots[node.parameter])
            case Code.MIX:
                p = mix[node.parameter].to(region.cells.dtype)
            case Code.FIXED:
                p = torch.full_like(region.cells, node.a)
            case _:
                reject_code(node.code)
        proportions[place] = p
        values[place] = blend(p, values[node.left], values[node.right])
    return values, proportions


def backpropagate(
    program: Program, values: Sequence[Tensor], proportions: Sequence[Tensor], grad: Tensor
) -> ResponseGrads:
    """What reaches each response and each mix when the root receives ``grad``: from the root to the leaves."""
    c_max: Tensor | None = None
    c_min: Tensor | None = None
    c_mean: Tensor | None = None
    c_dots, c_mixes = [grad] * program.weights, [grad] * program.mixes
    c_nodes = [grad] * len(program.nodes)
    for place, node in enumerate(program.nodes):
        c, p = c_nodes[place], proportions[place]
        match node.code:
            case Code.MAX:
                c_max = c if c_max is None else c_max + c
                continue
            case Code.MIN:
                c_min = c if c_min is None else c_min + c
                continue
            case Code.AVG:
                c_mean = c if c_mean is None else c_mean + c
                continue
            case Code.FILTER:
                c_dots[node.parameter] = c
                continue
            case Code.GATE | Code.MIX | Code.FIXED:
                c_p, c_nodes[node.left], c_nodes[node.right] = blend_backward(
                    c, p, values[node.left], values[node.right]
                )
            case _:
                reject_code(node.code)
        if node.code == Code.GATE:  # σ' = σ (1 − σ); a gate that is exactly 0 or 1 stays there
            c_dots[node.parameter] = torch.where((p == 0) | (p == 1), 0, c_p * (p * (1 - p)))
        elif node.code == Code.MIX:
            c_mixes[node.parameter] = c_p
    return ResponseGrads(c_max, c_min, c_mean, c_dots, c_mixes)


def get_accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums are kept in: float32 for the halves."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def select_tap(parameter: Tensor, tap: Tap) -> Tensor:
    """The numbers of ``[C|1, *grid|1, *kernel]`` that meet a tap, shaped to broadcast against its regions."""
    grid = parameter.shape[1 : 1 + len(tap.place)]
    rows = (slice(None) if n == 1 else part for n, part in zip(grid, tap.regions[1:], strict=True))
    index = (slice(None), *rows, *tap.place)
    return parameter[index]


def sum_to_parameter(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Sum ``[N, C, *output]`` (or unbatched) over all that share a parameter of ``shape`` ``[C|1, *grid|1]``."""
    full = torch.broadcast_shapes(value.shape, shape)
    return value.expand(full).sum_to_size(*shape)


def _holds_extreme(
    x: Tensor, extreme: Tensor | None, winner: Tensor | None, number: int, tap: Tap, ties: str
) -> Tensor:
    """Where the cell under a tap receives the gradient of the maximum, or of the minimum."""
    assert extreme is not None
    assert winner is not None
    if ties == "first":
        return winner[tap.regions] == number
    cell, best = x[tap.cells].to(extreme.dtype), extreme[tap.regions]
    return (cell == best) | (cell.isnan() & best.isnan())
