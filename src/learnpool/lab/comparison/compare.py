"""Does another pool help this network on these images? Train what is missing, then say it in one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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
from .summary import PoolSummary


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
    comparisons = {}
    for data in (several := list(dict.fromkeys(run.data for run in runs))):
        ending = f"-{make_file_name(data)}" if len(several) > 1 else ""
        page = out / f"report{ending}.html"
        comparisons[page] = report.write([out / run.id for run in runs if run.data == data], page)
        files.write_json(out / f"compare{ending}.json", to_record(comparisons[page]))
    return comparisons


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
    bar = progress.show_bar("training", console or Console(quiet=True))
    with directory.lock(out, "another command is training here; wait, or give another --out"), bar as show:

        def tell(done: float) -> None:
            show(done, epochs, f"{done:.0f} of {epochs} epochs of {len(runs)} runs")

        workers = RayTasks(out, ray, **options) if ray is not None else LocalProcesses(out, at_once, **options)
        train_all(ordered, out, workers, tell)


def to_record(compared: Comparison) -> dict[str, Any]:
    """The numbers of a comparison, for programs."""
    return {
        "answer": list(compared.answer),
        "data": compared.first.run.data,
        "baseline": compared.pools[0].pool,
        "seeds": compared.seeds,
        "images": compared.first.result.images,
        "skipped": compared.skipped,
        "pools": [_pool_record(summary) for summary in compared.pools],
        "runs": [finished.path.name for finished in compared.runs],
    }


def _pool_record(summary: PoolSummary) -> dict[str, Any]:
    difference = summary.difference
    return {
        "pool": summary.pool,
        "errors": summary.errors,
        "mean": summary.mean,
        "spread": summary.spread,
        "pool_parameters": summary.pool_parameters,
        "parameters": summary.extra_parameters,
        "seconds": summary.seconds,
        "slower": summary.extra_time,
        "memory": summary.memory,
        "verdict": difference and difference.verdict,
        "against": difference
        and {
            "gain": difference.gain,
            "low": difference.low,
            "high": difference.high,
            "p": difference.p,
            "corrected": difference.p_holm,
            "more": difference.more_seeds,
        },
    }


def build_table(compared: Comparison) -> Table:
    """The summary for a terminal of 80 columns."""
    caption = f"± over {len(compared.seeds)} seeds; paired intervals; p corrected by Holm's method"
    table = Table(caption=caption, caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("pool", overflow="fold")
    heads = "error, %", f"points less\nthan {compared.pools[0].pool}", "95 % interval", "p", "", "more\npar.", "time"
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for summary in compared.pools:
        error = f"{format_number(summary.mean)} ± {format_number(summary.spread)}"
        if (a := summary.difference) is None:
            table.add_row(summary.pool, error)
            continue
        verdict = "unclear" if a.verdict == "not significant" else a.verdict
        interval = f"{format_number(a.low)} … {format_number(a.high)}"
        cost = f"{summary.extra_parameters:,}", format_percent(summary.extra_time, sign=True)
        table.add_row(summary.pool, error, format_number(a.gain), interval, f"{a.p_holm:.2g}", verdict, *cost)
    return table
