"""Start values of masks ω and filters v: ``paper``, ``neutral``, ``spread`` and ``tournament``.

==============  ============================================  ==================================================
``paper``       all N(0, std)                                 as the authors began (std 0.5)
``neutral``     v = 1/N + N(0, 0.1/N), ω = 0                  average pooling under gates of one half
``spread``      v = (1 + N(0, 1)) / √N, ω = N(0, 0.1)         filters that differ and keep the scale of x
``tournament``  v = mean of a part of the window,             a soft maximum of the means of halves, quarters, …:
                ω = 8 (mean of left part − of right part)     the side with the larger mean wins
==============  ============================================  ==================================================

Two equal filters under a gate of one half receive equal gradients, and the gate none: a tree leaves such a start by
its noise alone. In ``spread`` the noise is as large as the mean; in a ``tournament`` the sides differ from the start.
A mean over N cells is much smaller than their maximum, so what follows it learns more slowly than behind a max pool,
and filters that begin as means mostly grow in scale during training. Those of ``spread`` have the length 1 without
their noise, so that independent cells leave them at the scale they came in. It is the default of the layers, of
``make_pool`` and of ``convert``; the paper's networks and the preset ``paper`` have the authors' start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .program import Kind, Node, Op, Program

__all__ = ["DEFAULT_START", "DEFAULT_STD", "STARTS", "fill_weight"]

DEFAULT_START, DEFAULT_STD = "spread", 0.5  # of layers, of pools by name and of convert; std is that of ``paper`` alone
SHARPNESS = 8.0  # of a tournament's gates
NOISE = 0.1  # of neutral filters, as a part of 1/N: none would leave all filters of a tree equal for ever

Box = tuple[tuple[int, int], ...]  # a part of the window: first and last tap, exclusive, in each direction


def _fill_paper(weight: Tensor, program: Program, kernel: Sequence[int], std: float) -> None:
    weight.normal_(0, std)


def _fill_neutral(weight: Tensor, program: Program, kernel: Sequence[int], std: float) -> None:
    n = math.prod(kernel)
    weight.normal_(0, NOISE / n)
    weight[list(program.find_rows(Kind.DOT))] += 1 / n
    weight[list(program.masks)] = 0


def _fill_spread(weight: Tensor, program: Program, kernel: Sequence[int], std: float) -> None:
    n = math.prod(kernel)
    filters = list(program.find_rows(Kind.DOT))
    weight.normal_(0, 1)
    weight[filters] = (1 + weight[filters]) * n**-0.5
    weight[list(program.masks)] *= 0.1


def _fill_tournament(weight: Tensor, program: Program, kernel: Sequence[int], std: float) -> None:
    """Only gates whose subtrees are all gates and filters take part; other masks are near 0, other filters near 1/N."""
    whole: Box = tuple((0, k) for k in kernel)
    weight.normal_(0, NOISE / math.prod(kernel))
    pure = [False] * len(program.nodes)
    for place in reversed(range(len(program.nodes))):  # children lie behind their parents
        node = program.nodes[place]
        pure[place] = _is_filter(program, node) or (node.op == Op.GATE and pure[node.left] and pure[node.right])
    boxes = [whole] * len(program.nodes)
    for place, node in enumerate(program.nodes):
        if _is_filter(program, node):
            weight[program.get_weight_row(node)] += _make_mean_filter(boxes[place], weight)
        elif node.op == Op.GATE and pure[place]:
            boxes[node.left], boxes[node.right] = _split_box(boxes[place])
            difference = _make_mean_filter(boxes[node.left], weight) - _make_mean_filter(boxes[node.right], weight)
            weight[program.get_weight_row(node)] += SHARPNESS * difference


def _is_filter(program: Program, node: Node) -> bool:
    return program.get_kind(node) == Kind.DOT and program.get_weight_row(node) >= 0


def _split_box(box: Box) -> tuple[Box, Box]:
    """A box cut across its longest side; an odd side's middle belongs to both."""
    sizes = [last - first for first, last in box]
    axis = sizes.index(max(sizes))
    (first, last), half = box[axis], (sizes[axis] + 1) // 2
    left, right = ((first, first + half), (last - half, last))
    return (*box[:axis], left, *box[axis + 1 :]), (*box[:axis], right, *box[axis + 1 :])


def _make_mean_filter(box: Box, weight: Tensor) -> Tensor:
    """The filter that averages the taps of a box, ``[*kernel]``."""
    kernel = weight.shape[-len(box) :]
    average = torch.zeros(kernel, dtype=weight.dtype, device=weight.device)
    average[tuple(slice(*side) for side in box)] = 1 / math.prod(last - first for first, last in box)
    return average


_FILL_FUNCTIONS: dict[str, Callable[[Tensor, Program, Sequence[int], float], None]] = {
    "paper": _fill_paper,
    "neutral": _fill_neutral,
    "spread": _fill_spread,
    "tournament": _fill_tournament,
}
STARTS = tuple(_FILL_FUNCTIONS)


@torch.no_grad()
def fill_weight(weight: Tensor, program: Program, kernel: Sequence[int], start: str, std: float) -> None:
    """Give ``weight`` ``[D, C|1, *grid|1, *kernel]`` of a tree its start values; ranks always begin as the average."""
    _FILL_FUNCTIONS[start](weight, program, kernel, std)
    weight[list(program.find_rows(Kind.RANK))] = 1 / math.prod(kernel)
