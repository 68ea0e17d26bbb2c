"""``learnpool calibration``: the experiment behind ``learnpool.calibrate``."""

from pathlib import Path
from typing import Annotated

import typer

from .data import DEFAULT_DATA_DIR, DataDir, report_bad_data


def calibration(
    data: Annotated[str, typer.Option(help="mnist or cifar10.")] = "mnist",
    data_dir: DataDir = DEFAULT_DATA_DIR,
    out: Annotated[Path, typer.Option(help="Directory for the .json and the .md file.")] = Path("runs/calibration"),
    pools: Annotated[str, typer.Option(help="The pools to put in, by name.")] = "mixed,gated,tree2,tree3",
    images: Annotated[int, typer.Option(min=1, help="Training images to calibrate on.")] = 512,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of the max network.")] = 2,
    train: Annotated[int | None, typer.Option(min=1, help="Training images; all if not given.")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Test images; all if not given.")] = None,
    width: Annotated[float, typer.Option(help="Multiple of the paper's channels.")] = 0.25,
    seed: Annotated[int, typer.Option(help="Decides the first weights, the order and the pools' draws.")] = 0,
) -> None:
    """Swap the pools of a trained network and calibrate them.

    Example: learnpool calibration --data mnist --pools mixed,gated
    """
    from ..lab.experiments import calibration as lab

    with report_bad_data():
        plan = lab.Plan(data, tuple(pools.split(",")), images, train, test, epochs, width, seed)
        lab.run(plan, data_dir, out)
