"""A run's directory: ``run.json``, ``env.json``, ``metrics.jsonl``, the last checkpoint; ``result.json`` when done."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict
from pydantic.dataclasses import dataclass

from .. import files, hardware
from . import checkpoint, records
from .run import Run, RunError, parse_run

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


def check_splits(images: dict[str, int]) -> dict[str, int]:
    """ValueError unless the numbers of images are there for every split."""
    if missing := {"train", "validation", "test"} - images.keys():
        raise ValueError(f"no number of {sorted(missing)[0]} images")
    return images


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class Result:
    """The result of a run; errors are percent and those of its last epoch, never the best seen."""

    id: str
    test_error: records.Percent
    validation_error: records.Percent
    train_error: records.Percent
    train_loss: float
    epochs: int
    images: Annotated[dict[str, int], AfterValidator(check_splits)]  # train, validation, test
    parameters: int  # without heads
    pool_parameters: int
    seconds: float  # of training, without evaluation, over all epochs
    cpu_seconds: float  # the same in CPU time of this process: another program does not count
    epoch_seconds: float  # their median
    memory: int  # peak resident bytes of this process
    pools: records.Statistics  # statistics of the pools after the last epoch
    finished: str
    skipped: list[str] = field(default_factory=list)  # files that do not decode, left out on request
    test_error_top5: float | None = None  # None in older results, and where there are no more than five classes
    chance_error: float | None = None  # of always answering the test set's most frequent class; None in older results


def read_result(directory: Path) -> Result | None:
    """The result of a run that is done, None of one that is not."""
    path = directory / "result.json"
    try:
        return make_result(records.read_record(path))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise RunError(f"{path} is not a result, or damaged; remove it to train again") from None


def make_result(record: dict[str, Any]) -> Result:
    """The result a record describes; ValueError or TypeError if it is none."""
    return Result(**record)


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """One record per finished epoch; an incomplete last line (the process was killed) is ignored."""
    path = directory / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [records.parse_record(line) for line in lines if line.endswith("\n")]
        for epoch, row in enumerate(rows, 1):
            if records.EpochMetrics.model_validate(row).epoch != epoch:
                raise ValueError("an epoch is missing")
        return rows
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        raise RunError(f"{path} is damaged; remove {directory} to train again") from None


@contextmanager
def open_run(run: Run, out: Path) -> Iterator[Path]:
    """Create or open the directory of a run and lock it; RunError if it belongs to another run.

    Of a run that fails before it begins, nothing is left: neither its directory nor those made for it.
    """
    directory = out / run.id
    with files.keep_if_used(directory), lock(directory, "another process is training this run"):
        new = not any(directory.iterdir())
        try:
            _claim(run, directory)
            yield directory
        except BaseException:
            if new and not has_begun(directory):
                (directory / "run.json").unlink(missing_ok=True)
            raise


def has_begun(directory: Path) -> bool:
    """Whether there is more in a run's directory than its description."""
    return not {path.name for path in directory.iterdir()} <= {"run.json"}


def remove_unused(directory: Path) -> None:
    """Remove the directory of a run that never began and that no process has open."""
    with suppress(OSError, RunError), lock(directory, "in use"):
        if not has_begun(directory):
            shutil.rmtree(directory)


@contextmanager
def lock(directory: Path, refusal: str) -> Iterator[None]:
    """Lock a directory against other processes; RunError if one of them holds it."""
    if fcntl is None:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{directory}: {refusal}") from None
        yield
    finally:
        os.close(handle)


def read_description(directory: Path) -> Run:
    """The run that a directory is of; RunError if ``run.json`` is damaged, FileNotFoundError if there is none."""
    path = directory / "run.json"
    try:
        return parse_run(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RunError(f"{path} is damaged; remove {directory} to train again") from None


def _claim(run: Run, directory: Path) -> None:
    path = directory / "run.json"
    if path.exists():
        if read_description(directory) != run:
            raise RunError(f"{directory}: the directory of another run; give another --out")
        return
    if other := next((entry.name for entry in directory.iterdir()), None):
        raise RunError(f"{directory}: wanted an empty directory or this run's, got one with {other}")
    files.write_json(path, run.model_dump(mode="json"))


def record_start(directory: Path, more: dict[str, Any]) -> None:
    """Add this start to ``env.json``: a run that was resumed has several, perhaps on several machines."""
    starts = read_starts(directory) if (directory / "env.json").exists() else []
    records.write_record(directory / "env.json", {"starts": [*starts, hardware.describe_machine() | more]})


def read_starts(directory: Path) -> list[dict[str, Any]]:
    """Where and when a run was begun and resumed."""
    path = directory / "env.json"
    try:
        record = records.read_record(path)
        records.Starts.model_validate(record)
        return list(record["starts"])
    except (OSError, ValueError):
        raise RunError(f"{path} is missing or damaged; remove {directory} to train again") from None


def resume(directory: Path) -> Any:
    """Tensors and state of the last checkpoint, or None; metrics of later epochs are dropped."""
    state = checkpoint.load(directory)
    rows = read_metrics(directory)[: state[1]["epoch"] if state else 0]
    if state and len(rows) < state[1]["epoch"]:
        raise RunError(f"{directory / 'metrics.jsonl'}: wanted {state[1]['epoch']} epochs, got {len(rows)}")
    path = directory / "metrics.jsonl"
    if path.exists():
        files.write_bytes(path, "".join(format_row(row) for row in rows).encode())
    return state


def verify_unchanged(directory: Path, state: dict[str, Any], run: Run, digest: str, source: str) -> None:
    """RunError if the images or the user's network file differ from those of the checkpoint."""
    for what, name, current in (("data", run.data, digest), ("source", run.net, source)):
        if state.get(what, "") != current:
            raise RunError(f"{directory}: {name} is not what this run began with; give another --out")


def format_row(row: dict[str, Any]) -> str:
    """An epoch's line, with its digest."""
    return json.dumps(records.seal(row)) + "\n"


def append_metrics(directory: Path, row: dict[str, Any]) -> None:
    """Append an epoch to the metrics and flush it to disk, before its checkpoint is written."""
    path = directory / "metrics.jsonl"
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(format_row(row))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)
        raise


def write_result(directory: Path, result: Result) -> None:
    """Write ``result.json``, the last file of a run: it marks the run as done."""
    records.write_record(directory / "result.json", asdict(result))
