"""The equations of the paper and their gradients, in plain PyTorch: read this beside the paper.

A region **x** is the cells under one window in one channel. Whatever the tree, a region is needed only through its
*responses*: the maximum (and where it is), the mean, and one inner product for each Filter and Gate. The tree is then
evaluated on these few numbers. Numbers in brackets are the paper's equations.

Conventions at edges and ties: maximum and mean run over the cells that exist, a mask or filter meets zero outside. The
first of several equal maxima receives the gradient, as in PyTorch. NaN wins a maximum; the last of several is paid.
Loops run over taps with strided slices, so memory stays of the order of the output, and in backward in reverse, which
adds up each cell's gradients in the order PyTorch's own pools do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..tree import Code, Program, decode
from .window import Tap, Window

Blend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Responses(NamedTuple):
    """All a tree needs to know of its regions; each ``[N, C, *output]`` (or None if the tree never asks)."""

    maximum: Tensor | None
    winner: Tensor | None  # number of the tap that holds the maximum; −1 where a region has no cell
    mean: Tensor | None
    cells: Tensor  # [*output], how many each mean is over
    dots: list[Tensor]  # ω · x and v · x, in the order of weight


def forward(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], window: Window) -> Tensor:
    """Pool ``x`` by the tree: equations (1), (5), (10) and any other.

    ``weight`` is ``[D, C|1, *grid|1, *kernel]``, ``mix`` is ``[M, C|1, *grid|1]``.
    """
    decoded = decode(tuple(program))
    values, _ = evaluate(decoded, respond(x, weight, decoded, window), mix)
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
    """Gradients of x, weight and mix; None where the mask says nobody asked.

    With c the gradient that reaches a response, every tap receives
    ``Σ_d c_d w_d[tap] + c_mean / n + c_max [tap is the maximum]``, and ``∂w_d = Σ_regions c_d x``. The paper's (4),
    (9), (15) and (7), (11), (12), (13) are special cases. ``ties="all"`` pays every maximum, as printed.
    """
    decoded = decode(tuple(program))
    kind = accumulation_dtype(x.dtype)
    region = respond(x, weight, decoded, window)
    values, proportions = evaluate(decoded, region, mix)

    # Down the tree: what reaches each response.
    reaching: list[Tensor] = [grad.to(kind)] + [grad] * (len(decoded.nodes) - 1)
    to_dot: list[Tensor] = [grad] * decoded.weights
    to_mix: list[Tensor] = [grad] * decoded.mixes
    to_max = to_mean = None
    for place, node in enumerate(decoded.nodes):
        delta = reaching[place]
        if node.code == Code.MAX:
            to_max = delta if to_max is None else to_max + delta
        elif node.code == Code.AVG:
            to_mean = delta if to_mean is None else to_mean + delta
        elif node.code == Code.FILTER:
            to_dot[node.parameter] = delta
        else:
            p, l, r = proportions[place], values[node.left], values[node.right]
            to_p, reaching[node.left], reaching[node.right] = unblend(delta, p, l, r)
            if node.code == Code.GATE:  # σ' = σ (1 − σ); a gate that is exactly 0 or 1 stays there
                to_dot[node.parameter] = torch.where((p == 0) | (p == 1), 0, to_p * (p * (1 - p)))
            elif node.code != Code.FIXED:
                to_mix[node.parameter] = to_p

    # From responses to taps.
    if to_mean is not None:
        to_mean = to_mean / region.cells
    dx = torch.zeros(x.shape, dtype=kind, device=x.device) if output_mask[0] else None
    dw = torch.zeros(weight.shape, dtype=kind, device=x.device) if output_mask[1] else None
    wide = weight.to(kind)
    taps = list(enumerate(window.taps(x.shape[-window.dims :])))
    for number, tap in reversed(taps):
        if dx is not None:
            received = dx[tap.cells]
            for d, c in enumerate(to_dot):
                received += c[tap.regions] * at_tap(wide[d], tap)
            if to_mean is not None:
                received += to_mean[tap.regions]
            if to_max is not None and region.winner is not None and region.maximum is not None:
                paid = region.winner[tap.regions] == number
                if ties == "all":
                    cell, best = x[tap.cells].to(kind), region.maximum[tap.regions]
                    paid = (cell == best) | (cell.isnan() & best.isnan())
                received += torch.where(paid, to_max[tap.regions], 0)
        if dw is not None:
            cells = x[tap.cells].to(kind)
            for d, c in enumerate(to_dot):
                place_at = at_tap(dw[d], tap)
                place_at += fold(c[tap.regions] * cells, place_at.shape)
    dm = None
    if output_mask[2]:
        dm = torch.zeros(mix.shape, dtype=kind, device=x.device)
        for m, c in enumerate(to_mix):
            dm[m] = fold(c, dm[m].shape)
    return (
        None if dx is None else dx.to(x.dtype),
        None if dw is None else dw.to(weight.dtype),
        None if dm is None else dm.to(mix.dtype),
    )


def respond(x: Tensor, weight: Tensor, decoded: Program, window: Window) -> Responses:
    """Maximum, mean and inner products of every region, tap by tap."""
    kind = accumulation_dtype(x.dtype)
    size = x.shape[-window.dims :]
    shape = (*x.shape[: -window.dims], *window.output_size(size))
    new: dict[str, Any] = {"dtype": kind, "device": x.device}
    maximum = torch.full(shape, -torch.inf, **new) if decoded.has_max else None
    winner = torch.full(shape, -1, dtype=torch.int32, device=x.device) if decoded.has_max else None
    total = torch.zeros(shape, **new) if decoded.has_avg else None
    dots = [torch.zeros(shape, **new) for _ in range(decoded.weights)]
    wide = weight.to(kind)
    for number, tap in enumerate(window.taps(size)):
        cell = x[tap.cells].to(kind)
        if maximum is not None and winner is not None:
            wins = (cell > maximum[tap.regions]) | cell.isnan() | (winner[tap.regions] < 0)
            maximum[tap.regions] = torch.where(wins, cell, maximum[tap.regions])
            winner[tap.regions] = torch.where(wins, number, winner[tap.regions])
        if total is not None:
            total[tap.regions] += cell
        for d, dot in enumerate(dots):
            dot[tap.regions] += at_tap(wide[d], tap) * cell
    count = window.counts(size, **new)
    return Responses(maximum, winner, None if total is None else total / count, count, dots)


def blend(p: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``p left + (1 − p) right``; a proportion of exactly 1 or 0 does not read the other side, be it inf or NaN."""
    # Smooth has the right derivative in p; it gives way where its value would differ.
    smooth = p * left + (1 - p) * right
    only_left = (p == 1) & (~right.isfinite() | (left == 0))  # a zero keeps its sign
    only_right = (p == 0) & (~left.isfinite() | (right == 0))
    return torch.where(only_left, left, torch.where(only_right, right, smooth))


