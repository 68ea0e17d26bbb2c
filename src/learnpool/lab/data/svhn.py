"""SVHN's cropped digits: MATLAB files of ``X`` [32, 32, 3, N] and ``y`` [N, 1], where class 10 is the digit 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ...ops.window import format_size
from .source import DIGIT_CLASSES, Remote, Source, check_labels
from .split import DataError, Split
from .unpacking import check_mat_size

STANFORD = "http://ufldl.stanford.edu/housenumbers/"
SPLITS = ("train", "test", "extra")
INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
MAT_SLACK = 1 << 20  # bytes beside images and labels


class SvhnSource(Source):
    """One MATLAB file for each split; extra's may be missing."""

    def find_files(self, data_dir: Path) -> list[Path]:
        return list(self._find_by_split(data_dir).values())

    def read(self, data_dir: Path) -> dict[str, Split]:
        paths = self._find_by_split(data_dir)
        return {split: read_mat(path, (self.counts[split], *self.shape)) for split, path in paths.items()}

    def _find_by_split(self, data_dir: Path) -> dict[str, Path]:
        """Split → path, all of them from one directory."""
        for folder in (*self.folders, "."):
            candidates = {split: data_dir / folder / f"{split}_32x32.mat" for split in SPLITS}
            paths = {split: path for split, path in candidates.items() if path.is_file()}
            for split in ("train", "test") if paths else ():
                if split not in paths:
                    raise DataError(f"svhn: {candidates[split].name} is missing in {candidates[split].parent}")
            if paths:
                return paths
        return {}


def read_mat(path: Path, shape: tuple[int, int, int, int]) -> Split:
    """The images, which have to be of ``shape`` [N, C, H, W], and labels of a MATLAB file."""
    from scipy.io import loadmat, whosmat

    count, channels, height, width = shape
    check_mat_size(path, int(np.prod(shape)) + 8 * count + MAT_SLACK)
    try:
        variables = {name: (size, kind) for name, size, kind in whosmat(path)}
        for name, expected, kinds in (("X", (height, width, channels, count), ("uint8",)), ("y", (count, 1), INTEGERS)):
            size, kind = variables.get(name, ((), "nothing"))
            if size != expected or kind not in kinds:
                need = f"{'integers' if kinds is INTEGERS else kinds[0]} {format_size(expected)}"
                raise DataError(f"{path}: wanted {name} as {need}, got {kind} {format_size(size)}".rstrip())
        content = loadmat(path, variable_names=("X", "y"))
    except DataError:
        raise
    except Exception as error:  # a broken file can fail in any way
        raise DataError(f"{path}: wanted a whole MATLAB file, got a broken one ({error})") from None
    labels = content["y"][:, 0].astype(np.int64)
    check_labels(path, int(labels.min()), int(labels.max()), range(1, 11))
    images = np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1))
    return Split(torch.from_numpy(images), torch.from_numpy(labels % 10))


SVHN = SvhnSource(
    name="svhn",
    shape=(3, 32, 32),
    classes=DIGIT_CLASSES,
    counts={"train": 73_257, "test": 26_032, "extra": 531_131},
    folders=("svhn", "SVHN"),
    remotes=(
        Remote("train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373", (STANFORD,)),
        Remote("test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3", (STANFORD,)),
        Remote("extra_32x32.mat", 1_329_278_602, "a93ce644f1a588dc4d68dda5feec44a7", (STANFORD,)),
    ),
)
