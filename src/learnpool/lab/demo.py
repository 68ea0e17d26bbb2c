"""Train one small network with every pool on real handwritten digits, and say what came out and how surely.

1,797 images of 8×8 pixels (scikit-learn's copy of the UCI digits), one fixed stratified split. For each seed all pools
get the same first weights, the same batches and the same schedule; the test images are looked at once, after the last
epoch. The schedule was settled on a part of the training images.

Learned pools begin neutral: gates at one half, filters near the average. So ``mixed`` and ``gated`` start as ``half``,
a difference to it was learned, and no run depends on a lucky draw of nine numbers.
"""

from __future__ import annotations

import multiprocessing
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import matplotlib as mpl
import sklearn
import torch
from rich.console import Console
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from .. import functional, kernels, make_pool, parameter_groups
from . import machine
from .figure import STYLE
from .summary import Result, conclude, picture, summarize, table

POOLS = ("max", "avg", "half", "mixed", "gated", "tree2", "tree3")
WINDOW = (3, 2, 1)  # kernel, stride, padding
CHANNELS, EPOCHS, BATCH, DECAY = 24, 20, 64, 5e-4
RATE, POOL_RATE = 0.1, 0.03  # at 0.1 momentum throws a proportion, which lives in [0, 1], out of its range
START = "neutral"
SHOWN = 2  # the digit in the picture