def evaluate(
    decoded: Program, region: Responses, mix: Tensor, blend: Blend = blend
) -> tuple[list[Tensor], list[Tensor]]:
    """The value of each node and the proportion of each inner one, from the back of the program to its root."""
    values = [region.cells] * len(decoded.nodes)
    proportions = [region.cells] * len(decoded.nodes)
    for place in reversed(range(len(decoded.nodes))):
        node = decoded.nodes[place]
        if node.code == Code.MAX and region.maximum is not None:
            values[place] = region.maximum
        elif node.code == Code.AVG and region.mean is not None:
            values[place] = region.mean
        elif node.code == Code.FILTER:
            values[place] = region.dots[node.parameter]
        else:
            if node.code == Code.GATE:
                p = torch.sigmoid(region.dots[node.parameter])
            elif node.code == Code.FIXED:
                p = torch.full_like(region.cells, node.a)
            else:
                p = mix[node.parameter].to(region.cells.dtype)
            values[place] = blend(p, values[node.left], values[node.right])
            proportions[place] = p
    return values, proportions


def unblend(delta: Tensor, p: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What reaches p, left and right of a blend that received ``delta``; nothing on a side that was not read."""
    unsafe = ~delta.isfinite()
    return (
        delta * (left - right),
        torch.where((p == 0) & unsafe, 0, delta * p),
        torch.where((p == 1) & unsafe, 0, delta * (1 - p)),
    )


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums are kept in: float32 for the halves."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def at_tap(parameter: Tensor, tap: Tap) -> Tensor:
    """The numbers of ``[C|1, *grid|1, *kernel]`` that meet a tap, shaped to broadcast against its regions."""
    grid = parameter.shape[1 : 1 + len(tap.place)]
    rows = (slice(None) if n == 1 else part for n, part in zip(grid, tap.regions[1:], strict=True))
    index = (slice(None), *rows, *tap.place)
    return parameter[index]


def fold(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Sum ``[N, C, *output]`` (or unbatched) over all that share a parameter of ``shape`` ``[C|1, *grid|1]``."""
    whole = torch.broadcast_shapes(value.shape, shape)
    return value.expand(whole).sum_to_size(*shape)
