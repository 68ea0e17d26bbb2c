"""The batches of an epoch, and the images a network is evaluated on.

All randomness comes from the seed and the number of the epoch, so an epoch can be run again bit for bit with nothing
remembered from the one before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .. import data
from .distributed import Ranks
from .run import Run, RunError

EVAL_BATCH, EVAL_FILES = 500, 64  # images at a time in evaluation: of a tensor, and of files, which are larger
FIT_SAMPLE = 1_000  # images of a folder that its preparation is fitted on
NO_PREPARATION = data.Preparation("none")

Pairs = Iterator[tuple[Tensor, Tensor]]
Rows = slice | Tensor


def derive_seed(run: Run, use: str, epoch: int = 0) -> int:
    """A seed for one use in one epoch; different uses never share a stream."""
    text = f"{run.seed}/{use}/{epoch}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


@dataclass(frozen=True, eq=False)
class InMemoryImages:
    """Prepared images in one tensor; augmentation is indexing."""

    images: Tensor
    labels: Tensor
    augment: data.Augment | None = None
    sides: Tensor | None = None  # 1 for images that even epochs mirror and odd ones do not, 0 for the others

    def iter_batches(
        self, batches: Sequence[Tensor], rows: Rows, generator: torch.Generator | None, start: int = 0, epoch: int = 0
    ) -> Pairs:
        """``rows`` of every batch of indices from ``start`` on, augmented if there is a generator."""
        for number, index in enumerate(batches):
            augment = self.augment if generator is not None else None
            draws = augment.draw(len(index), generator) if augment and generator else None  # for those left out too
            if number < start:
                continue
            if draws is not None and self.sides is not None:
                draws[:, 2] = (self.sides[index] + epoch) % 2
            images = self.images[index[rows]]
            if augment is not None and draws is not None:
                images = augment.apply(images, draws[rows])
            yield images, self.labels[index[rows]]


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files, decoded by worker processes when their turn comes and prepared here."""

    files: data.Files
    crop: data.Crop
    preparation: data.Preparation
    workers: int
    augment: bool = False

    @property
    def labels(self) -> Tensor:
        return self.files.labels

    def iter_batches(
        self, batches: Sequence[Tensor], rows: Rows, generator: torch.Generator | None, start: int = 0, epoch: int = 0
    ) -> Pairs:
        """``rows`` of every batch of indices from ``start`` on, augmented if there is a generator."""
        drawn = generator if self.augment else None
        local = [index[rows] for index in batches[start:]]
        for images, labels in data.iter_batches(self.files, local, self.crop, drawn, self.workers):
            yield self.preparation(images), labels


@dataclass(frozen=True, eq=False)
class Batches:
    """The images of a run: those to train on, and two sets that are not."""

    run: Run
    train: InMemoryImages | ImageFiles
    validation: InMemoryImages | ImageFiles
    test: InMemoryImages | ImageFiles
    image: tuple[int, ...]  # channels, height, width
    classes: tuple[str, ...]
    digest: str  # of all images, whatever the seed
    preparation: data.Preparation = NO_PREPARATION  # applied to all images
    skipped: tuple[str, ...] = ()  # files that do not decode

    @property
    def steps(self) -> int:
        """Steps per epoch; an incomplete last batch is dropped."""
        return len(self.train.labels) // self.batch

    @property
    def batch(self) -> int:
        """Images of a step: those of the run, or all training images where these are fewer."""
        return min(self.run.batch, len(self.train.labels))

    def train_batches(self, number: int, ranks: Ranks, start: int = 0) -> Pairs:
        """This process's rows of every batch, in an order and with an augmentation that seed and epoch decide.

        The first ``start`` batches are left out.
        """
        generator = torch.Generator().manual_seed(derive_seed(self.run, "batches", number))
        order = torch.randperm(len(self.train.labels), generator=generator).split(self.batch)[: self.steps]
        parts = self.run.accumulate
        rows = ranks.local_slice(self.batch) if parts == 1 else ranks.local_rows(self.batch, parts)
        for images, labels in self.train.iter_batches(order, rows, generator, start, number):
            yield images.to(ranks.device, memory_format=self.run.memory_format), labels.to(ranks.device)

    def eval_batches(self, images: InMemoryImages | ImageFiles, ranks: Ranks) -> Pairs:
        """This process's share of the validation or test images, piece by piece."""
        local = torch.arange(len(images.labels))[ranks.local_slice(len(images.labels))]
        at_once = EVAL_BATCH if isinstance(images, InMemoryImages) else EVAL_FILES
        for pixels, labels in images.iter_batches(local.split(at_once), slice(None), None):
            yield pixels.to(ranks.device, memory_format=self.run.memory_format), labels.to(ranks.device)


