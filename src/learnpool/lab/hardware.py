"""The machine a result was made on, and how much of it a process may use."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from .. import __version__
from ..ops import cpu, triton

# More threads than this only wait for each other; with far more the system refuses, and torch ends the process.
MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))
# Options of glibc's mallopt: M_MMAP_MAX, no block is mapped by itself; M_TRIM_THRESHOLD, the heap hardly ever shrinks;
# M_TOP_PAD, it grows by 256 MB.
KEEP_MEMORY = {-4: 0, -1: 2**31 - 1, -2: 2**28}


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """Date, versions, hardware and kernel; ``load`` is the mean number of busy processes in the last minute."""
    on_gpu = torch.device(device).type == "cuda"
    kernel = triton.GPU if on_gpu else cpu.CPU
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {
            "learnpool": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "package": hash_package(),
        },
        "hardware": {
            "cpu": read_processor_name(),
            "cores": count_cores(),
            "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        }
        | ({"gpu": torch.cuda.get_device_name(device)} if on_gpu else {}),
        "kernel": {"live": kernel.live, "detail": kernel.detail},
    }


@cache
def hash_package() -> str:
    """16 digits of the SHA-256 of all modules and compiled libraries of learnpool, by path: equal for equal code."""
    folder = Path(__file__).parents[1]
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".so"))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def find_device(name: str) -> torch.device:
    """The device that ``--device`` names; ValueError if this machine does not have it."""
    try:
        device = torch.device(name)
        known = device.type in ("cpu", "cuda")
    except RuntimeError:
        known = False
    if not known:
        raise ValueError(f"--device: wanted cpu or cuda, got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = f"torch {torch.__version__} finds {torch.cuda.device_count()} CUDA devices"
        raise ValueError(f"--device: wanted {name}, but {found}")
    return device


def format_machine(machine: dict[str, Any]) -> str:
    """What ``describe_machine`` gave, in one line."""
    hardware, kernel = machine["hardware"], machine["kernel"]
    gpu = f"{hardware['gpu']}; " if "gpu" in hardware else ""
    return (
        f"{gpu}{hardware['cpu']}, {hardware['cores']} cores, load {hardware['load']} at the start; "
        f"{'compiled kernel' if kernel['live'] else 'reference'} ({kernel['detail']}); "
        f"torch {machine['versions']['torch']}; {machine['date'][:10]}"
    )


def warn_if_busy(console: Console, machine: dict[str, Any]) -> None:
    """Print a warning if other programs keep the machine busy: timings are then meaningless."""
    load, available = machine["hardware"]["load"], machine["hardware"]["cores"]
    if load is not None and load > available / 2:
        console.print(f"The machine was busy before the start (load {load} on {available} cores): measure again.")


def read_processor_name() -> str:
    """The processor's own name, or the architecture where the system does not give it."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def count_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_peak_memory() -> int:
    """The most bytes this process ever had in memory; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def keep_memory() -> None:
    """Let the C library keep what is freed, so that tensors of the next step do not wait for new pages.

    Where there is no glibc this does nothing. Peak memory hardly changes: a step frees what the next one needs.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        for option, value in KEEP_MEMORY.items():
            library.mallopt(option, value)


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Let torch use ``number`` threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
