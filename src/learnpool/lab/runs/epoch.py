"""The state of an unfinished epoch, from which a run resumes: the sums behind its metrics, and the random numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from .distributed import Ranks


class EpochSums:
    """Losses and wrong answers of this process, added up step by step without waiting for a GPU, and the time taken."""

    def __init__(self, device: torch.device, record: Mapping[str, float] | None = None) -> None:
        before = record or {}
        self.losses = torch.tensor(before.get("losses", 0.0), device=device)
        self.wrong = torch.tensor(before.get("wrong", 0.0), device=device)
        self.seen = int(before.get("seen", 0))
        self.wall_start = time.perf_counter() - before.get("seconds", 0.0)
        self.cpu_start = time.process_time() - before.get("cpu_seconds", 0.0)

    def add(self, loss: Tensor, votes: Tensor, labels: Tensor) -> None:
        """Count a step."""
        self.losses += loss
        self.wrong += (votes.argmax(1) != labels).sum()
        self.seen += len(labels)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.wall_start

    @property
    def cpu_seconds(self) -> float:
        return time.process_time() - self.cpu_start

    def to_record(self) -> dict[str, float]:
        """What a checkpoint keeps of it."""
        sums = {"losses": float(self.losses), "wrong": float(self.wrong), "seen": self.seen}
        return sums | {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}


def choose_record(records: list[dict[str, float]], ranks: Ranks) -> dict[str, float]:
    """The sums this process continues with; if there were more or fewer processes, the first takes those of all."""
    if len(records) == ranks.world:
        return records[ranks.rank]
    spent = {name: max(record[name] for record in records) for name in ("seconds", "cpu_seconds")}
    if not ranks.first:
        return spent
    sums = {name: sum(record[name] for record in records) for name in ("losses", "wrong", "seen")}
    return spent | sums | {"losses": sums["losses"] * ranks.world / len(records)}  # a process has the mean of its rows


def read_noise(device: torch.device) -> dict[str, Tensor]:
    """The state of the random numbers that dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def name_noise(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The states of all processes by the names they have in a checkpoint: ``noise.0.cpu``."""
    return {f"noise.{rank}.{kind}": state for rank, found in enumerate(states) for kind, state in found.items()}


def restore_noise(tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Go on drawing where a checkpoint stopped; a process that was not there draws as the first."""
    for kind in ("cpu", "cuda"):
        state = tensors.get(f"noise.{ranks.rank}.{kind}", tensors.get(f"noise.0.{kind}"))
        if state is not None and kind == "cpu":
            torch.set_rng_state(state)
        elif state is not None and ranks.device.type == "cuda":
            torch.cuda.set_rng_state(state, ranks.device)
