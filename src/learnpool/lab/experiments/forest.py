"""A forest plot: how much the error of each pool differs from a baseline's, over networks and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ...explanation.pictures import GREY, INK, PALE
from ..comparison.charts import PLAIN
from ..comparison.family import Family, Pair, compare_family
from ..comparison.summary import PairedDifference
from .results import Results

CONFIRMED, EXPLORATORY = "#1a7f37", "#5c6a79"
ROW, MARGIN, WIDTH = 0.27, 0.95, 8.2  # inches
CUT_OFF = 2  # the axis ends at so many times the largest difference: intervals of few seeds are wide


@dataclass(frozen=True)
class ForestRow:
    """A pool in a setting against a baseline; ``primary``: the difference was fixed before its runs."""

    pool: str
    difference: PairedDifference
    seeds: int
    primary: bool = False


Settings = Mapping[str, Sequence[ForestRow]]  # rows by the name of their setting


def read_family(results: Results, groups: Mapping[str, Sequence[Any]], pairs: Sequence[Pair]) -> Family | None:
    """The family of some pools' runs over the seeds that all have finished; None with fewer than two such seeds."""
    entries = {pool: {e.run.seed: e.result for e in results.find_all(runs)} for pool, runs in groups.items()}
    shared = sorted(set.intersection(*(set(of_pool) for of_pool in entries.values()))) if entries else []
    if len(shared) < 2:
        return None
    errors = {pool: [of_pool[seed].test_error for seed in shared] for pool, of_pool in entries.items()}
    images = next(iter(entries.values()))[shared[0]].images["test"]
    return compare_family(errors, pairs, 100 / images)


def list_rows(family: Family, baseline: str, *, primary: bool = False) -> list[ForestRow]:
    """The differences of a family to one of its pools."""
    return [
        ForestRow(pool, difference, family.seeds, primary)
        for (pool, other), difference in family.differences.items()
        if other == baseline
    ]


def draw_forest(panels: Mapping[str, Settings]) -> Figure:
    """One panel for each baseline, from top to bottom; a row has its interval, and its number of seeds at the right.

    A filled circle differs significantly in its family; green rows were fixed before their runs, grey are exploratory.
    Intervals that reach the edge go on.
    """
    heights = [count_lines(settings) for settings in panels.values()]
    with mpl.rc_context(PLAIN):
        figure = Figure(figsize=(WIDTH, ROW * sum(heights) + MARGIN * len(panels)), layout="constrained")
        figure.set_facecolor("white")
        grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=heights)
        for axes, (baseline, settings) in zip(grid[:, 0], panels.items(), strict=True):
            draw_panel(axes, baseline, settings)
        differences = list_differences(panels)
        reach = CUT_OFF * max([0.5, *(abs(difference.mean) for difference in differences)])
        if any(max(-test.low, test.high) > reach for difference in differences if (test := difference.test)):
            grid[-1, 0].set_xlim(-reach, reach)
        grid[-1, 0].set_xlabel("less error  ←  points of test error  →  more error")
    return figure


def list_differences(panels: Mapping[str, Settings]) -> list[PairedDifference]:
    """The differences of all panels."""
    return [row.difference for settings in panels.values() for rows in settings.values() for row in rows]


def count_lines(settings: Settings) -> int:
    """Lines of a panel: a heading and its rows for each setting."""
    return sum(1 + len(rows) for rows in settings.values())


def draw_panel(axes: Any, baseline: str, settings: Settings) -> None:
    """All rows against one baseline."""
    axes.axvline(0, color=GREY, linewidth=1, linestyle="--", zorder=1)
    place, labels = 0, list[tuple[int, str]]()
    for name, rows in settings.items():
        heading = axes.text(0.0, place, name, transform=axes.get_yaxis_transform(), fontsize=9, color=INK)
        heading.set(
            weight="bold", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        )  # hides the grid's lines
        place += 1
        for row in rows:
            colour = CONFIRMED if row.primary else EXPLORATORY
            if (test := row.difference.test) is not None:
                axes.hlines(place, test.low, test.high, color=colour, linewidth=2, zorder=2)
            face = colour if row.difference.is_significant else "white"
            mean = [row.difference.mean]
            axes.scatter(mean, [place], s=38, facecolor=face, edgecolor=colour, linewidth=1.6, zorder=3)
            note = f"{row.difference.mean:+.2f}, {row.seeds} seeds".replace("-", "−")
            axes.text(1.01, place, note, transform=axes.get_yaxis_transform(), fontsize=8, color=GREY, va="center")
            labels.append((place, row.pool))
            place += 1
    axes.set_yticks([where for where, _ in labels], [pool for _, pool in labels], color=INK)
    axes.set_ylim(place - 0.4, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(f"against {baseline}", loc="left", fontsize=10.5, color=INK)
