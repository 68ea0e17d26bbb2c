"""Screening: every pool at three common rates, judged on validation images alone; ``docs/results/protocol.md``.

Runs go seed by seed, and within a seed rate by rate over all pools, so that screening may end after any of these.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ...explanation.pictures import INK, PALE
from ...formatting import format_count, format_number
from ..comparison.charts import SERIES, open_figure, render_svg
from ..runs.presets import preset
from ..runs.run import Run, standardize_pool
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .results import Results

TITLE = "Screening: every pool at three learning rates"
SOURCE = "Not in the paper: docs/results/protocol.md"
CLAIM = "Chooses, by validation error alone, each pool's rate and the pool that goes on to confirmation."
POOLS = (
    "max", "avg", "half", "mixed", "mixed:channel", "gated", "gated:channel", "tree3+gated", "filter",
    "Mix(Max,Filter)", "Mix(Max,Filter):channel", "Gate(Max,Filter)",
    "soft", "gem", "rank", "blur", "maxblur",
)  # fmt: skip
DATA = ("cifar10+", "cifar10")
ALWAYS_CONFIRMED = ("max", "half", "gated")
FIRST_SEED = 10  # earlier ones were looked at when recipes were chosen
NETS = ("resnet9", "fast")
RATES = (1.0, 0.5, 2.0)  # multiples of the preset's, in the order of the runs
MOVED_RATES = {"resnet9": (1.0, 2.0, 4.0), "fast": (1.0, 0.5, 2.0, 0.25)}  # so that the best for max lies inside
FIRST_TRIED = {"resnet9": (0.5, ("max", "half", "gated", "Mix(Max,Filter)"))}  # a rate given up, and who has its runs
FIELDS: dict[str, Mapping[str, Any]] = {"fast": {"pad": 2}}  # where a recipe's augmentation differs from the usual one

Errors = dict[str, dict[float, dict[int, float]]]  # validation error by pool, rate and seed


def choose_nets(scale: Scale) -> Sequence[str]:
    """The network asked for, or both."""
    return (scale.changes["net"],) if "net" in scale.changes else NETS


def make_run(scale: Scale, net: str, data: str, pool: str, rate: float, seed: int) -> Run:
    """One run of the protocol."""
    own = FIELDS.get(net, {}) if data == "cifar10+" else {}
    fields = {name: value for name, value in own.items() if name not in scale.changes}
    return scale.make_run(data, pool, seed, net=net, rate=(rate,), **fields)


def list_rates(scale: Scale, net: str) -> list[float]:
    """The rates that all pools are screened at, the preset's first."""
    return [multiple * find_preset_rate(scale, net) for multiple in MOVED_RATES.get(net, RATES)]


def find_preset_rate(scale: Scale, net: str) -> float:
    """The peak of the learning rate that the network's preset has."""
    return preset(scale.preset, "cifar10", net=net).rate[0]


def list_pools(scale: Scale) -> list[str]:
    """The pools asked for; max is always one of them."""
    wanted = None if scale.pools is None else {"max", *map(standardize_pool, scale.pools)}
    return [pool for pool in POOLS if wanted is None or standardize_pool(pool) in wanted]


def list_runs(scale: Scale, net: str, data: str) -> list[Run]:
    """Seed by seed, rate by rate, all pools; then what was run at a rate that was given up."""
    seeds, pools = range(FIRST_SEED, FIRST_SEED + scale.seeds), list_pools(scale)
    choices = [(seed, rate, pool) for seed in seeds for rate in list_rates(scale, net) for pool in pools]
    if net in FIRST_TRIED and data == DATA[0]:
        multiple, tried = FIRST_TRIED[net]
        rate = multiple * find_preset_rate(scale, net)
        choices += [(FIRST_SEED, rate, pool) for pool in pools if pool in tried]
    return [make_run(scale, net, data, pool, rate, seed) for seed, rate, pool in choices]


def plan(scale: Scale) -> list[Run]:
    """The runs of every network on augmented images; without augmentation where that is asked for."""
    data = scale.choose(DATA) if scale.data else DATA[:1]
    return [run for net in choose_nets(scale) for name in data for run in list_runs(scale, net, name)]


def read_errors(runs: Sequence[Run], results: Results) -> Errors:
    """The validation errors of the runs that are finished."""
    errors: Errors = {}
    for entry in results.find_all(runs):
        of_pool = errors.setdefault(entry.run.pool, {}).setdefault(entry.run.rate[0], {})
        of_pool[entry.run.seed] = entry.result.validation_error
    return errors


def list_common_rates(errors: Errors) -> list[float]:
    """The rates that all pools have runs at."""
    return sorted(set.intersection(*map(set, errors.values()))) if errors else []


