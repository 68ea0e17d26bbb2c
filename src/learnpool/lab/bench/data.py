"""Time the reading of large images beside the training step that needs them: does the input keep up?

The two are timed by themselves, in turn, and then together, as a run has them.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

from .. import files, hardware, progress
from ..runs.batches import Batches, load_batches
from ..runs.distributed import Ranks
from ..runs.presets import preset
from ..runs.run import Run
from ..runs.training import Training
from .clock import time_call

PHOTO = (500, 375)  # as large as most of ImageNet's
NOISE = 7.0  # grey levels; makes a JPEG of 50 kB, as smooth colours alone do not
WARM = 1  # rounds that do not count


@dataclass(frozen=True, kw_only=True)
class DataBenchmark:
    """Everything that decides what is measured."""

    net: str = "alexnet"
    pool: str = "max"
    preset: str = "modern"
    data: str | None = None  # a folder, imagenet …; None: generated photos
    batch: int = 64
    width: float = 1.0
    rounds: int = 5
    workers: int = 2
    threads: int

    def make_run(self, data: str) -> Run:
        """The run whose input and steps are timed; nothing of it is kept."""
        fields = {"net": self.net, "pool": self.pool, "batch": self.batch, "width": self.width}
        return preset(self.preset, data, **fields, epochs=1, train_size=None, validation=1, prepare="none")

    def __str__(self) -> str:
        source = self.data or f"generated JPEGs of {PHOTO[0]}×{PHOTO[1]}"
        sizes = f"width {self.width:g}, batch {self.batch}, preset {self.preset}"
        return f"{self.net}, {self.pool}, {sizes}; {source}; workers: {self.workers}, threads: {self.threads}"


@dataclass(frozen=True)
class Rates:
    """Images a second, round by round: read, trained on, and both at once."""

    input: list[float]
    training: list[float]
    together: list[float]


def write_photos(root: Path, count: int) -> None:
    """JPEGs that cost as much to decode as ImageNet's: two classes for training, and one image of each for the test."""
    random = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (6, 8, 3), np.uint8)).resize(PHOTO, Image.Resampling.BICUBIC)
        pixels = (np.asarray(coarse) + random.normal(0, NOISE, (*PHOTO[::-1], 3))).clip(0, 255).astype(np.uint8)
        for split in ("train", "val") if number < 2 else ("train",):
            path = root / split / f"class{number % 2}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path, quality=88)


def time_rates(training: Training, batches: Batches, rounds: int, advance: Callable[[], None]) -> Rates:
    """A round reads an epoch, takes as many steps on one batch, and then trains that epoch."""
    images, labels = next(iter(batches.train_batches(0, training.ranks)))
    training.network.train()
    training.set_rate(0)
    rounds_of_seconds = []
    for number in range(WARM + rounds):
        seconds = (
            time_call(lambda: read_epoch(training, batches, number)),  # noqa: B023
            time_call(lambda: repeat_step(training, images, labels, batches.steps)),
            time_call(lambda: train_epoch(training, batches, number)),  # noqa: B023
        )
        rounds_of_seconds.append(seconds)
        advance()
    count = batches.steps * batches.batch
    columns = zip(*rounds_of_seconds[WARM:], strict=True)
    return Rates(*([count / seconds for seconds in column] for column in columns))


def read_epoch(training: Training, batches: Batches, number: int) -> None:
    for _ in batches.train_batches(number, training.ranks):
        pass


def repeat_step(training: Training, images: Tensor, labels: Tensor, steps: int) -> None:
    for _ in range(steps):
        training.train_step(images, labels)


def train_epoch(training: Training, batches: Batches, number: int) -> None:
    for images, labels in batches.train_batches(number, training.ranks):
        training.train_step(images, labels)


def describe(benchmark: DataBenchmark, medians: dict[str, float]) -> str:
    """Both rates in a sentence, and whether the input keeps up."""
    ratio = medians["input"] / medians["training"]
    verdict = "keeps up with" if ratio >= 1 else "is slower than"
    return (
        f"Reading gives {medians['input']:.0f} images a second, training takes {medians['training']:.0f}: the input "
        f"{verdict} the step ({ratio:.2f} ×). Together they make {medians['together']:.0f} images a second, "
        f"medians of {benchmark.rounds} rounds."
    )


def bench(benchmark: DataBenchmark, out: Path, data_dir: Path | None = None) -> None:
    """Time input and training, print a sentence, write ``data.json``."""
    console = Console()
    machine = hardware.describe_machine()  # before our own work is a part of the load
    with ExitStack() as stack:
        stack.enter_context(files.keep_if_used(out))
        data = benchmark.data
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory())
            write_photos(Path(data), 2 * benchmark.batch + 1)
        run = benchmark.make_run(data)
        alone = Ranks(0, 1, torch.device("cpu"))
        stack.enter_context(hardware.use_threads(benchmark.threads))
        stack.enter_context(torch.random.fork_rng())
        batches = load_batches(run, data_dir, alone, benchmark.workers)
        advance = stack.enter_context(progress.count_steps("rounds", WARM + benchmark.rounds, console))
        rates = time_rates(Training(run, batches, alone, Path(), None), batches, benchmark.rounds, advance)
    medians = {name: statistics.median(values) for name, values in asdict(rates).items()}
    console.print(describe(benchmark, medians), highlight=False)
    console.print(f"{benchmark}\n{hardware.format_machine(machine)}", highlight=False, style="dim")
    files.write_json(out / "data.json", machine | {"settings": asdict(benchmark), "images_per_second": asdict(rates)})
    hardware.warn_if_busy(console, machine)
    console.out(f"Written: {out / 'data.json'}", highlight=False)
