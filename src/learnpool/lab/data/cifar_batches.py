"""The two formats of a CIFAR batch: binary records, and pickles that are read without running what they say."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from ...ops.window import format_size
from .source import check_labels
from .split import DataError


def parse_binary(
    where: str, data: bytes, count: int, shape: tuple[int, ...], classes: int, coarse: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of records of one label byte (with ``coarse`` another one before it) and 3,072 pixels."""
    ahead = 2 if coarse else 1
    size = ahead + int(np.prod(shape))
    if len(data) != count * size:
        raise DataError(f"{where}: wanted {count:,} records of {size:,} bytes, got {len(data):,} bytes")
    rows = np.frombuffer(data, np.uint8).reshape(count, size)
    labels = rows[:, ahead - 1].astype(np.int64)
    check_labels(where, int(labels.min()), int(labels.max()), range(classes))
    return rows[:, ahead:].reshape(count, *shape), labels


def parse_pickle(
    where: str, data: bytes, count: int, shape: tuple[int, ...], classes: int, coarse: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a pickled dict of ``data`` [N, 3072] and ``labels`` (``fine_labels`` beside coarse ones)."""
    try:
        batch = BatchUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a broken pickle can fail in any way
        raise DataError(f"{where}: wanted a pickled batch of CIFAR, got something else ({error})") from None
    if not isinstance(batch, dict):
        raise DataError(f"{where}: wanted a dict of data and labels, got {type(batch).__name__}")
    batch = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    images, labels = batch.get("data"), batch.get("fine_labels" if coarse else "labels")
    expected = (count, int(np.prod(shape)))
    if not isinstance(images, ArrayStandIn) or images.cells.shape != expected:
        actual = format_size(images.cells.shape) if isinstance(images, ArrayStandIn) else type(images).__name__
        raise DataError(f"{where}: wanted data of {format_size(expected)} bytes, got {actual}")
    if not isinstance(labels, list) or len(labels) != count or not all(type(item) is int for item in labels):
        actual = f"{len(labels)} items" if isinstance(labels, list) else type(labels).__name__
        raise DataError(f"{where}: wanted a list of {count} labels, got {actual}")
    check_labels(where, min(labels), max(labels), range(classes))
    return images.cells.reshape(count, *shape), np.array(labels)


class ArrayStandIn:
    """What an array in a pickle becomes: takes shape and bytes, calls nothing."""

    cells: np.ndarray = np.empty((0, 0), np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran_order, raw = state
        if not isinstance(dtype, DtypeStandIn) or dtype.name not in ("u1", b"u1"):
            raise pickle.UnpicklingError("it has an array that is not of unsigned bytes")
        self.cells = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran_order else "C")


class DtypeStandIn:
    """What an array's dtype in a pickle becomes: remembers its name."""

    def __init__(self, name: object = None, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment: of no meaning for bytes."""


class BatchUnpickler(pickle._Unpickler):
    """Builds dicts, lists, numbers, strings and arrays of bytes; any other name in a pickle is refused.

    What a pickle calls are the stand-ins above, so even numpy's own constructors are out of its reach. The one in C
    takes gigabytes for ten bytes that number an object 2³²; this one, in Python, is as fast here and takes none.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return lambda *_: ArrayStandIn()
        if (module, name) == ("numpy", "ndarray"):
            return None
        if (module, name) == ("numpy", "dtype"):
            return DtypeStandIn
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
