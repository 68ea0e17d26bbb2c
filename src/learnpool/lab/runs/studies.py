"""A study: finished runs in one file of JSON lines, with all that pages and reports need of them but the weights.

``runs.jsonl`` stands for the directory ``runs`` beside it. A line is a run (``run``, ``result``, ``metrics``,
``starts``, ``classes``, ``data`` and what was ``measured`` of its network), or a value that was measured once for all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from .. import files
from . import checkpoint, directory, records
from .run import RunError

OF_A_RUN = ("run.json", "env.json", "result.json", checkpoint.LAST)  # the other JSON files are measurements
PATHS = ("out", "data_dir")  # of the machine that trained: nothing to publish


class StudyLine(BaseModel):
    """What every line has."""

    model_config = records.STRICT

    id: str


class StudiedRun(StudyLine):
    """The line of a run."""

    run: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    starts: list[dict[str, Any]]


def get_study_path(out: Path) -> Path:
    """The study that stands for a directory of runs."""
    return out.with_name(out.name + ".jsonl")


def pack_runs(out: Path) -> tuple[Path, int]:
    """Write the finished runs in a directory into its study, beside those it has; its path, and how many it holds now.

    The directories stay: a study has no weights.
    """
    if (out / "run.json").exists():
        raise RunError(f"pack: wanted a directory with finished runs, got the run {out}")
    path = get_study_path(out)
    lines = read_study(path) if path.exists() else {}
    for result in sorted(out.glob("*/result.json")):
        record = make_record(result.parent)
        lines[record["id"]] = record
    for file in sorted(out.glob("*.json")):
        lines[file.stem] = {"id": file.stem, "value": files.read_json(file)}
    if not lines:
        raise RunError(f"pack: wanted a directory with finished runs, got {out}")
    write_study(path, lines)
    return path, sum("run" in line for line in lines.values())


def make_record(path: Path) -> dict[str, Any]:
    """A finished run's line; RunError if one of its files is damaged."""
    result, saved = directory.read_result(path), checkpoint.read_record(path)
    if result is None:
        raise RunError(f"pack: {path} is not the directory of a run that is done")
    run = directory.read_description(path)
    if run.id != result.id:
        raise RunError(f"pack: {path} has the description of {run.id} and the result of {result.id}")
    return {
        "id": run.id,
        "run": files.read_json(path / "run.json"),  # as it is: later fields are not in earlier runs
        "result": {name: value for name, value in asdict(result).items() if name != "id"},
        "metrics": directory.read_metrics(path),
        "starts": [{k: v for k, v in start.items() if k not in PATHS} for start in directory.read_starts(path)],
        "classes": [] if saved is None else saved["classes"],
        "data": "" if saved is None else saved["data"],
        "measured": {
            file.stem: files.read_json(file) for file in sorted(path.glob("*.json")) if file.name not in OF_A_RUN
        },
    }


def write_study(path: Path, lines: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a study, its lines in the order of their ids."""
    sealed = (records.seal(dict(lines[name])) for name in sorted(lines))
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in sealed)
    files.write_bytes(path, text.encode())


def read_study(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a study by their ids; RunError if one is damaged."""
    lines = {}
    for number, text in enumerate(path.read_bytes().splitlines(), 1):
        try:
            record = records.parse_record(text.decode())
            (StudiedRun if "run" in record else StudyLine).model_validate(record)
        except ValueError as error:
            raise RunError(f"{path}: line {number} is damaged: {records.get_reason(error)}") from None
        lines[record["id"]] = record
    return lines
