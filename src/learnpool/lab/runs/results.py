"""The result of a run, put together from its network, its images and its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from statistics import median
from typing import Any

from torch import nn

from ...parameters import TreeParameters
from .. import hardware
from .batches import Batches
from .directory import Result
from .errors import Errors
from .networks import Supervised
from .run import Run


def make_result(run: Run, model: nn.Module, batches: Batches, rows: Sequence[dict[str, Any]], errors: Errors) -> Result:
    """The result of a run whose epochs have these metrics and whose network has these errors on the test images."""
    last = rows[-1]
    heads = {id(p) for p in model.heads.parameters()} if isinstance(model, Supervised) else set()
    counted = {id(p): p.numel() for p in model.parameters() if id(p) not in heads}
    learned = {id(p) for m in model.modules() if isinstance(m, TreeParameters) for p in m.parameters()}
    return Result(
        id=run.id,
        test_error=errors.top1,
        test_error_top5=errors.top5,
        validation_error=last["validation_error"],
        train_error=last["train_error"],
        train_loss=last["train_loss"],
        epochs=last["epoch"],
        images={name: len(getattr(batches, name).labels) for name in ("train", "validation", "test")},
        parameters=sum(counted.values()),
        pool_parameters=sum(count for key, count in counted.items() if key in learned),
        seconds=round(sum(row["seconds"] for row in rows), 3),
        cpu_seconds=round(sum(row["cpu_seconds"] for row in rows), 3),
        epoch_seconds=median(row["seconds"] for row in rows),
        memory=hardware.read_peak_memory(),
        pools=last["pools"],
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        skipped=list(batches.skipped),
        chance_error=100 * (1 - int(batches.test.labels.bincount().max()) / len(batches.test.labels)),
    )
