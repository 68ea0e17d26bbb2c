"""Packed files, never unpacked beyond the size they must have: a few megabytes of gzip can hold many gigabytes."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .split import DataError

BLOCK = 1 << 16
ARCHIVE_SLACK = 4 << 20  # bytes of an archive beside the files we read: its headers, a readme, names of classes
MAT_HEADER, MAT_COMPRESSED = 128, 15  # bytes before the first element of a MATLAB file; the type of a compressed one


def read_file(path: Path, limit: int) -> bytes:
    """The content of a file, unpacked if its name ends in .gz, which must not exceed ``limit`` bytes."""
    content = read_start(path, limit + 1)
    if len(content) > limit:
        raise _make_size_error(path, limit)
    return content


def read_start(path: Path, size: int) -> bytes:
    """The first ``size`` bytes of a file, unpacked if its name ends in .gz; fewer if there are no more."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: wanted a whole gzip file, got a broken one ({error})") from None


def iter_archive(path: Path, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the files in a tar.gz that ``limits`` names, none larger than its limit, in one pass."""
    missing = set(limits)
    try:
        with gzip.open(path) as packed:
            stream: Any = LimitedReader(packed, sum(limits.values()) + ARCHIVE_SLACK, path)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    name = Path(member.name).name
                    if name not in missing or not member.isfile():
                        continue
                    if member.size > limits[name]:
                        raise _make_size_error(f"{path}: {name}", limits[name], member.size)
                    if content := archive.extractfile(member):
                        yield name, content.read()
                        missing.remove(name)
            while stream.read(BLOCK):  # to its end, where its checksum is
                pass
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path}: wanted a whole tar.gz archive, got a broken one ({error})") from None
    if missing:
        raise DataError(f"{path}: wanted {', '.join(sorted(missing))} inside, got an archive without")


class LimitedReader:
    """A stream that refuses to be read beyond ``limit`` bytes."""

    def __init__(self, stream: Any, limit: int, path: Path) -> None:
        self.stream, self.limit, self.path, self.count = stream, limit, path, 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        block = bytes(self.stream.read(min(size, self.limit + 1 - self.count)))
        self.count += len(block)
        if self.count > self.limit:
            raise _make_size_error(self.path, self.limit)
        return block


def check_mat_size(path: Path, limit: int, content: bytes | None = None) -> None:
    """Refuse a MATLAB file that is cut short or unpacks to more than ``limit`` bytes; keeps no more than a block.

    ``content`` is that of a file that is itself packed in ``path``.
    """
    total, length = 0, path.stat().st_size if content is None else len(content)
    with path.open("rb") if content is None else io.BytesIO(content) as file:
        header = file.read(MAT_HEADER)
        order = {b"IM": "<", b"MI": ">"}.get(header[126:], "")
        if not order:  # no file that could be compressed
            total = length
        while order and len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            end = file.tell() + size
            if end > length:
                raise DataError(f"{path}: wanted a whole MATLAB file, got a broken one (it ends too early)")
            if kind == MAT_COMPRESSED:
                for block in _iter_unpacked(file, end):
                    total += len(block)
                    if total > limit:
                        break
            else:
                total += size
            if total > limit:
                break
            file.seek(end)
    if total > limit:
        raise _make_size_error(path, limit)


def _iter_unpacked(file: Any, end: int) -> Iterator[bytes]:
    unpacker = zlib.decompressobj()
    try:
        while block := file.read(min(BLOCK, end - file.tell())):
            while block:
                yield unpacker.decompress(block, BLOCK)
                block = unpacker.unconsumed_tail
    except zlib.error:  # whoever parses the file says so
        return


def _make_size_error(where: object, limit: int, size: int | None = None) -> DataError:
    actual = "more" if size is None else f"{size:,}"
    return DataError(f"{where}: wanted at most {limit:,} bytes unpacked, got {actual}")
