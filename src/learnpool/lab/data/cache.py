"""Prepared images on disk: computed once for equal content, mapped into memory by every later run."""

from __future__ import annotations

import hashlib
import io
import itertools
import logging
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import files

FILE = re.compile(r"[a-z-]+-[0-9a-f]{32}\.npy(\.\d+\.part)?")  # one of ours
BLOCK = 1 << 20
PART_LIFETIME = 24 * 3600  # seconds after which a partial file counts as abandoned


def get_cache_directory() -> Path:
    """$LEARNPOOL_CACHE, or learnpool in the user's cache directory."""
    directory = os.environ.get("LEARNPOOL_CACHE")
    return Path(directory or Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "learnpool")


def hash_parts(*parts: object) -> str:
    """SHA-256 of the parts; a tensor is hashed by shape, dtype and bytes."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            digest.update(f"{tuple(part.shape)} {part.dtype}\n".encode())
            digest.update(_view_bytes(part))
        else:
            digest.update(f"{part!r}\n".encode())
    return digest.hexdigest()


def read(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    """The array ``write`` stored; None if there is none, or (with a warning) if it is damaged."""
    if not path.is_file():
        return None
    cells = _map(path, shape) if _is_intact(path) else None
    if cells is None:
        logging.getLogger("learnpool").warning("learnpool: %s is damaged; preparing the images again", path)
    return cells


def write(path: Path, shape: tuple[int, ...], chunks: Iterable[Tensor]) -> Tensor | None:
    """Chunks of float32 as one .npy and its digest, all or nothing; None, and a warning, if the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        with files.open_atomic(path, concurrent=True) as file:
            header, digest = io.BytesIO(), hashlib.sha256()
            np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for block in itertools.chain([header.getvalue()], map(_view_bytes, chunks)):
                file.write(block)
                digest.update(block)
            file.write(digest.digest())
    except OSError as error:
        logging.getLogger("learnpool").warning(
            "learnpool: prepared images are not kept (%s: %s); continuing without a cache", error.strerror, path.parent
        )
        return None
    return _map(path, shape)


def clear() -> tuple[int, int]:
    """Remove everything cached; return the number of files and bytes."""
    directory = get_cache_directory()
    paths = [path for path in directory.iterdir() if FILE.fullmatch(path.name)] if directory.is_dir() else []
    size = sum(path.stat().st_size for path in paths)
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths), size


def _map(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    """The array in a file. Pages are read when touched, shared by processes, and not written back."""
    try:
        cells = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return torch.from_numpy(cells) if cells.shape == shape and cells.dtype == np.float32 else None


def _is_intact(path: Path) -> bool:
    """Whether the digest at the end of a file is that of what comes before it."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            rest = path.stat().st_size - digest.digest_size
            while rest > 0 and (block := file.read(min(BLOCK, rest))):
                digest.update(block)
                rest -= len(block)
            return file.read() == digest.digest()
    except OSError:
        return False


def _view_bytes(tensor: Tensor) -> Any:
    """A view of the tensor's memory."""
    return tensor.contiguous().numpy().reshape(-1).view(np.uint8).data


def _remove_abandoned(directory: Path) -> None:
    """Remove partial files of processes that were killed."""
    for part in directory.glob("*.part"):
        if part.stat().st_mtime < time.time() - PART_LIFETIME:
            part.unlink(missing_ok=True)
