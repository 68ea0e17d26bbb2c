"""Confirmation: few pools, each at its own rate, on fresh seeds, test error once; ``docs/results/protocol.md``."""

from __future__ import annotations

from collections.abc import Mapping

from ..runs.run import Run
from .experiment import LABELS, Figure, Page, Scale, Table
from .results import Results
from .screening import DATA, choose_nets, make_run

TITLE = "Confirmation on fresh seeds"
SOURCE = "Not in the paper: docs/results/protocol.md"
CLAIM = "The chosen pools against max and against a fixed half-and-half blend, each at its own rate."
FIRST_SEED = 100
SEEDS = 12
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


def build_page(scale: Scale, results: Results) -> Page:
    """What is confirmed; nothing before screening is over."""
    answer, parts = list[str](), list[Table | Figure]()
    for net in choose_nets(scale):
        for name in scale.choose(DATA) if scale.data else DATA:
            runs = list_runs(scale, net, name)
            done = len(results.find_all(runs))
            state = f"{done} of {len(runs)} runs are finished" if runs else "screening is not over"
            answer.append(f"{net}, {LABELS[name]}: {state}.")
    return Page(answer, parts)
