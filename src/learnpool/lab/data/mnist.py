"""MNIST and Fashion-MNIST: idx files of two zero bytes, a type, a number of dimensions, their sizes, and the cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from ...ops.window import format_size
from .source import DIGIT_CLASSES, Remote, Source, check_labels
from .split import DataError, Split
from .unpacking import read_file, read_start

UBYTE = 8
SPLITS = {"train": "train", "test": "t10k"}  # a split, and how its files' names begin
FILES = tuple(f"{start}-{what}-ubyte" for start in SPLITS.values() for what in ("images-idx3", "labels-idx1"))


class IdxSource(Source):
    """Four idx files, by their official names with or without .gz."""

    def find_files(self, data_dir: Path) -> list[Path]:
        return list(self._find_by_name(data_dir).values())

    def read(self, data_dir: Path) -> dict[str, Split]:
        paths = self._find_by_name(data_dir)
        splits = {}
        for split, start in SPLITS.items() if paths else ():
            count = self.counts[split]
            images = read_idx(paths[f"{start}-images-idx3-ubyte"], (count, *self.shape[1:]))
            path = paths[f"{start}-labels-idx1-ubyte"]
            labels = read_idx(path, (count,))
            check_labels(path, int(labels.min()), int(labels.max()), range(len(self.classes)))
            splits[split] = Split(torch.from_numpy(images)[:, None], torch.from_numpy(labels).long())
        return splits

    def iter_contents(self, path: Path) -> Iterator[tuple[str, bytes]]:
        if path.suffix == ".gz":
            name = _get_official_name(path.stem)
            split = next(split for split, start in SPLITS.items() if name.startswith(start))
            shape = (self.counts[split], *(self.shape[1:] if "images" in name else ()))
            yield name, read_file(path, _count_bytes(shape))

    def get_checksum(self, file: str) -> str | None:
        return super().get_checksum(_get_official_name(file))

    def _find_by_name(self, data_dir: Path) -> dict[str, Path]:
        """Official name → path, all of them from one directory."""
        best: dict[str, Path] = {}
        for folder in (*self.folders, "."):
            paths: dict[str, Path] = {}
            for name in FILES:
                spellings = (name, name.replace("-idx", ".idx"))
                candidates = (data_dir / folder / (spelling + end) for end in ("", ".gz") for spelling in spellings)
                if path := next((path for path in candidates if path.is_file()), None):
                    paths[name] = path
            if len(paths) == len(FILES):
                return paths
            best = max(best, paths, key=len)
        if best:
            missing = next(name for name in FILES if name not in best)
            raise DataError(f"{self.name}: {missing} is missing in {next(iter(best.values())).parent}")
        return {}


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The unsigned bytes of an idx file, which has to be of ``shape``."""
    expected = _count_bytes(shape)
    data = read_start(path, expected + 1)
    start = 4 + 4 * len(shape)
    magic = bytes((0, 0, UBYTE, len(shape)))
    if data[:4] != magic:
        raise DataError(f"{path}: wanted an idx file that begins with {magic.hex()}, got {data[:4].hex() or 'nothing'}")
    sizes = tuple(np.frombuffer(data[4:start].ljust(start - 4, b"\0"), ">u4").tolist())
    if sizes != shape:
        raise DataError(f"{path}: wanted {format_size(shape)} cells, got {format_size(sizes)} by its header")
    if len(data) != expected:
        raise DataError(
            f"{path}: wanted {expected:,} bytes, got {'more' if len(data) > expected else f'{len(data):,}'}"
        )
    return np.frombuffer(bytearray(data), np.uint8, offset=start).reshape(shape)


def _count_bytes(shape: tuple[int, ...]) -> int:
    return 4 + 4 * len(shape) + int(np.prod(shape))


def _get_official_name(file: str) -> str:
    return file.replace(".idx", "-idx")


def _list_remotes(mirrors: tuple[str, ...], *sums: tuple[int, str]) -> tuple[Remote, ...]:
    return tuple(Remote(f"{file}.gz", size, md5, mirrors) for file, (size, md5) in zip(FILES, sums, strict=True))


MNIST = IdxSource(
    name="mnist",
    shape=(1, 28, 28),
    classes=DIGIT_CLASSES,
    counts={"train": 60_000, "test": 10_000},
    balance={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    folders=("mnist", "MNIST", "MNIST/raw", "mnist/raw"),
    remotes=_list_remotes(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)
FASHION_MNIST = IdxSource(
    name="fashion-mnist",
    shape=(1, 28, 28),
    classes=(
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    counts={"train": 60_000, "test": 10_000},
    balance={"train": (6000,) * 10, "test": (1000,) * 10},
    folders=("fashion-mnist", "fashion_mnist", "fashionmnist", "FashionMNIST", "FashionMNIST/raw", "fashion-mnist/raw"),
    remotes=_list_remotes(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
        (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
        (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    md5={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)  # fmt: skip
