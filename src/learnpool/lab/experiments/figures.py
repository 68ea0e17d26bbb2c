"""The figures of the experiments, in the colours of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.figure
import numpy as np

from ...explanation.pictures import GREY, INK, PALE
from ..comparison.charts import PLAIN, SERIES, draw_difference, open_figure, render_svg
from ..comparison.summary import PoolSummary
from .experiment import LABELS, Figure

CUT_OFF = 4  # of a chart of differences: so many times the largest


def draw_differences(rows: Sequence[tuple[Any, PoolSummary | None]], data: str) -> Figure:
    """How each row's error differs from the baseline's: ours with its interval, the paper's as a diamond.

    Rows with neither are left out. Two seeds give intervals many times as wide as any difference: those are cut off.
    """
    base = rows[0][0].paper.get(data)
    published = {
        row.label: row.paper[data][0] - base[0] for row, _ in rows[1:] if base is not None and data in row.paper
    }
    rows = [(row, summary) for row, summary in rows if summary is not None or row.label in published]
    differences = [summary.difference for _, summary in rows if summary is not None and summary.difference is not None]
    limit = CUT_OFF * max([0.5, *(abs(difference.mean) for difference in differences), *map(abs, published.values())])
    ends = [end for difference in differences if (test := difference.test) for end in (-test.low, test.high)]
    is_cut = max(ends, default=0.0) > limit
    with open_figure(0.42 * len(rows) + 1.0) as (figure, axes):
        axes.axvline(0, color=GREY, linewidth=1, linestyle="--", zorder=1)
        for place, (row, summary) in enumerate(rows):
            if summary is not None and summary.difference is not None:
                draw_difference(axes, place, summary.difference)
            if row.label in published:
                axes.scatter([published[row.label]], [place + 0.24], s=30, marker="D", color=GREY, zorder=3)
        axes.set_yticks(range(len(rows)), [row.label for row, _ in rows], color=INK)
        axes.set_ylim(len(rows) - 0.4, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("better  ←  points more error")
        axes.margins(x=0.08)
        if is_cut:
            axes.set_xlim(-limit, limit)
        svg = render_svg(figure, f"Difference to the baseline on {LABELS[data]}")
    caption = f"{LABELS[data]}: ours (circle with its interval; filled: significant)"
    caption += " and the paper's (grey diamond)" if published else ""
    caption += "; intervals that reach the edge go on" if is_cut else ""
    return Figure(svg, caption)


def draw_curves(
    curves: Mapping[str, Sequence[Sequence[float]]], amounts: Sequence[float], label: str, unit: str
) -> Figure:
    """Error by amount of a change: one curve for each pool, the mean over seeds with a band of ± its spread."""
    with open_figure(3.2) as (figure, axes):
        for place, (pool, seeds) in enumerate(curves.items()):
            values = np.asarray(seeds, dtype=float)  # [seeds, amounts]
            mean, colour = values.mean(0), SERIES[place % len(SERIES)]
            if len(values) > 1:
                spread = values.std(0, ddof=1)
                axes.fill_between(amounts, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
            axes.plot(amounts, mean, color=colour, linewidth=1.9, marker="o", markersize=3.5, label=pool)
        axes.set(xlabel=f"{label}, {unit}", ylabel="test error, %")
        axes.grid(axis="y", color=PALE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
        return Figure(
            render_svg(figure, f"Test error by {label}"), f"{label}: mean over seeds, band ± one standard deviation"
        )


def draw_scatter(panels: Mapping[str, tuple[Any, Sequence[int]]], classes: Sequence[str], columns: int) -> str:
    """Points coloured by class, one panel for each network and pool."""
    colours = mpl.colormaps["tab10"]
    rows = -(-len(panels) // columns)
    with mpl.rc_context(PLAIN):
        figure = matplotlib.figure.Figure(figsize=(2.5 * columns, 2.5 * rows + 0.5), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for axes, (title, (points, labels)) in zip(grid.flat, panels.items(), strict=False):
            xy, kinds = np.asarray(points), np.asarray(labels)
            axes.set_axis_on()
            axes.set(xticks=[], yticks=[])
            axes.set_title(title, fontsize=9.5, color=INK)
            for kind in range(len(classes)):
                members = xy[kinds == kind]
                axes.scatter(members[:, 0], members[:, 1], s=5, color=colours(kind % 10), linewidth=0)
        handles = [
            mpl.lines.Line2D([], [], marker="o", linestyle="", markersize=5, color=colours(k % 10), label=name)
            for k, name in enumerate(classes)
        ]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=10, frameon=False, fontsize=8.5, labelcolor=INK
        )
        return render_svg(figure, "t-SNE of what comes out of the pools")
