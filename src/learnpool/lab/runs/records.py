"""JSON records of a run's directory: what they must hold, as pydantic models, and a digest of their own content.

A flipped bit is noticed by the digest. Records of earlier versions have none and are read as they are. A record that
lacks a field, or has no finite number where one is needed, is refused as damaged; fields beyond those of the models
are allowed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .. import files

DIGEST = "digest"
STRICT = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False)
Percent = Annotated[float, Field(ge=0, le=100)]
Statistics = dict[str, Annotated[float, Field(allow_inf_nan=True)]]  # of pools, by name


class EpochMetrics(BaseModel):
    """A line of ``metrics.jsonl``."""

    model_config = STRICT

    epoch: int
    rate: float
    train_loss: float
    train_error: float
    validation_error: float
    seconds: float
    cpu_seconds: float
    pools: Statistics


class Versions(BaseModel):
    """The versions a run was trained with."""

    model_config = STRICT

    learnpool: str
    torch: str
    python: str


class Hardware(BaseModel):
    """The machine a run was trained on."""

    model_config = STRICT

    cpu: str
    cores: int


class Kernel(BaseModel):
    """What computed the pools."""

    model_config = STRICT

    live: bool
    detail: str


class Start(BaseModel):
    """Where and when a run was begun or resumed."""

    model_config = STRICT

    date: str
    device: str
    threads: int
    processes: int
    epoch: int
    versions: Versions
    hardware: Hardware
    kernel: Kernel


class Starts(BaseModel):
    """``env.json``."""

    model_config = STRICT

    starts: list[Start]


class Checkpoint(BaseModel):
    """``last.json``; inside an epoch it has a ``step``, and what was summed up until then."""

    model_config = STRICT

    epoch: Annotated[int, Field(ge=0)]
    tensors: Annotated[str, Field(pattern=r"^[^/\\]+$")]  # a file beside it
    sha256: str
    schedule: dict[str, Any]
    data: str
    image: Annotated[list[int], Field(min_length=3, max_length=3)]
    classes: Annotated[list[str], Field(min_length=1)]
    step: int = 0
    sums: list[Any] | None = None

    @model_validator(mode="after")
    def _check_place(self) -> Checkpoint:
        if (self.sums is None) if self.step else (self.epoch < 1):
            raise ValueError("not a place in a training")
        return self


def seal(record: dict[str, Any]) -> dict[str, Any]:
    """A record with its digest."""
    return record | {DIGEST: compute_digest(record)}


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record and its digest, all or nothing."""
    files.write_json(path, seal(record))


def read_record(path: Path) -> dict[str, Any]:
    """What ``write_record`` wrote; ValueError if the content is not that of its digest."""
    return parse_record(path.read_text(encoding="utf-8"))


def parse_record(text: str) -> dict[str, Any]:
    """Parse a JSON object, without its digest; ValueError if it is anything else, or not the content of its digest."""
    try:
        record = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a record")
    digest = record.pop(DIGEST, None)
    if digest is not None and digest != compute_digest(record):
        raise ValueError("not the content of its digest")
    return record


def get_reason(error: ValueError) -> str:
    """What is wrong with a record, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def compute_digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
