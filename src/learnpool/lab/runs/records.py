"""JSON records of a run's directory that carry a digest of their own content: a flipped bit is noticed.

Records of earlier versions have no digest and are read as they are. A record that lacks a field, or
has no finite number where one is needed, is refused as damaged.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import files

DIGEST = "digest"


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record and its digest, all or nothing."""
    files.write_json(path, record | {DIGEST: compute_digest(record)})


def read_record(path: Path) -> dict[str, Any]:
    """What ``write_record`` wrote; ValueError if the content is not that of its digest."""
    record = parse_record(path.read_text(encoding="utf-8"))
    digest = record.pop(DIGEST, None)
    if digest is not None and digest != compute_digest(record):
        raise ValueError("not the content of its digest")
    return record


def parse_record(text: str) -> dict[str, Any]:
    """Parse a JSON object; ValueError if it is anything else."""
    try:
        record = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a record")
    return record


def compute_digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def check_fields(record: Any, kinds: Mapping[str, Any]) -> None:
    """ValueError unless a record has these fields, of these types (a dictionary: of a record); numbers are finite."""
    if not isinstance(record, dict):
        raise ValueError("not a record")
    for name, kind in kinds.items():
        value = record.get(name)
        if isinstance(kind, Mapping):
            check_fields(value, kind)
        elif kind is float:
            if value is None or not is_number(value) or not math.isfinite(value):
                raise ValueError(f"{name} is not a finite number")
        elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name} is not of type {kind.__name__}")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
