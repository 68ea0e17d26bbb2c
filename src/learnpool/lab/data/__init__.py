"""Data sets: read, held out, prepared, augmented.

>>> data = load("digits")
>>> train, validation = hold_out(data, seed=0)
>>> images, held, test = prepare("mean", train, validation, data.test)
>>> images.shape, len(validation)
(torch.Size([1132, 1, 8, 8]), 125)
"""

from .augment import Augment
from .folder import decode, stream, without_broken
from .loading import NAMES, data_directory, digest, load
from .preparation import KINDS, Preparation, apply, fit, prepare
from .split import DataError, Dataset, Files, Folder, ImageError, Split, hold_out, subset

__all__ = [
    "load", "digest", "NAMES", "data_directory", "Dataset", "Split", "Folder", "Files", "DataError", "ImageError",
    "hold_out", "subset", "prepare", "fit", "apply", "Preparation", "KINDS", "Augment", "stream", "decode",
    "without_broken",
]  # fmt: skip
