"""``learnpool look``: what a trained network's pools do on an image."""

from pathlib import Path
from typing import Annotated

import typer

from ..formatting import escape_control_characters
from . import report_usage_errors


def look(
    checkpoint: Annotated[
        Path, typer.Argument(help="A state_dict (.safetensors, .pt) or the directory of a training run.")
    ],
    image: Annotated[Path, typer.Argument(help="An image file.")],
    model: Annotated[
        str | None, typer.Option(help="package.module:function that makes the network, if it is your own.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write: .png, .svg or .pdf.")] = Path("look.png"),
    size: Annotated[
        str | None, typer.Option(help="For a state_dict: resize the image to one number, or height,width.")
    ] = None,
    mean: Annotated[
        str, typer.Option(help="Subtracted from the pixels in [0, 1]: one number, or one per channel.")
    ] = "",
    std: Annotated[str, typer.Option(help="What they are then divided by: one number, or one per channel.")] = "",
) -> None:
    """Draw what the pools of a trained network do on an image.

    Example: learnpool look runs/digits-gated-0-3fa94c01b2 image.png --out look.png
    """
    from ..lab import look as lab

    with report_usage_errors():
        edges = parse_numbers("size", size or "")
        if any(n < 1 or n != int(n) for n in edges) or len(edges) > 2:
            raise ValueError(f"--size must be one or two whole numbers, got {size!r}")
        shape = (int(edges[0]), int(edges[-1])) if edges else None
        explanation = lab.look(
            checkpoint, image, out, model, shape, parse_numbers("mean", mean), parse_numbers("std", std)
        )
    print(explanation)
    print(f"Written: {escape_control_characters(str(out))}")


def parse_numbers(name: str, text: str) -> list[float]:
    """``0.5,0.5,0.5`` as numbers."""
    try:
        return [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ValueError(f"--{name} must be numbers with commas between them, got {text!r}") from None
