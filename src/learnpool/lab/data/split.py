"""Images with labels, data sets of them, and how a seed decides the validation images and smaller training sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .archive import Member

VALIDATION_SIZE = 5_000  # at most
SVHN_VALIDATION = {"train": 400, "extra": 200}  # images of each class


class DataError(ValueError):
    """The data is missing, damaged or not what it should be; the message names the file."""


class ImageError(DataError):
    """An image does not decode; of several processes only the one that read it knows."""


@dataclass(frozen=True, eq=False)
class Split:
    """``images`` uint8 [N, C, H, W] as in the files, ``labels`` int64 [N]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Split:
        """The images at ``index``, in that order."""
        return Split(self.images.index_select(0, index), self.labels[index])  # faster than images[index]


@dataclass(frozen=True, eq=False)
class Files:
    """Image files, decoded only when a batch needs them (``iter_batches``); ``labels`` int64 [N]."""

    paths: tuple[Path | Member, ...]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Files:
        """The files at ``index``, in that order."""
        return Files(tuple(self.paths[i] for i in index.tolist()), self.labels[index])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory; ``extra`` is SVHN's second training set."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    extra: Split | None = None


@dataclass(frozen=True, eq=False)
class Folder:
    """A folder of image files, too large for memory perhaps; its images come from ``iter_batches``."""

    name: str
    train: Files
    test: Files
    classes: tuple[str, ...]


AnySplit = TypeVar("AnySplit", Split, Files)


def hold_out(data: Dataset | Folder, seed: int, size: int | None = None) -> tuple[Any, Any]:
    """Train and validation: the last 5,000 of the shuffled training set, or a tenth where that is less.

    SVHN has a rule of its own: validation is 400 images of each class of train and 200 of each class of extra, and the
    rest of both is the training set.
    """
    if isinstance(data, Dataset) and data.name == "svhn" and size is None:
        return _hold_out_svhn(data, seed)
    return _hold_out_last(data.train, seed, size)


def _hold_out_last(train: AnySplit, seed: int, size: int | None) -> tuple[AnySplit, AnySplit]:
    count = len(train)
    if size is None:
        size = max(1, min(VALIDATION_SIZE, count // 10))
    if not 0 < size < count:
        raise DataError(f"hold_out: wanted 1 to {count - 1} images for validation, got {size}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return train.take(order[:-size].sort().values), train.take(order[-size:])


def _hold_out_svhn(data: Dataset, seed: int) -> tuple[Split, Split]:
    train, validation = [], []
    for name, split in (("train", data.train), ("extra", data.extra)):
        if split is None:
            continue
        indices = sample_balanced(split.labels, SVHN_VALIDATION[name] * len(data.classes), seed)
        counts = torch.bincount(split.labels[indices], minlength=len(data.classes))
        if int(counts.min()) < SVHN_VALIDATION[name]:
            few = int(counts.argmin())
            expected = f"{SVHN_VALIDATION[name]} images of each class of svhn's {name}"
            raise DataError(f"hold_out: wanted {expected}, got {int(counts[few])} of class {data.classes[few]}")
        rest = torch.ones(len(split), dtype=torch.bool)
        rest[indices] = False
        train.append(split.take(rest.nonzero()[:, 0]))
        validation.append(split.take(indices))
    return _concatenate(train), _concatenate(validation)


def _concatenate(splits: list[Split]) -> Split:
    return Split(torch.cat([s.images for s in splits]), torch.cat([s.labels for s in splits]))


def choose_subset(split: AnySplit, size: int, seed: int) -> AnySplit:
    """``size`` images, as many of each class as there are; a smaller subset of the same seed lies in a larger one."""
    if not 0 < size <= len(split):
        raise DataError(f"--train-size: wanted 1 to {len(split)} images, got {size}")
    return split.take(sample_balanced(split.labels, size, seed))


def sample_balanced(labels: Tensor, size: int, seed: int) -> Tensor:
    """Indices of ``size`` images: the first of every class in a shuffled order, then the second of every class …"""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    shuffled = labels[order]
    classes = int(labels.max()) + 1
    turn = torch.randperm(classes, generator=generator)  # which classes get one more if the size is not a multiple
    rank = torch.empty(len(labels), dtype=torch.int64)
    for name in range(classes):
        of_class = (shuffled == name).nonzero()[:, 0]
        rank[of_class] = torch.arange(len(of_class)) * classes + turn[name]
    return order[rank.argsort()[:size]]
