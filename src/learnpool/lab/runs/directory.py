"""A run's directory: ``run.json``, ``env.json``, ``metrics.jsonl``, the last checkpoint; ``result.json`` when done."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import files, hardware
from . import checkpoint, records
from .run import Run, RunError, parse_run

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


# The fields and types the files must have; checked when they are read.
METRICS: dict[str, Any] = {
    "epoch": int, "rate": float, "train_loss": float, "train_error": float, "validation_error": float,
    "seconds": float, "cpu_seconds": float, "pools": dict,
}  # fmt: skip
RESULT: dict[str, Any] = {
    "id": str, "test_error": float, "validation_error": float, "train_error": float, "train_loss": float,
    "epochs": int, "images": dict, "parameters": int, "pool_parameters": int, "seconds": float, "cpu_seconds": float,
    "epoch_seconds": float, "memory": int, "pools": dict, "finished": str,
}  # fmt: skip
START: dict[str, Any] = {
    "date": str, "device": str, "threads": int, "processes": int, "epoch": int,
    "versions": {"learnpool": str, "torch": str, "python": str}, "hardware": {"cpu": str, "cores": int},
    "kernel": {"live": bool, "detail": str},
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What came out of a run; errors are percent and those of its last epoch, never the best seen."""

    id: str
    test_error: float
    validation_error: float
    train_error: float
    train_loss: float
    epochs: int
    images: dict[str, int]  # train, validation, test
    parameters: int  # without heads
    pool_parameters: int
    seconds: float  # of training, without evaluation, over all epochs
    cpu_seconds: float  # the same in CPU time of this process: another program does not count
    epoch_seconds: float  # their median
    memory: int  # peak resident bytes of this process
    pools: dict[str, float]  # statistics of the pools after the last epoch
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
    records.check_fields(record, RESULT)
    records.check_fields(record["images"], dict.fromkeys(("train", "validation", "test"), int))
    if not all(map(records.is_number, record["pools"].values())):
        raise ValueError("statistics are numbers")
    if any(not 0 <= record[name] <= 100 for name in ("test_error", "validation_error", "train_error")):
        raise ValueError("an error is a percentage")
    return Result(**record)


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """One record per finished epoch; an incomplete last line (the process was killed) is ignored."""
    path = directory / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [records.parse_record(line) for line in lines if line.endswith("\n")]
        for epoch, row in enumerate(rows, 1):
            records.check_fields(row, METRICS)
            if row["epoch"] != epoch or not all(map(records.is_number, row["pools"].values())):
                raise ValueError("an epoch is missing, or a statistic is no number")
        return rows
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        raise RunError(f"{path} is damaged; remove {directory} to train again") from None


@contextmanager
def open_run(run: Run, out: Path) -> Iterator[Path]:
    """Create or open the directory of a run and lock it; RunError if it belongs to another run."""
    directory = out / run.id
    new = not directory.exists()
    files.make_directory(directory)
    with lock(directory, "another process is training this run"):
        try:
            _claim(run, directory)
            yield directory
        except BaseException:
            if new and {path.name for path in directory.iterdir()} <= {"run.json"}:  # it never began
                shutil.rmtree(directory, ignore_errors=True)
            raise


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


def _claim(run: Run, directory: Path) -> None:
    path = directory / "run.json"
    if path.exists():
        try:
            same = parse_run(path.read_text(encoding="utf-8")) == run
        except ValueError:
            raise RunError(f"{path} is damaged; remove {directory} to train again") from None
        if not same:
            raise RunError(f"{directory}: the directory of another run; give another --out")
        return
    if other := next((entry.name for entry in directory.iterdir()), None):
        raise RunError(f"{directory}: wanted an empty directory or this run's, got one with {other}")
    files.write_json(path, run.model_dump(mode="json"))


def record_start(directory: Path, more: dict[str, Any]) -> None:
    """Add this start to ``env.json``: a run that was resumed has several, perhaps on several machines."""
    starts = read_starts(directory) if (directory / "env.json").exists() else []
    files.write_json(directory / "env.json", {"starts": [*starts, hardware.describe_machine() | more]})


def read_starts(directory: Path) -> list[dict[str, Any]]:
    """Where and when a run was begun and resumed."""
    path = directory / "env.json"
    try:
        record = records.parse_record(path.read_text(encoding="utf-8"))
        records.check_fields(record, {"starts": list})
        for start in record["starts"]:
            records.check_fields(start, START)
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
        files.write_bytes(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    return state


def verify_unchanged(directory: Path, state: dict[str, Any], run: Run, digest: str, source: str) -> None:
    """RunError if the images or the user's network file differ from those of the checkpoint."""
    for what, name, current in (("data", run.data, digest), ("source", run.net, source)):
        if state.get(what, "") != current:
            raise RunError(f"{directory}: {name} is not what this run began with; give another --out")


def append_metrics(directory: Path, row: dict[str, Any]) -> None:
    """Append an epoch to the metrics and flush it to disk, before its checkpoint is written."""
    path = directory / "metrics.jsonl"
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)
        raise


def write_result(directory: Path, result: Result) -> None:
    """Write ``result.json``, the last file of a run: it marks the run as done."""
    records.write_record(directory / "result.json", asdict(result))
