"""How much of a trained network survives when its max pools are swapped, and how much calibration brings back.

A network is trained with max pooling and tested; then, for each pool, a copy is converted, tested, calibrated on a few
of the training images and tested again. Nothing else is trained. Test images are used for testing alone.
"""

from __future__ import annotations

import copy
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from .. import calibrate, convert, parse
from ..starts import STARTS
from . import files, hardware, progress
from .runs.batches import Batches, derive_seed, load_batches
from .runs.distributed import Ranks, join_ranks
from .runs.presets import preset
from .runs.run import Run, make_file_name
from .runs.train import train
from .runs.trained import load

BATCH = 64  # images in a step of the calibration
Pairs = Iterable[tuple[Tensor, Tensor]]  # images and labels
PAGE = """# A max network on {run.data}, its pools swapped and calibrated

`{command}` trained the paper's network with max pooling (preset `cpu`, width {run.width:g}, {train:,} images,
{run.epochs} epochs, seed {run.seed}), converted it (`start="{settings.start}"`) and calibrated the new
pools on {calibrate} training images; nothing else was trained. Errors are % of {test:,} test images. A distance is
‖new − old‖ / ‖old‖ on the calibration images, of the network's output and, pool by pool, of each pool's after
calibration.

"""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers."""

    data: str = "mnist"
    pools: tuple[str, ...] = ("mixed", "gated", "tree2", "tree3")
    images: int = 512  # to calibrate on
    train: int | None = None  # training images; all if None
    test: int | None = None  # test images; all if None
    epochs: int = 2
    width: float = 0.25
    seed: int = 0
    start: str = "paper"  # of masks and filters: random, so that converting does harm

    def __post_init__(self) -> None:
        if not self.pools:
            raise ValueError("calibration: wanted at least one pool, got none")
        if self.start not in STARTS:
            raise ValueError(f"calibration: start must be one of {', '.join(STARTS)}, got {self.start!r}")
        for pool in self.pools:
            parse(pool)


@dataclass(frozen=True)
class PoolResult:
    """One pool; errors in % of the test images, distances in % of the original network's norm."""

    pool: str
    converted: float
    calibrated: float
    closed: float | None  # part of the gap that converting opened, in %; None where it opened none
    distance_before: float  # of the network's output on the calibration images
    distance_after: float
    pools: dict[str, tuple[float, float]]  # the same for each pool's output
    seconds: float  # to calibrate


def plan(settings: Settings) -> Run:
    """The run everything begins with: the paper's network with max pools."""
    changes = {"epochs": settings.epochs, "width": settings.width, "train_size": settings.train}
    return preset("cpu", settings.data, pool="max", seed=settings.seed, **changes)


def run_experiment(settings: Settings, data_dir: Path | None, out: Path) -> None:
    """Train what is missing, convert and calibrate; write ``calibration-<data>.json`` and ``.md``."""
    console, run = Console(), plan(settings)
    machine = hardware.describe_machine()
    with files.keep_if_used(out), progress.show_bar("training", console) as update:
        train(run, out, data_dir=data_dir, watch=lambda step: update(step.step, step.steps, ""))
        update(1, 1, "")
    with join_ranks() as ranks:
        batches, net = load_batches(run, data_dir, ranks), load(out / run.id).to(ranks.device)
        images = choose_images(batches, settings.images, ranks)
        test = LimitedTestSet(batches, settings.test, ranks)
        error = compute_error(net, test)
        results = []
        with progress.count_steps("calibrating", len(settings.pools), console) as advance:
            for pool in settings.pools:
                results.append(measure_pool(net, pool, error, images, test, settings.seed, settings.start))
                advance()
    counts = {"train": len(batches.train.labels), "test": len(test), "calibrate": len(images)}
    lines = [asdict(result) for result in results]
    record = machine | {"settings": asdict(settings), "run": run.id, "images": counts, "error": error, "lines": lines}
    path = out / f"calibration-{make_file_name(os.path.basename(run.data))}"
    page = format_page(settings, record, results)
    files.write_json(path.with_name(f"{path.name}.json"), record)
    files.write_bytes(path.with_name(f"{path.name}.md"), page.encode())
    console.out(page, highlight=False)
    console.out(f"Written: {path}.json, {path}.md", highlight=False)


