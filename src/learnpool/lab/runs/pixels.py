"""Image files, PIL images, arrays, tensors as uint8 ``[N, C, H, W]``, cropped or scaled as a run does with its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from .. import data

KINDS = "an image file, a PIL image, an array or a tensor, or a list of them"
GRAY, COLOR = (1,), (3, 4)  # channels


def read_images(images: Any, shape: Sequence[int], crop: data.Crop | None) -> tuple[Tensor, bool]:
    """``[N, *shape]``, and whether ``images`` was a single one.

    ``crop``: as a folder's images are, the middle of the scaled image; without it all of an image is scaled.
    """
    single = True
    if isinstance(images, (list, tuple)):
        parts = [read_images(image, shape, crop) for image in images]
        if any(not alone for _, alone in parts):
            raise ValueError("predict: wanted one image at each place of a list, got a batch")
        pixels = [part for part, _ in parts]
        return torch.cat(pixels) if pixels else torch.empty(0, *shape, dtype=torch.uint8), False
    if isinstance(images, (str, os.PathLike)):
        return read_file(Path(images), shape, crop)[None], True
    if isinstance(images, Image.Image):
        return fit_image(images, shape, crop)[None], True
    if not isinstance(images, (np.ndarray, Tensor)):
        raise TypeError(f"predict: wanted {KINDS}, got {type(images).__name__}")
    batch, single = order_axes(images, shape[0])
    batch = to_uint8(batch)
    if not crop and batch.shape[1:] == (*shape[1:], shape[0]):  # as they are
        return torch.from_numpy(np.ascontiguousarray(batch.transpose(0, 3, 1, 2))), single
    fitted = [fit_image(Image.fromarray(one[..., 0] if one.shape[-1] == 1 else one), shape, crop) for one in batch]
    return torch.stack(fitted) if fitted else torch.empty(0, *shape, dtype=torch.uint8), single


def read_file(path: Path, shape: Sequence[int], crop: data.Crop | None) -> Tensor:
    """An image file; ValueError if it is none."""
    try:
        if crop:
            return data.decode(path, crop)
        image = data.read_image(path)
    except FileNotFoundError:
        raise ValueError(f"predict: no such file: {path}") from None
    except (UnidentifiedImageError, OSError, SyntaxError):
        raise ValueError(f"predict: {path} is not an image") from None
    except ValueError as error:
        raise ValueError(f"predict: {path}: {error}") from None
    return fit_image(image, shape, crop)


def fit_image(image: Image.Image, shape: Sequence[int], crop: data.Crop | None) -> Tensor:
    """uint8 ``[channels, height, width]``; grey for one channel."""
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"predict: wanted an image of 8 bits, got one of mode {image.mode}")
    channels, height, width = shape
    if crop:
        return crop.take(image.convert("RGB"))
    image = image.convert("L" if channels == 1 else "RGB")
    if (image.height, image.width) != (height, width):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    cells = np.array(image).reshape(height, width, channels)
    return torch.from_numpy(np.ascontiguousarray(cells.transpose(2, 0, 1)))


def order_axes(images: np.ndarray[Any, Any] | Tensor, channels: int) -> tuple[np.ndarray[Any, Any], bool]:
    """``[N, height, width, channels]``, and whether it was a single image.

    Tensors have channels first, and arrays last, where both are possible.
    """
    first = isinstance(images, Tensor)
    cells = _to_array(images)
    sizes = GRAY if channels == 1 else (*GRAY, *COLOR)  # what may stand first
    if cells.ndim == 2:
        return cells[None, :, :, None], True
    if cells.ndim in (3, 4):
        single = cells.ndim == 3
        batch = cells[None] if single else cells
        ahead, behind = batch.shape[1] in sizes, batch.shape[-1] in (*GRAY, *COLOR)
        if ahead and (first or not behind):
            return batch.transpose(0, 2, 3, 1), single
        if behind:
            return batch, single
        if single and channels == 1:
            return cells[..., None], False
    raise ValueError(f"predict: wanted images of 1, 3 or 4 channels, first or last, got shape {list(cells.shape)}")


def _to_array(images: np.ndarray[Any, Any] | Tensor) -> np.ndarray[Any, Any]:
    if not isinstance(images, Tensor):
        return images
    images = images.detach().cpu()
    return (images.float() if images.is_floating_point() else images).numpy()


def to_uint8(cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """8 bits: floats from 0 to 1 times 255, or as they are where one is above 1."""
    if cells.dtype == np.uint8:
        return cells
    if cells.dtype.kind not in "fiu":
        raise TypeError(f"predict: wanted an array of numbers, got {cells.dtype}")
    low, high = (cells.min(), cells.max()) if cells.size else (0, 0)
    if not 0 <= low <= high <= 255:  # NaN too
        hint = "prepared images go through model(images)"
        raise ValueError(f"predict: wanted pixels from 0 to 1 or from 0 to 255, got {low:g} to {high:g}; {hint}")
    scale = 255 if cells.dtype.kind == "f" and high <= 1 else 1
    pixels: np.ndarray[Any, Any] = (cells * scale).round().astype(np.uint8)
    return pixels
