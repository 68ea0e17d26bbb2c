"""``learnpool evaluate``: the errors of a trained network on labelled images."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ..formatting import escape_control_characters, format_count, format_table
from . import options, report_usage_errors
from .look import parse_numbers

MAX_CLASSES = 5  # that are shown in the terminal


def evaluate(
    checkpoint: Annotated[
        Path, typer.Argument(help="The directory of a training run, or a state_dict (.safetensors, .pt).")
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            help="imagenet, cifar10, … (its test images) or a folder of images by class; a run's own if not given."
        ),
    ] = None,
    views: Annotated[int, typer.Option(help="1: the middle of an image; 10: its corners too, and all mirrored.")] = 1,
    model: Annotated[
        str | None, typer.Option(help="package.module:function that makes the network, if it is your own.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=8, help="For a state_dict: size of the crops.")] = None,
    mean: Annotated[str, typer.Option(help="For a state_dict: subtracted from the pixels in [0, 1].")] = "",
    std: Annotated[str, typer.Option(help="For a state_dict: what they are then divided by.")] = "",
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("evaluation.html"),
    data_dir: options.DataDir = None,
    workers: options.Workers = 2,
    threads: options.TorchThreads = None,
    device: options.Device = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Leave out images that do not decode.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Measure how often a trained network is wrong, by class.

    Example: learnpool evaluate runs/digits-gated-0-3fa94c01b2

    On other images: learnpool evaluate runs/imagenet-tree2+gated-0-3fa94c01b2 imagenet --views 10 --data-dir data
    """
    from ..lab.comparison import evaluation_page
    from ..lab.runs import evaluation as lab

    with report_usage_errors():
        numbers = parse_numbers("mean", mean), parse_numbers("std", std)
        if out.is_dir() or not out.parent.is_dir():
            raise ValueError(f"--out: wanted a file in a directory that exists, got {str(out)!r}")
        try:
            data = data or lab.read_data_name(checkpoint)
            evaluation = lab.evaluate_checkpoint(
                checkpoint,
                data,
                views=views,
                model=model,
                crop=(size, *numbers),
                data_dir=data_dir,
                workers=workers,
                threads=threads,
                device=device,
                skip_broken=skip_broken,
            )
        except FileNotFoundError as error:
            raise ValueError(str(error)) from None
    evaluation_page.write(evaluation, out, checkpoint=str(checkpoint), data=data)
    if as_json:
        print(json.dumps(evaluation_page.make_record(evaluation, str(checkpoint), data), indent=1, ensure_ascii=False))
        return
    print(evaluation.describe())
    if evaluation.skipped:
        print(f"Left out, as they do not decode: {format_count(len(evaluation.skipped), 'image')}, listed in the page")
    rows = [evaluation_page.format_row(row) for row in evaluation.tally.list_classes()[:MAX_CLASSES]]
    print("\n" + format_table([evaluation_page.list_heads(), *rows], right=(1, 2, 3)))
    print(f"\nWritten: {escape_control_characters(str(out))}")
