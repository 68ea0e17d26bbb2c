"""The statistics of a comparison: paired differences to a baseline, intervals, and seeds it would take to see them.

All pools share seeds, and a seed decides everything but the pools, so runs are compared in pairs. A difference is
called one only if it survives Holm's correction over the pools compared: the best of many looks good by chance. The
interval of a pool has the level at which Holm's method tests it, so it leaves out zero exactly if the pool is called
better or worse.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from scipy import stats

LEVEL, POWER = 0.05, 0.8
MOST_SEEDS = 30  # what takes more to show is called too small to matter


class Verdict(str, Enum):
    """What a paired test says of a pool against the baseline; the value is what reports print."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SIGNIFICANT = "no clear difference"
    ONE_SEED = "one seed"

    __str__ = str.__str__


@dataclass(frozen=True)
class RunScore:
    """The numbers of a run that a comparison uses."""

    error: float  # % of the test images, after the last epoch
    seconds: float  # of training an epoch
    pool_parameters: int = 0
    parameters: int = 0
    memory: int = 0  # peak bytes of its process


@dataclass(frozen=True)
class PairedTest:
    """A paired t-test of a difference, corrected by Holm's method for the pools tested together."""

    low: float
    high: float
    level: float  # at which it was tested: the interval has 1 − level
    p: float
    p_holm: float
    more_seeds: int | None  # it would take to see the difference; None if it is significant, or beyond MOST_SEEDS


@dataclass(frozen=True)
class PairedDifference:
    """A pool's error minus the baseline's, the mean over pairs of one seed, in points: below zero is better."""

    mean: float
    test: PairedTest | None  # None: one pair has no spread

    @property
    def verdict(self) -> Verdict:
        if self.test is None:
            return Verdict.ONE_SEED
        if self.test.p_holm >= LEVEL:
            return Verdict.NOT_SIGNIFICANT
        return Verdict.BETTER if self.mean < 0 else Verdict.WORSE

    @property
    def is_significant(self) -> bool:
        return self.verdict in (Verdict.BETTER, Verdict.WORSE)


@dataclass(frozen=True)
class PoolSummary:
    """One pool over all seeds."""

    pool: str
    errors: tuple[float, ...]
    pool_parameters: int
    extra_parameters: int  # more than the baseline's network has
    seconds: float
    extra_time: float  # part of the baseline's time that is added
    memory: int
    difference: PairedDifference | None  # None: this is the baseline

    @property
    def mean(self) -> float:
        return statistics.fmean(self.errors)

    @property
    def spread(self) -> float | None:
        return statistics.stdev(self.errors) if len(self.errors) > 1 else None


def summarize(scores: Mapping[str, Mapping[int, RunScore]], test_images: int) -> list[PoolSummary]:
    """A summary of every pool, by ``scores[pool][seed]``, over the seeds it shares with the baseline, the first pool.

    An error moves in steps of one image, so a spread of differences below one step is taken as one step: a few equal
    numbers are no certainty.
    """
    baseline, *others = scores
    of_baseline = scores[baseline]
    seeds = {pool: sorted(of_pool.keys() & of_baseline.keys()) for pool, of_pool in scores.items()}
    if odd := next((pool for pool in others if not seeds[pool]), None):
        wanted = f"one of the seeds of {baseline}, {sorted(of_baseline)}"
        raise ValueError(f"compare: {odd} wants {wanted}, got {sorted(scores[odd])}")
    changes = [[scores[pool][seed].error - of_baseline[seed].error for seed in seeds[pool]] for pool in others]
    differences = dict(zip(others, compute_differences(changes, 100 / test_images), strict=True))
    base, summaries = of_baseline[seeds[baseline][0]], []
    for pool, of_pool in scores.items():
        first = of_pool[seeds[pool][0]]
        seconds = [statistics.median(score.seconds for score in runs.values()) for runs in (of_pool, of_baseline)]
        summaries.append(
            PoolSummary(
                pool,
                tuple(of_pool[seed].error for seed in seeds[pool]),
                first.pool_parameters,
                first.parameters - base.parameters,
                seconds[0],
                seconds[0] / seconds[1] - 1,
                max(score.memory for score in of_pool.values()),
                differences.get(pool),
            )
        )
    return summaries


def compute_differences(changes: Sequence[Sequence[float]], step: float) -> list[PairedDifference]:
    """Mean changes of several pools, each a list by seed, with t-tests corrected together where there are two seeds."""
    differences = [PairedDifference(statistics.fmean(values), None) for values in changes]
    counts = {place: len(values) for place, values in enumerate(changes) if len(values) > 1}
    spreads = {place: max(statistics.stdev(changes[place]), step) for place in counts}
    means = {place: differences[place].mean for place in counts}
    errors = [spreads[place] / n**0.5 for place, n in counts.items()]
    tests = compute_tests([*means.values()], errors, [n - 1 for n in counts.values()])
    for (place, n), test in zip(counts.items(), tests, strict=True):
        if test.p_holm >= LEVEL and (needed := count_seeds_needed(means[place] / spreads[place], test.level)):
            test = replace(test, more_seeds=needed - n)  # above 0, or it would be significant
        differences[place] = PairedDifference(means[place], test)
    return differences


def compute_tests(means: Sequence[float], errors: Sequence[float], degrees: Sequence[int]) -> list[PairedTest]:
    """t-tests of means with these standard errors, corrected together; an interval has the level of its test."""
    ps = [2 * float(stats.t.sf(abs(m) / e, n)) for m, e, n in zip(means, errors, degrees, strict=True)]
    tests = []
    for mean, error, n, p, (p_holm, level) in zip(means, errors, degrees, ps, correct_by_holm(ps), strict=True):
        reach = float(stats.t.ppf(1 - level / 2, n)) * error
        tests.append(PairedTest(mean - reach, mean + reach, level, p, p_holm, None))
    return tests


def correct_by_holm(ps: Sequence[float]) -> list[tuple[float, float]]:
    """``max over j ≤ i of min(1, (m − j) p_j)``, p ascending from p_0; and the level at which each is tested.

    Holm's method tests the i-th at 0.05 / (m − i) and stops at the first that fails; the rest fail at its level.
    """
    corrected, worst, level = [(0.0, LEVEL)] * len(ps), 0.0, LEVEL
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda k: ps[k])):
        tests = len(ps) - rank
        if worst < LEVEL:
            level = LEVEL / tests
        worst = max(worst, min(1.0, tests * ps[place]))
        corrected[place] = worst, level
    return corrected


def count_seeds_needed(effect: float, level: float, most: int = MOST_SEEDS) -> int | None:
    """The least n for which a paired t-test at ``level`` sees a true ``effect`` (mean / spread) with 80 % chance.

    None for no effect at all, and beyond ``most``.
    """
    if not effect or not math.isfinite(effect):
        return None
    seeds = range(2, most + 1)  # the power grows with them
    place = bisect.bisect_left(seeds, POWER, key=lambda n: compute_power(abs(effect), n, level))
    return seeds[place] if place < len(seeds) else None


def compute_power(effect: float, n: int, level: float) -> float:
    """The chance that a two-sided paired t-test over n pairs rejects, by the noncentral t distribution."""
    limit, centre = float(stats.t.ppf(1 - level / 2, n - 1)), effect * n**0.5
    # The far side as the upper tail of the mirrored distribution: scipy's lower tail is NaN for some large effects.
    return sum(float(stats.nct.sf(limit, n - 1, side)) for side in (centre, -centre))