def choose_rates(errors: Errors) -> dict[str, tuple[float, float]]:
    """Each pool's best common rate and its mean validation error, over the seeds that all pools have at all of them."""
    rates = list_common_rates(errors)
    seeds = [set(of_pool[rate]) for of_pool in errors.values() for rate in rates]
    if not (common := set.intersection(*seeds) if seeds else set()):
        return {}
    means = {
        pool: {rate: statistics.fmean(of_pool[rate][seed] for seed in common) for rate in rates}
        for pool, of_pool in errors.items()
    }
    return {pool: min((error, rate) for rate, error in of_pool.items())[::-1] for pool, of_pool in means.items()}


def choose_best(chosen: Mapping[str, tuple[float, float]]) -> str | None:
    """The pool that goes on to confirmation beside those that always do: the least validation error of the others."""
    others = {pool: error for pool, (_, error) in chosen.items() if pool not in ALWAYS_CONFIRMED}
    return min(others, key=lambda pool: others[pool]) if others else None


def find_rate_outside(errors: Errors) -> float | None:
    """The rate to be added for all pools: beyond the lowest or the highest, if max is best there."""
    chosen, rates = choose_rates(errors), list_common_rates(errors)
    if "max" not in chosen or len(rates) < 3:
        return None
    best = chosen["max"][0]
    return best / 2 if best == rates[0] else best * 2 if best == rates[-1] else None


def build_page(scale: Scale, results: Results) -> Page:
    """For each network a table and the curves of what is finished."""
    parts: list[Table | Figure] = []
    answer, record = [], {}
    data = scale.choose(DATA) if scale.data else DATA[:1]
    for net in choose_nets(scale):
        for name in data:
            runs = list_runs(scale, net, name)
            errors = read_errors(runs, results)
            done = sum(len(of_rate) for of_pool in errors.values() for of_rate in of_pool.values())
            answer.append(f"{net}, {LABELS[name]}: {done} of {len(runs)} runs are finished.")
            if not errors:
                continue
            answer += describe_choice(errors)
            parts += [build_table(net, errors), draw_curves(net, errors)]
            record[f"{net}, {name}"] = {
                pool: {f"{rate:g}": list(of_rate.values()) for rate, of_rate in of_pool.items()}
                for pool, of_pool in errors.items()
            }
    return Page(answer, parts, ["Test errors play no part in any choice here."], record)


def describe_choice(errors: Errors) -> list[str]:
    """The pool with the least validation error, if every pool is finished at three rates."""
    rates, chosen = list_common_rates(errors), choose_rates(errors)
    if len(rates) < 3 or not chosen:
        return ["Not all pools are finished at three common rates: nothing is chosen yet."]
    seeds = min(len(of_pool[rate]) for of_pool in errors.values() for rate in rates)
    over = f"{format_count(len(rates), 'rate')} and {format_count(seeds, 'seed')}"
    if (outside := find_rate_outside(errors)) is not None:
        return [f"Over {over} max is best at an end: all pools need the rate {outside:g} before anything is chosen."]
    if (pool := choose_best(chosen)) is None:
        return []
    rate, error = chosen[pool]
    beside = ", ".join(name for name in ALWAYS_CONFIRMED if name in chosen)
    return [f"Over {over}, least validation error beside {beside}: {pool} at {rate:g} ({format_number(error)} %)."]


def build_table(net: str, errors: Errors) -> Table:
    """Validation errors, seed by seed, of every pool at every rate."""
    rates = sorted({rate for of_pool in errors.values() for rate in of_pool})
    rows = []
    for pool, of_pool in errors.items():
        cells = [
            Cell(" / ".join(format_number(of_pool[rate][seed]) for seed in sorted(of_pool[rate])))
            if rate in of_pool
            else Cell("–")
            for rate in rates
        ]
        rows.append([Cell(pool), *cells])
    heads = [net, *(f"rate {rate:g}" for rate in rates)]
    return Table(heads, rows, "Validation error after the last epoch in %, seed by seed.")


def draw_curves(net: str, errors: Errors) -> Figure:
    """The mean validation error of each pool by rate."""
    with open_figure(3.6) as (figure, axes):
        for place, (pool, of_pool) in enumerate(errors.items()):
            rates = sorted(of_pool)
            means = [statistics.fmean(of_pool[rate].values()) for rate in rates]
            style = {"color": SERIES[place % len(SERIES)], "linestyle": "-" if place < len(SERIES) else "--"}
            axes.plot(rates, means, marker="o", markersize=3.5, linewidth=1.6, label=pool, **style)
        axes.set_xscale("log")
        ticks = sorted({rate for of_pool in errors.values() for rate in of_pool})
        axes.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
        axes.minorticks_off()
        axes.set(xlabel="peak of the learning rate", ylabel="validation error, %")
        axes.grid(axis="y", color=PALE, linewidth=0.7)
        axes.legend(frameon=False, fontsize=7.5, labelcolor=INK, ncols=2)
        svg = render_svg(figure, f"Validation error by rate, {net}")
    return Figure(svg, f"{net}: mean validation error over seeds by learning rate", wide=True)
