"""Confirmation: few pools, each at its own rate, on fresh seeds, test error once; ``docs/results/protocol.md``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
FIRST_SEED = 100
SEEDS = 12
BASELINES = ("max", "half")
# What screening chose: by network and data, the rate of every pool. Filled in after screening, before the first run.
CHOICES: Mapping[tuple[str, str], Mapping[str, float]] = {}


def list_runs(scale: Scale, net: str, data: str) -> list[Run]:
    """Seed by seed, all pools."""
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS)
    chosen = CHOICES.get((net, data), {})
    return [make_run(scale, net, data, pool, rate, seed) for seed in seeds for pool, rate in chosen.items()]


def plan(scale: Scale) -> list[Run]:
    """The runs of every network whose screening is over."""
    data = scale.choose(DATA) if scale.data else DATA
    return [run for net in choose_nets(scale) for name in data for run in list_runs(scale, net, name)]


def group_runs(scale: Scale, net: str, data: str) -> dict[str, list[Run]]:
    """The runs by pool; max and half first."""
    runs = list_runs(scale, net, data)
    return {pool: [run for run in runs if run.pool == pool] for pool in dict.fromkeys(run.pool for run in runs)}


def list_pairs(pools: Iterable[str]) -> list[Pair]:
    """The primary family: every other pool against max and against half."""
    return [(pool, baseline) for pool in pools if pool not in BASELINES for baseline in BASELINES]


def build_page(scale: Scale, results: Results) -> Page:
    """The primary family of each network; nothing before screening is over."""
    answer, parts, record = list[str](), list[Table | Figure](), dict[str, Any]()
    for net in choose_nets(scale):
        for name in scale.choose(DATA) if scale.data else DATA:
            groups = group_runs(scale, net, name)
            runs = [run for of_pool in groups.values() for run in of_pool]
            done = len(results.find_all(runs))
            state = f"{done} of {len(runs)} runs are finished" if runs else "screening is not over"
            answer.append(f"{net}, {LABELS[name]}: {state}.")
            if (family := read_family(results, groups, list_pairs(groups))) is None:
                continue
            answer.append(describe_family(family))
            parts.append(build_table(f"{net}, {LABELS[name]}", family))
            record[f"{net}, {name}"] = {
                pool: [entry.result.test_error for entry in results.find_all(of_pool)]
                for pool, of_pool in groups.items()
            }
    return Page(answer, parts, data=record)


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
