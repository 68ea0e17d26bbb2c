"""Images inside tar files, read in place: a file's position is all that is kept of it."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

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


def iter_members(archive: Path, inside: Member | None = None) -> Iterator[Member]:
    """The files in a tar file, or in one that is itself ``inside`` it, in their order."""
    where, start = (archive, 0) if inside is None else (inside, inside.offset)
    try:
        with tarfile.open(archive, "r:") as outer, ExitStack() as stack:
            contents, end = outer, archive.stat().st_size
            if inside is not None:
                info = tarfile.TarInfo(inside.name)
                info.offset_data, info.size, end = start, inside.size, start + inside.size
                contents = stack.enter_context(tarfile.open(fileobj=outer.extractfile(info), mode="r:"))
            for found in contents:
                if found.isfile():
                    member = Member(archive, found.name, start + found.offset_data, found.size)
                    if member.offset + member.size > end:
                        raise DataError(f"{where}: wanted a whole tar file, got one that ends inside {found.name}")
                    yield member
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{where}: wanted a whole tar file, got a broken one ({error})") from None
