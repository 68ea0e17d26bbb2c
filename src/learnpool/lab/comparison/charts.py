"""The pictures of a report: SVG whose colours are the page's, so that they are legible on light and on dark."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from ...explanation.pictures import (
    BAR,
    GREY,
    INK,
    PALE,
    draw_item,
    find_largest,
    get_panel_height,
    list_others,
    list_planes,
)
from ...explanation.pools import PoolExplanation
from .comparison import Comparison
from .summary import PairedDifference, PoolSummary

WIDTH, PANEL = 4.7, 1.45  # inches: one fits a phone, two a desk; of a mask
SERIES = ("#d9730d", "#2f6fb5", "#1a7f37", "#8250df", "#c2255c", "#0c8599", "#846358", "#5c6a79")
FEW_SEEDS = 5  # each of them is shown; of more, their mean
LOG_RATIO = 10  # the largest value over the smallest, from which on an axis is logarithmic
STYLES = ("-", "--", ":", "-.")
PAGE = {INK: "--ink", GREY: "--soft", PALE: "--line"} | {colour: f"--series-{k}" for k, colour in enumerate(SERIES)}
FAINT = 0.1  # the least end of a colour scale, so that masks near zero look faint
ON_CELLS = "#1f2329"  # the cells of a heat map are light on any page, so the numbers on them stay dark
PLAIN: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "learnpool", "font.family": "sans-serif", "font.size": 9.5,
    "axes.edgecolor": GREY, "axes.labelcolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "text.color": INK,
    "text.parse_math": False,
}  # fmt: skip


def draw_errors(c: Comparison, paper: Mapping[str, float]) -> str:
    """The test error of every run, the mean of each pool and, where they fit, the paper's errors and chance."""
    every = [error for summary in c.pools for error in summary.errors]
    with open_figure(0.42 * len(c.pools) + 0.9) as (figure, axes):
        axes.axvline(c.pools[0].mean, color=GREY, linewidth=1, linestyle="--", zorder=1)
        for place, summary in enumerate(c.pools):
            colour, n = SERIES[place % len(SERIES)], len(summary.errors)
            axes.vlines(summary.mean, place - 0.28, place + 0.28, color=INK, linewidth=2)
            spots = [place + 0.12 * (k - (n - 1) / 2) if n <= FEW_SEEDS else place for k in range(n)]
            axes.scatter(summary.errors, spots, s=34, color=colour, linewidth=0, zorder=3)
            if summary.pool in paper and fits_axis(paper[summary.pool], every):
                axes.scatter(
                    [paper[summary.pool]], [place], s=30, marker="D", facecolor="none", edgecolor=INK, zorder=4
                )
        if fits_axis(c.chance_error, every):
            axes.axvline(c.chance_error, color=GREY, linewidth=1, linestyle=":", zorder=1)
            axes.text(c.chance_error, -0.5, "chance", color=GREY, fontsize=8, ha="center", va="bottom")
        label_pools(axes, c.pools)
        axes.set_xlabel("% of the test images")
        axes.margins(x=0.12)
        return render_svg(figure, "Test error of each run after its last epoch")


def draw_difference(axes: Any, place: int, difference: PairedDifference) -> None:
    """One difference in its row: a circle, filled if it is significant, on its interval."""
    colour = SERIES[place % len(SERIES)]
    if (test := difference.test) is not None:
        axes.hlines(place, test.low, test.high, color=colour, linewidth=2.2, zorder=2)
    face = colour if difference.is_significant else "none"
    axes.scatter([difference.mean], [place], s=46, facecolor=face, edgecolor=colour, linewidth=1.8, zorder=3)


def draw_differences(c: Comparison) -> str:
    """How each pool's error differs from the baseline's, with the interval of the verdict."""
    baseline = c.pools[0].pool
    with open_figure(0.42 * len(c.pools) + 0.9) as (figure, axes):
        axes.axvline(0, color=GREY, linewidth=1, linestyle="--", zorder=1)
        for place, summary in enumerate(c.pools):
            if summary.difference is not None:
                draw_difference(axes, place, summary.difference)
        label_pools(axes, c.pools)
        axes.set_xlabel(f"better  ←  points of error more than {baseline}")
        axes.margins(x=0.08)
        return render_svg(figure, f"Difference to {baseline} with intervals")


