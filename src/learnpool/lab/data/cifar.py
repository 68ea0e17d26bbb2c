"""CIFAR10 and CIFAR100: python batches, binary batches, or the archive of either, read without unpacking it to disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from .cifar_batches import parse_binary, parse_pickle
from .source import Remote, Source
from .split import DataError, Split
from .unpacking import iter_archive, read_file

TORONTO = "https://www.cs.toronto.edu/~kriz/"
PICKLE_SLACK = 128  # bytes of an image beside its pixels: a label, the name of a file


class Release(NamedTuple):
    """One form in which the set is published."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    binary: bool

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test)


@dataclass(frozen=True, kw_only=True)
class CifarSource(Source):
    """Batches in a directory or in an archive; the first release that is whole is read."""

    releases: tuple[Release, ...]
    coarse: bool  # a batch has coarse labels before those we read

    def find_files(self, data_dir: Path) -> list[Path]:
        location = self._find_release(data_dir)
        if location is None:
            return []
        release, place = location
        return [place / name for name in release.files] if place.is_dir() else [place]

    def read(self, data_dir: Path) -> dict[str, Split]:
        location = self._find_release(data_dir)
        if location is None:
            return {}
        release, place = location
        contents = dict(self._iter_members(release, place))
        parse = parse_binary if release.binary else parse_pickle
        splits = {}
        for split, files in (("train", release.train), ("test", (release.test,))):
            count = self.counts[split] // len(files)
            images = np.empty((len(files), count, *self.shape), np.uint8)
            labels = np.empty((len(files), count), np.int64)
            for row, file in enumerate(files):
                where = str(place / file) if place.is_dir() else f"{place}: {file}"
                batch = parse(where, contents.pop(file), count, self.shape, len(self.classes), self.coarse)
                images[row], labels[row] = batch
            splits[split] = Split(
                torch.from_numpy(images.reshape(-1, *self.shape)), torch.from_numpy(labels.reshape(-1))
            )
        return splits

    def iter_contents(self, path: Path) -> Iterator[tuple[str, bytes]]:
        release = next((release for release in self.releases if release.archive == path.name), None)
        return self._iter_members(release, path) if release else iter(())

    def _iter_members(self, release: Release, place: Path) -> Iterator[tuple[str, bytes]]:
        """Name and content of each file of a release, from a directory or an archive."""
        counts = {file: self.counts["train"] // len(release.train) for file in release.train}
        counts[release.test] = self.counts["test"]
        slack = 2 if release.binary else PICKLE_SLACK
        limits = {file: (count + 1) * (int(np.prod(self.shape)) + slack) for file, count in counts.items()}
        if place.is_dir():
            return ((file, read_file(place / file, limit)) for file, limit in limits.items())
        return iter_archive(place, limits)

    def _find_release(self, data_dir: Path) -> tuple[Release, Path] | None:
        """The first release that is whole, and its directory or archive."""
        partial = None
        for folder in (".", *self.folders):
            for release in self.releases:
                for place in (data_dir / folder / release.folder, data_dir / folder):
                    missing = [name for name in release.files if not (place / name).is_file()]
                    if not missing:
                        return release, place
                    if len(missing) <= len(release.train):
                        partial = partial or f"{self.name}: {missing[0]} is missing in {place}"
        for folder in (".", *self.folders):
            for release in self.releases:
                if (data_dir / folder / release.archive).is_file():
                    return release, data_dir / folder / release.archive
        if partial:
            raise DataError(partial)
        return None


FIVE_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR10 = CifarSource(
    name="cifar10",
    shape=(3, 32, 32),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    counts={"train": 50_000, "test": 10_000},
    balance={"train": (5000,) * 10, "test": (1000,) * 10},
    folders=("cifar10", "cifar-10", "CIFAR10"),
    releases=(
        Release("cifar-10-batches-py", "cifar-10-python.tar.gz", FIVE_BATCHES, "test_batch", False),
        Release(
            "cifar-10-batches-bin",
            "cifar-10-binary.tar.gz",
            tuple(f"{batch}.bin" for batch in FIVE_BATCHES),
            "test_batch.bin",
            True,
        ),
    ),
    coarse=False,
    remotes=(Remote("cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a", (TORONTO,)),),
    md5={
        "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
)
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR100 = CifarSource(
    name="cifar100",
    shape=(3, 32, 32),
    classes=tuple(CIFAR100_CLASSES.split()),
    counts={"train": 50_000, "test": 10_000},
    balance={"train": (500,) * 100, "test": (100,) * 100},
    folders=("cifar100", "cifar-100", "CIFAR100"),
    releases=(
        Release("cifar-100-python", "cifar-100-python.tar.gz", ("train",), "test", False),
        Release("cifar-100-binary", "cifar-100-binary.tar.gz", ("train.bin",), "test.bin", True),
    ),
    coarse=True,
    remotes=(Remote("cifar-100-python.tar.gz", 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85", (TORONTO,)),),
    md5={
        "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
)
