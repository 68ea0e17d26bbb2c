"""Prepared images on disk: computed once for equal content, mapped into memory by every later run."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import files

PART_LIFETIME = 24 * 3600  # seconds after which an unfinished file has no owner any more


def get_cache_directory() -> Path:
    """$LEARNPOOL_CACHE, or learnpool in the user's cache directory."""
    directory = os.environ.get("LEARNPOOL_CACHE")
    return Path(directory or Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "learnpool")


def hash_parts(*parts: object) -> str:
    """SHA-256 that equal parts share; a tensor counts by its shape, dtype and bytes."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            digest.update(f"{tuple(part.shape)} {part.dtype}\n".encode())
            digest.update(_view_bytes(part))
        else:
            digest.update(f"{part!r}\n".encode())
    return digest.hexdigest()


def read(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    """What ``write`` left there. Pages are read when touched, shared by processes, and not written back."""
    try:
        cells = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):  # not there, or cut short: compute it again
        return None
    return torch.from_numpy(cells) if cells.shape == shape and cells.dtype == np.float32 else None


def write(path: Path, shape: tuple[int, ...], chunks: Iterable[Tensor]) -> Tensor | None:
    """Chunks of float32 one after the other as one .npy, all or nothing; None, and a warning, if the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        with files.open_atomic(path, concurrent=True) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for chunk in chunks:
                file.write(_view_bytes(chunk))
    except OSError as error:
        logging.getLogger("learnpool").warning(
            "learnpool: prepared images are not kept (%s: %s); going on without", error.strerror, path.parent
        )
        return None
    return read(path, shape)


def _view_bytes(tensor: Tensor) -> Any:
    """A view of the tensor's memory."""
    return tensor.contiguous().numpy().reshape(-1).view(np.uint8).data


def _remove_abandoned(directory: Path) -> None:
    """Remove what killed processes left unfinished."""
    for part in directory.glob("*.part"):
        if part.stat().st_mtime < time.time() - PART_LIFETIME:
            part.unlink(missing_ok=True)
