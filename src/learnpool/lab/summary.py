"""What a comparison of pools says: differences with intervals, one sentence, a table and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from rich.table import Table
from scipy import stats
from torch import Tensor

from ..facts import number
from ..pictures import GREY, INK, LEFT, RIGHT, SIDES, SIGNED, heat_map


@dataclass(frozen=True)
class Result:
    """What a run gave; ``learned`` has one dictionary of parameters for each of the two pools."""

    pool: str
    seed: int
    error: float  # % of the test images, after the last epoch
    seconds: float
    parameters: int
    learned: list[dict[str, Any]]
    gate_map: tuple[int, list[list[float]]] | None  # σ over the shown digit, in the channel where it varies most


@dataclass(frozen=True)
class Line:
    """One pool over all seeds; errors in %, differences to max in points of it."""

    pool: str
    mean: float
    std: float
    parameters: int
    seconds: float
    times_max: float
    difference: float
    low: float
    high: float


def summarize(results: Sequence[Result], test_images: int) -> list[Line]:
    """Mean and spread of every pool, and its difference to max with a paired t-interval.

    The intervals hold together with 95 % (Bonferroni): one of many pools would look better by chance. An error moves in
    steps of one image, so a spread below one step is taken as one step: a few equal numbers are no certainty.
    """
    ordered = sorted(results, key=lambda r: r.seed)  # pairs share a seed
    by_pool = {pool: [r for r in ordered if r.pool == pool] for pool in dict.fromkeys(r.pool for r in results)}
    base, lines = by_pool["max"], []
    n, others = len(base), max(1, len(by_pool) - 1)
    reach = float(stats.t.ppf(1 - 0.05 / 2 / others, n - 1)) / n**0.5
    for pool, of_pool in by_pool.items():
        errors = [r.error for r in of_pool]
        differences = [r.error - b.error for r, b in zip(of_pool, base, strict=True)]
        seconds = statistics.fmean(r.seconds for r in of_pool)
        mean = statistics.fmean(differences)
        half = 0.0 if pool == "max" else reach * max(statistics.stdev(differences), 100 / test_images)
        lines.append(
            Line(
                pool,
                statistics.fmean(errors),
                statistics.stdev(errors),
                of_pool[0].parameters,
                seconds,
                seconds / statistics.fmean(b.seconds for b in base),
                mean,
                mean - half,
                mean + half,
            )
        )
    return lines


def conclude(lines: Sequence[Line], seeds: int) -> str:
    """One sentence that claims no more than the intervals do."""
    base = next(line for line in lines if line.pool == "max")
    others = [line for line in lines if line.pool != "max"]
    how = f"(paired t-intervals over {seeds} seeds, 95 % for all {len(others)} differences together)"
    groups = {
        "significantly better": [f"{l.pool} by {number(-l.difference)} points" for l in others if l.high < 0],
        "significantly worse": [f"{l.pool} by {number(l.difference)} points" for l in others if l.low > 0],
        "not significantly different": [l.pool for l in others if l.low <= 0 <= l.high],
    }
    found = [f"{word}: {', '.join(pools)}" for word, pools in groups.items() if pools]
    if len(groups["not significantly different"]) == len(others):
        return f"No pool's test error differs significantly from max pooling's {base.mean:.2f} % {how}."
    return f"Compared with max pooling's test error of {base.mean:.2f} %, {'; '.join(found)} {how}."


def table(lines: Sequence[Line], caption: str) -> Table:
    """The summary for a terminal."""
    drawn = Table(caption=caption, caption_justify="left")
    drawn.add_column("pool")
    for head in ("test error, %", "minus max, points", "extra\nparameters", "seconds\nper run", "times\nmax"):
        drawn.add_column(head, justify="right")
    for l in lines:
        against = "" if l.pool == "max" else f"{signed(l.difference)}  [{signed(l.low)}, {signed(l.high)}]"
        error = f"{l.mean:.2f} ± {l.std:.2f}"
        drawn.add_row(l.pool, error, against, str(l.parameters), f"{l.seconds:.1f}", f"{l.times_max:.1f}")
    return drawn


def signed(value: float) -> str:
    return ("+" if round(value, 2) > 0 else "") + number(value)


def picture(results: Sequence[Result], lines: Sequence[Line], image: Tensor) -> Figure:
    """Errors with every seed as a dot; below, what mixed and gated pools learned, on the test ``image``."""
    room = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15, wspace=0.06, hspace=0.04)
    figure = Figure(figsize=(10, 6.6), layout=room)
    grid = figure.add_gridspec(2, 4, height_ratios=(1.1, 1))

    axes = figure.add_subplot(grid[0, :])
    base = next(line.mean for line in lines if line.pool == "max")
    axes.axhline(base, color=LEFT, linewidth=1.2, linestyle="--", zorder=1)
    for place, line in enumerate(lines):
        axes.hlines(line.mean, place - 0.25, place + 0.25, color=INK, linewidth=2)
        dots(axes, place, [r.error for r in results if r.pool == line.pool])
        said, spot = f"{line.mean:.2f} ± {line.std:.2f}", axes.get_xaxis_transform()
        axes.text(place, -0.12, said, transform=spot, ha="center", va="top", fontsize=8.5, color=GREY)
    axes.set_xticks(range(len(lines)), [line.pool for line in lines], fontsize=11)
    axes.set(xlim=(-0.6, len(lines) - 0.4), ylim=(0, 1.15 * max(r.error for r in results) + 0.1), ylabel="%")
    titled(axes, "Test error after the last epoch", "dots: seeds; bars: means; dashed: the mean of max")

    axes = figure.add_subplot(grid[1, 0])
    for layer in range(2):
        dots(axes, layer, [r.learned[layer]["a"] for r in results if r.pool == "mixed"])
    axes.axhline(0.5, color=GREY, linewidth=1.2, linestyle=":", zorder=1)
    axes.set(xlim=(-0.5, 1.5), ylim=(-0.05, 1.05), box_aspect=1)
    axes.set_xticks([0, 1], ["first pool", "second pool"])
    axes.set_yticks([0, 0.5, 1], ["avg 0", "start 0.5", "max 1"])
    titled(axes, "Mixed: learned a", "dots: seeds")

    gated = next(r for r in results if r.pool == "gated")
    mask = gated.learned[0]["weight"][0][0][0][0]
    reach = 2 * max(1e-6, *(abs(value) for row in mask for value in row))  # twice, so that numbers stay legible
    heat_map(figure.add_subplot(grid[1, 1]), mask, SIGNED, (-reach, reach))
    titled(figure.axes[-1], "Gated: learned mask ω", f"first pool, seed {gated.seed}")
    heat_map(figure.add_subplot(grid[1, 2]), image.tolist(), "gray_r", (0, 1), numbers=False)
    titled(figure.axes[-1], "A test image", "8×8 pixels")
    channel, gates = gated.gate_map or (0, [])
    heat_map(figure.add_subplot(grid[1, 3]), gates, SIDES, (0, 1))
    titled(figure.axes[-1], "Its gates σ(ω·x)", f"channel {channel}; max orange, avg blue")
    return figure


def dots(axes: Any, place: float, values: Sequence[float]) -> None:
    """One dot per seed, side by side."""
    spots = [place + 0.1 * (k - (len(values) - 1) / 2) for k in range(len(values))]
    axes.scatter(spots, values, s=36, color=RIGHT, edgecolor="white", linewidth=0.8, zorder=3)


def titled(axes: Any, title: str, below: str) -> None:
    """What is seen in bold, how to read it in grey."""
    axes.set_title(title, loc="left", fontsize=10.5, weight="bold", color=INK, pad=20)
    axes.text(0, 1.03, below, transform=axes.transAxes, fontsize=8, color=GREY, va="bottom")
    axes.spines[["top", "right"]].set_visible(len(axes.images) > 0)
    axes.spines[:].set_color(GREY)