class Net(nn.Module):
    """conv 24, pool, conv 48, pool, linear; 8×8 -> 4×4 -> 2×2."""

    def __init__(self, pool: str) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            nn.Conv2d(1, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU()
        )
        self.conv2 = nn.Sequential(
            nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(2 * CHANNELS), nn.ReLU()
        )
        self.linear = nn.Linear(4 * 2 * CHANNELS, 10)
        # Last, so that what a pool draws does not change the other weights.
        self.pools = nn.ModuleList(make_pool(pool, *WINDOW, index=index, start=START) for index in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.pools[0](self.conv1(x))
        x = self.pools[1](self.conv2(x))
        logits: Tensor = self.linear(x.flatten(1))
        return logits


@dataclass(frozen=True)
class Run:
    """Everything that decides a result."""

    pool: str
    seed: int
    epochs: int


@lru_cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Train images and labels, test images and labels."""
    data = load_digits()
    images, labels = torch.tensor(data.images / 16, dtype=torch.float32)[:, None], torch.tensor(data.target)
    train, test = train_test_split(range(len(labels)), test_size=0.3, stratify=data.target, random_state=0)
    return images[train], labels[train], images[test], labels[test]


def train(run: Run, advance: Callable[[], None]) -> Result:
    """Train and test once; ``advance`` is called after every epoch.

    ``seconds`` is the median epoch times their number, in CPU time of this process: a first call that sets things up or
    another program on the machine does not make a pool look slow.
    """
    images, labels, test_images, test_labels = digits()
    torch.manual_seed(run.seed)
    net = Net(run.pool)
    groups = parameter_groups(net, lr=POOL_RATE)
    optimizer = torch.optim.SGD(groups, lr=RATE, momentum=0.9, nesterov=True, weight_decay=DECAY)
    steps = run.epochs * -(-len(images) // BATCH)
    warmup = 0.15 * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / (steps - warmup), 1.0)
    )
    batches = torch.Generator().manual_seed(run.seed)
    times: list[float] = []
    for _ in range(run.epochs):
        began = time.process_time()
        for batch in torch.randperm(len(images), generator=batches).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
        times.append(time.process_time() - began)
        advance()
    net.eval()
    with torch.no_grad():
        wrong = int((net(test_images).argmax(1) != test_labels).sum())
        mask = net.pools[0].weight if run.pool == "gated" else None
        gates = None
        if isinstance(mask, Tensor):  # ω · x is a tree of one leaf
            shown = net.conv1(test_images[test_labels == SHOWN][:1])
            maps = functional.tree_pool2d(shown, None, mask, *WINDOW).sigmoid()[0]  # [C, 4, 4]
            channel = int(maps.flatten(1).std(1).argmax())
            gates = channel, maps[channel].tolist()
    return Result(
        run.pool,
        run.seed,
        100 * wrong / len(test_labels),
        statistics.median(times) * run.epochs,
        sum(p.numel() for p in net.pools.parameters()),
        [learned(pool) for pool in net.pools],
        gates,
    )


def learned(pool: nn.Module) -> dict[str, Any]:
    """The parameters of a pool; ``a`` is the proportion in use, kept in [0, 1]."""
    values = {name: p.tolist() for name, p in pool.named_parameters()}
    return values | ({"a": pool.proportions().item()} if "mix" in values else {})  # type: ignore[operator]


def train_all(runs: Sequence[Run], jobs: int, advance: Callable[[], None]) -> list[Result]:
    """Train on ``jobs`` processes of one thread each; the numbers do not depend on ``jobs``.

    Each process talks through a pipe of its own. When either side is gone the other one notices, so nothing is left
    behind, however this ends.
    """
    if jobs == 1:
        with machine.threads(1):
            return [train(run, advance) for run in runs]
    context = multiprocessing.get_context("spawn")
    todo = list(reversed(runs))
    results: list[Result] = []
    workers: dict[Any, Any] = {}  # our end of a pipe -> the process at the other
    try:
        with interrupts_ignored():
            for _ in range(min(jobs, len(runs))):
                ours, theirs = context.Pipe()
                workers[ours] = context.Process(target=work, args=(theirs,), daemon=True)
                workers[ours].start()
                theirs.close()
        for ours in workers:
            ours.send(todo.pop())
        while len(results) < len(runs):
            ready: list[Any] = list(wait(list(workers)))
            for ours in ready:
                message = ours.recv()
                if message is None:
                    advance()
                    continue
                results.append(message)
                if todo:
                    ours.send(todo.pop())
    except (EOFError, ConnectionError):
        raise ChildProcessError("a training process died (out of memory?)") from None
    finally:
        for ours, process in workers.items():
            ours.close()
            process.terminate()
        for process in workers.values():
            process.join()
    return results


def work(pipe: Connection) -> None:
    """Train what comes through the pipe: None back after every epoch, then the result."""
    torch.set_num_threads(1)
    try:
        while True:
            pipe.send(train(pipe.recv(), lambda: pipe.send(None)))
    except (EOFError, ConnectionError):  # the parent is gone
        return


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes started inside inherit a deaf ear for Ctrl-C, from their first instruction on: the parent decides."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def demo(out: Path, seeds: int, jobs: int | None = None, epochs: int | None = None) -> None:
    """Train every pool with every seed; print a table and a conclusion, write ``demo.png`` and ``results.json``."""
    console = Console()
    machine.prepare(out)
    # Slow pools first, so that no process ends late; seeds outside, so that a busy minute hits all pools.
    epochs = epochs or EPOCHS
    runs = [Run(pool, seed, epochs) for seed in range(seeds) for pool in reversed(POOLS)]
    jobs = min(jobs or machine.cores(), len(runs))
    began = time.perf_counter()
    with machine.progress("training", len(runs) * epochs, console) as advance:
        results = train_all(runs, jobs, advance)
    wall = time.perf_counter() - began
    results.sort(key=lambda r: (POOLS.index(r.pool), r.seed))
    _, labels, test_images, test_labels = digits()
    shown = test_images[test_labels == SHOWN][0, 0]
    lines = summarize(results, len(test_labels))
    conclusion = conclude(lines, seeds)
    caption = (
        f"{seeds} seeds, {epochs} epochs, {len(labels)} training and {len(test_labels)} test images; ± is the standard "
        "deviation over seeds, [ ] the interval of the difference. Seconds: CPU time of training on one core, median "
        f"epoch × epochs; all pools but max and avg run {'our CPU kernel' if kernels.CPU.live else 'the reference'}."
    )
    console.print(table(lines, caption))
    console.print(conclusion)
    with mpl.rc_context(STYLE):
        picture(results, lines, shown).savefig(out / "demo.png", dpi=150)
    settings = {"epochs": epochs, "batch": BATCH, "lr": RATE, "pool_lr": POOL_RATE, "decay": DECAY, "start": START}
    facts = machine.facts()
    facts["versions"] |= {"scikit-learn": sklearn.__version__, "matplotlib": mpl.__version__}
    facts["hardware"] |= {"processes": jobs, "threads_per_process": 1}
    record = facts | {
        "seeds": list(range(seeds)),
        "images": {"train": len(labels), "test": len(test_labels)},
        "settings": settings,
        "wall_seconds": round(wall, 1),
        "conclusion": conclusion,
        "pools": [asdict(line) for line in lines],
        "runs": [asdict(result) for result in results],
    }
    machine.write(out / "results.json", record)
    console.out(f"Trained in {wall:.0f} s. Written: {out / 'demo.png'}, {out / 'results.json'}", highlight=False)
