"""Compiled kernels: loaded here where they were built, so that they take over from the reference."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
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
        return Status(
            False, "not built: learnpool was installed from the wheel for any platform, or without a C++ compiler"
        )
    try:
        torch.ops.load_library(path)
        library = ctypes.CDLL(str(path))
        get_isa = library.learnpool_isa
    except (OSError, AttributeError) as error:
        return Status(False, f"built, but it does not load: {str(error).splitlines()[0]}")
    get_isa.restype = ctypes.c_char_p
    global _register
    _register = getattr(library, "learnpool_register", None)  # a library built before there were handles has none
    if _register is not None:
        _register.restype = ctypes.c_int64
    return Status(True, get_isa().decode())


def warn_once(reference: Callable[..., Any]) -> Callable[..., Any]:
    """``reference``, which says at its first call on the CPU that it stands in for the kernel."""
    if CPU.live or "LEARNPOOL_CPU_LIBRARY" in os.environ:
        return reference

    def call(x: torch.Tensor, *rest: Any) -> Any:
        global _warned
        if x.device.type == "cpu" and not _warned:
            _warned = True
            warnings.warn(
                f"learnpool: the reference serves, which computes the same more slowly: the CPU kernel is {CPU.detail}",
                stacklevel=2,
            )
        return reference(x, *rest)

    return call


def register(program: tuple[int, ...], window: Window, clamp: bool) -> int | None:
    """The handle of these arguments in this process; None without a library, and for more of them than it keeps."""
    if _register is None:
        return None
    sizes = [n for axes in window.arguments[:4] for n in axes]
    codes, numbers = (ctypes.c_int64 * len(program))(*program), (ctypes.c_int64 * len(sizes))(*sizes)
    lengths = ctypes.c_int64(len(program)), ctypes.c_int64(window.dims)
    switches = map(ctypes.c_bool, (window.ceil_mode, window.count_include_pad, clamp))
    handle = int(_register(codes, lengths[0], numbers, lengths[1], *switches))
    return None if handle < 0 else handle


_register: Any = None
_warned = False
CPU = _load_cpu()
pool_by_handle: Any = None if _register is None else torch.ops.learnpool._pool._op
pool_backward_by_handle: Any = None if _register is None else torch.ops.learnpool._pool_backward._op
