"""Why a comparison may say nothing about pools: a network at chance level, one that is still learning, idle gates."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...formatting import format_number
from ..runs.errors import describe_chance, is_chance

STEEP, STEEP_POINTS = 0.1, 1.0  # a fall of the training error in the last tenth of the epochs, as a part and in points
IDLE = 0.995  # bits: an entropy that is shown as 1.00


@dataclass(frozen=True)
class Caveats:
    """One sentence for each caveat; ``unlearned``: so little was learned that differences mean nothing."""

    sentences: tuple[str, ...]
    unlearned: bool


@dataclass(frozen=True)
class PoolTraining:
    """How the runs of one pool trained; each list is by seed."""

    pool: str
    errors: Sequence[float]  # % of the test images
    train_errors: Sequence[Sequence[float]]  # by epoch
    entropies: Sequence[dict[str, float]]  # of its gates by name, in bits

    @property
    def mean(self) -> float:
        return statistics.fmean(self.errors)


def find_caveats(pools: Sequence[PoolTraining], chance: float, test_images: int) -> Caveats:
    """What to know before reading the numbers; the first pool is the baseline, ``chance`` the error of guessing."""
    baseline = pools[0]
    guessing = [pool for pool in pools if is_chance(pool.mean, chance, test_images)]
    sentences = list[str]()
    if baseline in guessing:
        described = describe_chance(baseline.mean, chance, test_images)
        sentences.append(f"Nothing can be said about pools yet: with {baseline.pool} {described}")
    elif guessing:
        names = ", ".join(pool.pool for pool in guessing)
        sentences.append(f"At chance level ({format_number(chance)} % test error): {names}.")
    if (fall := measure_fall(baseline.train_errors)) is not None:
        sentences.append(
            f"Training was not over: the training error of {baseline.pool} fell from {format_number(fall[0])} to "
            f"{format_number(fall[1])} % in the last {fall[2]}. Pools may rank differently after more epochs."
        )
    if idle := list(find_idle_gates(pools)):
        sentences.append(
            f"Gates did not move (entropy 1.00 bit): {', '.join(idle)}. A higher rate of their own, such as "
            "--set pool_rate=10, or more epochs would let them."
        )
    return Caveats(tuple(sentences), baseline in guessing)


def measure_fall(train_errors: Sequence[Sequence[float]]) -> tuple[float, float, str] | None:
    """Training error before and after the last tenth of the epochs, over all seeds; None unless it fell steeply."""
    epochs = len(train_errors[0])
    if epochs < 2:
        return None
    tenth = max(1, epochs // 10)
    before, after = (statistics.fmean(errors[place] for errors in train_errors) for place in (-1 - tenth, -1))
    if before - after <= max(STEEP * before, STEEP_POINTS):
        return None
    return before, after, "epoch" if tenth == 1 else f"{tenth} epochs"


def find_idle_gates(pools: Sequence[PoolTraining]) -> Iterator[str]:
    """Pools none of whose gates decides anything in any seed."""
    for pool in pools:
        bits = [value for entropies in pool.entropies for value in entropies.values()]
        if bits and min(bits) >= IDLE:
            yield pool.pool
