"""What is known of a network's pools, as values and as a table of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from torch import Tensor

from ..formatting import format_count, format_number, format_percent, format_table
from ..names import Part
from ..ops.window import Window, format_size
from ..tree import Tree
from .positions import Grid

GRIDS = 8  # masks and filters of one pool that are printed
NEAR = 0.05  # a gate below it is near 0, above 1 − it near 1
HEADS = ("pool", "node", "left | right", "mean", "min", "max", f"s < {NEAR}", f"s > {1 - NEAR}", "entropy")


@dataclass(frozen=True)
class MixFacts:
    """A Mix, ``a left + (1 − a) right``: the proportions in use."""

    name: str
    left: str
    right: str
    learned: bool
    a: Tensor  # [C|1, *grid|1]

    @property
    def mean(self) -> float:
        return float(self.a.mean())

    @property
    def least(self) -> float:
        return float(self.a.min())

    @property
    def most(self) -> float:
        return float(self.a.max())


@dataclass(frozen=True)
class FilterFacts:
    """A Filter, ``v · x``."""

    name: str
    weight: Tensor  # v, [C|1, *grid|1, *kernel]


@dataclass(frozen=True)
class GateFacts:
    """A Gate, ``s left + (1 − s) right`` with s = σ(ω · x): its mask, and s over all regions of a batch (or None)."""

    name: str
    left: str
    right: str
    weight: Tensor  # ω, [C|1, *grid|1, *kernel]
    mean: float | None = None
    near_0: float | None = None  # part of all s below 0.05
    near_1: float | None = None  # above 0.95
    entropy: float | None = None  # mean of −s log₂ s − (1 − s) log₂(1 − s), in bits: 1 undecided, 0 decided
    map: Tensor | None = field(default=None, repr=False)  # s of the batch's first image, [C, *output]


@dataclass(frozen=True)
class PoolFacts:
    """One pool of a network."""

    name: str
    tree: Tree
    share: str
    window: Window | None  # None: adaptive
    parameters: int
    tied_to: str | None  # the earlier pool it shares its parameters with
    mixes: tuple[MixFacts, ...]
    gates: tuple[GateFacts, ...]
    filters: tuple[FilterFacts, ...]
    regions: Grid | None = None  # where its regions lie in the batch's first image


def table(pools: Sequence[PoolFacts], images: int) -> str:
    """All pools: one line for each node with a proportion, then the masks and filters."""
    rows = [HEADS, *(row for pool in pools for row in lines(pool))]
    used = [column for column in range(len(HEADS)) if column < 2 or any(row[column] for row in rows[1:])]
    text = format_table([[row[c] for c in used] for row in rows], right=[used.index(c) for c in used if c > 2])
    count = sum(pool.parameters for pool in pools if pool.tied_to is None)
    where = f"; gates s = σ(ω·x) over all regions of {format_count(images, 'image')}" if images else ""
    title = f"{format_count(len(pools), 'learned pool')}, {format_count(count, 'parameter')}{where}"
    return "\n".join([title, "", text, *(line for pool in pools for line in grids(pool))])


def lines(pool: PoolFacts) -> list[tuple[str, ...]]:
    """A pool in words, and its proportions."""
    rows: list[tuple[str, ...]] = []
    for mix in pool.mixes:
        several = mix.a.numel() > 1
        spread = (format_number(mix.least), format_number(mix.most)) if several else ("", "")
        name = mix.name if mix.learned else f"{mix.name} (not learned)"
        rows.append(("", name, f"{mix.left} | {mix.right}", format_number(mix.mean), *spread, "", "", ""))
    for gate in pool.gates:
        seen = [""] * 4
        if gate.mean is not None and gate.near_0 is not None and gate.near_1 is not None and gate.entropy is not None:
            seen = [
                format_number(gate.mean),
                format_percent(gate.near_0),
                format_percent(gate.near_1),
                f"{format_number(gate.entropy)} bit",
            ]
        rows.append(("", gate.name, f"{gate.left} | {gate.right}", seen[0], "", "", *seen[1:]))
    if not rows and pool.filters:
        rows.append(("", pool.filters[0].name, *[""] * 7))
    first, *others = rows or [("", "nothing to learn", *[""] * 7)]
    return [(pool.name, *first[1:]), *others]


def heading(pool: PoolFacts) -> str:
    """A pool in one line: its tree, window and sharing."""
    window = pool.window
    size = "adaptive" if window is None else f"{format_size(window.kernel)}, stride {format_size(window.stride)}"
    if window is not None and any(window.padding):
        size += f", padding {format_size(window.padding)}"
    if window is not None and any(d != 1 for d in window.dilation):
        size += f", dilation {format_size(window.dilation)}"
    tied = f" with {pool.tied_to}" if pool.tied_to is not None else ""
    return f"{Part(pool.tree)}, {size}, shared per {pool.share.replace('_', ' and ')}{tied}"


def averaged(weight: Tensor, kernel: Sequence[int]) -> tuple[Tensor, str]:
    """A mask or filter as ``[*kernel]``, the mean where it differs by channel or region, and of how many."""
    banks = weight.reshape(-1, *kernel)
    return banks.mean(0), "" if len(banks) == 1 else f"mean of {len(banks)}"


def grids(pool: PoolFacts) -> list[str]:
    """The masks and filters of a pool side by side, under its heading."""
    head = ["", f"{pool.name}: {heading(pool)}"]
    banks: list[GateFacts | FilterFacts] = [*pool.gates, *pool.filters]
    if pool.window is None or not banks:
        return head
    kernel = pool.window.kernel
    columns = []
    for bank in banks[:GRIDS]:
        values, of = averaged(bank.weight, kernel)
        letter = "ω" if bank.name.startswith("gate") else "v"
        cells = [[format_number(v) for v in row] for row in values.reshape(-1, kernel[-1]).tolist()]
        width = max(len(cell) for row in cells for cell in row)
        body = [f"{letter} of {bank.name}", *([of] if of else [])]
        for place, row in enumerate(cells):
            if len(kernel) == 3 and place and place % kernel[1] == 0:
                body.append("")  # the next plane of a 3d window
            body.append(" ".join(f"{cell:>{width}}" for cell in row))
        columns.append(body)
    text = format_table(list(zip_longest(*columns, fillvalue="")), gap=4).splitlines()
    more = len(banks) - GRIDS
    return [*head, *(f"  {line}" for line in text), *([f"  and {more} more"] if more > 0 else [])]