def load_batches(run: Run, data_dir: Path | None, ranks: Ranks, workers: int = 0) -> Batches:
    """Load the data, split off validation images, take a subset and prepare; RunError says what does not fit."""
    loaded, skipped = data.load(run.data, data_dir), tuple[str, ...]()
    digest = data.compute_digest(loaded)
    if run.skip_broken and isinstance(loaded, data.Folder):
        loaded, skipped = data.drop_broken(loaded, workers)
    train, validation = data.hold_out(loaded, run.seed, run.validation)
    if run.train_size is not None:
        train = data.choose_subset(train, run.train_size, run.seed)
    if (batch := min(run.batch, len(train))) % (ranks.world * run.accumulate):
        shared = f"{ranks.world} processes" + (f" in {run.accumulate} parts" if run.accumulate > 1 else "")
        raise RunError(f"batch: {batch} images cannot be shared evenly by {shared}; see --set batch=N")
    if not isinstance(train, data.Files) and run.pad > min(train.images.shape[2:]):
        height, width = train.images.shape[2:]
        raise RunError(f"pad: wanted at most the size of an image, {height}×{width}, got {run.pad}")
    if isinstance(train, data.Files) and run.alternate:
        raise RunError("alternate: wanted a data set in memory, got a folder of images")
    if isinstance(train, data.Files):
        splits, preparation = _prepare_files(run, [train, validation, loaded.test], workers)  # type: ignore[list-item]
        image = (3, run.image_size, run.image_size)
    else:
        splits, preparation = _prepare_in_memory(run, [train, validation, loaded.test])  # type: ignore[list-item]
        image = tuple(train.images.shape[1:])
    return Batches(run, splits[0], splits[1], splits[2], image, loaded.classes, digest, preparation, skipped)


def _prepare_in_memory(
    run: Run, splits: list[data.Split]
) -> tuple[list[InMemoryImages | ImageFiles], data.Preparation]:
    augment = data.Augment(run.pad, run.mirror) if run.pad or run.mirror else None
    preparation = data.fit(run.prepare, splits[0].images)
    sides = draw_sides(run, len(splits[0].labels)) if run.alternate else None
    train, *others = data.apply(preparation, *splits)
    prepared = [InMemoryImages(train, splits[0].labels, augment, sides)]
    prepared += [InMemoryImages(images, split.labels) for images, split in zip(others, splits[1:], strict=True)]
    return [*prepared], preparation


def draw_sides(run: Run, count: int) -> Tensor:
    """Which images even epochs mirror: every second one on average."""
    return torch.randint(2, (count,), generator=torch.Generator().manual_seed(derive_seed(run, "sides")))


def _prepare_files(
    run: Run, splits: list[data.Files], workers: int
) -> tuple[list[InMemoryImages | ImageFiles], data.Preparation]:
    """A folder is prepared by what was fitted on a sample of its training images."""
    generator = torch.Generator().manual_seed(derive_seed(run, "sample"))
    sample = torch.randperm(len(splits[0]), generator=generator)[:FIT_SAMPLE].split(100)
    pixels = torch.cat([images for images, _ in data.iter_batches(splits[0], sample, run.crop, None, workers)])
    preparation = data.fit(run.prepare, pixels)
    shared = run.crop, preparation, workers
    return [ImageFiles(files, *shared, augment=files is splits[0] and run.mirror) for files in splits], preparation
