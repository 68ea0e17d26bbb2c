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


def _load_cpu() -> Status:
    # LEARNPOOL_CPU_LIBRARY names another build of the same source, to test a change without installing it.
    other = os.environ.get("LEARNPOOL_CPU_LIBRARY")
    found = [Path(other)] if other else sorted(Path(__file__).parent.glob("library*.so"))
    if not found:
        return Status(False, "not built: no C++ compiler was found when learnpool was installed")
    try:
        torch.ops.load_library(found[0])
        name = ctypes.CDLL(str(found[0])).learnpool_isa
    except (OSError, AttributeError) as error:
        return Status(False, f"built, but it does not load: {str(error).splitlines()[0]}")
    name.restype = ctypes.c_char_p
    return Status(True, name().decode())


CPU = _load_cpu()
