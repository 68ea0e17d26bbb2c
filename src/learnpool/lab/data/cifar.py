"""CIFAR's python batches, binary batches, or the archive of either, read without unpacking it."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .sources import Source
from .split import DataError, Split, verify


class Form(NamedTuple):
    """One way the set is published."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    binary: bool


FIVE = tuple(f"data_batch_{number}" for number in range(1, 6))
FORMS = {
    "cifar10": (
        Form("cifar-10-batches-py", "cifar-10-python.tar.gz", FIVE, "test_batch", False),
        Form("cifar-10-batches-bin", "cifar-10-binary.tar.gz", tuple(f"{b}.bin" for b in FIVE), "test_batch.bin", True),
    ),
    "cifar100": (
        Form("cifar-100-python", "cifar-100-python.tar.gz", ("train",), "test", False),
        Form("cifar-100-binary", "cifar-100-binary.tar.gz", ("train.bin",), "test.bin", True),
    ),
}


def find(source: Source, data_dir: Path) -> tuple[Form, Path] | None:
    """The first form that is whole: a directory of its files, or its archive."""
    partial = None
    for folder in (".", *source.folders):
        for form in FORMS[source.name]:
            for place in (data_dir / folder / form.folder, data_dir / folder):
                missing = [name for name in (*form.train, form.test) if not (place / name).is_file()]
                if not missing:
                    return form, place
                if len(missing) <= len(form.train):
                    partial = partial or f"{source.name}: {missing[0]} is missing in {place}"
    for folder in (".", *source.folders):
        for form in FORMS[source.name]:
            if (data_dir / folder / form.archive).is_file():
                return form, data_dir / folder / form.archive
    if partial:
        raise DataError(partial)
    return None


def files(source: Source, data_dir: Path) -> list[Path]:
    """The files ``read`` reads."""
    found = find(source, data_dir)
    if found is None:
        return []
    form, place = found
    return [place / name for name in (*form.train, form.test)] if place.is_dir() else [place]


def read(source: Source, data_dir: Path) -> dict[str, Split] | None:
    """Train and test, or None where there is no file of the set."""
    found = find(source, data_dir)
    if found is None:
        return None
    form, place = found
    parts = dict(members(place, (*form.train, form.test)))
    splits = {}
    for name, files in (("train", form.train), ("test", (form.test,))):
        count = source.counts[name] // len(files)
        images = np.empty((len(files), count, *source.shape), np.uint8)
        labels = np.empty((len(files), count), np.int64)
        for row, file in enumerate(files):
            where = str(place / file) if place.is_dir() else f"{place}: {file}"
            parse = binary if form.binary else pickled
            images[row], labels[row] = parse(where, parts.pop(file), count, source)
        splits[name] = Split(torch.from_numpy(images.reshape(-1, *source.shape)), torch.from_numpy(labels.reshape(-1)))
    return splits


def members(place: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file, from a directory or from an archive in one pass."""
    if place.is_dir():
        yield from ((name, (place / name).read_bytes()) for name in names)
        return
    missing = set(names)
    try:
        with gzip.open(place) as packed:
            with tarfile.open(fileobj=packed, mode="r|") as archive:
                for member in archive:
                    name = Path(member.name).name
                    if name in missing and (content := archive.extractfile(member)):
                        yield name, content.read()
                        missing.remove(name)
            while packed.read(1 << 20):  # to its end, where its checksum is
                pass
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{place}: wanted a whole tar.gz archive, got a broken one ({error})") from None
    if missing:
        raise DataError(f"{place}: wanted {', '.join(sorted(missing))} inside, got an archive without")


def binary(where: str, data: bytes, count: int, source: Source) -> tuple[np.ndarray, np.ndarray]:
    """Records of one label byte (CIFAR100: a coarse one before it) and 3,072 pixels."""
    ahead = 2 if source.name == "cifar100" else 1
    size = ahead + int(np.prod(source.shape))
    if len(data) != count * size:
        raise DataError(f"{where}: wanted {count:,} records of {size:,} bytes, got {len(data):,} bytes")
    rows = np.frombuffer(data, np.uint8).reshape(count, size)
    labels = rows[:, ahead - 1].astype(np.int64)
    verify(where, int(labels.min()), int(labels.max()), range(len(source.classes)))
    return rows[:, ahead:].reshape(count, *source.shape), labels


def pickled(where: str, data: bytes, count: int, source: Source) -> tuple[np.ndarray, np.ndarray]:
    """A pickled dict of ``data`` [N, 3072] and ``labels`` or ``fine_labels``."""
    try:
        batch = Unpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a broken pickle can fail in any way
        raise DataError(f"{where}: wanted a pickled batch of CIFAR, got something else ({error})") from None
    if not isinstance(batch, dict):
        raise DataError(f"{where}: wanted a dict of data and labels, got {type(batch).__name__}")
    batch = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    images, labels = batch.get("data"), batch.get("fine_labels" if source.name == "cifar100" else "labels")
    wanted = (count, int(np.prod(source.shape)))
    if not isinstance(images, Array) or images.cells.shape != wanted:
        came = "×".join(map(str, images.cells.shape)) if isinstance(images, Array) else type(images).__name__
        raise DataError(f"{where}: wanted data of {wanted[0]}×{wanted[1]} bytes, got {came}")
    if not isinstance(labels, list) or len(labels) != count or not all(type(item) is int for item in labels):
        came = f"{len(labels)} items" if isinstance(labels, list) else type(labels).__name__
        raise DataError(f"{where}: wanted a list of {count} labels, got {came}")
    verify(where, min(labels), max(labels), range(len(source.classes)))
    return images.cells.reshape(count, *source.shape), np.array(labels)


class Array:
    """Stands in for an array while unpickling: takes shape and bytes, calls nothing."""

    cells: np.ndarray = np.empty((0, 0), np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, columns, raw = state
        if not isinstance(kind, Kind) or kind.name not in ("u1", b"u1"):
            raise pickle.UnpicklingError("it has an array that is not of unsigned bytes")
        self.cells = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if columns else "C")


class Kind:
    """Stands in for an array's type: remembers its name."""

    def __init__(self, name: object = None, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment: of no meaning for bytes."""


class Unpickler(pickle.Unpickler):
    """Builds dicts, lists, numbers, strings and arrays of bytes; any other name in a pickle is refused.

    What a pickle calls are the stand-ins above, so even numpy's own constructors are out of its reach.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return lambda *_: Array()
        if (module, name) == ("numpy", "ndarray"):
            return None
        if (module, name) == ("numpy", "dtype"):
            return Kind
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
