"""Train many runs: the loop that local processes and a Ray cluster share.

If it is interrupted, every run keeps its finished epochs and the next call trains only what is missing. A run
whose worker dies is started again and resumes from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ..data import DataError, check_name
from ..runs import directory
from ..runs.run import Run, RunError
from ..runs.train import Result, TrainingError, verify_done

TRIES = 3  # of a run whose worker dies
EXPECTED = (RunError, DataError, TrainingError, OSError)  # what a run may raise; anything else is a mistake of ours

ReportProgress = Callable[[float], None]  # epochs done, over all runs


class WorkerDied(Exception):  # noqa: N818
    """A worker ended without a result; the message says how."""


Message = float | Result | Exception  # epochs done so far, or how a run ended


class Workers(Protocol):
    """Where runs are trained."""

    name: str  # of one of them, for messages

    def can_start(self) -> bool:
        """Whether another run may start now."""

    def start(self, run: Run) -> None:
        """Begin to train a run, or resume it."""

    def receive(self) -> list[tuple[Run, Message]]:
        """Wait for messages of the runs that were started; anything but a number is the last of its run."""

    def close(self) -> None:
        """Stop whatever is still training."""


def train_all(runs: Sequence[Run], out: Path, workers: Workers, report_progress: ReportProgress) -> list[Result]:
    """Train what is not done yet and return the results of all in their order.

    A run that diverges does not stop the others; its error is raised at the end.
    """
    training, failures = set[Run](), list[Exception]()
    try:
        results = read_finished(runs, out)
        progress = {run: float(run.epochs) if run in results else 0.0 for run in runs}
        waiting = [run for run in reversed(progress) if run not in results]
        for name in dict.fromkeys(run.data for run in waiting):
            check_name(name)
        tries = dict.fromkeys(waiting, 0)
        report_progress(sum(progress.values()))
        while waiting or training:
            while waiting and workers.can_start():
                run = waiting.pop()
                tries[run] += 1
                training.add(run)
                workers.start(run)
            for run, message in workers.receive():
                if isinstance(message, float):
                    progress[run] = max(message, progress[run])
                    report_progress(sum(progress.values()))
                    continue
                training.remove(run)
                if isinstance(message, Result):
                    results[run] = message
                elif isinstance(message, TrainingError):
                    failures.append(message)
                elif not isinstance(message, WorkerDied):
                    raise message
                elif tries[run] < TRIES:
                    waiting.append(run)
                else:
                    raise ChildProcessError(f"{run.id}: its {workers.name} died {TRIES} times ({message})")
    finally:
        workers.close()
    if failures:
        raise failures[0]
    return [results[run] for run in runs]


def read_finished(runs: Sequence[Run], out: Path) -> dict[Run, Result]:
    """The runs that are done, with their results; RunError if their network or folder of images is not what it was."""
    results = {}
    digests: dict[str, str] = {}
    for run in runs:
        if (out / run.id).is_dir() and (result := directory.read_result(out / run.id)) is not None:
            with directory.open_run(run, out) as path:  # or it is the directory of another run
                verify_done(run, path, digests)
                results[run] = result
    return results