class LimitedTestSet:
    """The first test images of a run, prepared, batch by batch."""

    def __init__(self, batches: Batches, limit: int | None, ranks: Ranks) -> None:
        self.batches, self.ranks = batches, ranks
        self.size = min(len(batches.test.labels), limit or len(batches.test.labels))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        left = self.size
        for images, labels in self.batches.eval_batches(self.batches.test, self.ranks):
            yield images[:left], labels[:left]
            left -= len(labels)
            if left <= 0:
                return


def choose_images(batches: Batches, number: int, ranks: Ranks) -> Tensor:
    """Training images to calibrate on, as a test image would be: prepared, not augmented."""
    generator = torch.Generator().manual_seed(derive_seed(batches.run, "calibration"))
    order = torch.randperm(len(batches.train.labels), generator=generator)[:number]
    images_and_labels = batches.train.iter_batches(order.split(BATCH), slice(None), None)
    return torch.cat([images for images, _ in images_and_labels]).to(
        ranks.device, memory_format=batches.run.memory_format
    )


@torch.no_grad()
def compute_error(net: nn.Module, images: Pairs) -> float:
    """% of the images that are given another label."""
    wrong = total = 0
    for pixels, labels in images:
        wrong += int((net(pixels).argmax(1) != labels).sum())
        total += len(labels)
    return 100 * wrong / total


def measure_pool(
    net: nn.Module, pool: str, error: float, images: Tensor, test: Pairs, seed: int, start: str
) -> PoolResult:
    """A copy of the network with other pools, tested before and after it is calibrated."""
    torch.manual_seed(seed)  # start values of the pools
    other = copy.deepcopy(net)
    convert(other, pool, start=start)
    converted = compute_error(other, test)
    began = time.perf_counter()
    calibration = calibrate(other, images.split(BATCH), images=len(images))
    seconds = time.perf_counter() - began
    calibrated = compute_error(other, test)
    return PoolResult(
        pool,
        converted,
        calibrated,
        100 * (converted - calibrated) / (converted - error) if converted > error else None,
        100 * calibration.output_before,
        100 * calibration.output_after,
        {fit.name: (100 * fit.before, 100 * fit.after) for fit in calibration.pools},
        round(seconds, 1),
    )


def format_command(settings: Settings) -> str:
    """The command that gives these numbers."""
    words = ["learnpool", "calibration"]
    for name, value in asdict(settings).items():
        if value is not None:
            words += [f"--{name}", ",".join(value) if isinstance(value, tuple) else f"{value}"]
    return shlex.join(words)


def format_page(settings: Settings, record: dict[str, Any], results: Sequence[PoolResult]) -> str:
    """The result as a page of Markdown."""
    heads = "pools|error with max|after convert|after calibrate|gap closed|distance after convert|after calibrate"
    heads += "|pool by pool|seconds"
    rows = [
        (
            result.pool,
            f"{record['error']:.2f}",
            f"{result.converted:.2f}",
            f"{result.calibrated:.2f}",
            "no gap" if result.closed is None else f"{result.closed:.0f} %",
            f"{result.distance_before:.1f} %",
            f"{result.distance_after:.1f} %",
            ", ".join(f"{after:.1f} %" for _, after in result.pools.values()),
            f"{result.seconds:.0f}",
        )
        for result in results
    ]
    text = PAGE.format(run=plan(settings), settings=settings, command=format_command(settings), **record["images"])
    table = [heads.split("|"), ["---"] * 9, *rows]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in table)
    return f"{text}{lines}\n{hardware.format_machine(record)}\n"
