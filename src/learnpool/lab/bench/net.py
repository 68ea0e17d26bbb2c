"""Time a network with learned pools against the same network with max pools: a training step, or inference.

The two take turns, and who goes first alternates; what counts is the median over pairs of the ratio within a pair, so
that a machine that becomes faster or slower on the way does not matter. A few more steps under PyTorch's profiler
measure the pools' share of a step.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table as TextTable
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function

from ...nets.dsn import TABLES, Table, dsn
from .. import files, hardware, progress
from ..runs import networks
from ..runs.presets import preset
from ..runs.run import Run
from .clock import time_call
from .contestants import Call
from .options import LAYOUTS

BASE = "max"
WARM, PROFILED = 2, 3  # steps
STEP = "step"
CLASSES = 1000  # of a network that is not the paper's


@dataclass(frozen=True, kw_only=True)
class NetBenchmark:
    """Everything that decides what is measured; ValueError says what is wrong with it."""

    pool: str = "tree3+gated"
    model: str = "dsn"
    data: str = "cifar10"  # whose table dsn follows
    size: int = 224  # of the images of any other network
    inference: bool = False
    batch: int = 64
    width: float = 1.0
    layout: str = "nchw"
    pairs: int = 15
    threads: int
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(f"--layout: wanted {' or '.join(LAYOUTS)}, got {self.layout!r}")
        hardware.find_device(self.device)
        if self.model == "dsn":
            dsn(self.data, self.pool, width=self.width, supervise=False)  # raises if it cannot be built
        else:
            _ = self.run  # raises on a name that cannot be one

    def __str__(self) -> str:
        net = f"dsn for {self.data}" if self.model == "dsn" else f"{self.model} at {self.size}×{self.size}"
        sizes = f"width {self.width:g}, batch {self.batch}"
        where = f"threads: {self.threads}" if self.device == "cpu" else self.device
        return f"{net}, {sizes}, {self.layout}, {where}"

    @property
    def run(self) -> Run:
        """The description of a network that is not the paper's."""
        return preset("modern", "cifar10", net=self.model, pool=self.pool, width=self.width)

    @property
    def what(self) -> str:
        """What is timed, in words."""
        return "Inference" if self.inference else "A training step"

    def make_network_and_batch(self, pool: str) -> tuple[nn.Module, Tensor, Tensor]:
        """A network with these pools, images of noise and labels; the same for all pools but for the pools."""
        options: Any = {"channels_last": self.layout == "channels_last", "device": self.device}
        if self.model == "dsn":
            return make_network_and_batch(self.data, pool, self.batch, width=self.width, **options)
        table = Table(self.size, 3, CLASSES)
        net = networks.build(self.run.model_copy(update={"pool": pool}), table, seed=0)
        return add_batch(net, table, self.batch, **options)

    def make_step(self, pool: str) -> Call:
        """Inference on a batch of noise; or forward, loss, backward and SGD."""
        net, x, target = self.make_network_and_batch(pool)
        if self.inference:
            net.eval()

            def infer() -> None:
                with torch.inference_mode():
                    net(x)

            return infer
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(net(x), target).backward()
            optimizer.step()

        return step


def make_network_and_batch(
    data: str, pool: str, batch: int, *, width: float, channels_last: bool, device: str = "cpu", start: str = "paper"
) -> tuple[nn.Module, Tensor, Tensor]:
    """The paper's network, images of noise and labels; equal first weights and equal batches for all pools."""
    torch.manual_seed(0)
    net = dsn(data, pool, width=width, supervise=False, init="kaiming", start=start)
    return add_batch(net, TABLES[data], batch, channels_last=channels_last, device=device)


def add_batch(
    net: nn.Module, table: Table, batch: int, *, channels_last: bool, device: str
) -> tuple[nn.Module, Tensor, Tensor]:
    """The network, images of noise and labels, on a device and in a memory layout."""
    x, target = torch.randn(batch, table.channels, *table.image), torch.arange(batch) % table.classes
    layout = torch.channels_last if channels_last else torch.contiguous_format
    net = net.to(device, memory_format=layout)  # type: ignore[call-overload]
    return net, x.to(device, memory_format=layout), target.to(device)


@dataclass(frozen=True)
class StepTimes:
    """Seconds of each step, pair by pair, and the pools' part of it by the profiler."""

    pool: str
    seconds: list[float]
    pools_seconds: float
    pools_share: float


