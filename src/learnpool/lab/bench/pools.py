"""Time the pools beside PyTorch's own, a gated pool composed by hand, and a plain copy of the input; in another dtype
than float32, also beside themselves in float32.

All of them take turns in one process, in a new order every round, so that a busy moment of the machine hits none of
them more than the others. The first call of a turn is not timed: it finds the caches and the free memory as another
contestant left them. What is compared are medians over rounds; the best round is kept beside it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
from rich.console import Console

from ...ops.window import format_size
from .. import files, hardware, progress
from ..figure import STYLE
from .clock import time_call
from .contestants import MODES, Call, build_contestants
from .options import PoolBenchmark
from .report import Timing, build_table, draw_chart, summarize

MIN_SECONDS = 20e-3  # a shorter call is repeated within one timing
FOOTNOTE = (
    "copy: x into memory that exists, the limit of this memory; clone: into fresh memory, which outputs and gradients "
    "need too; both twice for forward + backward. Kept for backward: bytes beside x and parameters, over those of x."
)


def measure(benchmark: PoolBenchmark, advance: Callable[[], None]) -> list[Timing]:
    """Time everything; ``advance`` is called after every round of every shape."""
    order = random.Random(0)
    timings = []
    for shape in benchmark.shapes:
        turns = [(c, mode, call) for c in build_contestants(benchmark, shape) for mode, call in c.calls.items()]
        device = benchmark.device
        repeats = [count_repeats(call, device) for _, _, call in turns]
        seconds: list[list[float]] = [[] for _ in turns]
        for _ in range(benchmark.rounds):
            for k in order.sample(range(len(turns)), len(turns)):
                turns[k][2]()
                seconds[k].append(time_call(turns[k][2], repeats[k], device))
            advance()
        for (c, mode, _), calls, times in zip(turns, repeats, seconds, strict=True):
            timings.append(Timing(c.name, mode, shape, calls, times, c.kept))
    return timings


def count_repeats(call: Call, device: str = "cpu") -> int:
    """How often a call is repeated within one timing."""
    return max(1, min(1000, round(MIN_SECONDS / time_call(call, device=device))))


def bench(benchmark: PoolBenchmark, out: Path) -> None:
    """Measure, print a table for each mode, write ``pools.json`` and ``pools.png``."""
    console = Console()
    machine = hardware.describe_machine(benchmark.device)  # before our own work is a part of the load
    steps = len(benchmark.shapes) * benchmark.rounds
    bar = progress.count_steps("timing", steps, console)
    with files.keep_if_used(out), hardware.use_threads(benchmark.threads), bar as advance:
        timings = measure(benchmark, advance)
    summaries = summarize(timings)
    for mode in MODES:
        console.print(build_table(timings, summaries, mode))
    conditions = describe_conditions(benchmark, machine)
    console.print(f"{conditions}\n{FOOTNOTE}", highlight=False, style="dim")
    with mpl.rc_context(STYLE):
        files.save_figure(out / "pools.png", draw_chart(summaries, conditions), dpi=150)
    record = machine | {
        "settings": asdict(benchmark),
        "summary": [asdict(summary) for summary in summaries],
        "timings": [asdict(timing) | {"median": timing.median, "best": timing.best} for timing in timings],
    }
    files.write_json(out / "pools.json", record)
    hardware.warn_if_busy(console, machine)
    console.out(f"Written: {out / 'pools.png'}, {out / 'pools.json'}", highlight=False)


def describe_conditions(benchmark: PoolBenchmark, machine: dict[str, Any]) -> str:
    """What was measured on what, for a reader of the table or the chart alone."""
    shapes = ", ".join(map(format_size, benchmark.shapes))
    return f"{shapes}; {benchmark}, median of {benchmark.rounds} rounds\n{hardware.format_machine(machine)}"
