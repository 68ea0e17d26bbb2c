"""What the gates of a pool do on a batch: s of every region, its mean, how often it is near 0 and 1, and its entropy.

A gate's inner product ω · x is a pool of one Filter, and the tree that decides in its place is a pool as well, so the
operator computes them here as it does in the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import functional, sharing
from ..ops.adaptive import get_output_size
from ..ops.rows import get_accumulation_dtype
from ..parameters import TreeParameters
from ..program import Op, Program
from ..tree import Filter, Tree
from .pools import NEAR, PoolExplanation
from .positions import Grid, PositionTracker


class GateSums:
    """Running sums of s over the gates of one pool."""

    def __init__(self) -> None:
        self.sums: Any = 0  # [gates, 4]
        self.count = 0
        self.maps: list[Tensor] = []
        self.regions: Grid | None = None

    def add(self, pool: Any, x: Tensor, tracker: PositionTracker | None) -> None:
        """One call of the pool."""
        proportions = [z.sigmoid() for z in compute_gate_logits(pool, x)]
        if not proportions:
            return
        self.sums = self.sums + torch.stack([sum_proportions(s) for s in proportions])
        self.count += proportions[0].numel()
        if tracker is not None and not self.maps:  # a pool called twice keeps the maps of its first call
            self.maps = [s[0].to("cpu", torch.float32) for s in proportions if s.dim() == pool.dims + 2]
            self.regions = find_regions(pool, x, tracker) if pool.dims == 2 and self.maps else None

    def add_to(self, pool: PoolExplanation) -> PoolExplanation:
        """The pool with the means of these sums; as it is if it was never called."""
        if not self.count:
            return pool
        gates = []
        for place, gate in enumerate(pool.gates):
            mean, near_0, near_1, entropy = (self.sums[place].double() / self.count).tolist()
            gate_map = self.maps[place] if self.maps else None
            gates.append(replace(gate, mean=mean, near_0=near_0, near_1=near_1, entropy=entropy, map=gate_map))
        return replace(pool, gates=tuple(gates), regions=self.regions)


def sum_proportions(s: Tensor) -> Tensor:
    """The sum of s, how many are near 0 and near 1, and the sum of their entropies in bits."""
    entropy = (torch.special.entr(s) + torch.special.entr(1 - s)) / math.log(2)
    return torch.stack([s.sum(), (s < NEAR).sum(), (s > 1 - NEAR).sum(), entropy.sum()])


def compute_gate_logits(pool: Any, x: Tensor) -> Iterator[Tensor]:
    """ω · x, or g t + b, over every region, ``[N, C, *output]``, for each Gate of a pool; halves in float32."""
    program, trees = pool.program, list(pool.tree._iter_nodes())
    gates = [node for node in program.nodes if node.op in (Op.GATE, Op.GATE_BY)]
    if not gates:
        return
    wide = x.to(get_accumulation_dtype(x.dtype))
    parameters: list[Any] = [None if p is None else p.to(wide.dtype) for p in (pool.weight, pool.proportions())]
    if sharing.varies_by_region(pool.share):
        output = find_output_size(pool, x)
        parameters = [None if p is None else sharing.resample(p, output) for p in parameters]
    weight, mix = parameters
    for node in gates:
        tree = Filter() if node.op == Op.GATE else trees[node.by]
        rows, numbers = ([program.get_weight_row(node)], []) if node.op == Op.GATE else list_rows(program, node.by)
        z = pool_part(pool, wide, tree, weight[rows] if rows else None, mix[numbers] if numbers else None)
        if node.op == Op.GATE_BY:
            z = mix[node.row] * z + (mix[node.bias] if node.bias >= 0 else 0)
        yield z


def list_rows(program: Program, place: int) -> tuple[list[int], list[int]]:
    """The rows of weight and of mix that the tree from this node on learns, in the order of its own program."""
    places, weights, numbers = [place], list[int](), list[int]()
    for at in places:  # grows during the loop: breadth first
        node = program.nodes[at]
        places += [child for child in (node.left, node.right, node.by) if child >= 0]
        scalar = program.responses[node.response].scalar if node.response >= 0 else -1
        weights += [row for row in (program.get_weight_row(node),) if row >= 0]
        numbers += [row for row in (scalar, node.row, node.bias) if 0 <= row < program.mixes]
    return weights, numbers


def pool_part(pool: Any, x: Tensor, tree: Tree, weight: Tensor | None, mix: Tensor | None) -> Tensor:
    """Another tree over the regions of a pool."""
    name = type(pool).__name__
    if hasattr(pool, "window"):
        return functional.pool(name, x, tree, weight, mix, pool.window)
    return functional.adaptive_pool(name, x, tree, mix, pool.output_size, pool.dims)


def find_output_size(pool: Any, x: Tensor) -> tuple[int, ...]:
    """How many regions a pool has over ``x``, in each direction."""
    if hasattr(pool, "window"):
        return tuple(pool.window.output_size(x.shape[-pool.dims :]))
    return get_output_size(type(pool).__name__, x, pool.output_size, pool.dims)


def find_regions(pool: Any, x: Tensor, tracker: PositionTracker) -> Grid:
    """Where the regions of a pool over ``x`` lie in the image; those of an adaptive pool cover all of it."""
    grid = tracker.get_grid(x)
    if hasattr(pool, "window"):
        return grid.place_regions(pool.window)
    return grid.resize(x.shape[-2:], find_output_size(pool, x))


@contextmanager
def record_gates(pools: dict[str, TreeParameters], image: Tensor | None) -> Iterator[dict[str, GateSums]]:
    """Inside, every call of a pool adds to its sums, which are in the order of the pools' first calls."""
    tracker = None if image is None else PositionTracker(image)
    sums: dict[str, GateSums] = {}

    def hook(name: str, pool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        sums.setdefault(name, GateSums()).add(pool, args[0] if args else kwargs["input"], tracker)

    with ExitStack() as stack:
        for name, pool in pools.items():
            stack.callback(pool.register_forward_pre_hook(partial(hook, name), with_kwargs=True).remove)
        stack.enter_context(tracker or nullcontext())
        yield sums
