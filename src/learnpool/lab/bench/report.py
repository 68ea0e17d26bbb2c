"""Timings as ratios to max pooling: summary, table and bar chart."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from ...explanation.pictures import GREY, INK, LEFT, PALE, RIGHT
from ...ops.window import format_size
from .by_hand import BY_HAND
from .contestants import BOTH, COMPILED, COPIES, MODES, REFERENCE

TITLE = "Time of a pool, as a multiple of max pooling's"
LEGEND = (
    "bars: geometric means over shapes (▸ cut); dots: shapes; dotted: a copy of x, two copies for forward + backward"
)
COLOURS = {"ours": RIGHT, "torch": GREY, "hand": "#b6bec8"}


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one contestant in one mode on one shape, round by round."""

    name: str
    mode: str
    shape: tuple[int, ...]
    calls: int  # in each round
    seconds: list[float]
    kept: float | None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


@dataclass(frozen=True)
class ContestantSummary:
    """One contestant in one mode over all shapes, as ratios to max: by medians, and by best rounds."""

    name: str
    mode: str
    ratios: dict[str, float]  # by shape
    mean: float  # geometric
    best: float  # geometric
    kept: float | None  # on average


def summarize(timings: Sequence[Timing]) -> list[ContestantSummary]:
    """Ratios to max on the same shape in the same mode, and their geometric means."""
    base = {(t.mode, t.shape): t for t in timings if t.name == "max"}
    summaries = []
    for mode in MODES:
        for name in dict.fromkeys(t.name for t in timings):
            matches = [t for t in timings if (t.name, t.mode) == (name, mode)]
            ratios = {format_size(t.shape): t.median / base[mode, t.shape].median for t in matches}
            best = statistics.geometric_mean(t.best / base[mode, t.shape].best for t in matches)
            kept = [t.kept for t in matches if t.kept is not None and mode == BOTH]
            mean = statistics.geometric_mean(ratios.values())
            summaries.append(
                ContestantSummary(name, mode, ratios, mean, best, statistics.fmean(kept) if kept else None)
            )
    return summaries


def build_table(timings: Sequence[Timing], summaries: Sequence[ContestantSummary], mode: str) -> Table:
    """One mode for a terminal: milliseconds and ratios for each shape, and the means."""
    table = Table(title=mode + ("" if mode == BOTH else " only (no_grad)"), title_justify="left", title_style="bold")
    table.add_column("")
    shapes = list(dict.fromkeys(t.shape for t in timings))
    for shape in shapes:
        table.add_column(f"{format_size(shape)}\nms   × max", justify="right")
    table.add_column("mean\n× max", justify="right")
    table.add_column("best\n× max", justify="right")
    if mode == BOTH:
        table.add_column("kept for\nbackward", justify="right")
    rows = [summary for summary in summaries if summary.mode == mode]
    for summary, following in zip(rows, [*rows[1:], None], strict=True):
        cells = []
        for shape in shapes:
            ms = [1e3 * t.median for t in timings if (t.name, t.mode, t.shape) == (summary.name, mode, shape)]
            cells.append(f"{ms[0]:.{2 if ms[0] >= 1 else 3}f} {summary.ratios[format_size(shape)]:7.3f}" if ms else "–")
        kept = [] if mode != BOTH else ["" if summary.kept is None else f"{summary.kept:.2f}"]
        ends = following is not None and classify(summary.name) != classify(following.name)
        table.add_row(summary.name, *cells, f"{summary.mean:.3f}", f"{summary.best:.3f}", *kept, end_section=ends)
    return table


def classify(name: str) -> str:
    """Whose code it is: PyTorch's own, ours, ours written by hand with PyTorch's operators, or a copy."""
    if name in COPIES:
        return "copy"
    return (
        "hand"
        if name == COMPILED or name.endswith((BY_HAND, REFERENCE))
        else "torch"
        if name in ("max", "avg")
        else "ours"
    )


def draw_chart(summaries: Sequence[ContestantSummary], conditions: str) -> Figure:
    """Bars of the mean ratios to max with a dot for each shape, and lines where max and a copy of x are."""
    names = [s.name for s in summaries if s.mode == BOTH and s.name not in ("max", *COPIES)]
    # What is written by hand runs off the chart.
    visible = [summary for summary in summaries if classify(summary.name) not in ("hand", "copy")]
    limit = 1.2 * max(ratio for summary in visible for ratio in summary.ratios.values())
    notes = [part for line in conditions.splitlines() for part in textwrap.wrap(line, 150)]
    head, foot = 1.3, 0.45 + 0.16 * len(notes)  # inches
    height = head + 0.36 * len(names) + foot
    figure = Figure(figsize=(10, height))
    figure.subplots_adjust(left=0.18, right=0.985, bottom=foot / height, top=1 - head / height, wspace=0.1)
    figure.text(0.012, 1 - 0.3 / height, TITLE, fontsize=13, weight="bold", color=INK, va="center")
    figure.text(0.012, 1 - 0.56 / height, LEGEND, fontsize=8.5, color=GREY, va="center")
    figure.text(0.012, 0.1 / height, "\n".join(notes), fontsize=7.5, color=GREY, va="bottom", linespacing=1.4)
    for axes, mode in zip(figure.subplots(1, 2, sharex=True, sharey=True), MODES, strict=True):
        draw_panel(axes, {summary.name: summary for summary in summaries if summary.mode == mode}, names, limit)
        title = mode if mode == BOTH else "forward only"
        axes.set_title(title, loc="left", fontsize=10.5, weight="bold", color=INK, pad=18)
        axes.set(xlim=(0, limit), ylim=(len(names) - 0.45, -0.6))
    return figure


def draw_panel(axes: Any, summaries: dict[str, ContestantSummary], names: Sequence[str], limit: float) -> None:
    """One mode; a bar beyond ``limit`` is cut, and its number says how long it is."""
    for place, name in enumerate(names):
        summary = summaries[name]
        axes.barh(place, summary.mean, height=0.62, color=COLOURS[classify(name)], zorder=2)
        spots = list(summary.ratios.values())
        axes.scatter(spots, [place] * len(spots), s=14, color="white", edgecolor=INK, linewidth=0.8, zorder=4)
        look: Any = {"va": "center", "fontsize": 9, "weight": "bold", "color": INK, "zorder": 5}
        if summary.mean > 0.9 * limit:
            axes.text(0.985 * limit, place, f"{summary.mean:.2f} ▸", ha="right", **look)
        else:
            look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            end = (max(summary.mean, *(spot for spot in spots if spot < limit)), place)
            axes.annotate(f"{summary.mean:.2f}", end, (7, 0), textcoords="offset points", **look | {"zorder": 3})
    for at, word, colour, style in ((1, "max", LEFT, "--"), (summaries["copy"].mean, "copy", INK, ":")):
        axes.axvline(at, color=colour, linewidth=1.3, linestyle=style, zorder=2.5)
        axes.text(at, -0.68, word, color=colour, fontsize=8.5, ha="center", va="bottom")
    axes.set_yticks(range(len(names)), [textwrap.fill(name, 24) for name in names])
    axes.tick_params(length=0, colors=INK, labelsize=9)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(GREY)
    axes.xaxis.grid(True, color=PALE, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
