"""Confirmation: few pools, each at its own rate, on fresh seeds, test error once; ``docs/results/protocol.md``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...formatting import format_number, format_range
from ..comparison.family import Family, Pair
from ..runs.run import Run
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .forest import read_family
from .results import Results
from .screening import DATA, choose_nets, make_run

TITLE = "Confirmation on fresh seeds"
SOURCE = "Not in the paper: docs/results/protocol.md"
CLAIM = "The chosen pools against max and against a fixed half-and-half blend, each at its own rate."
BASELINES = ("max", "half")


class Block(NamedTuple):
    """Pools confirmed together: fixed, with the rates that screening chose, before the first of their runs."""

    net: str
    data: str
    rates: Mapping[str, float]  # by pool
    seeds: range


BLOCKS: tuple[Block, ...] = (
    Block("resnet9", "cifar10+", {"max": 0.2, "half": 0.1, "gated": 0.2, "gated:channel": 0.2}, range(100, 112)),
)


def list_blocks(scale: Scale) -> list[Block]:
    """The blocks of the networks and data asked for."""
    nets, data = choose_nets(scale), scale.choose(DATA) if scale.data else DATA
    return [block for block in BLOCKS if block.net in nets and block.data in data]


def group_runs(scale: Scale, block: Block) -> dict[str, list[Run]]:
    """The runs of a block by pool."""
    return {
        pool: [make_run(scale, block.net, block.data, pool, rate, seed) for seed in block.seeds]
        for pool, rate in block.rates.items()
    }


def plan(scale: Scale) -> list[Run]:
    """Block by block and seed by seed, all pools."""
    blocks = [group_runs(scale, block).values() for block in list_blocks(scale)]
    return [run for of_pools in blocks for of_seed in zip(*of_pools, strict=True) for run in of_seed]


def list_pairs(pools: Iterable[str]) -> list[Pair]:
    """The primary family: every other pool against max and against half."""
    return [(pool, baseline) for pool in pools if pool not in BASELINES for baseline in BASELINES]


def describe_block(block: Block) -> str:
    """Network, data and seeds."""
    return f"{block.net}, {LABELS[block.data]}, seeds {block.seeds[0]} to {block.seeds[-1]}"


def read_block(scale: Scale, block: Block, results: Results) -> Family | None:
    """The primary family of a block; None while a run is missing: nobody looks before all are finished."""
    groups = group_runs(scale, block)
    finished = all(len(results.find_all(runs)) == len(runs) for runs in groups.values())
    return read_family(results, groups, list_pairs(groups)) if finished else None


def build_page(scale: Scale, results: Results) -> Page:
    """The primary family of each block."""
    answer, parts, record = list[str](), list[Table | Figure](), dict[str, Any]()
    for block in list_blocks(scale):
        name, groups = describe_block(block), group_runs(scale, block)
        finished = {pool: results.find_all(runs) for pool, runs in groups.items()}
        done, runs = sum(map(len, finished.values())), sum(map(len, groups.values()))
        answer.append(f"{name}: {done} of {runs} runs are finished.")
        if (family := read_block(scale, block, results)) is None:
            continue
        answer.append(describe_family(family))
        parts.append(build_table(name, family))
        record[name] = {pool: [entry.result.test_error for entry in entries] for pool, entries in finished.items()}
    return Page(answer or ["Screening is not over, so nothing is to be confirmed yet."], parts, data=record)


def describe_family(family: Family) -> str:
    """What the primary family says, with its number of seeds."""
    found = [
        f"{pool} {difference.verdict} than {baseline} ({format_number(difference.mean)} points)"
        for (pool, baseline), difference in family.differences.items()
        if difference.is_significant
    ]
    return f"Primary family, {family.seeds} seeds: {'; '.join(found) or 'no difference is significant'}."


def build_table(title: str, family: Family) -> Table:
    """Every difference of the family, and how its spread was estimated."""
    rows = []
    for (pool, baseline), difference in family.differences.items():
        test = difference.test
        assert test is not None
        kind = str(difference.verdict) if difference.is_significant else ""
        cells = [Cell(format_number(difference.mean), format_range(test.low, test.high), kind)]
        cells += [Cell(f"{test.p_holm:.2g}"), Cell(format_number(family.spreads[pool, baseline]))]
        rows.append([Cell(f"{pool} − {baseline}"), *cells])
    heads = [title, "points of test error", "p, by Holm", "spread of a difference"]
    ratio = "one of them is zero" if family.ratio is None else f"largest {family.ratio:.1f} times the smallest"
    how = "pooled over pools" if family.pooled else "each difference's own"
    return Table(heads, rows, f"{family.seeds} seeds, {family.degrees} degrees of freedom; variance: {how} ({ratio}).")
