"""What runs would take on this machine, from a measured training step of each kind of network."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from ...nets.dsn import TABLES, Table
from .. import hardware
from ..data.catalog import SOURCES
from ..data.split import VALIDATION_SIZE
from . import networks
from .run import Run

WARM, TIMED = 1, 2  # steps
DIGITS = 1_257  # training images of scikit-learn's digits


def count_training_images(run: Run, images: int | None = None) -> int:
    """Images of an epoch: the data set's (``images`` of a folder), without those held out, and at most train_size."""
    if images is None:
        counts = {"train": DIGITS} if run.data == "digits" else SOURCES[run.data].counts
        images = sum(count for name, count in counts.items() if name != "test")
    left = images - (run.validation or min(VALIDATION_SIZE, images // 10))
    return min(left, run.train_size or left)


def time_step(run: Run, table: Table) -> float:
    """Seconds of a training step on one thread, the best of a few, on noise of the size of a batch."""
    with torch.random.fork_rng([]), hardware.use_threads(1):
        model = networks.build(run, table, 0).train()
        images = torch.randn(run.batch, table.channels, *table.image)
        if run.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            images = images.to(memory_format=torch.channels_last)
        labels = torch.arange(run.batch) % table.classes
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
        return min(_time(model, images, labels, optimizer) for _ in range(WARM + TIMED))


def _time(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, optimizer: torch.optim.Optimizer) -> float:
    began = time.perf_counter()
    optimizer.zero_grad()
    output = model(images)
    votes, heads = (output, ()) if isinstance(output, torch.Tensor) else (output.votes, output.heads)
    loss = sum((F.cross_entropy(head, labels) for head in heads), F.cross_entropy(votes, labels))
    loss.backward()
    optimizer.step()
    return time.perf_counter() - began


def estimate_seconds(runs: Sequence[Run], tables: Mapping[str, Table] = TABLES) -> dict[Run, float]:
    """Seconds of training for each run, evaluation left out; runs that differ in seed alone are measured once."""
    measured: dict[Run, float] = {}
    found: dict[Run, float] = {}
    for run in runs:
        kind = run.model_copy(update={"seed": 0, "epochs": 1, "train_size": None})
        if kind not in measured:
            measured[kind] = time_step(run, tables[run.data])
        found[run] = measured[kind] * run.epochs * (count_training_images(run) // run.batch)
    return found
