"""What the pools of a network learned: proportions, masks and filters, and what its gates do on a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .. import observation
from ..parameters import TreeParameters
from ..program import Kind, Op, Response, decode
from ..tree import Tree
from .gates import record_gates
from .pools import (
    FilterExplanation,
    GateExplanation,
    MixExplanation,
    NumberExplanation,
    PoolExplanation,
    RankExplanation,
    ScalarExplanation,
)
from .result import Explanation

SYMBOLS = {Kind.SOFT: "β", Kind.LSE: "r", Kind.POWER: "p", Kind.ABS_POWER: "p"}


def explain(model: nn.Module, batch: Any = None) -> Explanation:
    """What the learned pools of ``model`` do: see ``Explanation``.

    ``batch`` is what the network is called with: a tensor, ``(images, labels)`` of which the first counts, or a mapping
    of keywords. It runs once, in evaluation mode; the network, its statistics and the random numbers stay as they were.
    Pools are listed in the order they run in; without a batch in that of ``named_modules()``.

    >>> print(learnpool.explain(net, images))
    >>> learnpool.explain(net, images)["pool1"].gates[0].entropy
    >>> learnpool.explain(net, images).draw().savefig("pools.png")
    """
    return _explain("explain", model, batch, maps=True)


def statistics(model: nn.Module, batch: Any = None) -> dict[str, float]:
    """Flat numbers for a training log: proportions and other learned numbers, and with a batch how decided gates are.

    A network without learned pools has none: ``{}``, so that one script serves it and its baseline.

    >>> learnpool.statistics(net, images)
    {'pool1.gate0.mean': 0.61, 'pool1.gate0.near_0': 0.02, 'pool1.gate0.near_1': 0.13, 'pool1.gate0.entropy': 0.72}
    """
    if isinstance(model, nn.Module) and not any(isinstance(module, TreeParameters) for module in model.modules()):
        return {}
    return _explain("statistics", model, batch, maps=False).statistics()


def _explain(caller: str, model: nn.Module, batch: Any, maps: bool) -> Explanation:
    modules = {name or type(pool).__name__: pool for name, pool in find_learned_pools(caller, model)}
    if batch is None:
        return Explanation(tuple(_read_pools(modules)))
    images = observation.get_images(caller, batch)
    mapped = images if maps and images.dim() == 4 and len(images) else None
    with observation.preserve_state(model), record_gates(modules, mapped) as sums:
        observation.run_batch(caller, model, batch)
    image = None if mapped is None else mapped[0].detach().to("cpu", torch.float32)
    in_order = {name: modules[name] for name in (*sums, *modules)}  # as they ran, then those that did not
    measured = [sums[pool.name].add_to(pool) if pool.name in sums else pool for pool in _read_pools(in_order)]
    return Explanation(tuple(measured), len(images), image)


def find_learned_pools(caller: str, model: nn.Module) -> Iterator[tuple[str, TreeParameters]]:
    """The learned pools of a network and their names; ValueError if there are none or they have no values yet."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{caller}: model must be a module, got {type(model).__name__}")
    pools = [(name, module) for name, module in model.named_modules() if isinstance(module, TreeParameters)]
    if not pools:
        raise ValueError(f"{caller}: the model has no learned pools; learnpool.convert(model) puts them in")
    for name, pool in pools:
        for parameter in pool.parameters():
            if is_lazy(parameter):
                raise ValueError(f"{caller}: {name or 'the pool'} has no parameters yet; run the model once")
            if parameter.is_meta:
                raise ValueError(f"{caller}: {name or 'the pool'} is on the meta device and has no values")
    return iter(pools)


def _read_pools(modules: dict[str, TreeParameters]) -> Iterator[PoolExplanation]:
    owners: dict[int, str] = {}
    for name, pool in modules.items():
        yield _read_pool(name, pool, owners)


def _read_pool(name: str, pool: TreeParameters, owners: dict[int, str]) -> PoolExplanation:
    """A pool's parameters, node by node; ``owners`` says which pool a parameter was met in first."""
    names, trees = name_nodes(pool.tree), list(pool.tree._iter_nodes())
    weight, a = _copy_to_cpu(pool.weight), _copy_to_cpu(pool.proportions())
    mixes, gates, filters, scalars, ranks = [], [], [], [], []
    program = pool.program
    for node, node_name in zip(program.nodes, names, strict=True):
        sides = names[node.left], names[node.right]
        row = program.get_weight_row(node)
        kind = program.get_kind(node)
        scalar = program.responses[node.response].scalar if node.op == Op.LEAF else -1
        if kind == Kind.DOT and row >= 0:
            filters.append(FilterExplanation(node_name, weight[row]))
        elif kind == Kind.RANK and 0 <= row < program.weights:
            ranks.append(RankExplanation(node_name, weight[row]))
        elif kind in SYMBOLS and 0 <= scalar < program.mixes:
            scalars.append(ScalarExplanation(node_name, SYMBOLS[kind], a[scalar]))
        elif node.op == Op.GATE:
            gates.append(GateExplanation(node_name, *sides, weight[row]))
        elif node.op == Op.GATE_BY:
            g = NumberExplanation(f"{node_name}.g", "g", a[node.row])
            b = NumberExplanation(f"{node_name}.b", "b", a[node.bias]) if node.bias >= 0 else None
            gates.append(GateExplanation(node_name, *sides, None, by=trees[node.by], g=g, b=b))
        elif node.op == Op.MIX:
            learned = node.row < program.mixes
            fixed = None if learned else torch.full((1,) * (pool.dims + 1), program.scalars[node.row - program.mixes])
            mixes.append(MixExplanation(node_name, "a", a[node.row] if fixed is None else fixed, *sides, learned))
    parameters = list(pool.parameters())
    tied = next((owners[id(p)] for p in parameters if id(p) in owners), None)
    owners |= {id(p): name for p in parameters if id(p) not in owners}
    return PoolExplanation(
        name,
        pool.tree,
        pool.share,
        getattr(pool, "window", None),
        sum(p.numel() for p in parameters),
        tied,
        tuple(mixes),
        tuple(gates),
        tuple(filters),
        tuple(scalars),
        tuple(ranks),
    )


def _copy_to_cpu(parameter: Tensor | None) -> Tensor:
    return torch.empty(0) if parameter is None else parameter.detach().to("cpu", torch.float32, copy=True)


def name_nodes(tree: Tree) -> list[str]:
    """A name for every node, breadth first: ``gate0``, ``filter1``, ``mix0``, ``fixed0`` for a fixed mix, ``max``."""
    counts: Counter[str] = Counter()
    program, names = decode(tree.program), []
    for node in program.nodes:
        kind = program.get_kind(node)
        response = program.responses[node.response] if node.response >= 0 else None
        if kind is not None and response == Response(kind):  # read with nothing but the cells
            names.append("mean" if kind == Kind.AVG else kind.name.lower())
            continue
        word = node.op.name.lower().removesuffix("_by") if kind is None else kind.name.lower()
        if kind == Kind.DOT:
            word = "filter" if program.get_weight_row(node) >= 0 else "constant"
        elif node.op == Op.MIX and node.row >= program.mixes:
            word = "fixed"
        names.append(f"{word}{counts[word]}")
        counts[word] += 1
    return names
