"""Time pools over growing inputs, windows, numbers of threads and trees, forward and backward.

Each sweep changes one thing and divides the time by the work that should grow with it; where a pool scales, the result
is the same all along. All points take turns, in a new order every round, and each makes its input anew, so that only
one of the large ones is in memory. The fastest round counts: points are compared with each other, and whatever else
the machine does only adds to a time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from rich.console import Console
from rich.table import Table

from ... import make_pool
from ...explanation.pictures import GREY, INK, PALE, RIGHT
from .. import files, hardware, progress
from ..figure import STYLE
from .clock import time_call
from .contestants import BOTH, make_contestant, make_input
from .options import PoolBenchmark, parse_options
from .pools import count_repeats

POOL = "gated"
FEWEST_CELLS = 10_000
ROW, KERNEL_CELLS = 16, 2**21  # windows in a row, and cells, while the kernel grows
SWEEPS = {  # what a time is divided by
    "cells": "ns per cell",
    "kernel size": "ns per cell, stride as large as the kernel",
    "threads": "ns per cell × threads",
    "nodes": "ns per cell and node",
}


@dataclass(frozen=True, kw_only=True)
class ScalingBenchmark:
    """How far each sweep goes; ValueError names the option that is wrong."""

    cells: int = 10**8
    kernel: int = 15
    levels: int = 7
    threads: int
    layout: str = "nchw"
    dtype: str = "float32"
    rounds: int = 5

    def list_points(self) -> list[Point]:
        """Every pool, input and number of threads that is timed."""
        return [*self._grow_input(), *self._grow_kernel(), *self._grow_threads(), *self._grow_tree()]

    def _make_point(
        self, sweep: str, value: int, shape: str, *, window: str = "3,2,1", pool: str = POOL, threads: int | None = None
    ) -> Point:
        threads = threads or self.threads
        made = parse_options(shape, window, pool, self.layout, self.dtype, threads=threads, rounds=self.rounds)
        return Point(sweep, value, made)

    def _grow_input(self) -> Iterator[Point]:
        steps = round(2 * math.log10(self.cells / FEWEST_CELLS))
        for step in range(steps + 1):
            planes = FEWEST_CELLS * 10 ** (step / 2) / 32**2
            batch = max(1, round(planes / 64))
            channels = round(planes / batch)
            yield self._make_point("cells", batch * channels * 32**2, f"{batch}x{channels}x32x32")

    def _grow_kernel(self) -> Iterator[Point]:
        for kernel in range(2, self.kernel + 1):
            size = kernel * ROW  # every cell is in one window, every row has as many windows
            batch = max(1, round(KERNEL_CELLS / (8 * size**2)))
            yield self._make_point("kernel size", kernel, f"{batch}x8x{size}x{size}", window=f"{kernel},{kernel},0")

    def _grow_threads(self) -> Iterator[Point]:
        for threads in range(1, self.threads + 1):
            yield self._make_point("threads", threads, "64x128x32x32", threads=threads)

    def _grow_tree(self) -> Iterator[Point]:
        for levels in range(2, self.levels + 1):
            yield self._make_point("nodes", 2**levels - 1, "16x64x32x32", pool=f"tree{levels}")

    def __str__(self) -> str:
        window = "window 3, stride 2, padding 1 if not said otherwise"
        return f"{POOL}, {window}; {self.layout}, {self.dtype}, threads: {self.threads}"


@dataclass(frozen=True)
class Point:
    """One pool on one input; ``value`` is what the sweep changes."""

    sweep: str
    value: int
    benchmark: PoolBenchmark

    @property
    def work(self) -> float:
        """What the time should be proportional to."""
        (shape,), threads = self.benchmark.shapes, self.benchmark.threads
        return math.prod(shape) * {"threads": 1 / threads, "nodes": self.value}.get(self.sweep, 1)

    def time(self) -> float:
        """Seconds of a forward and backward pass."""
        (shape,), (pool,) = self.benchmark.shapes, self.benchmark.pools
        kernel, stride, padding, _ = self.benchmark.window
        x = make_input(self.benchmark, shape).requires_grad_()
        call = make_contestant(pool, make_pool(pool, kernel, stride, padding, dtype=x.dtype), x).calls[BOTH]
        with hardware.use_threads(self.benchmark.threads):
            return time_call(call, count_repeats(call))


@dataclass(frozen=True)
class PointTimes:
    """Seconds of a point, round by round, and the least of them as nanoseconds for each unit of work."""

    sweep: str
    value: int
    shape: tuple[int, ...]
    seconds: list[float]
    cost: float


def measure(points: Sequence[Point], rounds: int, advance: Callable[[], None]) -> list[PointTimes]:
    """Time all points in every round; ``advance`` is called after each."""
    order = random.Random(0)
    seconds: list[list[float]] = [[] for _ in points]
    for _ in range(rounds):
        for k in order.sample(range(len(points)), len(points)):
            seconds[k].append(points[k].time())
            advance()
    costs = [1e9 * min(times) / point.work for point, times in zip(points, seconds, strict=True)]
    return [
        PointTimes(point.sweep, point.value, point.benchmark.shapes[0], times, cost)
        for point, times, cost in zip(points, seconds, costs, strict=True)
    ]


def bench(benchmark: ScalingBenchmark, out: Path) -> None:
    """Measure, print a table, write ``scaling.json`` and ``scaling.png``."""
    points = benchmark.list_points()
    console = Console()
    machine = hardware.describe_machine()  # before our own work is a part of the load
    bar = progress.count_steps("timing", len(points) * benchmark.rounds, console)
    with files.keep_if_used(out), bar as advance:
        times = measure(points, benchmark.rounds, advance)
    console.print(build_table(times))
    conditions = f"{benchmark}, best of {benchmark.rounds} rounds\n{hardware.format_machine(machine)}"
    console.print(conditions, highlight=False, style="dim")
    with mpl.rc_context(STYLE):
        files.save_figure(out / "scaling.png", draw_sweeps(times, conditions), dpi=150)
    record = machine | {"settings": asdict(benchmark), "points": [asdict(point) for point in times]}
    files.write_json(out / "scaling.json", record)
    hardware.warn_if_busy(console, machine)
    console.out(f"Written: {out / 'scaling.png'}, {out / 'scaling.json'}", highlight=False)


def split_sweeps(times: Sequence[PointTimes]) -> dict[str, list[PointTimes]]:
    """The points of each sweep that has any."""
    return {sweep: points for sweep in SWEEPS if (points := [point for point in times if point.sweep == sweep])}


def build_table(times: Sequence[PointTimes]) -> Table:
    """A line for each point; the last column compares it with the cheapest of its sweep."""
    table = Table()
    table.add_column()
    for head in ("ms", "ns", "× lowest"):
        table.add_column(head, justify="right")
    for sweep, points in split_sweeps(times).items():
        lowest = min(point.cost for point in points)
        table.add_row(f"{sweep}: {SWEEPS[sweep]}")
        for point in points:
            ms = f"{1e3 * min(point.seconds):.3f}"
            row = f"  {point.value:,}", ms, f"{point.cost:.3f}", f"{point.cost / lowest:.2f}"
            table.add_row(*row, end_section=point is points[-1])
    return table


def draw_sweeps(times: Sequence[PointTimes], conditions: str) -> Figure:
    """A panel for each sweep: cost over what changes; a pool that scales is a horizontal line."""
    sweeps = split_sweeps(times)
    figure = Figure(figsize=(2.9 * len(sweeps), 3.2))
    figure.subplots_adjust(left=0.06, right=0.985, bottom=0.3, top=0.84, wspace=0.28)
    figure.text(0.012, 0.03, conditions, fontsize=7.5, color=GREY, va="bottom", linespacing=1.4)
    for axes, (sweep, points) in zip(figure.subplots(1, len(sweeps), squeeze=False)[0], sweeps.items(), strict=True):
        axes.plot([point.value for point in points], [point.cost for point in points], "o-", color=RIGHT, markersize=4)
        axes.set_title(SWEEPS[sweep], loc="left", fontsize=8.5, color=INK)
        axes.set_xlabel(sweep, fontsize=8.5, color=INK)
        axes.set_ylim(0, 1.25 * max(point.cost for point in points))
        if sweep in ("cells", "nodes"):
            axes.set_xscale("log")
        if sweep == "nodes":
            axes.set_xticks([point.value for point in points], labels=[str(point.value) for point in points])
            axes.xaxis.set_minor_locator(NullLocator())
        elif sweep != "cells":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(colors=INK, labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.grid(True, color=PALE, linewidth=0.6)
    return figure
