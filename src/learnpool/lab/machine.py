"""What a result was made on, how far it is, and how it is written down."""

from __future__ import annotations

import errno
import io
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .. import __version__
from ..ops import cpu


def facts() -> dict[str, Any]:
    """Date, versions, hardware and kernel; ``load`` is the mean number of busy processes in the last minute."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {
            "learnpool": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "hardware": {
            "cpu": processor(),
            "cores": cores(),
            "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        },
        "kernel": {"live": cpu.CPU.live, "detail": cpu.CPU.detail},
    }


def told(facts: dict[str, Any]) -> str:
    """The facts in one line."""
    hardware, kernel = facts["hardware"], facts["kernel"]
    return (
        f"{hardware['cpu']}, {hardware['cores']} cores, load {hardware['load']} at the start; "
        f"{'compiled kernel' if kernel['live'] else 'reference'} ({kernel['detail']}); "
        f"torch {facts['versions']['torch']}; {facts['date'][:10]}"
    )


def warn(console: Console, facts: dict[str, Any]) -> None:
    """Say so if others kept the machine busy: threads that wait for a core make any timing meaningless."""
    load, available = facts["hardware"]["load"], facts["hardware"]["cores"]
    if load is not None and load > available / 2:
        console.print(f"The machine was busy before the start (load {load} on {available} cores): measure again.")


def processor() -> str:
    """The processor's own name, where the system tells."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """The most bytes this process ever had in memory; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch use ``number`` threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(out: Path) -> None:
    """Make a directory that can be written to: a full or read-only disk is better heard of before the work."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(out))
    out.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=out).close()


def write(path: Path, record: dict[str, Any]) -> None:
    """Write JSON, all or nothing."""
    store(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def store(path: Path, content: bytes) -> None:
    """Write a file, all or nothing: it is on the disk before it gets its name."""
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)  # writing to a full disk does not name the file
        with suppress(OSError):
            part.unlink()
        raise


def draw(path: Path, figure: Any, **options: Any) -> None:
    """Write a figure of matplotlib, all or nothing."""
    file = io.BytesIO()
    figure.savefig(file, format=path.suffix[1:], **options)
    store(path, file.getvalue())


@contextmanager
def progress(label: str, steps: int, console: Console) -> Iterator[Callable[[], None]]:
    """A bar with the time gone and the time left; what it gives advances it by one step."""
    done = 0
    with bar(label, console) as tell:
        tell(0, steps, "")

        def advance() -> None:
            nonlocal done
            done += 1
            tell(done, steps, "")

        yield advance


@contextmanager
def bar(label: str, console: Console) -> Iterator[Callable[[float, int, str], None]]:
    """A bar with the time gone and the time left that is told how many steps are done, of how many, and what to say."""
    columns = TextColumn(label), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.description}"), console=console) as shown:
        task = shown.add_task("", total=None)
        try:
            yield lambda done, steps, text: shown.update(task, completed=done, total=steps, description=text)
        except BaseException:
            shown.live.transient = shown.disable = True  # what went wrong stands alone, without an empty line
            shown.live.stop()
            raise