def time_pairs(benchmark: NetBenchmark, advance: Callable[[], None]) -> tuple[StepTimes, StepTimes]:
    """Time the pairs, then profile both networks; ``advance`` is called after every pair."""
    steps = [benchmark.make_step(pool) for pool in (BASE, benchmark.pool)]
    for step in steps:
        time_call(step, WARM, benchmark.device)
    seconds: list[list[float]] = [[], []]
    for pair in range(benchmark.pairs):
        for k in (0, 1) if pair % 2 == 0 else (1, 0):
            seconds[k].append(time_call(steps[k], device=benchmark.device))
        advance()
    profiles = [profile_pools(step, torch.device(benchmark.device).type) for step in steps]
    first, second = (
        StepTimes(pool, times, *parts)
        for pool, times, parts in zip((BASE, benchmark.pool), seconds, profiles, strict=True)
    )
    return first, second


def profile_pools(step: Call, device: str = "cpu") -> tuple[float, float]:
    """Seconds of the pools in a step, forward and backward, and their share of it; medians of a few steps.

    On a GPU both are times of kernels: what a step waits for beside them is not in its whole.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or it reports each start and stop on stderr
    on_gpu = device != "cpu"
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu]
    seconds, share = [], []
    for _ in range(PROFILED):
        with profile(activities=activities) as profiler, record_function(STEP):
            step()
            if on_gpu:
                torch.cuda.synchronize()
        events = profiler.events() or []
        if on_gpu:
            whole = sum(event.self_device_time_total for event in events)
            pools = sum(event.device_time_total for event in find_pool_events(events))
        else:
            whole = next(event.cpu_time_total for event in events if event.name == STEP)
            pools = sum(event.cpu_time_total for event in find_pool_events(events))
        seconds.append(pools / 1e6)
        share.append(pools / whole)
    return statistics.median(seconds), statistics.median(share)


def find_pool_events(events: Iterable[Any]) -> list[Any]:
    """The events of pools that lie in no other pool: one for each forward and each backward pass."""
    return [event for event in events if is_pool_event(event.name) and is_outermost(event)]


def is_pool_event(name: str) -> bool:
    """``aten::max_pool2d``, ``learnpool::pool`` and the autograd nodes that call their backward."""
    return "pool" in name.lower()


def is_outermost(event: object) -> bool:
    """Whether no pool contains this one."""
    while (event := getattr(event, "cpu_parent", None)) is not None:
        if is_pool_event(event.name):
            return False
    return True


def summarize_ratio(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of ``second / first``, pair by pair."""
    low, median, high = statistics.quantiles([s / f for f, s in zip(first, second, strict=True)], method="inclusive")
    return {"median": median, "low": low, "high": high}


def bench(benchmark: NetBenchmark, out: Path) -> None:
    """Time and profile, print a table and a sentence, write ``net.json``."""
    console = Console()
    machine = hardware.describe_machine(benchmark.device)  # before our own work is a part of the load
    bar = progress.count_steps("timing", benchmark.pairs, console)
    with files.keep_if_used(out), hardware.use_threads(benchmark.threads), bar as advance:
        steps = time_pairs(benchmark, advance)
    ratio = summarize_ratio(*(step.seconds for step in steps))
    table = TextTable()
    table.add_column("pools")
    timed = "inference" if benchmark.inference else "step"
    for head in (f"{timed}, ms\nmedian", "\nbest", "pools, ms\nprofiler", "\nshare"):
        table.add_column(head, justify="right")
    for step in steps:
        milliseconds = f"{1e3 * statistics.median(step.seconds):.1f}", f"{1e3 * min(step.seconds):.1f}"
        table.add_row(step.pool, *milliseconds, f"{1e3 * step.pools_seconds:.1f}", f"{step.pools_share:.1%}")
    console.print(table)
    console.print(
        f"{benchmark.what} with {benchmark.pool} takes {ratio['median']:.3f} × the time with {BASE}: the median "
        f"of {benchmark.pairs} pairs, half of them between {ratio['low']:.3f} and {ratio['high']:.3f}.",
        highlight=False,
    )
    console.print(f"{benchmark}\n{hardware.format_machine(machine)}", highlight=False, style="dim")
    record = machine | {"settings": asdict(benchmark), "ratio": ratio, "outcomes": [asdict(step) for step in steps]}
    files.write_json(out / "net.json", record)
    hardware.warn_if_busy(console, machine)
    console.out(f"Written: {out / 'net.json'}", highlight=False)
