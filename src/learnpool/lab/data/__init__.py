"""Data sets: load, hold out, prepare, augment.

>>> data = load("digits")
>>> train, validation = hold_out(data, seed=0)
>>> images, *others = prepare("mean", train, validation, data.test)
>>> images.shape, len(validation)
(torch.Size([1132, 1, 8, 8]), 125)
"""

from .augment import Augment
from .catalog import NAMES, is_streamed
from .crops import VIEWS, Crop
from .decoding import decode, iter_batches, read_image
from .folder import drop_broken
from .loading import check_name, compute_digest, load, load_test
from .preparation import KINDS, Preparation, apply, fit, prepare
from .split import DataError, Dataset, Files, Folder, ImageError, Split, choose_subset, hold_out

__all__ = [
    "load", "load_test", "check_name", "compute_digest", "NAMES", "Dataset", "Split", "Folder", "Files", "DataError",
    "ImageError", "hold_out", "choose_subset", "prepare", "fit", "apply", "Preparation", "KINDS", "Augment",
    "iter_batches", "decode", "Crop", "VIEWS", "read_image", "drop_broken", "is_streamed",
]  # fmt: skip
