"""Atomic writes: a file is complete and on disk before it gets its name."""

from __future__ import annotations

import errno
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..formatting import is_utf8


def make_directory(path: Path) -> None:
    """Make a directory that can be written to, so that a full or read-only disk is an error before the work."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    path.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=path).close()


@contextmanager
def keep_if_used(path: Path) -> Iterator[None]:
    """Make a directory as ``make_directory`` does; if the work fails before it wrote anything, nothing is left."""
    made = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        make_directory(path)
        yield
    except BaseException:
        with suppress(OSError):  # one that has something in it
            for parent in made:
                parent.rmdir()
        raise


@contextmanager
def open_atomic(path: Path, *, concurrent: bool = False) -> Iterator[BinaryIO]:
    """A file to write to as ``path.part``; it is renamed to ``path`` at the end, or removed if anything fails.

    ``concurrent``: several processes may be writing the same file, so that each needs a temporary name of its own.
    """
    part = path.with_name(path.name + (f".{os.getpid()}.part" if concurrent else ".part"))
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (None, str(part)):  # a full disk does not name the file
            error.filename = str(path)
        with suppress(OSError):
            part.unlink()
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file."""
    with open_atomic(path) as file:
        file.write(content)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a file of indented JSON; a name that is not UTF-8 is written in escapes."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    if not is_utf8(text):
        text = json.dumps(record, indent=1)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """What ``write_json`` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def save_figure(path: Path, figure: Any, **options: Any) -> None:
    """Write a figure of matplotlib, in the format the path's suffix names."""
    file = io.BytesIO()
    figure.savefig(file, format=path.suffix[1:], **options)
    write_bytes(path, file.getvalue())
