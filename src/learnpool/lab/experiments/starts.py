"""Where masks and filters begin: every start at three learning rates, judged on validation images alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.figure
import torch

from ... import starts
from ...explanation.pictures import GREY, INK, SIGNED, draw_heat_map
from ...formatting import format_mean, format_number
from ...program import decode
from ...tree import make_tree
from ..comparison.charts import PLAIN, SERIES, open_figure, render_svg
from ..comparison.comparison import FinishedRun
from ..runs.run import Run
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .notes import describe_differences
from .results import Results

TITLE = "Where masks and filters begin"
SOURCE = "Not in the paper, whose pools begin at N(0, 0.5)"
CLAIM = "Masks and filters are drawn from N(0, 0.5) and learn at the rate of the other weights; nothing else is tried."
POOLS = ("gated", "tree2+max", "tree3+gated")
RATES = (1.0, 3.0, 10.0)
DATA = ("cifar10+", "cifar10")
Choice = tuple[str, str, float]  # pool, start, multiple of the learning rate

CHOICES: tuple[Choice, ...] = tuple((pool, start, rate) for pool in POOLS for start in starts.STARTS for rate in RATES)


def list_runs(scale: Scale, data: str, choice: Choice) -> list[Run]:
    """One run for each seed."""
    pool, start, rate = choice
    return scale.list_runs(data, pool, start=start, pool_rate=rate)


def plan(scale: Scale) -> list[Run]:
    """Max, and each pool from each start at each rate."""
    return [
        run
        for data in scale.choose(DATA)
        for runs in (scale.list_runs(data, "max"), *(list_runs(scale, data, choice) for choice in CHOICES))
        for run in runs
    ]


def build_page(scale: Scale, results: Results) -> Page:
    """What the starts are, then for each data set a table and a chart of what is finished."""
    parts: list[Table | Figure] = [draw_starts()]
    answer, record = [], {}
    for data in scale.choose(DATA):
        finished = {c: found for c in CHOICES if (found := results.find_all(list_runs(scale, data, c)))}
        base = results.find_all(scale.list_runs(data, "max"))
        if not finished:
            answer.append(f"{LABELS[data]}: no run is finished yet.")
            continue
        parts += [_build_table(data, finished, base), _draw_errors(data, finished, base)]
        answer += [_describe(data, pool, finished) for pool in POOLS if any(c[0] == pool for c in finished)]
        record[data] = {
            f"{pool}, {start}, {rate:g}": [entry.result.validation_error for entry in entries]
            for (pool, start, rate), entries in finished.items()
        }
    return Page(answer, parts, describe_differences(plan(scale), skip=("start", "pool_rate")), record)


def compute_error(entries: Sequence[FinishedRun]) -> float:
    """The mean validation error."""
    return statistics.fmean(entry.result.validation_error for entry in entries)


def compute_entropy(entries: Sequence[FinishedRun]) -> float | None:
    """The mean entropy of all gates, in bits: 1 is undecided."""
    values = [v for e in entries for name, v in e.result.pools.items() if name.endswith(".entropy")]
    return statistics.fmean(values) if values else None


def _describe(data: str, pool: str, finished: dict[Choice, list[FinishedRun]]) -> str:
    """The start and rate with the least validation error, and how far it is ahead of the next."""
    errors = sorted((compute_error(entries), choice) for choice, entries in finished.items() if choice[0] == pool)
    (best, (_, start, rate)), *rest = errors
    lead = f", {format_number(rest[0][0] - best)} points below the next" if rest else ""
    at = f"{format_number(best)} % validation error{lead}"
    return f"{LABELS[data]}, {pool}: best from {start} at {rate:g} × the rate ({at})."


def _build_table(data: str, finished: dict[Choice, list[FinishedRun]], base: Sequence[FinishedRun]) -> Table:
    heads = [f"{LABELS[data]}: pool", "start", "rate of the pools", "validation error, %", "entropy, bits", "seeds"]
    rows = []
    if base:
        rows.append([Cell("max"), Cell("–"), Cell("–"), Cell(_format_errors(base)), Cell("–"), Cell(str(len(base)))])
    for (pool, start, rate), entries in finished.items():
        entropy = compute_entropy(entries)
        decided = "–" if entropy is None else f"{entropy:.2f}"
        cells = [Cell(f"× {rate:g}"), Cell(_format_errors(entries)), Cell(decided), Cell(str(len(entries)))]
        rows.append([Cell(pool), Cell(start), *cells])
    caption = (
        "Validation error of the last epoch, mean ± standard deviation over seeds; test images play no part in the "
        "choice. Entropy of the gates after training: 1 is undecided."
    )
    return Table(heads, rows, caption)


def _format_errors(entries: Sequence[FinishedRun]) -> str:
    return format_mean([entry.result.validation_error for entry in entries])


def _draw_errors(data: str, finished: dict[Choice, list[FinishedRun]], base: Sequence[FinishedRun]) -> Figure:
    """The validation error of every run; the dashed line is max's mean."""
    with open_figure(0.3 * len(finished) + 1.0) as (figure, axes):
        if base:
            axes.axvline(compute_error(base), color=GREY, linewidth=1, linestyle="--", zorder=1)
        for place, ((pool, _, _), entries) in enumerate(finished.items()):
            colour = SERIES[POOLS.index(pool)]
            errors = [entry.result.validation_error for entry in entries]
            axes.scatter(errors, [place] * len(errors), s=26, color=colour, linewidth=0, zorder=3)
            axes.vlines(statistics.fmean(errors), place - 0.3, place + 0.3, color=INK, linewidth=1.8)
        labels = [f"{pool}, {start}, × {rate:g}" for pool, start, rate in finished]
        axes.set_yticks(range(len(labels)), labels, color=INK)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("validation error, %")
        svg = render_svg(figure, f"Validation error on {LABELS[data]} by start and rate")
    return Figure(svg, f"{LABELS[data]}: validation error of every run; dashed: the mean of max pooling")


def draw_starts() -> Figure:
    """The mask and the two filters of a 2-level tree at each start."""
    with mpl.rc_context(PLAIN):
        svg = render_svg(make_starts_figure(), "The start values of a 2-level tree")
    return Figure(svg, "A 2-level tree at each start, from one random seed", wide=True)


def make_starts_figure() -> matplotlib.figure.Figure:
    """A column for each start: the gate's mask, then the filters it chooses between."""
    titles = ("gate ω", "left filter v₁", "right filter v₂")
    figure = matplotlib.figure.Figure(figsize=(2.7 * len(starts.STARTS), 4.8), layout="constrained")
    grid = figure.subplots(len(titles), len(starts.STARTS), squeeze=False)
    for column, start in enumerate(starts.STARTS):
        weight = torch.empty(3, 1, 1, 1, 3, 3)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            starts.fill_weight(weight, decode(make_tree(2).program), (3, 3), start, 0.5)
        for row, title in enumerate(titles):
            reach = 2 * float(weight[row].abs().max().clamp(min=0.1))  # pale enough for the numbers to stay legible
            draw_heat_map(grid[row][column], weight[row, 0, 0, 0].tolist(), SIGNED, (-reach, reach))
            grid[row][column].set_title(f"{start}: {title}" if row == 0 else title, fontsize=9, color=INK)
    return figure
