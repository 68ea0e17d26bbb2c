"""``learnpool calibration``: the experiment behind ``learnpool.calibrate``."""

from pathlib import Path
from typing import Annotated

import typer

from . import fail
from .data import DEFAULT_DATA_DIR, DataDir, report_bad_data


def calibration(
    data: Annotated[str, typer.Option(help="mnist, cifar10, … or a folder of images.")] = "mnist",
    data_dir: DataDir = DEFAULT_DATA_DIR,
    out: Annotated[Path, typer.Option(help="Directory of the max network's run and the result.")] = Path(
        "runs/calibration"
    ),
    pools: Annotated[str, typer.Option(help="The pools to put in, by name.")] = "mixed,gated,tree2,tree3",
    images: Annotated[int, typer.Option(min=1, help="Training images to calibrate on.")] = 512,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of the max network.")] = 2,
    train: Annotated[int | None, typer.Option(min=1, help="Training images; all if not given.")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Test images; all if not given.")] = None,
    width: Annotated[float, typer.Option(help="Multiple of the paper's channels.")] = 0.25,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    start: Annotated[
        str, typer.Option(help="Where masks and filters begin; paper is random, so that converting does harm.")
    ] = "paper",
) -> None:
    """Swap the pools of a trained network and calibrate them.

    After an interruption, run it again: a trained network is not trained again.

    Example: learnpool calibration --data mnist --pools "mixed,Gate(Filter,Max)"
    """
    from ..lab.calibration import Settings, run_experiment
    from ..lab.runs.train import TrainingError
    from ..names import split_names

    with report_bad_data():
        settings = Settings(data, tuple(split_names(pools)), images, train, test, epochs, width, seed, start)
        try:
            run_experiment(settings, data_dir, out)
        except TrainingError as error:
            fail(str(error))
