"""A family of differences fixed before its runs: paired by seed, residual variance pooled over pools, Holm's method.

Errors of k pools on n seeds are taken as pool + seed + residual. Where the pools' differences vary alike, the residual
variance ``s² = Σ (e − pool mean − seed mean + grand mean)² / ((n − 1)(k − 1))`` serves all of them: a difference of two
pools has the standard error ``s √(2/n)`` and (n − 1)(k − 1) degrees of freedom, where its own pairs have n − 1.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .summary import PairedDifference, compute_tests

MOST_RATIO = 4.0  # of the largest variance of the paired differences to the smallest, up to which they are alike

Pair = tuple[str, str]  # a pool, and what it is compared with


@dataclass(frozen=True)
class Family:
    """Differences tested together, by pair; ``ratio`` is that of the variances, None where one of them is zero."""

    differences: Mapping[Pair, PairedDifference]
    seeds: int
    pooled: bool
    ratio: float | None
    spreads: Mapping[Pair, float]  # standard deviation of a difference of one seed, as it was used
    degrees: int


def compare_family(errors: Mapping[str, Sequence[float]], pairs: Sequence[Pair], step: float) -> Family:
    """Test the differences of some pairs of pools, whose errors have the same seeds in the same order.

    A spread below ``step``, the error that one image makes, is taken as one step.
    """
    counts = {pool: len(values) for pool, values in errors.items()}
    seeds = min(counts.values())
    if len({*counts.values()}) > 1 or seeds < 2:
        raise ValueError(f"compare: wanted the same two seeds or more of every pool, got {counts}")
    if odd := next((pool for pair in pairs for pool in pair if pool not in errors), None):
        raise ValueError(f"compare: wanted some of {', '.join(errors)}, got {odd!r}")
    own = {pair: statistics.stdev(subtract(errors, pair)) for pair in itertools.combinations(errors, 2)}
    ratio = (max(own.values()) / min(own.values())) ** 2 if min(own.values()) else None
    pooled = len(errors) > 2 and ratio is not None and ratio <= MOST_RATIO
    common = 2**0.5 * compute_residual(list(errors.values()))
    spreads = {pair: max(common if pooled else statistics.stdev(subtract(errors, pair)), step) for pair in pairs}
    degrees = (seeds - 1) * (len(errors) - 1 if pooled else 1)
    means = [statistics.fmean(subtract(errors, pair)) for pair in spreads]
    tests = compute_tests(means, [spread / seeds**0.5 for spread in spreads.values()], [degrees] * len(means))
    differences = dict(zip(spreads, map(PairedDifference, means, tests), strict=True))
    return Family(differences, seeds, pooled, ratio, spreads, degrees)


def subtract(errors: Mapping[str, Sequence[float]], pair: Pair) -> list[float]:
    """The differences of two pools, seed by seed."""
    return [one - other for one, other in zip(errors[pair[0]], errors[pair[1]], strict=True)]


def compute_residual(rows: Sequence[Sequence[float]]) -> float:
    """The standard deviation of what pool and seed leave of the errors, a row for each pool."""
    errors = np.asarray(rows, dtype=float)  # [pools, seeds]
    pools, seeds = errors.shape
    left = errors - errors.mean(1, keepdims=True) - errors.mean(0) + errors.mean()
    return float(((left**2).sum() / ((pools - 1) * (seeds - 1))) ** 0.5)
