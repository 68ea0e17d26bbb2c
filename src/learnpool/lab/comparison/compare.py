"""Does another pool help this network on these images? Train what is missing, then say it in one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ...formatting import format_count, format_number, format_percent
from .. import files, hardware, progress
from ..launch.cluster import RayTasks
from ..launch.loop import train_all
from ..launch.processes import LocalProcesses
from ..runs import directory
from ..runs.presets import preset
from ..runs.run import Run, RunError, make_file_name
from . import report
from .comparison import Comparison


def plan(name: str, data: Sequence[str], pools: Sequence[str], seeds: int, **changes: Any) -> list[Run]:
    """A run for every data set, pool and seed, the baseline first."""
    if odd := next((field for field in ("data", "pool", "seed") if field in changes), None):
        raise RunError(f"--set: {odd} is part of what is compared; see --data, --pools and --seeds")
    if seeds < 2:
        raise RunError(f"--seeds: no interval is possible from {format_count(seeds, 'seed')}; wanted at least 2")
    each = itertools.product(data, pools, range(seeds))
    runs = [preset(name, images, **changes | {"pool": pool, "seed": seed}) for images, pool, seed in each]
    kinds = list(dict.fromkeys(run.pool for run in runs))
    if len(kinds) < 2:
        raise RunError(f"--pools: wanted at least two to compare, got {', '.join(kinds) or 'none'}")
    return list(dict.fromkeys(runs))


def compare(
    runs: Sequence[Run],
    out: Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    console: Console | None = None,
    **options: Any,
) -> dict[Path, Comparison]:
    """Train what is missing in ``out``, write ``report.html`` and ``compare.json`` there, and return what they say.

    For several data sets that is a report each, ``report-mnist.html`` and so on.
    """
    train_missing(runs, out, jobs=jobs, ray=ray, console=console, **options)
    found = {}
    for data in (several := list(dict.fromkeys(run.data for run in runs))):
        ending = f"-{make_file_name(data)}" if len(several) > 1 else ""
        page = out / f"report{ending}.html"
        found[page] = report.write([out / run.id for run in runs if run.data == data], page)
        files.write_json(out / f"compare{ending}.json", record(found[page]))
    return found


def train_missing(
    runs: Sequence[Run],
    out: Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    console: Console | None = None,
    **options: Any,
) -> None:
    """Train the runs that are not done in ``out``, in processes of this machine or on a Ray cluster.

    Runs are in processes of one thread unless ``threads`` says otherwise, as many at a time as there are cores. Without
    a console nothing is shown.
    """
    files.make_directory(out)
    options = {"threads": 1} | {name: value for name, value in options.items() if value is not None}
    # Seeds outside, so that a busy minute of the machine hits all pools.
    ordered = sorted(runs, key=lambda run: run.seed)
    at_once = min(jobs or max(1, hardware.count_cores() // options["threads"]), len(runs))
    epochs = sum(run.epochs for run in runs)
    shown = progress.show_bar("training", console or Console(quiet=True))
    with directory.lock(out, "another command is training here; wait, or give another --out"), shown as show:

        def tell(done: float) -> None:
            show(done, epochs, f"{done:.0f} of {epochs} epochs of {len(runs)} runs")

        workers = RayTasks(out, ray, **options) if ray is not None else LocalProcesses(out, at_once, **options)
        train_all(ordered, out, workers, tell)


def record(compared: Comparison) -> dict[str, Any]:
    """The numbers of a comparison, for programs."""
    pools = [
        asdict(line) | {"mean": line.mean, "spread": line.spread, "verdict": line.against and line.against.verdict}
        for line in compared.lines
    ]
    return {
        "answer": list(compared.answer),
        "data": compared.first.run.data,
        "baseline": compared.lines[0].pool,
        "seeds": compared.seeds,
        "images": compared.first.result.images,
        "skipped": compared.skipped,
        "pools": pools,
        "runs": [entry.path.name for entry in compared.entries],
    }


def table(compared: Comparison) -> Table:
    """The summary for a terminal of 80 columns."""
    said = f"± over {len(compared.seeds)} seeds; paired intervals; p corrected by Holm's method"
    drawn = Table(caption=said, caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn.add_column("pool", overflow="fold")
    heads = "error, %", f"points less\nthan {compared.lines[0].pool}", "95 % interval", "p", "", "more\npar.", "time"
    for head in heads:
        drawn.add_column(head, justify="right", no_wrap=True)
    for l in compared.lines:
        error = f"{format_number(l.mean)} ± {format_number(l.spread)}"
        if (a := l.against) is None:
            drawn.add_row(l.pool, error)
            continue
        verdict = "unclear" if a.verdict == "not significant" else a.verdict
        interval = f"{format_number(a.low)} … {format_number(a.high)}"
        cost = f"{l.parameters:,}", format_percent(l.slower, sign=True)
        drawn.add_row(l.pool, error, format_number(a.gain), interval, f"{a.corrected:.2g}", verdict, *cost)
    return drawn
