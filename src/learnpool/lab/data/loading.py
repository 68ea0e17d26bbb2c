"""``load``: a data set by its name, or a folder of images by its path."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from ...parsing import suggest
from . import cache
from .archive import Member
from .catalog import IN_MEMORY, NAMES, SOURCES
from .digits import read_digits
from .folder import scan_classes, scan_folder
from .imagenet import FOLDERS, find_root, has_official_files, scan_imagenet, scan_validation
from .source import Source
from .split import DataError, Dataset, Files, Folder, Split


def load(name: str, data_dir: Path | None = None) -> Dataset | Folder:
    """The data set ``name``, its files found anywhere usual under ``data_dir``; or a folder of images by its path."""
    check_name(name)
    if name == "digits":
        return read_digits()
    if name in SOURCES:
        return _load_official(SOURCES[name], data_dir or get_data_directory())
    if name in FOLDERS:
        return scan_imagenet(find_root(name, data_dir or get_data_directory()))
    return scan_imagenet(Path(name)) if has_official_files(Path(name)) else scan_folder(Path(name))


def check_name(name: str) -> None:
    """DataError unless ``name`` is a data set's, whose files may yet be missing, or the path of a folder."""
    if not name:  # an empty name would mean the current directory
        raise DataError("wanted the name of a data set or the path of a folder of images, got ''")
    if name not in NAMES and not Path(name).is_dir():
        raise DataError(describe_unknown_data(name))


def load_test(name: str, data_dir: Path | None = None, *, whole: bool = True) -> tuple[Split | Files, tuple[str, ...]]:
    """The test images of a data set and its classes; of ImageNet's official files the training images may be missing.

    ``whole``: of a folder of classes without a test set all images, else the fifth that a run on this folder leaves.
    """
    root = find_root(name, data_dir or get_data_directory()) if name in FOLDERS else Path(name)
    if name not in IN_MEMORY and root.is_dir():
        if has_official_files(root):
            return scan_validation(root)
        if whole and not (root / "train").is_dir():
            return scan_classes(root)
    data = load(name, data_dir)
    return data.test, data.classes


def get_data_directory() -> Path:
    """$LEARNPOOL_DATA_DIR, or ./data."""
    return Path(os.environ.get("LEARNPOOL_DATA_DIR") or "data")


def compute_digest(data: Dataset | Folder) -> str:
    """Equal for equal images and labels of every split; a folder's images are known by path and size."""
    splits = (data.train, data.test, data.extra if isinstance(data, Dataset) else None)
    parts: list[object] = [data.classes]
    for split in splits:
        if isinstance(split, Files):
            parts += [[_identify(path, Path(data.name)) for path in split.paths], split.labels]
        elif split is not None:
            parts += [split.images, split.labels]
    return cache.hash_parts(*parts)


def _identify(path: Path | Member, root: Path) -> tuple[str, int]:
    """How a file is identified: by its path inside the folder, and its size."""
    if isinstance(path, Member):
        return f"{path.archive.name}:{path.name}", path.size
    return str(path.relative_to(root)), path.stat().st_size


def describe_unknown(name: str, known: tuple[str, ...]) -> str:
    """The message about a name that no data set has."""
    return f"unknown data {name!r}{suggest(name, known)}; known: {', '.join(known)}"


def describe_unknown_data(name: str) -> str:
    """The message for a name that is neither a data set nor a folder."""
    path = Path(name)
    if path.exists():
        return f"{name}: wanted a folder of images, got a file"
    beside = [entry.name for entry in path.parent.iterdir() if entry.is_dir()] if path.parent.is_dir() else []
    if path.name != name:  # surely a path
        return f"no such folder: {name}{suggest(path.name, beside)}"
    return f"no folder and no data set {name!r}{suggest(name, [*NAMES, *beside])}; data sets: {', '.join(NAMES)}"


def describe_missing(source: Source, data_dir: Path) -> str:
    """The message about a data set that is not there."""
    return f"{source.name}: none of its files found in {data_dir}; `learnpool data get {source.name}` fetches it"


def _load_official(source: Source, data_dir: Path) -> Dataset:
    splits = source.read(data_dir)
    if not splits:
        raise DataError(describe_missing(source, data_dir))
    for name, split in splits.items():
        _check_balance(source, name, split, data_dir)
    return Dataset(source.name, splits["train"], splits["test"], source.classes, splits.get("extra"))


def _check_balance(source: Source, name: str, split: Split, data_dir: Path) -> None:
    """As many images of each class as published: MNIST and Fashion-MNIST have files of the same names."""
    counts = tuple(torch.bincount(split.labels, minlength=len(source.classes)).tolist())
    for title, count, expected in zip(source.classes, counts, source.balance.get(name, counts), strict=True):
        if count != expected:
            where = f"{source.name}: {name} in {data_dir}"
            raise DataError(f"{where}: wanted {expected:,} images of class {title}, got {count:,}: another set?")
