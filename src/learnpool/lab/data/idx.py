"""MNIST's file format: two zero bytes, a type, a number of dimensions, their sizes, and the cells."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch

from .sources import Source
from .split import DataError, Split, verify

UBYTE = 8


def find(source: Source, data_dir: Path) -> dict[str, Path]:
    """The four files, by their official names with or without .gz; all of them from one directory."""
    wanted = [remote.file.removesuffix(".gz") for remote in source.remotes]
    best: dict[str, Path] = {}
    for folder in (*source.folders, "."):
        found: dict[str, Path] = {}
        for name in wanted:
            spellings = (name, name.replace("-idx", ".idx"))
            candidates = (data_dir / folder / (spelling + end) for end in ("", ".gz") for spelling in spellings)
            path = next((path for path in candidates if path.is_file()), None)
            if path:
                found[name] = path
        if len(found) == len(wanted):
            return found
        best = max(best, found, key=len)
    if best:
        missing = next(name for name in wanted if name not in best)
        raise DataError(f"{source.name}: {missing} is missing in {next(iter(best.values())).parent}")
    return {}


def files(source: Source, data_dir: Path) -> list[Path]:
    """The files ``read`` reads."""
    return list(find(source, data_dir).values())


def read(source: Source, data_dir: Path) -> dict[str, Split] | None:
    """Train and test, or None where there is no file of the set."""
    found = find(source, data_dir)
    if not found:
        return None
    splits = {}
    for name, start in (("train", "train"), ("test", "t10k")):
        images = cells(found[f"{start}-images-idx3-ubyte"], (source.counts[name], *source.shape[1:]))
        file = found[f"{start}-labels-idx1-ubyte"]
        labels = cells(file, (source.counts[name],))
        verify(file, int(labels.min()), int(labels.max()), range(len(source.classes)))
        splits[name] = Split(torch.from_numpy(images)[:, None], torch.from_numpy(labels).long())
    return splits


def cells(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The unsigned bytes of an idx file, which has to be of ``shape``."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: wanted a whole gzip file, got a broken one ({error})") from None
    start = 4 + 4 * len(shape)
    magic = bytes((0, 0, UBYTE, len(shape)))
    if data[:4] != magic:
        raise DataError(f"{path}: wanted an idx file that begins with {magic.hex()}, got {data[:4].hex() or 'nothing'}")
    sizes = tuple(np.frombuffer(data[4:start].ljust(start - 4, b"\0"), ">u4").tolist())
    if sizes != shape:
        raise DataError(f"{path}: wanted {times(shape)} cells, got {times(sizes)} by its header")
    wanted = start + int(np.prod(shape))
    if len(data) != wanted:
        raise DataError(f"{path}: wanted {wanted:,} bytes, got {len(data):,}")
    return np.frombuffer(bytearray(data), np.uint8, offset=start).reshape(shape)


def times(shape: tuple[int, ...]) -> str:
    """``60000×28×28``."""
    return "×".join(map(str, shape))
