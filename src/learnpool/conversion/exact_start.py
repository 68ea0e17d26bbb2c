"""``start="same"``: set the parameters of a new pool so that it computes what the old pool did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import torch
from torch import nn

from ..parameters import TreeParameters
from ..tree import Code, Program, decode, reject_code
from .torch_pools import TorchPool, read_module


class Exactness(str, Enum):
    """How closely a new pool begins as the old one."""

    BITS = "to the last bit"
    ROUNDING = "up to rounding"
    NO = "no"
    UNKNOWN = "not known"

    __str__ = str.__str__


@torch.no_grad()
def start_as(new: nn.Module, old: TorchPool, inputs: Sequence[Sequence[int]]) -> Exactness:
    """Set ``new`` to compute what ``old`` does, and return how close that is.

    If mixes alone lead from the root to the old pool's leaf, proportions of 0 and 1 make the tree that leaf, to the
    last bit. A tree of averages and filters becomes an average by filters of 1/N, the same up to rounding where every
    window is whole.
    """
    if not isinstance(new, TreeParameters):
        torch_pool = read_module(new)
        if torch_pool is None:
            return (
                Exactness.UNKNOWN if type(new).__module__.split(".")[0] not in ("torch", "learnpool") else Exactness.NO
            )
        return Exactness.BITS if torch_pool.kind == old.kind and torch_pool.window == old.window else Exactness.NO
    program = decode(new.tree.program)
    proportions = _find_path(program, 0, Code.MAX if old.kind == "max" else Code.AVG)
    if proportions is not None:
        for row, a in proportions:
            assert new.mix is not None
            new.mix[row] = a
        return Exactness.BITS
    if old.kind == "max" or program.has_max or program.has_min:
        return Exactness.NO
    assert new.weight is not None
    taps = math.prod(new.weight.shape[2 + new.dims :])
    filters, gates = program.split_weight_rows()
    new.weight[filters] = 1 / taps
    for row in gates:  # equal filters hide a gate's value; unlike 0 this one lets their gradients differ
        new.weight[row].normal_(0, new.std)
    return Exactness.ROUNDING if _has_whole_windows(old, inputs) else Exactness.NO


def _find_path(program: Program, place: int, leaf: int) -> list[tuple[int, float]] | None:
    """The mixes to set, as ``(row, a)``, so that the node at ``place`` is that leaf; None if there are none."""
    node = program.nodes[place]
    match node.code:
        case Code.MAX | Code.MIN | Code.AVG | Code.FILTER | Code.GATE:
            return [] if node.code == leaf else None
        case Code.MIX | Code.FIXED:
            pass
        case _:
            reject_code(node.code)
    for child, a in ((node.left, 1.0), (node.right, 0.0)):
        if node.code == Code.FIXED and node.a != a:
            continue
        rest = _find_path(program, child, leaf)
        if rest is not None:
            return [*([(node.parameter, a)] if node.code == Code.MIX else []), *rest]
    return None


def _has_whole_windows(old: TorchPool, inputs: Sequence[Sequence[int]]) -> bool:
    """Whether an average divides by all taps everywhere: for every input, or for those the example showed."""
    window = old.window
    if not window.ceil_mode:
        return window.count_include_pad or not any(window.padding)
    full, cpu = math.prod(window.kernel), torch.device("cpu")
    counts = [window.count_cells(shape[-old.dims :], device=cpu, dtype=torch.float64) for shape in inputs]
    return bool(counts) and all(bool((count == full).all()) for count in counts)
