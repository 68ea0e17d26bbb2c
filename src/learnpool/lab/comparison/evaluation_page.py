"""The page about an evaluation: one sentence, and a table of all classes, the worst first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ... import __version__
from ...formatting import format_number
from .. import files
from ..runs.errors import TOP, ClassErrors
from ..runs.evaluation import Evaluation
from ..templates import make_environment


def write(evaluation: Evaluation, out: Path, *, checkpoint: str, data: str) -> None:
    """Write the page, all or nothing."""
    page = make_environment("comparison").get_template("evaluation.html")
    rows = [format_row(row) for row in evaluation.tally.list_classes()]
    text = page.render(
        version=__version__, evaluation=evaluation, heads=list_heads(), rows=rows, names=(checkpoint, data)
    )
    files.write_bytes(out, text.encode())


def list_heads() -> list[str]:
    """The heads of the table of classes."""
    return ["class", "images", "top-1 error, %", f"top-{TOP} error, %", "most often taken for"]


def format_row(row: ClassErrors) -> list[str]:
    """A class in the table."""
    top1, top5 = row.errors
    other = "–" if row.mistaken_for is None else f"{row.mistaken_for} ({row.times:,})"
    return [row.name, f"{row.images:,}", format_number(top1), "–" if top5 is None else format_number(top5), other]


def make_record(evaluation: Evaluation, checkpoint: str, data: str) -> dict[str, Any]:
    """The numbers, for programs."""
    return {
        "checkpoint": checkpoint,
        "data": data,
        "views": evaluation.views,
        "images": evaluation.tally.images,
        "skipped": evaluation.skipped,
        "top1": evaluation.tally.errors.top1,
        "top5": evaluation.tally.errors.top5,
        "classes": [
            {"class": row.name, "images": row.images, "top1": row.errors.top1, "top5": row.errors.top5}
            for row in evaluation.tally.list_classes()
        ],
    }
