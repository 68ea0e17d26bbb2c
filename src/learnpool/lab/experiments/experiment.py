"""What an experiment is: runs to train, and a page made of the finished ones.

An experiment is a module of this folder with ``TITLE``, ``SOURCE`` (where in the paper), ``CLAIM`` (what it says),
``plan(scale) -> list[Run]`` and ``build_page(scale, results) -> Page``. None has a training loop: what is planned is
trained by the lab like any other run, and equal runs of several experiments are one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...formatting import format_count
from ...names import parse
from ...nets.dsn import STRIDED
from ...program import decode
from ..runs.presets import preset
from ..runs.run import Run, RunError, standardize_pool
from .results import Results

PLAIN = {"pad": 0, "mirror": False}
# A data set as the paper names it: whose images, and whether they are augmented.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mnist": ("mnist", PLAIN), "cifar10": ("cifar10", PLAIN), "cifar10+": ("cifar10", {"pad": 4, "mirror": True}),
    "cifar100": ("cifar100", PLAIN), "svhn": ("svhn", PLAIN), "digits": ("digits", PLAIN),
    "imagenet": ("imagenet", {}), "imagenette": ("imagenette", {}),
}  # fmt: skip
LABELS = {
    "mnist": "MNIST", "cifar10": "CIFAR10", "cifar10+": "CIFAR10+", "cifar100": "CIFAR100", "svhn": "SVHN",
    "digits": "digits", "imagenet": "ImageNet", "imagenette": "Imagenette",
}  # fmt: skip

CHANGES: dict[str, Callable[[Any], str]] = {  # fields that are often changed, in words
    "train_size": lambda size: "all training images" if size is None else f"{size:,} training images",
    "epochs": lambda epochs: format_count(epochs, "epoch"),
    "batch": lambda batch: f"batches of {batch}",
    "rate": lambda rates: f"learning rate {', then '.join(f'{rate:g}' for rate in rates)}",
    "precision": lambda precision: f"computed in {precision}",
    "net": lambda net: f"network {net}",
    "width": lambda width: f"{width:g} of the paper's channels",
}

# Values of fields that make no difference to some pools, so that one run of them serves all settings of the others.
NO_START: dict[str, Any] = {"start": "neutral"}
NO_RATE: dict[str, Any] = {"pool_rate": 1.0}


def fix_unused_fields(pool: str) -> dict[str, Any]:
    """The fields that make no difference to these pools, at their fixed values."""
    parts = () if pool == STRIDED else parse(pool).parts
    programs = [decode(part.pool.program) for part in parts if not isinstance(part.pool, str)]
    masks, learns = (any(getattr(p, kind) for p in programs) for kind in ("weights", "mixes"))
    return (NO_START if not masks else {}) | (NO_RATE if not (masks or learns) else {})


@dataclass(frozen=True)
class Scale:
    """What all runs of a reproduction have in common: preset, seeds, data sets, fields changed for all, and pools."""

    preset: str = "cpu"
    seeds: int = 3
    data: tuple[str, ...] | None = None  # None: those the experiment has in the paper
    changes: Mapping[str, Any] = field(default_factory=dict)
    pools: tuple[str, ...] | None = None  # None: all of the experiment's; max, the baseline, is always one of them

    def __post_init__(self) -> None:
        if odd := next((name for name in self.data or () if name not in VARIANTS), None):
            raise RunError(f"--data: wanted some of {', '.join(VARIANTS)}, got {odd!r}")
        if odd := next((name for name in ("data", "pool", "seed") if name in self.changes), None):
            raise RunError(f"--set: {odd} is part of the experiment; see --data and --seeds")
        if self.seeds < 1:
            raise RunError(f"--seeds: wanted at least 1, got {self.seeds}")
        self._make_example()  # refuses changes that no run can have

    def describe(self) -> str:
        """``CIFAR10+, preset cpu, 5 seeds, 10,000 training images``."""
        words = [LABELS[name] for name in self.data or ()]
        words += [f"pools {', '.join(self.pools)}"] if self.pools else []
        words += [f"preset {self.preset}", format_count(self.seeds, "seed")]
        example = self._make_example()
        for name in self.changes:
            value = getattr(example, name)
            words.append(CHANGES[name](value) if name in CHANGES else f"{name} {value}")
        return ", ".join(words)

    def _make_example(self) -> Run:
        return self.make_run((self.data or ("cifar10",))[0], "max", seed=0)

    def choose(self, data: Sequence[str]) -> list[str]:
        """The data sets of an experiment that are asked for."""
        return [name for name in (self.data or data) if self.data is None or name in (*data, "digits")]

    def list_runs(self, data: str, pool: str, first_seed: int = 0, **changes: Any) -> list[Run]:
        """One run for each seed, of a data set as the paper names it; none of pools that are not asked for."""
        if self.pools is not None and standardize_pool(pool) not in map(standardize_pool, ("max", *self.pools)):
            return []
        seeds = range(first_seed, first_seed + self.seeds)
        return [self.make_run(data, pool, seed, **changes) for seed in seeds]

    def make_run(self, data: str, pool: str, seed: int, **changes: Any) -> Run:
        """One run, of a data set as the paper names it."""
        source, augmentation = VARIANTS[data]
        fields = {**augmentation, **self.changes, **changes, "pool": pool, **fix_unused_fields(pool)}
        return preset(self.preset, source, **fields, seed=seed)


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, a second line in small print, and a class that colours it (better, worse)."""

    text: str
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """A table of a page; the first cell of a row is its head."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """An SVG of a page."""

    svg: str
    caption: str
    wide: bool = False  # across the page, not beside the next


@dataclass(frozen=True)
class Page:
    """What the page of an experiment shows, from top to bottom, below its title and the paper's claim."""

    answer: Sequence[str]
    parts: Sequence[Table | Figure]
    notes: Sequence[str] = ()  # where we differ from the paper and why
    data: Mapping[str, Any] = field(default_factory=dict)  # the numbers, for programs


class Experiment(Protocol):
    """What every module of this folder that is an experiment has."""

    TITLE: str
    SOURCE: str
    CLAIM: str

    def plan(self, scale: Scale) -> list[Run]:
        """The runs it needs."""

    def build_page(self, scale: Scale, results: Results) -> Page:
        """The page, of the runs that are finished; what is missing is shown as missing."""
