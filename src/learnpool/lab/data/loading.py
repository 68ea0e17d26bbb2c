"""``load``: a data set by its name, or a folder of images by its path."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from . import cache, cifar, folder, idx, svhn
from .sources import SOURCES, TEN, Source
from .split import DataError, Dataset, Files, Folder, Split, unknown

NAMES = ("digits", *SOURCES)
READERS = {"idx": idx.read, "cifar": cifar.read, "svhn": svhn.read}


def data_directory() -> Path:
    """$LEARNPOOL_DATA_DIR, or ./data."""
    return Path(os.environ.get("LEARNPOOL_DATA_DIR") or "data")


def load(name: str, data_dir: Path | None = None) -> Dataset | Folder:
    """The data set ``name``, its files found anywhere usual under ``data_dir``; or a folder of images by its path."""
    if name == "digits":
        return _digits()
    if name in SOURCES:
        return _official(SOURCES[name], data_dir or data_directory())
    if Path(name).is_dir():
        return folder.scan(Path(name))
    raise unknown(name, NAMES, ", or the path of a folder of images")


def digest(data: Dataset | Folder) -> str:
    """Equal for equal images and labels of every split; a folder's images are told by path and size."""
    splits = (data.train, data.test, data.extra if isinstance(data, Dataset) else None)
    parts: list[object] = [data.classes]
    for split in splits:
        if isinstance(split, Files):
            parts += [[(str(path.relative_to(data.name)), path.stat().st_size) for path in split.paths], split.labels]
        elif split is not None:
            parts += [split.images, split.labels]
    return cache.key(*parts)


def absent(source: Source, data_dir: Path) -> DataError:
    """What to say of a set that is not there."""
    fetched = f"`learnpool data get {source.name}` fetches it"
    return DataError(f"{source.name}: none of its files found in {data_dir}; {fetched}")


def _official(source: Source, data_dir: Path) -> Dataset:
    splits = READERS[source.kind](source, data_dir)
    if splits is None:
        raise absent(source, data_dir)
    for name, split in splits.items():
        _count(source, name, split, data_dir)
    return Dataset(source.name, splits["train"], splits["test"], source.classes, splits.get("extra"))


def _count(source: Source, name: str, split: Split, data_dir: Path) -> None:
    """As many images of each class as published: MNIST and Fashion-MNIST have files of the same names."""
    counts = tuple(torch.bincount(split.labels, minlength=len(source.classes)).tolist())
    for title, came, wanted in zip(source.classes, counts, source.balance.get(name, counts), strict=True):
        if came != wanted:
            where = f"{source.name}: {name} in {data_dir}"
            raise DataError(f"{where}: wanted {wanted:,} images of class {title}, got {came:,}: another set?")


def _digits() -> Dataset:
    """1,797 digits of 8×8 pixels inside scikit-learn, 17 grey levels stretched to 255; 3 of 10 are for the test."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = torch.from_numpy(data.images * 255 / 16).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(data.target).long()
    train, test = train_test_split(range(len(labels)), test_size=0.3, stratify=data.target, random_state=0)
    whole = Split(images, labels)
    return Dataset("digits", whole.take(torch.tensor(train)), whole.take(torch.tensor(test)), TEN)
