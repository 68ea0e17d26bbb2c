"""A network on its way through the epochs of a run: steps, evaluation, and what is written down after each epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from ...explanation.measurement import statistics
from ...nets.dsn import DSN, Votes, head_factor
from ...parameters import Learned
from .. import machine
from . import checkpoint, directory, networks
from .batches import Batches, Streamed, Whole, seeded
from .directory import Result
from .distributed import Ranks, WholeBatch
from .run import Run
from .schedule import schedule

OBSERVED = 100  # validation images that the pools' statistics are taken on
CHECKED = 50  # steps between looks at the loss: looking stops a GPU


class Step(NamedTuple):
    """How far a run is: ``step`` of ``steps`` in all, the rate just used, and the last whole epoch's metrics."""

    step: int
    steps: int
    epoch: int
    rate: float
    metrics: dict[str, Any] | None


Watch = Callable[[Step], None]


class TrainingError(RuntimeError):
    """Training cannot go on; the message says why and what is left."""


class Training:
    """A network on its way through the epochs of a run."""

    def __init__(self, run: Run, shown: Batches, group: Ranks, where: Path, found: Any) -> None:
        self.run, self.shown, self.group, self.where = run, shown, group, where
        self.source = networks.source(run)  # the user may edit it while it trains
        fresh: dict[str, Any] = {"epoch": 0, "schedule": {}}
        tensors, state = found or ({}, fresh)
        if found:
            directory.verify(where, state, run, shown.digest, self.source)
        table = networks.table_of(run, shown.image, len(shown.classes))
        self.model = networks.build(run, table, seeded(run, "weights"))
        if found and isinstance(self.model, DSN) and not any(name.startswith("model.heads.") for name in tensors):
            self.model.remove_heads()
        self.model.to(group.device, memory_format=shown.layout)  # type: ignore[call-overload]
        self.assemble({})
        if found:
            checkpoint.restore(tensors, self.model, self.optimizer)
        self.epoch: int = state["epoch"]
        self.schedule = schedule(run, run.epochs * shown.steps, state["schedule"])
        self.rows: list[dict[str, Any]] = group.agreed(lambda: directory.read_metrics(where))

    def assemble(self, momentum: Any) -> None:
        """Optimizer and wrappers around the model as it is."""
        run = self.run
        options: dict[str, Any] = {"momentum": run.momentum, "nesterov": run.nesterov}
        self.optimizer = torch.optim.SGD(networks.groups(run, self.model), lr=0.0, **options)
        for parameter in self.model.parameters():
            if parameter in momentum:
                self.optimizer.state[parameter] = momentum[parameter]
        self.network: nn.Module = self.model
        if self.group.world > 1:
            on = [self.group.device] if self.group.device.type == "cuda" else None
            self.network = DistributedDataParallel(self.model, device_ids=on)
        if run.compile:
            self.network = torch.compile(self.network)  # type: ignore[assignment]

    def drop_heads(self, model: DSN) -> None:
        """Train on without deep supervision; what is left keeps its momentum."""
        model.remove_heads()
        self.assemble(self.optimizer.state)

    def run_epoch(self, watch: Watch | None) -> dict[str, Any]:
        """Train for one epoch, evaluate, write metrics and checkpoint down, and return the metrics."""
        if isinstance(self.model, DSN) and len(self.model.heads) and self.done >= self.run.head_steps:
            self.drop_heads(self.model)
        wall, cpu = time.perf_counter(), time.process_time()
        loss, wrong, seen, rate = self.learn(watch)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        row: dict[str, Any] = {
            "epoch": self.epoch + 1,
            "rate": rate,
            "train_loss": loss / self.shown.steps,
            "train_error": 100 * wrong / seen,
            "validation_error": self.error(self.shown.validation),
            "test_error": self.error(self.shown.test),
            "seconds": round(wall, 3),
            "cpu_seconds": round(cpu, 3),
        }
        row["pools"] = self.pools()
        self.schedule.end_epoch(row["validation_error"])
        self.epoch += 1
        self.rows.append(row)
        self.group.agreed(self.keep)
        return row

    @property
    def done(self) -> int:
        """Steps before this epoch."""
        return self.epoch * self.shown.steps

    def learn(self, watch: Watch | None) -> tuple[float, float, float, float]:
        """The steps of an epoch: sum of their losses, images misjudged on the way, of how many, and the last rate."""
        # Under torch.compile every process draws its own dropout; else all draw the same and take their rows.
        torch.manual_seed(seeded(self.run, "noise", self.epoch) + self.group.rank * self.run.compile)
        self.network.train()
        losses, wrong = torch.zeros((), device=self.group.device), torch.zeros((), device=self.group.device)
        rate, seen = 0.0, 0
        for number, (images, labels) in enumerate(self.shown.epoch(self.epoch, self.group), 1):
            step = self.done + number
            rate = self.set_rate(step - 1)
            loss, votes = self.step(images, labels)
            losses += loss
            wrong += (votes.argmax(1) != labels).sum()
            seen += len(labels)
            if number % CHECKED == 0:
                self.check(losses, number, rate)
            if watch is not None:
                metrics = self.rows[-1] if self.rows else None
                watch(Step(step, self.run.epochs * self.shown.steps, self.epoch + 1, rate, metrics))
        self.check(losses, self.shown.steps, rate)
        loss_sum, wrong_sum, seen_sum = self.group.total(float(losses), float(wrong), seen)
        return loss_sum / self.group.world, wrong_sum, seen_sum, rate

    def set_rate(self, step: int) -> float:
        """Give every group of parameters its rate at a step, counted from 0."""
        rate = self.schedule.rate(step)
        for group in self.optimizer.param_groups:
            falling = head_factor(step) if group["name"].startswith("heads") else 1.0
            group["lr"] = rate * group["factor"] * falling
        return rate

    def step(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Forward, backward, one move of the optimizer: the loss and the votes."""
        self.optimizer.zero_grad()
        with autocast(self.run, self.group), self.noise():
            said = self.network(images)
        heads = said.heads if isinstance(said, Votes) else []
        votes: Tensor = said.votes if isinstance(said, Votes) else said
        loss = LOSSES[self.run.loss](votes.float(), labels)
        loss = sum((hinge(head.float(), labels) for head in heads), loss)  # whatever the output's, as DSN has it
        loss.backward()
        self.optimizer.step()
        return loss.detach(), votes.detach()

    def noise(self) -> Any:
        return WholeBatch(self.group) if self.group.world > 1 and not self.run.compile else nullcontext()

    def check(self, losses: Tensor, number: int, rate: float) -> None:
        """Stop at a loss, or at the end of an epoch at weights, that are no numbers: nothing of them is kept."""
        (loss,) = self.group.total(float(losses))
        whole = number < self.shown.steps or all(bool(p.isfinite().all()) for p in self.model.parameters())
        if math.isfinite(loss) and whole:
            return
        what = "the weights are not finite" if math.isfinite(loss) else f"the loss is {loss}"
        kept = f"{self.where} keeps epoch {self.epoch}" if self.epoch else "no epoch was finished"
        raise TrainingError(
            f"{what} in epoch {self.epoch + 1}, step {number} or shortly before, at a rate of {rate:.3g}; "
            f"a lower rate may help; {kept}"
        )

    @torch.no_grad()
    def error(self, held: Whole | Streamed) -> float:
        """Percent of images misjudged, none of them trained on."""
        self.model.eval()
        if self.group.world > 1:
            for buffer in self.model.buffers():
                torch.distributed.broadcast(buffer, 0)
        wrong = seen = 0
        for images, labels in self.shown.held(held, self.group):
            with autocast(self.run, self.group):
                votes = self.model(images)
            wrong += int((votes.argmax(1) != labels).sum())
            seen += len(labels)
        wrong_sum, seen_sum = self.group.total(wrong, seen)
        return 100 * wrong_sum / seen_sum

    def pools(self) -> dict[str, float]:
        """Proportions of the learned pools, and how decided their gates are on some validation images."""
        if not any(isinstance(module, Learned) for module in self.model.modules()):
            return {}
        some = torch.arange(min(OBSERVED, len(self.shown.validation.labels)))
        (images, _), *_ = self.shown.validation.shown([some], slice(None), None)
        return statistics(self.model, images.to(self.group.device, memory_format=self.shown.layout))

    def keep(self) -> None:
        """Write the last epoch down: metrics, then the checkpoint, whose last step makes it count."""
        directory.append(self.where, self.rows[-1])
        state = {
            "schedule": self.schedule.state,
            "data": self.shown.digest,
            "source": self.source,
            "image": list(self.shown.image),
            "classes": list(self.shown.classes),
        }
        checkpoint.save(self.where, self.epoch, checkpoint.tensors_of(self.model, self.optimizer), state)

    def finish(self) -> Result:
        """The result of all epochs, written down."""
        last, shown = self.rows[-1], self.shown
        heads = {id(p) for p in self.model.heads.parameters()} if isinstance(self.model, DSN) else set()
        counted = {id(p): p.numel() for p in self.model.parameters() if id(p) not in heads}
        learned = {id(p) for m in self.model.modules() if isinstance(m, Learned) for p in m.parameters()}
        result = Result(
            id=self.run.id,
            test_error=last["test_error"],
            validation_error=last["validation_error"],
            train_error=last["train_error"],
            train_loss=last["train_loss"],
            epochs=self.epoch,
            images={name: len(getattr(shown, name).labels) for name in ("train", "validation", "test")},
            parameters=sum(counted.values()),
            pool_parameters=sum(count for key, count in counted.items() if key in learned),
            seconds=round(sum(row["seconds"] for row in self.rows), 3),
            cpu_seconds=round(sum(row["cpu_seconds"] for row in self.rows), 3),
            epoch_seconds=median(row["seconds"] for row in self.rows),
            memory=machine.memory(),
            pools=last["pools"],
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            skipped=list(shown.skipped),
        )
        directory.finish(self.where, result)
        return result


def hinge(votes: Tensor, labels: Tensor) -> Tensor:
    """``Σ_c max(0, 1 − y_c s_c)²`` with y = 1 for the label and −1 for the rest, averaged over images: an L2-SVM."""
    sign = 2 * F.one_hot(labels, votes.shape[1]) - 1
    return F.relu(1 - sign * votes).square().sum(1).mean()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"hinge": hinge, "softmax": F.cross_entropy}


def autocast(run: Run, group: Ranks) -> Any:
    return torch.autocast(group.device.type, torch.bfloat16) if run.precision == "bfloat16" else nullcontext()
