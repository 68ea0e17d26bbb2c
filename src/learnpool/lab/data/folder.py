"""A folder of images: ``train/CLASS/*`` beside ``test/CLASS/*`` or ``val/CLASS/*``, or ``CLASS/*`` alone.

Its images are read by worker processes when their turn comes. What is random in them is drawn beforehand, for every
image, so that neither the number of workers nor the sharing of a batch between processes changes a pixel.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from .split import DataError, Files, Folder, ImageError, balanced

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
TESTS = ("test", "val", "valid", "validation")
TEST_PART = 5  # of a folder without a test set every fifth image is one
MIDDLE = (0.5, 0.5, 0.0)  # of an image that is not augmented: the crop in the middle, no mirror
CHECKED, SMALL = 64, 32  # images at a time and their size where they are decoded and thrown away
MARGIN = 8 / 7  # an image is scaled to this multiple of the crop: 256 for 224


def scan(root: Path) -> Folder:
    """The files of each class. A folder without a test set is split, always in the same way."""
    if (root / "train").is_dir():
        train = _classes(root / "train")
        parts = [_classes(root / name) for name in TESTS if (root / name).is_dir()]
        test = next((part for part in parts if part), {})
        if not test:
            raise DataError(f"{root}: wanted a folder test or val with a folder for each class beside train, got none")
        _compare(root, train, test)
    else:
        train, test = _classes(root), {}
    if len(train) < 2:
        where = root / "train" if test else root
        raise DataError(f"{where}: wanted a folder for each of at least two classes, got {len(train)}: {_told(train)}")
    for split in (train, test):
        for name, paths in split.items():
            if len(paths) < (1 if test else 2):
                raise DataError(f"{root}: class {name} has {len(paths)} images, too few for train and test")
    classes = tuple(train)
    if test:
        return Folder(str(root), _files(train), _files(test), classes)
    whole = _files(train)
    chosen, rest = [], []
    for label in range(len(classes)):
        members = (whole.labels == label).nonzero()[:, 0]
        order = members[balanced(torch.zeros(len(members), dtype=torch.int64), len(members), seed=label)]
        size = max(1, len(members) // TEST_PART)
        chosen.append(order[:size])
        rest.append(order[size:])
    return Folder(
        str(root), whole.take(torch.cat(rest).sort().values), whole.take(torch.cat(chosen).sort().values), classes
    )


def _classes(root: Path) -> dict[str, list[Path]]:
    """Image files below each folder of ``root``, in order of name; hidden ones are left out."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    return {
        folder.name: sorted(
            path
            for path in folder.rglob("*")
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
        )
        for folder in folders
    }


def _compare(root: Path, train: dict[str, list[Path]], test: dict[str, list[Path]]) -> None:
    for here, there, where in ((train, test, "test"), (test, train, "train")):
        missing = [name for name in here if not there.get(name)]
        if missing:
            raise DataError(f"{root}: class {missing[0]} has no images for {where}; the classes there: {_told(there)}")


def _told(classes: dict[str, list[Path]]) -> str:
    return ", ".join(name for name, paths in classes.items() if paths) or "none"


def _files(classes: dict[str, list[Path]]) -> Files:
    labels = [label for label, paths in enumerate(classes.values()) for _ in paths]
    return Files(tuple(path for paths in classes.values() for path in paths), torch.tensor(labels))


def stream(
    files: Files,
    batches: Sequence[Tensor],
    size: int,
    generator: torch.Generator | None = None,
    workers: int = 0,
    skipped: list[str] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each batch of indices: images uint8 [N, 3, size, size], and labels.

    With a generator images are cropped at random and mirrored, without one cropped in the middle. An image that does
    not decode is an error, unless a list ``skipped`` takes note of it; its batch is then smaller, or left out if empty.
    """
    drawn = None if generator is None else torch.rand(len(files), 3, generator=generator)
    for batch in _loader(files, batches, size, drawn, workers):
        whole = [(image, label) for image, label, problem in batch if not problem]
        problems = [problem for _, _, problem in batch if problem]
        if problems and skipped is None:
            raise ImageError(problems[0])
        if skipped is not None:
            skipped.extend(problems)
        if whole:
            yield torch.stack([image for image, _ in whole]), torch.tensor([label for _, label in whole])


def problems(files: Files, workers: int = 0) -> list[str]:
    """For each file what is wrong with it, nothing if it decodes."""
    batches = torch.arange(len(files)).split(CHECKED)
    return [problem for batch in _loader(files, batches, SMALL, None, workers) for _, _, problem in batch]


def without_broken(folder: Folder, workers: int = 0) -> tuple[Folder, tuple[str, ...]]:
    """The folder without the files that do not decode, and their names."""
    left, broken = [], list[str]()
    for title, files in (("train", folder.train), ("test", folder.test)):
        wrong = problems(files, workers)
        broken += [str(path) for path, problem in zip(files.paths, wrong, strict=True) if problem]
        left.append(files.take(torch.tensor([not problem for problem in wrong]).nonzero()[:, 0]))
        for label, name in enumerate(folder.classes):
            if label not in left[-1].labels:
                raise DataError(f"{folder.name}: class {name} has no image for {title} that decodes")
    return Folder(folder.name, left[0], left[1], folder.classes), tuple(broken)


def _loader(files: Files, batches: Sequence[Tensor], size: int, drawn: Tensor | None, workers: int) -> DataLoader[Any]:
    return DataLoader(
        Images(files, size, drawn),
        batch_sampler=[batch.tolist() for batch in batches],
        num_workers=workers,
        collate_fn=list,
        worker_init_fn=deaf,
        generator=torch.Generator(),  # or it would draw from torch's own
    )


def deaf(_: int) -> None:
    """Workers leave Ctrl-C to their parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Images(TorchDataset[tuple[Tensor, int, str]]):
    """Image, label, and what is wrong with it, by its place in ``files``."""

    def __init__(self, files: Files, size: int, drawn: Tensor | None) -> None:
        self.files, self.size, self.drawn = files, size, drawn

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        path, label = self.files.paths[index], int(self.files.labels[index])
        chosen = MIDDLE if self.drawn is None else tuple(self.drawn[index].tolist())
        try:
            return decode(path, self.size, chosen), label, ""
        except Exception as error:  # a broken file can fail in any way
            return torch.empty(0), label, f"{path}: wanted an image, got a file that does not decode ({error})"


def decode(path: Path, size: int, chosen: tuple[float, ...] = MIDDLE) -> Tensor:
    """The image scaled so that its shorter side is 8/7 ``size``, cropped and mirrored: uint8 [3, size, size].

    ``chosen`` are three numbers in [0, 1): the crop's place from top and from left, and from one half on the mirror.
    """
    top, left, side = chosen
    with Image.open(path) as opened:
        short = round(size * MARGIN)
        opened.draft("RGB", (short, short))  # a JPEG is decoded at a lower scale where that is large enough
        image = opened.convert("RGB")
    scale = short / min(image.size)
    width, height = (max(short, round(scale * length)) for length in image.size)
    # Only the crop is computed: its place in the scaled image, in pixels of the original.
    x, y = round(left * (width - size)), round(top * (height - size))
    box = (x / width * image.width, y / height * image.height)
    end = ((x + size) / width * image.width, (y + size) / height * image.height)
    cells = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, (*box, *end)))
    if side >= 0.5:
        cells = cells[:, ::-1]
    return torch.from_numpy(np.ascontiguousarray(cells.transpose(2, 0, 1)))
