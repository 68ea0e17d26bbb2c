"""The training loop: steps, evaluation, and what is saved after each epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ...explanation.measurement import statistics
from ...nets.dsn import compute_head_factor
from ...parameters import TreeParameters
from . import checkpoint, directory, networks, user_networks
from .batches import Batches, ImageFiles, InMemoryImages, derive_seed
from .directory import Result
from .distributed import GlobalBatchRandomness, Ranks
from .epoch import EpochSums, choose_record, name_noise, read_noise, restore_noise
from .errors import Errors, count_errors, make_errors
from .losses import compute_loss
from .networks import Supervised
from .results import make_result
from .run import Run
from .schedule import make_schedule

STATISTICS_IMAGES = 100  # validation images that the pools' statistics are taken on
CHECK_EVERY = 50  # steps between looks at the loss: looking stops a GPU


class Step(NamedTuple):
    """How far a run is: ``step`` of ``steps`` in all, the rate just used, and the last whole epoch's metrics."""

    step: int
    steps: int
    epoch: int
    rate: float
    metrics: dict[str, Any] | None


Watch = Callable[[Step], None]


class TrainingError(RuntimeError):
    """Training cannot continue; the message says why and what was kept."""


class Training:
    """The state of one training: network, optimizer, schedule and epoch."""

    def __init__(self, run: Run, batches: Batches, ranks: Ranks, path: Path, saved: Any) -> None:
        self.run, self.batches, self.ranks, self.path = run, batches, ranks, path
        self.source = user_networks.hash_source(run)  # the user may edit it while it trains
        self.preparation = ""  # the SHA-256 of its file
        fresh: dict[str, Any] = {"epoch": 0, "schedule": {}}
        tensors, state = saved or ({}, fresh)
        if saved:
            directory.verify_unchanged(path, state, run, batches.digest, self.source)
        table = networks.make_table(run, batches.image, len(batches.classes))
        self.model = networks.build(run, table, derive_seed(run, "weights"))
        kept_heads = any(name.startswith("model.heads.") for name in tensors)
        if saved and not kept_heads and isinstance(self.model, Supervised):
            self.model.remove_heads()
        self.model.to(ranks.device, memory_format=run.memory_format)  # type: ignore[call-overload]
        self.build_optimizer({})
        if saved:
            checkpoint.restore(tensors, self.model, self.optimizer)
        self.epoch: int = state["epoch"]
        self.schedule = make_schedule(run, run.epochs * batches.steps, state["schedule"])
        self.position: Any = (state["step"], state["sums"], tensors) if state.get("step") else None  # inside the epoch
        self.save_every: float | None = None  # seconds; None: only after an epoch
        self.rows: list[dict[str, Any]] = ranks.on_rank0(lambda: directory.read_metrics(path))

    def build_optimizer(self, momentum: Any) -> None:
        """Make the optimizer of the model as it is, and wrap it for several processes and torch.compile."""
        run = self.run
        options: dict[str, Any] = {"momentum": run.momentum, "nesterov": run.nesterov}
        self.optimizer = torch.optim.SGD(networks.make_parameter_groups(run, self.model), lr=0.0, **options)
        for parameter in self.model.parameters():
            if parameter in momentum:
                self.optimizer.state[parameter] = momentum[parameter]
        self.network: nn.Module = self.model
        if self.ranks.world > 1:
            on = [self.ranks.device] if self.ranks.device.type == "cuda" else None
            self.network = DistributedDataParallel(self.model, device_ids=on)
        if run.compile:
            self.network = torch.compile(self.network)  # type: ignore[assignment]

    def drop_heads(self, model: Supervised) -> None:
        """Train on without deep supervision; what is left keeps its momentum."""
        model.remove_heads()
        self.build_optimizer(self.optimizer.state)

    def run_epoch(self, watch: Watch | None) -> dict[str, Any]:
        """Train for one epoch, evaluate, write metrics and checkpoint down, and return the metrics."""
        if isinstance(self.model, Supervised) and len(self.model.heads) and self.steps_done >= self.run.head_steps:
            self.drop_heads(self.model)
        sums, rate = self.train_epoch(watch)
        seconds, cpu_seconds = sums.seconds, sums.cpu_seconds
        loss, wrong, seen = self.ranks.sum_over_ranks(float(sums.losses), float(sums.wrong), sums.seen)
        row: dict[str, Any] = {
            "epoch": self.epoch + 1,
            "rate": rate,
            "train_loss": loss / self.ranks.world / self.batches.steps,
            "train_error": 100 * wrong / seen,
            "validation_error": self.evaluate(self.batches.validation).top1,
            "seconds": round(seconds, 3),
            "cpu_seconds": round(cpu_seconds, 3),
        }
        row["pools"] = self.measure_pools()
        self.schedule.end_epoch(row["validation_error"])
        self.epoch += 1
        self.rows.append(row)
        self.ranks.on_rank0(self.save)
        return row

    @property
    def steps_done(self) -> int:
        """Steps before this epoch."""
        return self.epoch * self.batches.steps

    def train_epoch(self, watch: Watch | None) -> tuple[EpochSums, float]:
        """Train one epoch, or what is left of it; return this process's sums over all of it, and the last rate."""
        # Under torch.compile every process draws its own dropout; else all draw the same and take their rows.
        torch.manual_seed(derive_seed(self.run, "noise", self.epoch) + self.ranks.rank * self.run.compile)
        self.network.train()
        (start, sums), rate = self.begin_epoch(), 0.0
        for number, (images, labels) in enumerate(self.batches.train_batches(self.epoch, self.ranks, start), start + 1):
            step = self.steps_done + number
            rate = self.set_rate(step - 1)
            sums.add(*self.train_step(images, labels), labels)
            if number % CHECK_EVERY == 0:
                self.check_finite(sums.losses, number, rate)
            if number < self.batches.steps and self.is_checkpoint_due(number):
                self.check_finite(sums.losses, number, rate, weights=True)
                self.save_inside_epoch(number, sums)
            if watch is not None:
                metrics = self.rows[-1] if self.rows else None
                watch(Step(step, self.run.epochs * self.batches.steps, self.epoch + 1, rate, metrics))
        self.check_finite(sums.losses, self.batches.steps, rate, weights=True)
        return sums, rate

    def begin_epoch(self) -> tuple[int, EpochSums]:
        """Steps of this epoch that are done, and its sums so far: those of a checkpoint inside it."""
        self.saved_at = time.monotonic()
        if self.position is None:
            return 0, EpochSums(self.ranks.device)
        (step, records, noise), self.position = self.position, None
        restore_noise(noise, self.ranks)
        return step, EpochSums(self.ranks.device, choose_record(records, self.ranks))

    def is_checkpoint_due(self, number: int) -> bool:
        """Whether it is time for a checkpoint inside the epoch: the first process decides for all."""
        if self.save_every is None or (self.ranks.device.type == "cuda" and number % CHECK_EVERY):
            return False
        due = self.ranks.first and time.monotonic() - self.saved_at >= self.save_every
        return self.ranks.sum_over_ranks(float(due))[0] > 0

    def save_inside_epoch(self, number: int, sums: EpochSums) -> None:
        """Save what it takes to go on with the next step, bit for bit."""
        records = self.ranks.gather(sums.to_record())
        noise = name_noise(self.ranks.gather(read_noise(self.ranks.device)))
        self.ranks.on_rank0(lambda: self.save_checkpoint(noise, {"step": number, "sums": records}))
        self.saved_at = time.monotonic()

    def set_rate(self, step: int) -> float:
        """Give every group of parameters its rate at a step, counted from 0."""
        rate = self.schedule.rate_at(step)
        for group in self.optimizer.param_groups:
            falling = compute_head_factor(step) if group["name"].startswith("heads") else 1.0
            group["lr"] = rate * group["factor"] * falling
        return rate

    def train_step(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Forward, backward and one optimizer step; return the loss and the votes.

        The batch goes through the network in ``accumulate`` parts, whose gradients are averaged.
        """
        self.optimizer.zero_grad()
        parts, losses, votes = self.run.accumulate, list[Tensor](), list[Tensor]()
        for number, (some, their) in enumerate(zip(images.chunk(parts), labels.chunk(parts), strict=True), 1):
            with self.network.no_sync() if self.ranks.world > 1 and number < parts else nullcontext():  # type: ignore[operator]
                with autocast(self.run, self.ranks), self.make_random_mode():
                    output = self.network(some)
                loss, own = compute_loss(self.run, output, their)
                (loss / parts).backward()
            losses.append(loss.detach())
            votes.append(own.detach())
        self.optimizer.step()
        return (losses[0], votes[0]) if parts == 1 else (torch.stack(losses).mean(), torch.cat(votes))

    def make_random_mode(self) -> Any:
        """Inside, every process draws the random numbers of the whole batch and takes its rows of them."""
        return GlobalBatchRandomness(self.ranks) if self.ranks.world > 1 and not self.run.compile else nullcontext()

    def check_finite(self, losses: Tensor, number: int, rate: float, weights: bool = False) -> None:
        """Raise TrainingError if the loss, or where asked for a weight, is not finite, before saving it."""
        (loss,) = self.ranks.sum_over_ranks(float(losses))
        whole = not weights or all(bool(p.isfinite().all()) for p in self.model.parameters())
        if math.isfinite(loss) and whole:
            return
        what = "the weights are not finite" if math.isfinite(loss) else f"the loss is {loss}"
        hint = f"{self.path} keeps epoch {self.epoch}" if self.epoch else "no epoch was finished"
        raise TrainingError(
            f"{what} in epoch {self.epoch + 1}, step {number} or shortly before, at a rate of {rate:.3g}; "
            f"a lower rate may help; {hint}"
        )

    @torch.no_grad()
    def evaluate(self, split: InMemoryImages | ImageFiles) -> Errors:
        """Test or validation errors, in percent; every image counts once, however many processes share them."""
        self.model.eval()
        if self.ranks.world > 1:
            for buffer in self.model.buffers():
                torch.distributed.broadcast(buffer, 0)
        wrong = wrong5 = seen = 0
        for images, labels in self.batches.eval_batches(split, self.ranks):
            with autocast(self.run, self.ranks):
                votes = self.model(images)
            counts = count_errors(votes, labels)
            wrong, wrong5, seen = wrong + counts[0], wrong5 + counts[1], seen + len(labels)
        wrong_sum, wrong5_sum, seen_sum = self.ranks.sum_over_ranks(wrong, wrong5, seen)
        return make_errors(wrong_sum, wrong5_sum, seen_sum, len(self.batches.classes))

    def measure_pools(self) -> dict[str, float]:
        """Proportions of the learned pools, and how decided their gates are on some validation images."""
        if not any(isinstance(module, TreeParameters) for module in self.model.modules()):
            return {}
        some = torch.arange(min(STATISTICS_IMAGES, len(self.batches.validation.labels)))
        (images, _), *_ = self.batches.validation.iter_batches([some], slice(None), None)
        return statistics(self.model, images.to(self.ranks.device, memory_format=self.run.memory_format))

    def save(self) -> None:
        """Save the epoch: metrics first, then the checkpoint."""
        directory.append_metrics(self.path, self.rows[-1])
        self.save_checkpoint({}, {})

    def save_checkpoint(self, tensors: dict[str, Tensor], more: dict[str, Any]) -> None:
        """Save network, optimizer and schedule, and what else a checkpoint inside an epoch has."""
        state = {
            "run": self.run.id,
            "schedule": self.schedule.state,
            "data": self.batches.digest,
            "source": self.source,
            "preparation": self.preparation,
            "image": list(self.batches.image),
            "classes": list(self.batches.classes),
        }
        own = checkpoint.collect_tensors(self.model, self.optimizer)
        checkpoint.save(self.path, self.epoch, own | tensors, state | more)

    def finish(self) -> Result:
        """Evaluate on test images, for the first and only time, and write the result of the run."""
        errors = self.evaluate(self.batches.test)
        return self.ranks.on_rank0(lambda: self.write_result(errors))

    def write_result(self, errors: Errors) -> Result:
        """Write the result of the run."""
        result = make_result(self.run, self.model, self.batches, self.rows, errors)
        directory.write_result(self.path, result)
        return result


def autocast(run: Run, ranks: Ranks) -> Any:
    return torch.autocast(ranks.device.type, torch.bfloat16) if run.precision == "bfloat16" else nullcontext()
