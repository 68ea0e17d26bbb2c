"""What the pools of a network learned: proportions, masks and filters, and what its gates do on a batch.

A gate's inner product ω · x is itself a pool, of one Filter; so the operator computes it here as in the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .. import functional, observation, sharing
from ..ops import reference
from ..parameters import TreeParameters
from ..tree import Code, Filter, Tree, decode
from .facts import NEAR, FilterFacts, GateFacts, MixFacts, PoolFacts, table
from .positions import Follow, Grid


@dataclass(frozen=True)
class Explanation:
    """The learned pools of a network in the order of its modules; prints as a table, draws on request."""

    pools: tuple[PoolFacts, ...]
    images: int = 0  # in the batch
    image: Tensor | None = field(default=None, repr=False)  # the first of them, [channels, height, width]

    def __getitem__(self, name: str) -> PoolFacts:
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise KeyError(f"no learned pool {name!r}; there are: {', '.join(pool.name for pool in self.pools)}")

    def __str__(self) -> str:
        return table(self.pools, self.images)

    def statistics(self) -> dict[str, float]:
        """The numbers that change in training, by flat names such as ``pool1.gate0.entropy``."""
        found: dict[str, float] = {}
        for pool in self.pools:
            for mix in (mix for mix in pool.mixes if mix.learned):
                found[f"{pool.name}.{mix.name}.mean"] = mix.mean
                if mix.a.numel() > 1:
                    found |= {f"{pool.name}.{mix.name}.min": mix.least, f"{pool.name}.{mix.name}.max": mix.most}
            for gate in pool.gates:
                for what in ("mean", "near_0", "near_1", "entropy"):
                    if (value := getattr(gate, what)) is not None:
                        found[f"{pool.name}.{gate.name}.{what}"] = value
        return found

    def draw(self) -> Any:
        """A matplotlib figure: masks, filters and proportions, and what gates chose over the batch's first image."""
        from .pictures import draw

        return draw(self.pools, self.image)


def explain(model: nn.Module, batch: Any = None) -> Explanation:
    """What the learned pools of ``model`` do: see ``Explanation``.

    ``batch`` is what the network is called with: a tensor, ``(images, labels)`` of which the first counts, or a mapping
    of keywords. It runs once, in evaluation mode; the network, its statistics and the random numbers stay as they were.

    >>> print(learnpool.explain(net, images))
    >>> learnpool.explain(net, images)["pool1"].gates[0].entropy
    >>> learnpool.explain(net, images).draw().savefig("pools.png")
    """
    return _explain(model, batch, maps=True)


def statistics(model: nn.Module, batch: Any = None) -> dict[str, float]:
    """Flat numbers for a training log: proportions, and with a batch how decided the gates are on it.

    >>> learnpool.statistics(net, images)
    {'pool1.gate0.mean': 0.61, 'pool1.gate0.near_0': 0.02, 'pool1.gate0.near_1': 0.13, 'pool1.gate0.entropy': 0.72}
    """
    return _explain(model, batch, maps=False).statistics()


def _explain(model: nn.Module, batch: Any, maps: bool) -> Explanation:
    pools = {name or type(pool).__name__: pool for name, pool in learned(model)}
    owners: dict[int, str] = {}
    facts = [_facts(name, pool, owners) for name, pool in pools.items()]
    if batch is None:
        return Explanation(tuple(facts))
    images = observation.get_images("explain", batch)
    seen = {fact.name: Seen(len(fact.gates)) for fact in facts if fact.gates}
    drawn = images if maps and images.dim() == 4 and len(images) else None
    with observation.preserve_state(model), watching({name: pools[name] for name in seen}, seen, drawn):
        observation.run_batch("explain", model, batch)
    image = None if drawn is None else drawn[0].detach().to("cpu", torch.float32)
    told = [seen[fact.name].told(fact) if fact.name in seen else fact for fact in facts]
    return Explanation(tuple(told), len(images), image)


