"""What the pools of a trained network do on one image, as a table and a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn

from ..explanation import Explanation, explain
from ..explanation.measurement import find_learned_pools
from ..ops.window import format_size
from . import files
from .data import read_image
from .figure import STYLE
from .runs.pixels import fit_image
from .runs.state_dicts import count_input_channels, load_from_state_dict
from .runs.trained import restore_run


def look(
    checkpoint: Path,
    image: Path,
    out: Path,
    model: str | None = None,
    size: tuple[int, int] | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> Explanation:
    """Explain the network in ``checkpoint`` on ``image`` and write the picture; ValueError says what does not fit.

    A checkpoint is a file with a state_dict, of the network ``model`` makes, or the directory of a run. A run's image
    is prepared as the run prepared its own; ``model`` is then for a network of your own that is not installed.
    """
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"look: wanted a .png, .svg or .pdf file to write, got {str(out)!r}")
    if checkpoint.is_dir():
        if size or mean or std:
            raise ValueError("look: --size, --mean and --std are for a state_dict; a run has its own preparation")
        net, pixels = load_from_run(checkpoint, image, model)
    else:
        net = load_from_state_dict(checkpoint, model, "look")
        pixels = prepare_image(open_image(image), count_input_channels(net), size, mean, std)
    find_learned_pools("explain", net)  # refuses a network without them
    try:
        explanation = explain(net, pixels[None])
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        shape, reason = format_size(pixels.shape), str(error).splitlines()[0]
        hint = "; --size gives another" if not checkpoint.is_dir() else ""
        raise ValueError(f"look: the network does not take an image of {shape} ({reason}){hint}") from None
    with mpl.rc_context(STYLE):
        files.save_figure(out, explanation.draw(), dpi=150)
    return explanation


def load_from_run(directory: Path, image: Path, model: str | None) -> tuple[nn.Module, Tensor]:
    """The network of a run, and the image as it was prepared there, ``[channels, height, width]``."""
    try:
        net, predictor = restore_run(directory, model)
        return net, predictor.prepare(image)[0]
    except FileNotFoundError as error:  # no run, or nothing in it yet
        raise ValueError(f"look: {error}") from None
    except ValueError as error:
        raise ValueError(f"look: {re.sub('^(load|predict): ', '', str(error))}") from None


def open_image(path: Path) -> Image.Image:
    """An image file."""
    try:
        return read_image(path)
    except FileNotFoundError:
        raise ValueError(f"look: no such file: {path}") from None
    except (UnidentifiedImageError, OSError, ValueError):
        raise ValueError(f"look: {path} is not an image") from None


def prepare_image(
    image: Image.Image, channels: int, size: tuple[int, int] | None, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """``[channels, height, width]``, pixels from 0 to 1 minus ``mean`` by ``std``; grey for one channel."""
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (0, 1, channels):
            raise ValueError(f"look: --{name} must be 1 or {channels} numbers, got {len(values)}")
    if any(value <= 0 for value in std):
        raise ValueError(f"look: --std must be above 0, got {min(std)}")
    if channels not in (1, 3):
        raise ValueError(f"look: the network wants {channels} channels; an image has 1 or 3")
    pixels = fit_image(image, (channels, *(size or (image.height, image.width))), crop=None).float() / 255
    shift, scale = (torch.tensor(list(v) or [e])[:, None, None] for v, e in ((mean, 0.0), (std, 1.0)))
    return (pixels - shift) / scale
