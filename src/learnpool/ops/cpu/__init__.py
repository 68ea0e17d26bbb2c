"""Compiled kernels: loaded here where they were built, so that they take over from the reference."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..window import Window


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
    global _library
    try:
        torch.ops.load_library(path)
        library = ctypes.CDLL(str(path))
        get_isa = library.learnpool_isa
    except (OSError, AttributeError) as error:
        return Status(False, f"built, but it does not load: {str(error).splitlines()[0]}")
    get_isa.restype = ctypes.c_char_p
    library.learnpool_number_arguments.restype = ctypes.c_int64
    _library = library
    return Status(True, get_isa().decode())


def number_arguments(program: tuple[int, ...], window: Window, clamp: bool) -> int | None:
    """The number by which the library knows these arguments from now on, in this process; None without a library."""
    if _library is None:
        return None
    sizes = [n for axis in window.arguments[:4] for n in axis]
    codes, numbers = (ctypes.c_int64 * len(program))(*program), (ctypes.c_int64 * len(sizes))(*sizes)
    switches = map(ctypes.c_bool, (window.ceil_mode, window.count_include_pad, clamp))
    lengths = ctypes.c_int64(len(program)), ctypes.c_int64(window.dims)
    return int(_library.learnpool_number_arguments(codes, lengths[0], numbers, lengths[1], *switches))


_library: Any = None
CPU = _load_cpu()
