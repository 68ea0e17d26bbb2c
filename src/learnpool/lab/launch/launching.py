"""Train the runs of a plan that are not done, on this machine or on a cluster, with a bar."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from .. import files, hardware, progress
from ..runs import directory
from ..runs.run import Run
from .cluster import RayTasks
from .loop import train_all
from .processes import LocalProcesses


def count_jobs(jobs: int | None, threads: int, runs: int) -> int:
    """Runs at a time: as many as were asked for or there are cores."""
    return min(jobs or max(1, hardware.count_cores() // threads), runs)


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
    options = {"threads": 1} | {name: value for name, value in options.items() if value is not None}
    # Seed by seed, so that a busy minute of the machine hits all pools.
    ordered = sorted(runs, key=lambda run: run.seed)
    at_once = count_jobs(jobs, options["threads"], len(runs))
    epochs = sum(run.epochs for run in runs)
    bar = progress.show_bar("training", console or Console(quiet=True))
    lock = partial(directory.lock, out, "another command is training here; wait, or give another --out")
    with files.keep_if_used(out), lock(), bar as show:

        def report_progress(done: float) -> None:
            show(done, epochs, f"{done:.0f} of {epochs} epochs of {len(runs)} runs")

        workers = RayTasks(out, ray, **options) if ray is not None else LocalProcesses(out, at_once, **options)
        train_all(ordered, out, workers, report_progress)
