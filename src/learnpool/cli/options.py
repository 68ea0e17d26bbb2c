"""What several commands share: options, the fields they change, and the message after an interruption."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..lab.hardware import MOST_THREADS
from . import report_training_errors

Preset = Annotated[str, typer.Option(help="paper, modern or cpu.")]
NETS = "dsn, resnet9, fast, alexnet, googlenet, googlenet-bn, timm:NAME, torchvision:NAME, or package.module:function."
Model = Annotated[str, typer.Option(help=NETS)]
Replace = Annotated[str | None, typer.Option(help="Where pools go: max,avg,global,strided,shortcut; max if not given.")]
Epochs = Annotated[int | None, typer.Option(help="Number of epochs; the preset's if not given.")]
TrainSize = Annotated[int | None, typer.Option(help="Use only so many training images.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change any field that train --dry-run shows.")
]
DataDir = Annotated[Path | None, typer.Option(help="Where the data sets are.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Runs at a time; one per core if not given.")]
Threads = Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="Threads of each run.")]
TorchThreads = Annotated[
    int | None, typer.Option(min=1, max=MOST_THREADS, help="Threads; torch's own setting if not given.")
]
Workers = Annotated[int, typer.Option(min=0, max=256, help="Processes that read image files.")]
RunWorkers = Annotated[int, typer.Option(min=0, max=256, help="Processes of each run that read image files.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.")]
KernelDevice = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Train on a Ray cluster: auto, ray://…")]


def report_interrupted_runs(out: Path) -> AbstractContextManager[None]:
    """``report_training_errors`` where many runs in a directory are trained."""
    kept = f"interrupted; every run in {out} keeps its finished epochs; run the same command to resume"
    return report_training_errors(lambda: kept if out.exists() else "interrupted before anything was trained")


def make_group(help: str) -> typer.Typer:
    """A command with subcommands; alone it shows its help."""
    app = typer.Typer(help=help)

    @app.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    return app


def collect_changes(change: Sequence[str] | None, **given: Any) -> dict[str, Any]:
    """The fields of a run that a command changes: options with a value, then every ``--set FIELD=VALUE``."""
    changes = {name: value for name, value in given.items() if value is not None}
    return changes | dict(map(_parse_change, change or ()))


def _parse_change(text: str) -> tuple[str, Any]:
    """``FIELD=VALUE`` of the command line."""
    field, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set: wanted FIELD=VALUE, got {text!r}")
    return field, _parse_value(field, value)


def _parse_value(field: str, text: str) -> Any:
    """A field's value as typed on the command line."""
    if field in ("rate", "milestones"):
        try:
            return tuple(float(part) for part in text.split(",") if part or field == "rate")
        except ValueError:
            raise ValueError(f"--set: {field}: wanted numbers such as 0.1 or 0.025,0.0125, got {text!r}") from None
    try:
        return json.loads({"none": "null", "True": "true", "False": "false"}.get(text, text))
    except (ValueError, RecursionError):
        return text