def learned(model: nn.Module) -> Iterator[tuple[str, TreeParameters]]:
    """The learned pools of a network and their names; ValueError if there are none or they have no values to tell."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"explain: model must be a module, got {type(model).__name__}")
    pools = [(name, module) for name, module in model.named_modules() if isinstance(module, TreeParameters)]
    if not pools:
        raise ValueError("explain: the model has no learned pools; learnpool.convert(model) puts them in")
    for name, pool in pools:
        for parameter in pool.parameters():
            if is_lazy(parameter):
                raise ValueError(f"explain: {name or 'the pool'} has no parameters yet; run the model once")
            if parameter.is_meta:
                raise ValueError(f"explain: {name or 'the pool'} is on the meta device and has no values")
    return iter(pools)


def _facts(name: str, pool: TreeParameters, owners: dict[int, str]) -> PoolFacts:
    """A pool's parameters, node by node."""
    nodes, names = decode(pool.tree.program).nodes, node_names(pool.tree)
    weight, a = _values(pool.weight), _values(pool.proportions())
    mixes, gates, filters = [], [], []
    for place, node in enumerate(nodes):
        if node.code == Code.FILTER:
            filters.append(FilterFacts(names[place], weight[node.parameter]))
        elif node.code == Code.GATE:
            gates.append(GateFacts(names[place], names[node.left], names[node.right], weight[node.parameter]))
        elif node.code in (Code.MIX, Code.FIXED):
            fixed = torch.full((1,) * (pool.dims + 1), node.a)
            value = a[node.parameter] if node.code == Code.MIX else fixed
            mixes.append(MixFacts(names[place], names[node.left], names[node.right], node.code == Code.MIX, value))
    parameters = list(pool.parameters())
    tied = next((owners[id(p)] for p in parameters if id(p) in owners), None)
    owners |= {id(p): name for p in parameters if id(p) not in owners}
    return PoolFacts(
        name,
        pool.tree,
        pool.share,
        getattr(pool, "window", None),
        sum(p.numel() for p in parameters),
        tied,
        tuple(mixes),
        tuple(gates),
        tuple(filters),
    )


def _values(parameter: Tensor | None) -> Tensor:
    return torch.empty(0) if parameter is None else parameter.detach().to("cpu", torch.float32, copy=True)


def node_names(tree: Tree) -> list[str]:
    """A name for every node, breadth first: ``gate0``, ``filter1``, ``mix0``, ``fixed0`` for a fixed mix, ``max``."""
    words = {
        Code.MAX: "max",
        Code.AVG: "mean",
        Code.FILTER: "filter",
        Code.GATE: "gate",
        Code.MIX: "mix",
        Code.FIXED: "fixed",
    }
    counts = dict.fromkeys(words, 0)
    names = []
    for node in decode(tree.program).nodes:
        counted = "" if node.code in (Code.MAX, Code.AVG) else str(counts[node.code])
        names.append(words[node.code] + counted)
        counts[node.code] += 1
    return names


class Seen:
    """Running sums over the gates of one pool."""

    def __init__(self, gates: int) -> None:
        self.sums: list[Any] = [0] * gates
        self.count = 0
        self.maps: list[Tensor] = []
        self.regions: Grid | None = None

    def add(self, pool: Any, x: Tensor, follow: Follow | None) -> None:
        """One call of the pool."""
        logits = list(gate_logits(pool, x))
        for gate, z in enumerate(logits):
            s = z.sigmoid()
            entropy = (torch.special.entr(s) + torch.special.entr(1 - s)) / math.log(2)
            self.sums[gate] += torch.stack([s.sum(), (s < NEAR).sum(), (s > 1 - NEAR).sum(), entropy.sum()])
        self.count += logits[0].numel() if logits else 0
        if follow is not None and not self.maps:  # a pool called twice shows its first call
            self.maps = [z.sigmoid()[0].to("cpu", torch.float32) for z in logits if z.dim() == pool.dims + 2]
            self.regions = follow.grid(x).regions(pool.window) if pool.dims == 2 and self.maps else None

    def told(self, pool: PoolFacts) -> PoolFacts:
        """The pool with what was seen of it; nothing if it was not called."""
        if not self.count:
            return pool
        gates = []
        for place, gate in enumerate(pool.gates):
            mean, near_0, near_1, entropy = (self.sums[place].double() / self.count).tolist()
            shown = self.maps[place] if self.maps else None
            gates.append(replace(gate, mean=mean, near_0=near_0, near_1=near_1, entropy=entropy, map=shown))
        return replace(pool, gates=tuple(gates), regions=self.regions)


def gate_logits(pool: Any, x: Tensor) -> Iterator[Tensor]:
    """ω · x over every region, ``[N, C, *output]``, for each Gate of a pool over windows; halves in float32."""
    rows = [node.parameter for node in decode(pool.tree.program).nodes if node.code == Code.GATE]
    if not rows:
        return
    wide = x.to(reference.accumulation_dtype(x.dtype))
    weight = pool.weight.to(wide.dtype)
    if sharing.varies_by_region(pool.share):
        weight = sharing.resample(weight, pool.window.output_size(x.shape[-pool.dims :]))
    for row in rows:
        mix = functional.none(wide, pool.dims)
        yield functional.run(type(pool).__name__, wide, weight[row : row + 1], mix, Filter().program, pool.window)


@contextmanager
def watching(pools: dict[str, TreeParameters], seen: dict[str, Seen], image: Tensor | None) -> Iterator[None]:
    """While on, every call of a pool adds to what was seen of it."""
    follow = None if image is None else Follow(image)

    def watch(name: str) -> Any:
        def hook(pool: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            seen[name].add(pool, args[0] if args else kwargs["input"], follow)

        return hook

    with ExitStack() as stack:
        for name, pool in pools.items():
            stack.callback(pool.register_forward_pre_hook(watch(name), with_kwargs=True).remove)
        stack.enter_context(follow or nullcontext())
        yield
