"""Images inside tar files, read in place: a file's position is all that is kept of it."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .split import DataError


@dataclass(frozen=True, slots=True)  # there are a million of them
class Member:
    """A file inside a tar file, which may itself be inside one: ``size`` bytes from ``offset`` on."""

    archive: Path
    name: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.archive}:{self.name}"

    def read(self) -> bytes:
        """Its content; nothing is kept open, so that processes can share it."""
        with self.archive.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


class Section:
    """A part of a file as a file of its own, for a tar file inside another."""

    def __init__(self, file: Any, member: Member) -> None:
        self.file, self.start, self.size, self.place = file, member.offset, member.size, 0

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place counted from the start; as tarfile needs it."""
        self.place = place + {0: 0, 1: self.place, 2: self.size}[whence]
        return self.place

    def tell(self) -> int:
        return self.place

    def read(self, size: int = -1) -> bytes:
        """The next bytes, never beyond the section's end."""
        rest = max(0, self.size - self.place)
        self.file.seek(self.start + self.place)
        content: bytes = self.file.read(rest if size < 0 else min(size, rest))
        self.place += len(content)
        return content


def iter_members(archive: Path, inside: Member | None = None) -> Iterator[Member]:
    """The files in a tar file, or in one that is itself ``inside`` it, in their order."""
    where = archive if inside is None else inside
    try:
        with archive.open("rb") as file:
            start = 0 if inside is None else inside.offset
            stream: Any = file if inside is None else Section(file, inside)
            with tarfile.open(fileobj=stream, mode="r:") as contents:
                for found in contents:
                    if found.isfile():
                        member = Member(archive, found.name, start + found.offset_data, found.size)
                        if member.offset + member.size > (start + inside.size if inside else archive.stat().st_size):
                            raise DataError(f"{where}: wanted a whole tar file, got one that ends inside {found.name}")
                        yield member
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{where}: wanted a whole tar file, got a broken one ({error})") from None
