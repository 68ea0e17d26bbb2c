"""Compiled kernels: loaded here where they were built, so that they take over from the reference."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import NamedTuple

import torch


class Status(NamedTuple):
    """Whether a device's kernel is live; ``detail`` is its instruction set, or why it is not."""

    live: bool
    detail: str


def find_library() -> Path | None:
    """The compiled library; ``LEARNPOOL_CPU_LIBRARY`` names another build, to test a change without installing it."""
    other = os.environ.get("LEARNPOOL_CPU_LIBRARY")
    if other:
        return Path(other)
    return next(iter(sorted(Path(__file__).parent.glob("library*.so"))), None)


def _load_cpu() -> Status:
    path = find_library()
    if path is None:
        return Status(False, "not built: no C++ compiler was found when learnpool was installed")
    try:
        torch.ops.load_library(path)
        get_isa = ctypes.CDLL(str(path)).learnpool_isa
    except (OSError, AttributeError) as error:
        return Status(False, f"built, but it does not load: {str(error).splitlines()[0]}")
    get_isa.restype = ctypes.c_char_p
    return Status(True, get_isa().decode())


CPU = _load_cpu()
