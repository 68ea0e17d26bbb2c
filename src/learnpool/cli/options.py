"""What several commands that train have in common: options, and what an interruption says."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from ..lab.hardware import MOST_THREADS
from . import report_training_errors

Preset = Annotated[str, typer.Option(help="paper, modern or cpu.")]
Model = Annotated[str, typer.Option(help="dsn, timm:NAME, torchvision:NAME, or package.module:function.")]
Epochs = Annotated[int | None, typer.Option(help="In place of the preset's.")]
TrainSize = Annotated[int | None, typer.Option(help="Fewer training images.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Any field train --dry-run shows.")
]
DataDir = Annotated[Path | None, typer.Option(help="Where the data sets are.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Runs at a time; one a core if not given.")]
Threads = Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="Of each run.")]
TorchThreads = Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="As torch is set if not given.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Train on a Ray cluster: auto, ray://…")]


def report_interrupted_runs(out: Path) -> AbstractContextManager[None]:
    """``report_training_errors`` where many runs in a directory are trained."""
    text = f"interrupted; every run in {out} keeps its whole epochs, the same command goes on"
    return report_training_errors(lambda: text)
