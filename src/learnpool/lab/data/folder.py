"""A folder of images: ``train/CLASS/*`` beside ``test/CLASS/*`` or ``val/CLASS/*``, or ``CLASS/*`` alone."""

from __future__ import annotations

from pathlib import Path

import torch

from ...formatting import escape_control_characters, is_utf8
from .decoding import SUFFIXES, find_problems
from .split import DataError, Files, Folder, sample_balanced

TEST_FOLDERS = ("test", "val", "valid", "validation")
TEST_SHARE = 5  # of a folder without a test set one image in five is for the test

PathsByClass = dict[str, list[Path]]


def scan_folder(root: Path) -> Folder:
    """The files of each class. A folder without a test set is split, always in the same way."""
    if (root / "train").is_dir():
        train = _list_classes(root / "train")
        candidates = [_list_classes(root / name) for name in TEST_FOLDERS if (root / name).is_dir()]
        test = next((classes for classes in candidates if classes), {})
        if not test:
            raise DataError(f"{root}: wanted a folder test or val with a folder for each class beside train, got none")
        _check_same_classes(root, train, test)
    else:
        train, test = _list_classes(root), {}
    if len(train) < 2:
        where = root / "train" if test else root
        names = _format_classes(train)
        raise DataError(f"{where}: wanted a folder for each of at least two classes, got {len(train)}: {names}")
    for split in (train, test):
        for name, paths in split.items():
            if len(paths) < (1 if test else 2):
                raise DataError(f"{root}: class {name} has {len(paths)} images, too few for train and test")
    if test:
        return Folder(str(root), _label_files(train), _label_files(test), tuple(train))
    return _split_folder(root, train)


def scan_classes(root: Path) -> tuple[Files, tuple[str, ...]]:
    """All images of a folder of classes, to test a network on, and the classes' names."""
    where = next((root / name for name in TEST_FOLDERS if (root / name).is_dir()), root)
    classes = {name: paths for name, paths in _list_classes(where).items() if paths}
    if not classes:
        raise DataError(f"{where}: wanted a folder for each class with images in it, got none")
    return _label_files(classes), tuple(classes)


def drop_broken(folder: Folder, workers: int = 0) -> tuple[Folder, tuple[str, ...]]:
    """The folder without the files that do not decode, and their names."""
    splits, broken = [], list[str]()
    for title, files in (("train", folder.train), ("test", folder.test)):
        problems = find_problems(files, workers)
        broken += [
            escape_control_characters(str(path)) for path, problem in zip(files.paths, problems, strict=True) if problem
        ]
        splits.append(files.take(torch.tensor([not problem for problem in problems]).nonzero()[:, 0]))
        for label, name in enumerate(folder.classes):
            if label not in splits[-1].labels:
                raise DataError(f"{folder.name}: class {name} has no image for {title} that decodes")
    return Folder(folder.name, splits[0], splits[1], folder.classes), tuple(broken)


def _list_classes(root: Path) -> PathsByClass:
    """Image files below each folder of ``root``, in order of name; hidden ones are left out."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    for folder in folders:
        if not is_utf8(folder.name):  # results are written in UTF-8
            raise DataError(f"{root}: wanted names of classes in UTF-8, got {folder.name!r}")
    return {
        folder.name: sorted(
            path
            for path in folder.rglob("*")
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
        )
        for folder in folders
    }


def _check_same_classes(root: Path, train: PathsByClass, test: PathsByClass) -> None:
    for classes, others, where in ((train, test, "test"), (test, train, "train")):
        missing = [name for name in classes if not others.get(name)]
        if missing:
            names = _format_classes(others)
            raise DataError(f"{root}: class {missing[0]} has no images for {where}; the classes there: {names}")


def _format_classes(classes: PathsByClass) -> str:
    return ", ".join(name for name, paths in classes.items() if paths) or "none"


def _label_files(classes: PathsByClass) -> Files:
    labels = [label for label, paths in enumerate(classes.values()) for _ in paths]
    return Files(tuple(path for paths in classes.values() for path in paths), torch.tensor(labels))


def _split_folder(root: Path, classes: PathsByClass) -> Folder:
    """One image in five of each class is for the test."""
    files = _label_files(classes)
    test, train = [], []
    for label in range(len(classes)):
        members = (files.labels == label).nonzero()[:, 0]
        order = members[sample_balanced(torch.zeros(len(members), dtype=torch.int64), len(members), seed=label)]
        size = max(1, len(members) // TEST_SHARE)
        test.append(order[:size])
        train.append(order[size:])
    return Folder(
        str(root), files.take(torch.cat(train).sort().values), files.take(torch.cat(test).sort().values), tuple(classes)
    )
