"""Time the lab's training step against the same step written by hand, and how much of it makes batches.

The lab trains as it always does; after each of its steps, the one by hand is run on a batch that is there already. What
counts is the median over pairs, so that a machine that becomes faster or slower on the way does not matter.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import nn
from torch.nn import functional as F

from .. import files, hardware, progress
from ..data import Augment
from ..runs.batches import Batches, InMemoryImages, Pairs
from ..runs.distributed import Ranks
from ..runs.presets import preset
from ..runs.run import Run
from ..runs.training import Step, Training
from .clock import time_call
from .contestants import Call
from .net import summarize_ratio

WARM = 3  # pairs that do not count
IMAGES = 20_000  # 245 MB, far more than any cache holds
MAX_BATCH_SHARE, MAX_STEP_RATIO = 0.02, 1.03  # what we promise


@dataclass(frozen=True, kw_only=True)
class TrainBenchmark:
    """Everything that decides what is measured."""

    pool: str = "max"
    width: float = 0.25
    batch: int = 64
    pairs: int = 60
    threads: int

    def __str__(self) -> str:
        sizes = f"width {self.width:g}, batch {self.batch}"
        return f"dsn for cifar10, {self.pool}, {sizes}, threads: {self.threads}"

    @property
    def run(self) -> Run:
        """The run of the ``cpu`` preset on CIFAR10 that is timed."""
        return preset("cpu", "cifar10", pool=self.pool, width=self.width, batch=self.batch, epochs=1)


@dataclass(frozen=True)
class PairedTimes:
    """Seconds, pair by pair: the lab's step, what of it made the batch, and the step by hand."""

    lab: list[float]
    batches: list[float]
    hand: list[float]


class TimedBatches(Batches):
    """Batches that record how long each took to make."""

    seconds: list[float]

    def train_batches(self, number: int, ranks: Ranks, start: int = 0) -> Pairs:
        batches = super().train_batches(number, ranks, start)
        while True:
            began = time.perf_counter()
            batch = next(batches, None)
            self.seconds.append(time.perf_counter() - began)
            if batch is None:
                return
            yield batch


def make_hand_step(model: nn.Module, run: Run) -> Call:
    """Forward, loss, backward and SGD on one batch, as anyone would write it."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=run.rate[0], momentum=run.momentum, nesterov=run.nesterov, weight_decay=run.decay
    )
    x = torch.randn(run.batch, 3, 32, 32).to(memory_format=torch.channels_last)
    target = torch.arange(run.batch) % 10
    model.train()

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()

    return step


def time_pairs(benchmark: TrainBenchmark, advance: Callable[[], None]) -> PairedTimes:
    """Let the lab train on noise in CIFAR10's shape, and after each step of its own take one by hand."""
    run, alone = benchmark.run, Ranks(0, 1, torch.device("cpu"))
    count = max(IMAGES, run.batch * (benchmark.pairs + WARM))
    noise = torch.Generator().manual_seed(0)
    images = torch.randn(count, 3, 32, 32, generator=noise)
    train = InMemoryImages(images, torch.arange(count) % 10, Augment(run.pad, run.mirror))
    batches = TimedBatches(run, train, train, train, (3, 32, 32), tuple("0123456789"), "")
    object.__setattr__(batches, "seconds", [])  # it is frozen
    training = Training(run, batches, alone, Path(), None)
    hand = make_hand_step(copy.deepcopy(training.model), run)
    times = PairedTimes([], batches.seconds, [])
    last = time.perf_counter()

    def watch(step: Step) -> None:
        nonlocal last
        times.lab.append(time.perf_counter() - last)
        times.hand.append(time_call(hand))
        if step.step > WARM:
            advance()
        if step.step == WARM + benchmark.pairs:
            raise StopIteration
        last = time.perf_counter()

    with suppress(StopIteration):
        training.train_epoch(watch)
    return PairedTimes(*(seconds[WARM:] for seconds in (times.lab, times.batches, times.hand)))


def bench(benchmark: TrainBenchmark, out: Path) -> None:
    """Time the pairs, print two sentences, write ``train.json``."""
    console = Console()
    machine = hardware.describe_machine()  # before our own work is a part of the load
    bar = progress.count_steps("training", benchmark.pairs, console)
    threads = hardware.use_threads(benchmark.threads)
    with files.keep_if_used(out), threads, torch.random.fork_rng(), bar as advance:
        times = time_pairs(benchmark, advance)
    steps = summarize_ratio(times.hand, times.lab)
    share = statistics.median(
        made_seconds / step_seconds for made_seconds, step_seconds in zip(times.batches, times.lab, strict=True)
    )
    milliseconds = {name: 1e3 * statistics.median(seconds) for name, seconds in asdict(times).items()}
    console.print(
        f"A training step of the lab takes {milliseconds['lab']:.1f} ms, {steps['median']:.3f} × the same step by hand "
        f"({milliseconds['hand']:.1f} ms): the median of {benchmark.pairs} pairs, half of them between "
        f"{steps['low']:.3f} and {steps['high']:.3f}. Promised: at most {MAX_STEP_RATIO}.",
        highlight=False,
    )
    console.print(
        f"Making its batch is {share:.2%} of it ({milliseconds['batches']:.2f} ms). "
        f"Promised: at most {MAX_BATCH_SHARE:.0%}.",
        highlight=False,
    )
    console.print(f"{benchmark}\n{hardware.format_machine(machine)}", highlight=False, style="dim")
    record = machine | {"settings": asdict(benchmark), "ratio": steps, "batches_share": share, "seconds": asdict(times)}
    files.write_json(out / "train.json", record)
    hardware.warn_if_busy(console, machine)
    console.out(f"Written: {out / 'train.json'}", highlight=False)
