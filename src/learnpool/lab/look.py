"""The picture of one image in one network: what its pools learned, and what their gates choose on that image."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn

import learnpool

from ..explanation.measurement import find_learned_pools
from ..explanation.result import Explanation
from . import data, files
from .figure import STYLE
from .runs.checkpoint import load_preparation
from .runs.trained import read_run

NESTED = ("state_dict", "model_state_dict", "model")  # where training scripts put the state_dict beside other things


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

    A run's image is prepared as the run prepared its own.
    """
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"look: wanted a .png, .svg or .pdf file to write, got {str(out)!r}")
    net = restored(checkpoint, model)
    find_learned_pools(net)  # refuses a network without them
    if not checkpoint.is_dir():
        pixels = prepared(picture(image), channels(net), size, mean, std)
    elif size or mean or std:
        raise ValueError("look: --size, --mean and --std are for a state_dict; a run prepares images in its own way")
    else:
        pixels = as_trained(checkpoint, image)
    try:
        said = learnpool.explain(net, pixels[None])
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        came = "×".join(map(str, pixels.shape))
        why = str(error).splitlines()[0]
        raise ValueError(f"look: the network does not take an image of {came} ({why}); --size gives another") from None
    with mpl.rc_context(STYLE):
        files.save_figure(out, said.draw(), dpi=150)
    return said


def restored(checkpoint: Path, model: str | None) -> nn.Module:
    """The network of a run's directory, or the one ``model`` makes with the parameters of a file."""
    if checkpoint.is_dir():
        load = getattr(learnpool, "load", None)
        if load is None:
            raise ValueError(f"look: {checkpoint} is a directory; wanted a .safetensors or .pt file and --model")
        try:
            run: nn.Module = load(checkpoint, model)
        except OSError as error:  # no run, or nothing in it yet
            raise ValueError(f"look: {error}") from None
        return run
    if not checkpoint.exists():
        raise ValueError(f"look: no such file: {checkpoint}")
    if model is None:
        raise ValueError("look: --model package.module:function must say which network the checkpoint is of")
    net, state = made(model), weights(checkpoint)
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        why = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise ValueError(f"look: {checkpoint} does not fit the network of {model}: {why}") from None
    return net


def made(name: str) -> nn.Module:
    """The network ``package.module:function`` returns, looked for in the working directory too."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"look: --model must be package.module:function, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        make = getattr(importlib.import_module(module), function)
        net = make()
    except (Exception, SystemExit) as error:  # whatever the user's own code raises is theirs to read
        raise ValueError(f"look: --model {name}: {type(error).__name__}: {error}") from None
    if not isinstance(net, nn.Module):
        raise ValueError(f"look: --model {name} must return a module, got {type(net).__name__}")
    return net


def weights(path: Path) -> Mapping[str, Tensor]:
    """A state_dict from a .safetensors file or a PyTorch file that holds nothing but tensors."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise a dozen kinds
        raise ValueError(f"look: {path} cannot be read as a state_dict: {str(error).splitlines()[0]}") from None
    for key in NESTED:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"look: {path} holds no state_dict but a {type(state).__name__}")
    return state


def picture(path: Path) -> Image.Image:
    """An image file."""
    try:
        return data.read_image(path)
    except FileNotFoundError:
        raise ValueError(f"look: no such file: {path}") from None
    except (UnidentifiedImageError, OSError, ValueError):
        raise ValueError(f"look: {path} is not an image") from None


def prepared(
    image: Image.Image, channels: int, size: tuple[int, int] | None, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """``[channels, height, width]``, pixels from 0 to 1 minus ``mean`` by ``std``; grey for one channel."""
    x = cells(image, channels, size).float() / 255
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (0, 1, channels):
            raise ValueError(f"look: --{name} must be 1 or {channels} numbers, got {len(values)}")
    if any(value <= 0 for value in std):
        raise ValueError(f"look: --std must be above 0, got {min(std)}")
    shift, scale = (torch.tensor(list(v) or [e])[:, None, None] for v, e in ((mean, 0.0), (std, 1.0)))
    return (x - shift) / scale


def as_trained(directory: Path, image: Path) -> Tensor:
    """``[channels, height, width]``: the image as the run in a directory showed its test images to the network."""
    run, _, state = read_run(directory)
    shown = picture(image)  # says so if it is none
    count, height, width = state["image"]
    x = cells(shown, count, (height, width)) if run.data in data.NAMES else data.decode(image, run.image_size)
    try:
        return data.Preparation(run.prepare, load_preparation(directory))(x[None])[0]
    except (TypeError, RuntimeError):
        raise ValueError(f"look: {directory} does not have what its preparation {run.prepare} was fitted to") from None


def cells(image: Image.Image, channels: int, size: tuple[int, int] | None) -> Tensor:
    """uint8 ``[channels, height, width]``, grey for one channel, scaled to ``size``."""
    if channels not in (1, 3):
        raise ValueError(f"look: the network wants {channels} channels; an image has 1 or 3")
    shown = image.convert("L" if channels == 1 else "RGB")
    if size is not None and size != (shown.height, shown.width):
        shown = shown.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    x = torch.frombuffer(bytearray(shown.tobytes()), dtype=torch.uint8)
    return x.reshape(shown.height, shown.width, channels).movedim(-1, 0)


def channels(net: nn.Module) -> int:
    """How many channels the first convolution of a network takes; 3 if there is none."""
    return next((m.in_channels for m in net.modules() if isinstance(m, nn.Conv2d)), 3)
