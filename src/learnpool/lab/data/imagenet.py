"""ImageNet-2012 as class folders ``train`` and ``val`` or as the official tar files, read in place; Imagenette.

The validation images are the test set: labels of the challenge's own test images were never published. Classes are
WordNet ids in order of name, as in class folders, torchvision and Caffe, so that networks trained on either kind of
files agree. The devkit numbers them in an order of its own, which its ``meta.mat`` translates.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import torch

from .archive import Member, iter_members
from .folder import scan_folder
from .split import DataError, Files, Folder
from .unpacking import check_mat_size, iter_archive

TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
META, TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"
LIMITS = {META: 16 << 20, TRUTH: 1 << 20}  # bytes
FOLDERS = {  # below the data directory
    "imagenet": (".", "imagenet", "ILSVRC2012", "ilsvrc2012", "imagenet-2012", "ILSVRC/Data/CLS-LOC"),
    "imagenette": ("imagenette", "imagenette2", "imagenette2-320", "imagenette2-160", "imagenette-160"),
}


def has_official_files(root: Path) -> bool:
    """Whether a folder has one of the official tar files."""
    return (root / VAL).is_file() or (root / TRAIN).is_file()


def find_root(name: str, data_dir: Path) -> Path:
    """Where a set is below the data directory: the first folder with the official files, or with train and val."""
    for root in (data_dir / folder for folder in FOLDERS[name]):
        if has_official_files(root) or ((root / "train").is_dir() and (root / "val").is_dir()):
            return root
    tars = f"{TRAIN}, {VAL} and {DEVKIT}, or " if name == "imagenet" else ""
    raise DataError(f"{name}: wanted {tars}folders train and val, in {data_dir / name}, got none")


def scan_imagenet(root: Path) -> Folder:
    """The images in the official tar files, or in class folders."""
    if not has_official_files(root):
        return scan_folder(root)
    _check_presence(root, TRAIN, VAL, DEVKIT)
    test, classes = scan_validation(root)
    labels = {name: label for label, name in enumerate(classes)}
    train: list[tuple[Member, int]] = []
    for inner in iter_members(root / TRAIN):
        name = Path(inner.name).stem
        if name not in labels:
            raise DataError(f"{root / TRAIN}: wanted a tar file of each class of the devkit, got {inner.name}")
        train += [(member, labels[name]) for member in iter_members(root / TRAIN, inner)]
    missing = sorted({*labels.values()} - {label for _, label in train})
    if missing:
        raise DataError(f"{root / TRAIN}: wanted images of every class, got none of {classes[missing[0]]}")
    return Folder(str(root), _make_files(train), test, classes)


def scan_validation(root: Path) -> tuple[Files, tuple[str, ...]]:
    """The validation images and the classes: all that an evaluation needs, without the training images."""
    _check_presence(root, VAL, DEVKIT)
    ids, truth = read_devkit(root / DEVKIT)
    classes = tuple(sorted(ids.values()))
    labels = {name: label for label, name in enumerate(classes)}
    images = sorted(iter_members(root / VAL), key=lambda member: Path(member.name).name)
    if len(images) != len(truth):
        raise DataError(
            f"{root / VAL}: wanted {len(truth):,} images, as many as {TRUTH} has labels, got {len(images):,}"
        )
    if unknown := next((number for number in truth if number not in ids), None):
        raise DataError(f"{root / DEVKIT}: wanted labels that {META} has, got {unknown}")
    return _make_files((member, labels[ids[n]]) for member, n in zip(images, truth, strict=True)), classes


def _check_presence(root: Path, *names: str) -> None:
    for name in names:
        if not (root / name).is_file():
            raise DataError(f"{root}: wanted {', '.join(names[:-1])} and {names[-1]}, got no {name}")


def _make_files(pairs: Iterable[tuple[Member, int]]) -> Files:
    members, labels = zip(*pairs, strict=True)
    return Files(members, torch.tensor(labels))


def read_devkit(path: Path) -> tuple[dict[int, str], list[int]]:
    """The WordNet id of each of the devkit's numbers, and the number of each validation image in order of name."""
    from scipy.io import loadmat

    contents = dict(iter_archive(path, LIMITS))
    check_mat_size(path, LIMITS[META], contents[META])
    try:
        synsets = loadmat(io.BytesIO(contents[META]), squeeze_me=True)["synsets"]
        rows = [(int(row["ILSVRC2012_ID"]), str(row["WNID"]), int(row["num_children"])) for row in synsets]
        truth = [int(line) for line in contents[TRUTH].split()]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise DataError(f"{path}: wanted synsets in {META} and numbers in {TRUTH}, got others ({error})") from None
    return {number: name for number, name, children in rows if children == 0}, truth