def fits_axis(value: float, errors: Sequence[float]) -> bool:
    """Whether a value can be drawn beside these errors without squeezing them into less than half of the axis."""
    reach = max(max(errors) - min(errors), 0.1 * max(errors))
    return min(errors) - reach <= value <= max(errors) + reach


def draw_curves(c: Comparison, field: str, label: str, least: float, chance: float | None = None) -> str:
    """A metric over the epochs: a thin line for each of few seeds, a thick one for their mean, dots for chance."""
    with open_figure(3.3) as (figure, axes):
        for place, summary in enumerate(c.pools):
            style = {"color": SERIES[place % len(SERIES)], "linestyle": STYLES[place // len(SERIES) % len(STYLES)]}
            rows = [[max(row[field], least) for row in finished.metrics] for finished in c.get_runs(summary.pool)]
            epochs = range(1, len(rows[0]) + 1)
            for values in rows if len(rows) <= FEW_SEEDS else ():
                axes.plot(epochs, values, linewidth=0.7, alpha=0.35, **style)
            mean = [sum(values) / len(values) for values in zip(*rows, strict=True)]
            marker = "o" if len(epochs) == 1 else None
            axes.plot(epochs, mean, linewidth=1.9, label=summary.pool, marker=marker, **style)
        low, high = axes.dataLim.intervaly
        if chance is not None and fits_axis(chance, (low, high)):
            axes.axhline(chance, color=GREY, linewidth=1, linestyle=":", zorder=1)
            where: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
            axes.annotate("chance", (0, chance), (2, 2), color=GREY, fontsize=8, **where)
        if high > LOG_RATIO * low:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="epoch", ylabel=label)
        axes.grid(axis="y", color=PALE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, ncols=2, loc="upper right")
        return render_svg(figure, f"{label} by epoch")


def draw_masks(pool: PoolExplanation) -> Iterator[str]:
    """Each mask, filter and proportion of a learned pool as a picture of its own, so that they flow on any page."""
    reach = max(FAINT, find_largest([*pool.gates, *pool.filters]))
    items: list[tuple[Any, int | None]] = [
        (item, plane) for item in (*pool.gates, *pool.filters) for plane in list_planes(pool)
    ]
    for item, plane in [*items, *list_others(pool)]:
        high = get_panel_height(item) if get_panel_height(item) == BAR else PANEL
        with mpl.rc_context(PLAIN):
            width, height = PANEL + 0.1, high + 0.5
            figure = Figure(figsize=(width, height))
            axes = figure.add_axes((0.05 / width, 0.22 / height, PANEL / width, high / height))
            draw_item(axes, pool, item, reach, plane)
            for text in axes.texts:
                if text.get_transform() is axes.transData:
                    text.set_color(ON_CELLS)
            yield render_svg(figure, f"{item.name} of {pool.name}")


@contextmanager
def open_figure(height: float) -> Iterator[tuple[Figure, Any]]:
    """A figure and its axes in the style of a page."""
    with mpl.rc_context(PLAIN):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        yield figure, axes


def label_pools(axes: Any, pools: Sequence[PoolSummary]) -> None:
    """Pools from top to bottom."""
    axes.set_yticks(range(len(pools)), [summary.pool for summary in pools], color=INK)
    axes.set_ylim(len(pools) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def render_svg(figure: Figure, label: str) -> str:
    """A figure as an element of a page: it takes the page's colours and width, and has a title for screen readers."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    for colour, name in PAGE.items():
        text = text.replace(colour, f"var({name})")
    opening = f'<svg role="img" aria-label="{escape(label)}" width="{figure.get_figwidth() * 96:.0f}"'
    return re.sub(r'<svg([^>]*?) width="[^"]*"', lambda match: opening + match[1], text, count=1)
