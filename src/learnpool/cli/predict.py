"""``learnpool predict``: the classes of image files, by a trained network."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..formatting import format_table
from . import report_usage_errors


def predict(
    run: Annotated[Path, typer.Argument(help="The directory of a training run.")],
    images: Annotated[list[Path], typer.Argument(help="Image files.")],
    model: Annotated[
        str | None, typer.Option(help="package.module:function, for a run of your own network in this directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every probability as JSON.")] = False,
) -> None:
    """Predict the class of image files with a trained network.

    Images are prepared as the run prepared its own.

    Example: learnpool predict runs/cifar10-gated-0-3fa94c01b2 cat.png dog.jpg
    """
    from ..lab.runs.trained import load

    with report_usage_errors():
        try:
            network: Any = load(run, model)
        except FileNotFoundError as error:
            raise ValueError(str(error)) from None
        predictions = network.predict(images)
    if as_json:
        records = [
            {"image": str(path), "class": prediction.label, "probabilities": prediction.probabilities}
            for path, prediction in zip(images, predictions, strict=True)
        ]
        print(json.dumps(records, indent=1))
        return
    rows = [[str(path), *prediction.cells()] for path, prediction in zip(images, predictions, strict=True)]
    print(format_table([["image", "class", "probability", "next"], *rows], right=(2,)))
