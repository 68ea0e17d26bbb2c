"""How much of a trained network survives when its max pools are swapped, and how much calibrating brings back.

The paper's network is trained with max pooling and tested; then, for each pool, a copy is converted, tested, calibrated
on a few of the training images and tested again. Nothing else is trained. Test images are looked at for testing alone.
"""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F

from ... import calibrate, convert, parse
from ...nets import dsn
from .. import files, hardware, progress
from ..data import Dataset, load

BATCH, RATE, CHUNK = 100, 2e-3, 64
SETS = ("mnist", "cifar10")
PAGE = """# A max network on {plan.data}, its pools swapped and calibrated

`learnpool calibration --data {plan.data} --epochs {plan.epochs}` trained the paper's network with max pooling
(width {plan.width:g}, {train:,} images, seed {plan.seed}), converted it (random masks and filters: `start="paper"`)
and calibrated the new pools on {calibrate} training images; nothing else was trained. Errors are % of {test:,} test
images. A distance is ‖new − old‖ / ‖old‖ on the calibration images, of the network's output and, pool by pool, of each
pool's after calibrating.

"""


@dataclass(frozen=True)
class Plan:
    """Everything that decides the numbers."""

    data: str = "mnist"
    pools: tuple[str, ...] = ("mixed", "gated", "tree2", "tree3")
    images: int = 512  # to calibrate on
    train: int | None = None  # training images; all if None
    test: int | None = None
    epochs: int = 2
    width: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        if self.data not in SETS:
            raise ValueError(f"calibration: unknown data {self.data!r}; known: {', '.join(SETS)}")
        for pool in self.pools:
            parse(pool)


@dataclass(frozen=True)
class Line:
    """One pool; errors in % of the test images, distances in % of the original network's norm."""

    pool: str
    converted: float
    calibrated: float
    closed: float | None  # part of the gap that converting opened, in %; None where it opened none
    distance_before: float  # of the network's output on the calibration images
    distance_after: float
    pools: dict[str, tuple[float, float]]  # the same for each pool's output
    seconds: float  # to calibrate


def run(plan: Plan, data_dir: Path | None, out: Path) -> None:
    """Train, convert, calibrate; write ``calibration-<data>.json`` and ``.md``."""
    console = Console()
    files.make_directory(out)
    train_images, labels, test_images, test_labels = prepared(plan, data_dir)
    steps = plan.epochs * -(-len(labels) // BATCH)
    facts = hardware.describe_machine()
    with progress.count_steps("training", steps, console) as advance:
        net = trained(plan, train_images, labels, advance)
    error = test_error(net, test_images, test_labels)
    lines = []
    with progress.count_steps("calibrating", len(plan.pools), console) as advance:
        for pool in plan.pools:
            lines.append(measured(plan, net, pool, error, train_images[: plan.images], test_images, test_labels))
            advance()
    record = facts | {
        "settings": asdict(plan) | {"batch": BATCH, "lr": RATE},
        "images": {"train": len(labels), "test": len(test_labels), "calibrate": min(plan.images, len(labels))},
        "error": error,
        "lines": [asdict(line) for line in lines],
    }
    stem = out / f"calibration-{plan.data}"
    files.write_json(stem.with_suffix(".json"), record)
    text = page(plan, record, lines)
    files.write_bytes(stem.with_suffix(".md"), text.encode())
    console.out(text, highlight=False)
    console.out(f"Written: {stem}.json, {stem}.md", highlight=False)


def prepared(plan: Plan, data_dir: Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images, mean and deviation of the training set taken out, in a fixed random order."""
    data = load(plan.data, data_dir)
    if not isinstance(data, Dataset):
        raise ValueError(f"calibration: wanted one of {', '.join(SETS)}, got a folder")
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(plan.seed))[: plan.train]
    images = data.train.images[order].float() / 255
    test = data.test.images[: plan.test].float() / 255
    mean, std = images.mean(), images.std()
    return (images - mean) / std, data.train.labels[order], (test - mean) / std, data.test.labels[: plan.test]


def trained(plan: Plan, images: Tensor, labels: Tensor, advance: Any) -> nn.Module:
    """The paper's network with max pools after AdamW on a one-cycle schedule."""
    torch.manual_seed(plan.seed)
    net = dsn(plan.data, "max", width=plan.width, supervise=False, init="kaiming")
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    steps = plan.epochs * -(-len(labels) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for _ in range(plan.epochs):
        for batch in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
            advance()
    return net.eval()


@torch.no_grad()
def test_error(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    """% of the images that are given another label."""
    wrong = sum(int((net(x).argmax(1) != y).sum()) for x, y in zip(images.split(500), labels.split(500), strict=True))
    return 100 * wrong / len(labels)


def measured(plan: Plan, net: nn.Module, pool: str, error: float, few: Tensor, images: Tensor, labels: Tensor) -> Line:
    """A copy of the network with other pools, tested before and after it is calibrated."""
    torch.manual_seed(plan.seed)  # what the pools draw
    other = copy.deepcopy(net)
    convert(other, pool)
    converted = test_error(other, images, labels)
    began = time.perf_counter()
    report = calibrate(other, few.split(CHUNK), images=plan.images)
    seconds = time.perf_counter() - began
    calibrated = test_error(other, images, labels)
    return Line(
        pool,
        converted,
        calibrated,
        100 * (converted - calibrated) / (converted - error) if converted > error else None,
        100 * report.output_before,
        100 * report.output_after,
        {fit.name: (100 * fit.before, 100 * fit.after) for fit in report.pools},
        round(seconds, 1),
    )


def page(plan: Plan, record: dict[str, Any], lines: list[Line]) -> str:
    """The result as a page of Markdown."""
    counts = record["images"]
    heads = "pools|error with max|after convert|after calibrate|gap closed|distance after convert|after calibrate"
    heads += "|pool by pool|seconds"
    rows = [
        (
            line.pool,
            f"{record['error']:.2f}",
            f"{line.converted:.2f}",
            f"{line.calibrated:.2f}",
            "no gap" if line.closed is None else f"{line.closed:.0f} %",
            f"{line.distance_before:.1f} %",
            f"{line.distance_after:.1f} %",
            ", ".join(f"{after:.1f} %" for _, after in line.pools.values()),
            f"{line.seconds:.0f}",
        )
        for line in lines
    ]
    text = PAGE.format(plan=plan, **counts)
    table = [heads.split("|"), ["---"] * 9, *rows]
    return text + "".join(f"| {' | '.join(row)} |\n" for row in table) + f"\n{hardware.format_machine(record)}\n"
