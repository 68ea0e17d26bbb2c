"""Image files become batches of pixels, decoded by worker processes when a batch needs them.

What is random is drawn beforehand, for every image, so that neither the number of workers nor the sharing of a batch
between processes changes a pixel.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from .split import Files, ImageError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # Pillow opens no other, whatever a file is called
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
CENTER = (0.5, 0.5, 0.0)  # the crop in the middle, no mirror
CHECK_BATCH, CHECK_SIZE = 64, 32  # images at a time and their size where they are decoded and thrown away
BITS_PER_SAMPLE = 258  # a tag of TIFF; 12 or 16 where Pillow says 16
MARGIN = 8 / 7  # an image is scaled to this multiple of the crop: 256 for 224


def iter_batches(
    files: Files,
    batches: Sequence[Tensor],
    size: int,
    generator: torch.Generator | None = None,
    workers: int = 0,
    skipped: list[str] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each batch of indices: images uint8 [N, 3, size, size], and labels.

    With a generator images are cropped at random and mirrored, without one cropped in the middle. An image that does
    not decode is an error, unless a list ``skipped`` collects such problems; its batch is then smaller, or left out if
    empty.
    """
    crops = None if generator is None else torch.rand(len(files), 3, generator=generator)
    for batch in _make_loader(files, batches, size, crops, workers):
        pairs = [(image, label) for image, label, problem in batch if not problem]
        problems = [problem for _, _, problem in batch if problem]
        if problems and skipped is None:
            raise ImageError(problems[0])
        if skipped is not None:
            skipped.extend(problems)
        if pairs:
            yield torch.stack([image for image, _ in pairs]), torch.tensor([label for _, label in pairs])


def find_problems(files: Files, workers: int = 0) -> list[str]:
    """For each file what is wrong with it, an empty string if it decodes."""
    batches = torch.arange(len(files)).split(CHECK_BATCH)
    return [problem for batch in _make_loader(files, batches, CHECK_SIZE, None, workers) for _, _, problem in batch]


def _make_loader(
    files: Files, batches: Sequence[Tensor], size: int, crops: Tensor | None, workers: int
) -> DataLoader[Any]:
    return DataLoader(
        FileDataset(files, size, crops),
        batch_sampler=[batch.tolist() for batch in batches],
        num_workers=workers,
        collate_fn=list,
        worker_init_fn=ignore_interrupts,
        generator=torch.Generator(),  # or it would draw from torch's own
    )


def ignore_interrupts(_: int) -> None:
    """Workers leave Ctrl-C to their parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class FileDataset(TorchDataset[tuple[Tensor, int, str]]):
    """Image, label, and what is wrong with it, by its place in ``files``."""

    def __init__(self, files: Files, size: int, crops: Tensor | None) -> None:
        self.files, self.size, self.crops = files, size, crops

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        path, label = self.files.paths[index], int(self.files.labels[index])
        crop = CENTER if self.crops is None else tuple(self.crops[index].tolist())
        try:
            return decode(path, self.size, crop), label, ""
        except Exception as error:  # a broken file can fail in any way
            return torch.empty(0), label, f"{path}: wanted an image, got a file that does not decode ({error})"


def decode(path: Path, size: int, crop: tuple[float, ...] = CENTER) -> Tensor:
    """The image scaled so that its shorter side is 8/7 ``size``, cropped and mirrored: uint8 [3, size, size].

    ``crop`` is three numbers in [0, 1): the crop's place from top and from left, and from one half on the mirror.
    """
    return crop_image(read_image(path, "RGB", round(size * MARGIN)), size, crop)


def crop_image(image: Image.Image, size: int, crop: tuple[float, ...] = CENTER) -> Tensor:
    """``decode`` of an image that is in memory, in RGB."""
    top, left, mirror = crop
    short = round(size * MARGIN)
    scale = short / min(image.size)
    width, height = (max(short, round(scale * length)) for length in image.size)
    # Only the crop is computed: its place in the scaled image, in pixels of the original.
    x, y = round(left * (width - size)), round(top * (height - size))
    start = (x / width * image.width, y / height * image.height)
    end = ((x + size) / width * image.width, (y + size) / height * image.height)
    cells = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, (*start, *end)))
    if mirror >= 0.5:
        cells = cells[:, ::-1]
    return torch.from_numpy(np.ascontiguousarray(cells.transpose(2, 0, 1)))


def read_image(path: Path, mode: str | None = None, smallest: int | None = None) -> Image.Image:
    """The image in a file, of 8 bits a channel: 16 bits are scaled to 8; 32 bits, of unknown range, are refused.

    ``mode`` is Pillow's name of the channels, such as ``RGB``; the file's own if not given. With ``smallest`` a JPEG is
    decoded at a lower scale where both sides still have as many pixels.
    """
    try:
        file = Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        raise UnidentifiedImageError(f"none of {', '.join(FORMATS)}") from None
    with file:
        if smallest is not None:
            file.draft("RGB", (smallest, smallest))
        image = _reduce_depth(file)
        return image.copy() if mode is None else image.convert(mode)


def _reduce_depth(image: Image.Image) -> Image.Image:
    """Grey levels of 16 bits become 8, as Pillow makes of 16 bits of colour by itself."""
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
    if not sixteen:
        if image.mode in ("I", "F"):
            raise ValueError("wanted 8 or 16 bits a channel, got 32 or signed ones")
        return image
    tags = getattr(image, "tag_v2", {})  # of a TIFF
    bits = tags.get(BITS_PER_SAMPLE, (16,))[0]
    return Image.fromarray((np.asarray(image) >> (bits - 8)).clip(0, 255).astype(np.uint8))
