"""How the learning rate changes: one cycle over all steps, steps at fixed places, or when the error stops falling."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from .run import Run, RunError


class Fixed:
    """A schedule that errors do not change."""

    def end_epoch(self, error: float) -> None:
        """Nothing to do."""

    @property
    def state(self) -> dict[str, Any]:
        return {}


class OneCycle(Fixed):
    """``t / w``, then ``(T − t + 1) / (T − w + 1)`` of the peak, at step t = 1 … T: up for w steps, then down."""

    def __init__(self, run: Run, steps: int) -> None:
        self.peak, self.steps, self.warm = run.rate[0], steps, run.warmup * steps

    def rate_at(self, step: int) -> float:
        if step + 1 < self.warm:
            return self.peak * (step + 1) / self.warm
        return self.peak * (self.steps - step) / (self.steps - self.warm + 1)


class StepDown(Fixed):
    """The next rate after each milestone, a part of all steps; the last one stays to the end."""

    def __init__(self, run: Run, steps: int) -> None:
        self.rates, self.places = run.rate, [milestone * steps for milestone in run.milestones]

    def rate_at(self, step: int) -> float:
        return self.rates[bisect_right(self.places, step)]


class Plateau:
    """The next rate after ``patience`` epochs without a lower validation error; the last one stays to the end."""

    def __init__(self, run: Run, level: int = 0, waited: int = 0, lowest: float | None = None) -> None:
        self.rates, self.patience = run.rate, run.patience
        self.level, self.waited, self.lowest = level, waited, lowest

    def rate_at(self, step: int) -> float:
        return self.rates[self.level]

    def end_epoch(self, error: float) -> None:
        if self.lowest is None or error < self.lowest:
            self.lowest, self.waited = error, 0
            return
        self.waited += 1
        if self.waited >= self.patience and self.level + 1 < len(self.rates):
            self.level, self.waited = self.level + 1, 0

    @property
    def state(self) -> dict[str, Any]:
        return {"level": self.level, "waited": self.waited, "lowest": self.lowest}


def make_schedule(run: Run, steps: int, state: dict[str, Any]) -> OneCycle | StepDown | Plateau:
    """The schedule of a run of ``steps`` steps, restored from ``state``."""
    if run.schedule == "onecycle":
        return OneCycle(run, steps)
    if run.schedule == "step":
        return StepDown(run, steps)
    try:
        plateau = Plateau(run, **state)
        plateau.rate_at(0)
    except (TypeError, IndexError):
        raise RunError(
            f"checkpoint: {state} is no state of a plateau schedule; remove its directory to train this run again"
        ) from None
    return plateau
