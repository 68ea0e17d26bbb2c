"""A data set as data: its files, where they are published, their checksums, and what has to be in them.

The MD5 sums are the ones torchvision publishes; the CIFAR archives' stand on the sets' own page as well. Those of
unpacked files follow from files of a published sum. A size bounds what is taken from a server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .split import DataError, Split

DIGIT_CLASSES = tuple("0123456789")


@dataclass(frozen=True)
class Remote:
    """A file to fetch: the same bytes from any of its mirrors."""

    file: str
    size: int
    md5: str
    mirrors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """An official data set; a subclass knows its file format. ``catalog.SOURCES`` lists them all."""

    name: str
    shape: tuple[int, int, int]  # of an image: channels, height, width
    classes: tuple[str, ...]
    counts: Mapping[str, int]  # images in each split
    balance: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # images of each class, where known
    folders: tuple[str, ...] = ()  # where to look inside the data directory, besides itself
    remotes: tuple[Remote, ...] = ()
    md5: Mapping[str, str] = field(default_factory=dict)  # of files that are not fetched, or packed in those that are

    @abstractmethod
    def find_files(self, data_dir: Path) -> list[Path]:
        """The files that ``read`` reads; none if the set is not there, DataError if only a part of it is."""

    @abstractmethod
    def read(self, data_dir: Path) -> dict[str, Split]:
        """The splits by name, from the files that ``find_files`` finds; none if the set is not there."""

    def iter_contents(self, path: Path) -> Iterator[tuple[str, bytes]]:
        """The contents of a packed file, by the names ``get_checksum`` knows; nothing for any other file."""
        return iter(())

    def get_checksum(self, file: str) -> str | None:
        """The published MD5 of a file of this set, or of what is packed in it, by name."""
        return ({remote.file: remote.md5 for remote in self.remotes} | dict(self.md5)).get(file)


def check_labels(where: object, lowest: int, highest: int, classes: range) -> None:
    """Refuse labels outside ``classes``."""
    if lowest not in classes or highest not in classes:
        raise DataError(f"{where}: wanted labels {classes[0]} to {classes[-1]}, got {lowest} to {highest}")
