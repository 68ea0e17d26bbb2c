"""Compiled kernels: loaded here where they were built, so that they take over from the reference."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
        return Status(
            False, "not built: learnpool was installed from the wheel for any platform, or without a C++ compiler"
        )
    try:
        if b"learnpool_register" in path.read_bytes():
            return Status(False, "built for an earlier learnpool: install again")
        torch.ops.load_library(path)
        get_isa = ctypes.CDLL(str(path)).learnpool_isa
    except (OSError, AttributeError) as error:
        return Status(False, f"built, but it does not load: {str(error).splitlines()[0]}")
    get_isa.restype = ctypes.c_char_p
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
                f"learnpool: using the slower PyTorch reference: the CPU kernel is {CPU.detail}",
                stacklevel=2,
            )
        return reference(x, *rest)

    return call


_warned = False
CPU = _load_cpu()
