"""SVHN's cropped digits: MATLAB files of ``X`` [32, 32, 3, N] and ``y`` [N, 1], where class 10 is the digit 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from .sources import Source
from .split import DataError, Split, verify

SPLITS = ("train", "test", "extra")


def find(source: Source, data_dir: Path) -> dict[str, Path]:
    """The files that are there, all from one directory; extra's may be missing."""
    for folder in (*source.folders, "."):
        paths = {name: data_dir / folder / f"{name}_32x32.mat" for name in SPLITS}
        found = {name: path for name, path in paths.items() if path.is_file()}
        for name in ("train", "test") if found else ():
            if name not in found:
                raise DataError(f"svhn: {paths[name].name} is missing in {paths[name].parent}")
        if found:
            return found
    return {}


def files(source: Source, data_dir: Path) -> list[Path]:
    """The files ``read`` reads."""
    return list(find(source, data_dir).values())


def read(source: Source, data_dir: Path) -> dict[str, Split] | None:
    """Train, test and, where its file is there, extra; None where there is no file of the set."""
    found = find(source, data_dir)
    return {name: _split(path, source, source.counts[name]) for name, path in found.items()} or None


def _split(path: Path, source: Source, count: int) -> Split:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=("X", "y"))
    except Exception as error:  # a broken file can fail in any way
        raise DataError(f"{path}: wanted a whole MATLAB file, got a broken one ({error})") from None
    for name, wanted in (("X", (*source.shape[1:], source.shape[0], count)), ("y", (count, 1))):
        cells = content.get(name)
        if cells is None or cells.shape != wanted or cells.dtype.kind not in "ui":
            came = "nothing" if cells is None else f"{cells.dtype} {'×'.join(map(str, cells.shape))}"
            raise DataError(f"{path}: wanted {name} as integers {'×'.join(map(str, wanted))}, got {came}")
    if content["X"].dtype != np.uint8:
        raise DataError(f"{path}: wanted X as uint8, got {content['X'].dtype}")
    labels = content["y"][:, 0].astype(np.int64)
    verify(path, int(labels.min()), int(labels.max()), range(1, 11))
    images = np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1))
    return Split(torch.from_numpy(images), torch.from_numpy(labels % 10))
