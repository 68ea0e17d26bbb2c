"""Image files become batches of pixels, decoded by worker processes when a batch needs them.

What is random is drawn beforehand, for every image, so that neither the number of workers nor the sharing of a batch
between processes changes a pixel.
"""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from .archive import Member
from .crops import CENTER, Crop, Place
from .split import Files, ImageError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # Pillow opens no other, whatever a file is called
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
CHECK_BATCH, CHECK = 64, Crop(32)  # images at a time and their crop where they are decoded and thrown away
BITS_PER_SAMPLE = 258  # a tag of TIFF; 12 or 16 where Pillow says 16


def iter_batches(
    files: Files,
    batches: Sequence[Tensor],
    crop: Crop,
    generator: torch.Generator | None = None,
    workers: int = 0,
    skipped: list[str] | None = None,
    views: int = 1,
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each batch of indices: images uint8 [N, 3, size, size], and labels.

    With a generator images are cropped at random and mirrored, without one cropped in the middle, or at ten places
    where ``views`` is 10: [N, 10, 3, size, size]. An image that does not decode is an error, unless a list ``skipped``
    collects such problems; its batch is then smaller, or left out if empty.
    """
    places = None if generator is None else torch.rand(len(files), crop.draws, generator=generator)
    for images, labels, problems in _make_loader(FileDataset(files, crop, places, views), batches, workers):
        found = [problem for problem in problems if problem]
        if found and skipped is None:
            raise ImageError(found[0])
        if skipped is not None:
            skipped.extend(found)
        if len(labels):
            yield images, labels


def find_problems(files: Files, workers: int = 0) -> list[str]:
    """For each file what is wrong with it, an empty string if it decodes."""
    batches = torch.arange(len(files)).split(CHECK_BATCH)
    loader = _make_loader(FileDataset(files, CHECK, None, 1), batches, workers)
    return [problem for _, _, problems in loader for problem in problems]


def _make_loader(dataset: FileDataset, batches: Sequence[Tensor], workers: int) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_sampler=[batch.tolist() for batch in batches],
        num_workers=workers,
        collate_fn=collate,
        worker_init_fn=ignore_interrupts,
        generator=torch.Generator(),  # or it would draw from torch's own
    )


def collate(batch: list[tuple[Tensor, int, str]]) -> tuple[Tensor, Tensor, list[str]]:
    """Images and labels of a batch in one tensor each, without the images that do not decode, and all problems.

    One tensor each, because every tensor that a worker hands over takes an open file.
    """
    whole = [(image, label) for image, label, problem in batch if not problem]
    images = torch.stack([image for image, _ in whole]) if whole else torch.empty(0)
    return images, torch.tensor([label for _, label in whole]), [problem for _, _, problem in batch]


def ignore_interrupts(_: int) -> None:
    """Workers leave Ctrl-C to their parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class FileDataset(TorchDataset[tuple[Tensor, int, str]]):
    """Image, label, and what is wrong with it, by its place in ``files``."""

    def __init__(self, files: Files, crop: Crop, places: Tensor | None, views: int) -> None:
        self.files, self.crop, self.places, self.views = files, crop, places, views

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        path, label = self.files.paths[index], int(self.files.labels[index])
        place = CENTER if self.places is None else tuple(self.places[index].tolist())
        try:
            image = decode(path, self.crop, place) if self.views == 1 else decode_views(path, self.crop, self.views)
            return image, label, ""
        except Exception as error:  # a broken file can fail in any way
            return torch.empty(0), label, f"{path}: wanted an image, got a file that does not decode ({error})"


def decode(path: Path | Member, crop: Crop, place: Place = CENTER) -> Tensor:
    """The crop of an image file at ``place``: uint8 [3, size, size]."""
    return crop.take(read_image(path, "RGB", lambda size: crop.find_needed_size(place, size)), place)


def decode_views(path: Path | Member, crop: Crop, views: int) -> Tensor:
    """One or ten crops of an image file: uint8 [views, 3, size, size]."""
    return crop.take_views(read_image(path, "RGB", lambda _: crop.short), views)


def read_image(
    path: Path | Member, mode: str | None = None, find_smallest: Callable[[tuple[int, int]], int] | None = None
) -> Image.Image:
    """The image in a file, of 8 bits a channel: 16 bits are scaled to 8; 32 bits, of unknown range, are refused.

    ``mode`` is Pillow's name of the channels, such as ``RGB``; the file's own if not given. A JPEG is decoded at a
    lower scale where both sides still have as many pixels as ``find_smallest`` says of its width and height.
    """
    try:
        file = Image.open(path if isinstance(path, Path) else io.BytesIO(path.read()), formats=FORMATS)
    except UnidentifiedImageError:
        raise UnidentifiedImageError(f"none of {', '.join(FORMATS)}") from None
    with file:
        if find_smallest is not None:
            smallest = find_smallest(file.size)
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
