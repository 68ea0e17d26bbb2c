"""``learnpool pack``: finished runs in one file."""

from pathlib import Path
from typing import Annotated

import typer

from . import report_usage_errors


def pack(
    out: Annotated[Path, typer.Argument(metavar="RUNS", help="A directory of runs, as --out of compare or train.")],
) -> None:
    """Pack the records of finished runs into one file.

    RUNS.jsonl gets a line for each: all that pages need but the weights.

    Example: learnpool pack runs/paper/runs
    """
    from ..formatting import format_count
    from ..lab.runs.studies import pack_runs

    with report_usage_errors():
        path, count = pack_runs(out)
    print(f"Written: {path} ({format_count(count, 'run')})")
