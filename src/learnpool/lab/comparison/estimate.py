"""What a comparison would train and reuse, and how long that takes, from a few measured steps; nothing is written."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ...formatting import escape_control_characters, format_count, format_table
from .. import hardware
from ..data import DataError
from ..data.catalog import NAMES
from ..launch.loop import read_finished
from ..progress import format_seconds
from ..runs import checkpoint
from ..runs.batches import load_batches
from ..runs.distributed import join_ranks
from ..runs.run import Run
from ..runs.training import Step, Training

WARM, STEPS = 2, 5  # steps that are not counted, and that are
SHOWN = ("data", "pool", "seed", "mirror", "pad", "extra_convs")  # fields that the table shows in another way
EVALUATION = 1 / 3  # a forward pass, as a part of a training step on as many images


def describe_plan(runs: Sequence[Run], out: Path, jobs: int, **options: Any) -> str:
    """A row for every kind of run: seeds, those that are done, epochs left and their time; then the whole.

    If a known data set is missing, its time is printed as unknown; a folder must exist.
    """
    finished = read_finished(runs, out)
    left = {run: 0 if run in finished else run.epochs - count_epochs(out / run.id) for run in runs}
    rows, whole, unknown = [["data", "pool", "seeds", "done", "epochs left", "an epoch", "time"]], 0.0, ""
    both = {run.data for run in runs if run.mirror} & {run.data for run in runs if not run.mirror}
    kinds: dict[Run, list[Run]] = {}
    for run in runs:
        kinds.setdefault(run.model_copy(update={"seed": 0}), []).append(run)
    for kind, group in kinds.items():
        epochs = sum(left[run] for run in group)
        times, epoch = ["–", "–"], 0.0
        try:
            epoch = measure_epoch(group[0], **options) if epochs else 0.0
            times = [format_seconds(epoch), format_seconds(epoch * epochs)] if epochs else times
        except DataError as error:
            if kind.data not in NAMES:
                raise
            times, unknown = ["?", "?"], f" Not counted: {error}."
        extra = f", {format_count(kind.extra_convs, 'extra conv')}" if kind.extra_convs else ""
        extra += "".join(f", {name}={getattr(kind, name)}" for name in find_unlike_fields(kind, kinds))
        data = kind.data + "+" * (kind.mirror and kind.data in both)
        counts = len(group), sum(run in finished for run in group), epochs
        rows.append([data, kind.pool + extra, *map(str, counts), *times])
        whole += epoch * epochs
    place = escape_control_characters(str(out))
    todo = [run for run in runs if left[run]]
    at_once = max(1, min(jobs, len(todo)))
    text = f"{format_table(rows, right=range(2, 7))}\n\n{format_count(len(runs), 'run')}, "
    text += f"{len(runs) - len(todo)} of them done in {place}; "
    if not todo:
        return f"{text}nothing to train."
    if unknown and not whole:
        return f"{text}no time could be measured.{unknown}"
    text += f"about {format_seconds(whole / at_once)} with {at_once} at a time, by {STEPS} steps measured just now,"
    text += " and some seconds for each run to start."
    return f"{text}{unknown}"


def find_unlike_fields(run: Run, others: Iterable[Run]) -> list[str]:
    """The fields, but for those that have a place in the table, in which a run differs from others of its pool."""
    alike = [other for other in others if other.pool == run.pool]
    names = [name for name in Run.model_fields if name not in SHOWN]
    return [name for name in names if any(getattr(other, name) != getattr(run, name) for other in alike)]


def count_epochs(path: Path) -> int:
    """Epochs that an interrupted run keeps."""
    record = checkpoint.read_record(path) if path.is_dir() else None
    return 0 if record is None else int(record["epoch"])


def measure_epoch(
    run: Run, *, data_dir: Path | None = None, threads: int = 1, workers: int = 0, device: str | None = None
) -> float:
    """Seconds of an epoch with its evaluation and its part of the test at the end, by the median of a few steps."""
    with hardware.use_threads(threads), join_ranks(device) as ranks, torch.random.fork_rng():
        batches = load_batches(run, data_dir, ranks, workers)
        training, marks = Training(run, batches, ranks, Path(), None), list[float]()

        def watch(step: Step) -> None:
            marks.append(time.perf_counter())
            if len(marks) > WARM + STEPS:
                raise StopIteration

        with suppress(StopIteration):
            training.train_epoch(watch)
    steps = [after - before for before, after in itertools.pairwise(marks)][-STEPS:]
    step = statistics.median(steps) if steps else 0.0
    evaluated = len(batches.validation.labels) + len(batches.test.labels) / run.epochs  # test images once in a run
    return step * (batches.steps + EVALUATION * evaluated / batches.batch)
