"""``start="same"``: set the parameters of a new pool so that it computes what the old pool did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import torch
from torch import nn

from ..ops.window import Window
from ..parameters import TreeParameters
from ..program import Kind, Node, Op, Program
from .convolutions import Convolution, Original, Slice, is_same
from .torch_pools import GlobalPool, TorchPool, read_module


class Exactness(str, Enum):
    """How closely a new pool begins as the old one."""

    BITS = "to the last bit"
    ROUNDING = "up to rounding"
    EVAL = "up to rounding, in eval()"  # in training a norm takes the statistics of larger maps
    NO = "no"
    UNKNOWN = "not known"

    __str__ = str.__str__


@torch.no_grad()
def start_as(new: nn.Module, old: Original, inputs: Sequence[Sequence[int]]) -> Exactness:
    """Set ``new`` to compute what ``old`` does, and return how close that is.

    If mixes alone lead from the root to the old pool's leaf, proportions of 0 and 1 make the tree that leaf, to the
    last bit. A tree of averages, filters and soft maxima becomes an average by filters of 1/N and β = 0, the same up to
    rounding, with filters where every window is whole. A stride becomes filters of a single 1, at the tap that meets
    every s-th cell; what is exact then is the pool, while a convolution rounds in another way at another stride.
    """
    if isinstance(old, GlobalPool) and old.window_pool is not None:
        exact = start_as(new, replace(old, window_pool=None), inputs)
        return Exactness.ROUNDING if exact == Exactness.BITS and old.function == "avg" else exact
    if not isinstance(new, TreeParameters):
        original = read_module(new)
        old = replace(old, keepdim=True) if isinstance(old, GlobalPool) else old  # a layer has no other form
        if original is None:
            return (
                Exactness.UNKNOWN if type(new).__module__.split(".")[0] not in ("torch", "learnpool") else Exactness.NO
            )
        return Exactness.BITS if is_same(original, old) else Exactness.NO
    program = new.program
    if isinstance(old, Slice):
        return _start_as_stride(new, program, old)
    kind = old.function if isinstance(old, GlobalPool) else old.kind
    mixes = _find_path(program, 0, {Kind.MAX if kind == "max" else Kind.AVG}, through_gates=False)
    if mixes is not None:
        _set_mixes(new, mixes)
        return Exactness.BITS
    mixes = _find_path(program, 0, {Kind.AVG, Kind.DOT, Kind.RANK, Kind.SOFT}, through_gates=True)
    if kind == "max" or mixes is None:
        return Exactness.NO
    _set_mixes(new, mixes)
    if new.weight is not None:
        _set_filters(new, program, 1 / math.prod(new.weight.shape[2 + new.dims :]))
    is_whole = not program.find_rows(Kind.DOT) or (isinstance(old, TorchPool) and _has_whole_windows(old, inputs))
    return Exactness.ROUNDING if is_whole else Exactness.NO


def _start_as_stride(new: TreeParameters, program: Program, old: Slice) -> Exactness:
    """Every filter that matters picks the cell that the stride keeps."""
    mixes = _find_path(program, 0, {Kind.DOT}, through_gates=True)
    tap = _find_strided_tap(getattr(new, "window", None), old.stride)
    if mixes is None or tap is None:
        return Exactness.NO
    assert new.weight is not None
    _set_mixes(new, mixes)
    _set_filters(new, program, 0.0)
    place: Any = (..., *tap)
    for row in program.find_rows(Kind.DOT):
        new.weight[row][place] = 1
    return Exactness.ROUNDING if isinstance(old, Convolution) else Exactness.BITS


def _find_strided_tap(window: Window | None, stride: Sequence[int]) -> tuple[int, ...] | None:
    """The tap of a window that meets every s-th cell, from the first on; None if outputs could be more or fewer.

    Window i begins at s·i − q, so that tap is q, the padding. There are ⌈n / s⌉ outputs for every size n where
    K = 2q + 1, or K = 2q + s with ceil_mode; there, without padding, any K ≤ s.
    """
    if window is None or window.stride != tuple(stride):
        return None
    for k, s, q, d in zip(window.kernel, window.stride, window.padding, window.dilation, strict=True):
        fits = (k == 2 * q + s or (q == 0 and k <= s)) if window.ceil_mode else k == 2 * q + 1
        if not fits or (d > 1 and k > 1):
            return None
    return window.padding


def _set_mixes(new: TreeParameters, mixes: list[tuple[int, float]]) -> None:
    for row, a in mixes:
        assert new.mix is not None
        new.mix[row] = a


def _set_filters(new: TreeParameters, program: Program, value: float) -> None:
    assert new.weight is not None
    new.weight[[*program.find_rows(Kind.DOT), *program.find_rows(Kind.RANK)]] = value
    for row in program.masks:  # equal filters hide a gate's value; unlike 0 this one lets their gradients differ
        new.weight[row].normal_(0, new.std)


def _find_path(program: Program, place: int, leaves: set[Kind], through_gates: bool) -> list[tuple[int, float]] | None:
    """The mixes to set, as ``(row, a)``, so that the node at ``place`` is one of these leaves; None if there are none.

    ``through_gates``: the leaves will be equal, so that two of them make a gate or a mix the same, whatever it is.
    """
    node = program.nodes[place]
    if node.op == Op.LEAF:
        return _find_setting(program, node, leaves)
    left, right = (_find_path(program, child, leaves, through_gates) for child in (node.left, node.right))
    if through_gates and left is not None and right is not None:
        return [*left, *right]
    if node.op != Op.MIX:
        return None
    fixed = program.scalars[node.row - program.mixes] if node.row >= program.mixes else None
    for rest, a in ((left, 1.0), (right, 0.0)):
        if rest is not None and fixed in (None, a):
            return [*([(node.row, a)] if fixed is None else []), *rest]
    return None


def _find_setting(program: Program, node: Node, leaves: set[Kind]) -> list[tuple[int, float]] | None:
    """What makes a leaf one of these, if it is of such a kind and can be: its filter has to learn, and its β is 0."""
    kind, scalar = program.get_kind(node), program.responses[node.response].scalar
    if kind not in leaves or (kind in (Kind.DOT, Kind.RANK) and program.get_weight_row(node) < 0):
        return None
    if kind != Kind.SOFT:
        return []
    return [(scalar, 0.0)] if scalar < program.mixes else None


def _has_whole_windows(old: TorchPool, inputs: Sequence[Sequence[int]]) -> bool:
    """Whether an average divides by all taps everywhere: for every input, or for those the example showed."""
    window = old.window
    if not window.ceil_mode:
        return window.count_include_pad or not any(window.padding)
    full, cpu = math.prod(window.kernel), torch.device("cpu")
    counts = [window.count_cells(shape[-old.dims :], device=cpu, dtype=torch.float64) for shape in inputs]
    return bool(counts) and all(bool((count == full).all()) for count in counts)
