"""Pools of the whole map: adaptive layers, of trees whose gates are decided by means."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from torch import nn

from ..layers import AdaptivePool1d, AdaptivePool2d, AdaptivePool3d
from ..names import Part
from ..ops import adaptive
from ..tree import Avg, Gate, Mix, Tree
from .sites import PoolSite
from .torch_pools import GlobalPool


def build_global(part: Part, old: PoolSite, **options: Any) -> nn.Module | None:
    """The layer for a global pool; None, with the reason in ``old``, where there cannot be one."""
    assert isinstance(old.original, GlobalPool)
    dims = old.original.dims
    if isinstance(part.pool, str):
        if part.pool in ("max", "avg"):
            return GlobalPool(part.pool, dims).build_module()
        old.left_reason = f"{part.pool} pooling has no global form"
        return None
    tree = decide_by_means(part.pool)
    try:
        adaptive.check_tree("convert", tree)
    except ValueError as error:
        old.left_reason = str(error).removeprefix("convert: ").replace(repr(tree), repr(part.pool))
        return None
    return (AdaptivePool1d, AdaptivePool2d, AdaptivePool3d)[dims - 1](tree, 1, share=part.share, **options)


def decide_by_means(tree: Tree) -> Tree:
    """The tree with ``Gate(l, r, by=Avg())`` for every ``Gate(l, r)``: a whole map has no taps for a mask."""
    trees: deque[Tree] = deque()
    for node in reversed([*tree._iter_nodes()]):  # its children are the first of those built and not yet used
        children = [trees.popleft() for _ in node._children()][::-1]
        if isinstance(node, Gate):
            left, right, by = (*children, Avg())[:3]
            node = Gate(left, right, by, node.bias)
        elif isinstance(node, Mix):
            left, right = children
            node = Mix(left, right, node.a, node.learn)
        trees.append(node)
    return trees[0]


def tie_global(layers: Sequence[Any]) -> None:
    """``tie`` for adaptive pools of one tree and number of axes."""
    for layer in layers:
        layer.register_parameter("mix", layers[0].mix)
