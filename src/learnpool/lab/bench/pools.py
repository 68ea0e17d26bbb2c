"""Time the pools beside PyTorch's own, a gated pool composed by hand, and a plain copy of the input.

All of them take turns in one process, in a new order every round, so that a busy moment of the machine hits none of
them more than the others. The first call of a turn is not timed: it finds the caches and the free memory as another
contestant left them. What is compared are medians over rounds; the best round is kept beside it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
from rich.console import Console

from ...ops.window import by
from .. import machine
from ..figure import STYLE
from .contestants import MODES, Call, contestants
from .plan import Plan
from .report import Timing, chart, summarize, table

LEAST = 20e-3  # seconds; a shorter call is repeated within one timing
HOW = (
    "copy: x into memory that exists, the limit of this memory; clone: into fresh memory, which outputs and gradients "
    "need too; both twice for forward + backward. Kept for backward: bytes beside x and parameters, over those of x."
)


def measure(plan: Plan, advance: Callable[[], None]) -> list[Timing]:
    """Time everything; ``advance`` is called after every round of every shape."""
    order = random.Random(0)
    timings = []
    for shape in plan.shapes:
        turns = [(c, mode, call) for c in contestants(plan, shape) for mode, call in c.calls.items()]
        repeats = [max(1, min(1000, round(LEAST / clock(call)))) for _, _, call in turns]
        seconds: list[list[float]] = [[] for _ in turns]
        for _ in range(plan.rounds):
            for k in order.sample(range(len(turns)), len(turns)):
                turns[k][2]()
                seconds[k].append(clock(turns[k][2], repeats[k]))
            advance()
        for (c, mode, _), calls, times in zip(turns, repeats, seconds, strict=True):
            timings.append(Timing(c.name, mode, shape, calls, times, c.kept))
    return timings


def clock(call: Call, calls: int = 1) -> float:
    """Seconds per call."""
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


def bench(plan: Plan, out: Path) -> None:
    """Measure, print a table for each mode, write ``pools.json`` and ``pools.png``."""
    console = Console()
    machine.prepare(out)
    facts = machine.facts()  # before our own work is a part of the load
    steps = len(plan.shapes) * plan.rounds
    with machine.threads(plan.threads), machine.progress("timing", steps, console) as advance:
        timings = measure(plan, advance)
    lines = summarize(timings)
    for mode in MODES:
        console.print(table(timings, lines, mode))
    said = conditions(plan, facts)
    console.print(f"{said}\n{HOW}", highlight=False, style="dim")
    with mpl.rc_context(STYLE):
        chart(lines, said).savefig(out / "pools.png", dpi=150)
    record = facts | {
        "settings": asdict(plan),
        "summary": [asdict(line) for line in lines],
        "timings": [asdict(timing) | {"median": timing.median, "best": timing.best} for timing in timings],
    }
    machine.write(out / "pools.json", record)
    machine.warn(console, facts)
    console.out(f"Written: {out / 'pools.png'}, {out / 'pools.json'}", highlight=False)


def conditions(plan: Plan, facts: dict[str, Any]) -> str:
    """What was measured on what, for a reader of the table or the chart alone."""
    shapes = ", ".join(map(by, plan.shapes))
    return f"{shapes}; {plan}, median of {plan.rounds} rounds\n{machine.told(facts)}"
