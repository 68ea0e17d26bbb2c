"""``learnpool data show``: a grid of sample images, to see what a data set holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ...explanation.pictures import GREY, INK
from ...formatting import escape_control_characters
from .. import files
from ..figure import STYLE, SUFFIXES
from .crops import Crop
from .decoding import iter_batches
from .split import Dataset, Files, Folder, sample_balanced

__all__ = ["SUFFIXES", "show"]

COLUMNS = 10
MAX_NAME = 18  # letters of a class's name that have room
ROWS = 20  # classes that get a row of their own; more of them share rows
SIZE = 96  # of the images of a folder


def show(data: Dataset | Folder, out: Path, seed: int = 0) -> None:
    """Draw training images: a row for each class, or one image of each where there are more than 20 classes."""
    with mpl.rc_context(STYLE):
        files.save_figure(out, draw(data, seed), dpi=150)


def draw(data: Dataset | Folder, seed: int) -> Figure:
    """The grid with the names of the classes; everything is placed in inches from the upper left corner."""
    each = COLUMNS if len(data.classes) <= ROWS else 1
    images, labels = sample(data, each, seed)
    rows = -(-len(images) // COLUMNS) if each == 1 else len(data.classes)
    margin, cell, side = (0.15, 0.95, 0.72) if each == 1 else (1.5, 0.8, 0.75)
    width, height = margin + COLUMNS * cell + 0.15, rows * cell + 0.5
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    plain: dict[str, Any] = {"va": "center", "parse_math": False}  # a class may be called $x$
    counts = f"{len(data.train):,} images for training, {len(data.test):,} for the test, {len(data.classes)} classes"
    axes.text(
        0.15, 0.22, escape_control_characters(Path(data.name).name), fontsize=11, weight="bold", color=INK, **plain
    )
    axes.text(width - 0.15, 0.22, counts, fontsize=8, color=GREY, ha="right", **plain)
    columns = [0] * len(data.classes)
    for place, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        row, column = divmod(place, COLUMNS) if each == 1 else (label, columns[label])
        columns[label] += 1
        left, top = margin + column * cell, 0.45 + row * cell
        picture = image.permute(1, 2, 0).squeeze(-1).numpy()
        box = (left, left + side, top + side, top)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=box)
        name = escape_control_characters(data.classes[label]).replace("_", " ")
        name = name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
        if each == 1:
            axes.text(left + side / 2, top + side + 0.08, name, fontsize=6, color=INK, ha="center", **plain)
        elif column == 0:
            axes.text(margin - 0.12, top + side / 2, name, fontsize=9, color=INK, ha="right", **plain)
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    return figure


def sample(data: Dataset | Folder, each: int, seed: int) -> tuple[Tensor, Tensor]:
    """``each`` training images of every class, in order of class: uint8 [N, C, H, W], and labels."""
    labels = data.train.labels
    indices = []
    for label in range(len(data.classes)):
        members = (labels == label).nonzero()[:, 0]
        order = sample_balanced(torch.zeros_like(members), min(each, len(members)), seed)
        indices.append(members[order])
    split = data.train.take(torch.cat(indices))
    if isinstance(split, Files):
        return next(iter_batches(split, [torch.arange(len(split))], Crop(SIZE)))
    return split.images, split.labels
