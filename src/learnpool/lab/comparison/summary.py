"""What a comparison of pools says: paired differences with intervals, and a sentence that claims no more than they do.

All pools share seeds, and a seed decides everything but the pools, so runs are compared in pairs. A difference is
called one only if it survives Holm's correction over the pools compared: the best of many looks good by chance.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from ...formatting import format_count, format_number, format_percent

LEVEL, POWER = 0.05, 0.8
MOST_SEEDS = 1000  # seeds: nobody will run more


@dataclass(frozen=True)
class RunScore:
    """What a run gave, as far as a comparison asks."""

    error: float  # % of the test images, after the last epoch
    seconds: float  # of training an epoch
    pool_parameters: int = 0
    parameters: int = 0
    memory: int = 0  # peak bytes of its process


@dataclass(frozen=True)
class PairedDifference:
    """A pool against the baseline, over pairs of one seed; positive is less error, in points of it."""

    gain: float
    low: float
    high: float
    p: float  # of the paired t-test
    p_holm: float  # the same after Holm's correction
    more_seeds: int | None  # seeds it would take to see it; None if it is significant, or nothing can be said

    @property
    def verdict(self) -> str:
        return "not significant" if self.p_holm >= LEVEL else "better" if self.gain > 0 else "worse"


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
    def spread(self) -> float:
        return statistics.stdev(self.errors)


def summarize(scores: Mapping[str, Mapping[int, RunScore]], test_images: int) -> list[PoolSummary]:
    """A summary for every pool, by ``scores[pool][seed]``; the first pool is the baseline.

    An error moves in steps of one image, so a spread of differences below one step is taken as one step: a few equal
    numbers are no certainty.
    """
    baseline, *others = scores
    seeds = sorted(scores[baseline])
    if len(seeds) < 2:
        raise ValueError(f"compare: no interval is possible from {format_count(len(seeds), 'seed')}; wanted at least 2")
    if odd := next((pool for pool in others if sorted(scores[pool]) != seeds), None):
        raise ValueError(f"compare: {odd} wants the seeds of {baseline}, {seeds}, got {sorted(scores[odd])}")
    errors = {pool: tuple(of_pool[seed].error for seed in seeds) for pool, of_pool in scores.items()}
    gains = [[b - e for b, e in zip(errors[baseline], errors[pool], strict=True)] for pool in others]
    differences = dict(zip(others, compute_differences(gains, 100 / test_images), strict=True))
    base, summaries = scores[baseline][seeds[0]], []
    for pool, of_pool in scores.items():
        first = of_pool[seeds[0]]
        seconds = [statistics.median(o.seconds for o in runs.values()) for runs in (of_pool, scores[baseline])]
        summaries.append(
            PoolSummary(
                pool,
                errors[pool],
                first.pool_parameters,
                first.parameters - base.parameters,
                seconds[0],
                seconds[0] / seconds[1] - 1,
                max(o.memory for o in of_pool.values()),
                differences.get(pool),
            )
        )
    return summaries


def compute_differences(gains: Sequence[Sequence[float]], step: float) -> list[PairedDifference]:
    """Paired differences of several pools to one baseline: t-intervals, and p-values corrected together."""
    means = [statistics.fmean(values) for values in gains]
    spreads = [max(statistics.stdev(values), step) for values in gains]
    n = len(gains[0]) if gains else 0
    ps = [2 * float(stats.t.sf(abs(m) / s * n**0.5, n - 1)) for m, s in zip(means, spreads, strict=True)]
    results = []
    for mean, spread, p, (corrected, level) in zip(means, spreads, ps, correct_by_holm(ps), strict=True):
        reach = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * spread / n**0.5
        needed = None if corrected < LEVEL else count_seeds_needed(mean / spread, level)
        more = None if needed is None else max(1, needed - n)
        results.append(PairedDifference(mean, mean - reach, mean + reach, p, corrected, more))
    return results


def correct_by_holm(ps: Sequence[float]) -> list[tuple[float, float]]:
    """``max over j ≤ i of min(1, (m − j) p_j)``, p ascending from p_0; and the level 0.05 / (m − i) of each."""
    results, worst = [(0.0, LEVEL)] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda k: ps[k])):
        tests = len(ps) - rank
        worst = max(worst, min(1.0, tests * ps[place]))
        results[place] = worst, LEVEL / tests
    return results


def count_seeds_needed(effect: float, level: float) -> int | None:
    """The least n for which a paired t-test at ``level`` sees a true ``effect`` (mean / spread) with 80 % chance.

    None for no effect at all, and beyond 1,000.
    """
    if not effect or not math.isfinite(effect):
        return None
    return next((n for n in range(2, MOST_SEEDS + 1) if compute_power(abs(effect), n, level) >= POWER), None)


def compute_power(effect: float, n: int, level: float) -> float:
    """The chance that a two-sided paired t-test over n pairs rejects, by the noncentral t distribution."""
    limit, centre = float(stats.t.ppf(1 - level / 2, n - 1)), effect * n**0.5
    # The far side as the upper tail of the mirrored distribution: scipy's lower tail is NaN for some large effects.
    return sum(float(stats.nct.sf(limit, n - 1, side)) for side in (centre, -centre))


def describe_pool(summary: PoolSummary, baseline: str, pools: int) -> str:
    """``gated: 0.42 points less test error than max, 95 % paired interval −0.10 … 0.94 over 3 seeds: not significant``,
    and what it costs.
    """
    a, seeds = summary.difference, format_count(len(summary.errors), "seed")
    if a is None:
        return f"{summary.pool}: {format_number(summary.mean)} % test error over {seeds}"
    more = round(a.gain, 2) < 0  # decides the word and the side the interval is seen from
    amount = f"{format_number(abs(a.gain))} points {'more' if more else 'less'} test error than {baseline}"
    low, high = (-a.high, -a.low) if more else (a.low, a.high)
    interval = f"95 % paired interval {format_number(low)} … {format_number(high)} over {seeds}"
    verdict = "not significant" if a.verdict == "not significant" else f"significantly {a.verdict}"
    corrected = f" (p = {a.p_holm:.2g}, corrected for {pools} pools)" if pools > 1 else f" (p = {a.p_holm:.2g})"
    cost = f"{summary.extra_parameters:+,} parameters".replace("-", "−") if summary.extra_parameters < 0 else ""
    cost = cost or format_count(summary.extra_parameters, "parameter")
    time = f"{format_percent(summary.extra_time, sign=True)} time"
    return f"{summary.pool}: {amount}, {interval}: {verdict}{corrected}; {cost}, {time}"


def find_best(summaries: Sequence[PoolSummary]) -> PoolSummary:
    """The pool with the lowest error but for the baseline."""
    return min((summary for summary in summaries if summary.difference is not None), key=lambda summary: summary.mean)


def compose_answer(summaries: Sequence[PoolSummary]) -> tuple[str, ...]:
    """The sentence of the pool with the lowest error, what it would take to know more, and a sentence on the others."""
    top = find_best(summaries)
    text = f"{describe_pool(top, summaries[0].pool, len(summaries) - 1)}."
    unsure = top.difference is not None and top.difference.verdict == "not significant"
    return (
        text,
        *([describe_seeds_needed(top.difference)] if unsure and top.difference else []),
        describe_verdicts(summaries),
    )


def describe_seeds_needed(a: PairedDifference) -> str:
    """How many seeds a difference that is not significant lacks."""
    if not round(a.gain, 10):
        return "No difference was seen, so no number of seeds would show one."
    if a.more_seeds is None:
        return f"To see a difference this small, even {MOST_SEEDS:,} seeds would not do."
    seeds = f"{format_count(a.more_seeds, 'more seed')} would"
    return f"{seeds} show it with {POWER:.0%} chance, if the true difference and its spread are those seen.".replace(
        "80%", "80 %"
    )


def describe_verdicts(summaries: Sequence[PoolSummary]) -> str:
    """Which pools are significantly better or worse than the baseline, in one sentence."""
    judged: dict[str, list[str]] = {"better": [], "worse": [], "not significant": []}
    for summary in summaries[1:]:
        if summary.difference is not None:
            judged[summary.difference.verdict].append(summary.pool)
    words = {"better": "significantly better", "worse": "significantly worse", "not significant": "no clear difference"}
    text = [f"{words[verdict]}: {', '.join(pools)}" for verdict, pools in judged.items() if pools]
    return f"Against {summaries[0].pool} ({format_number(summaries[0].mean)} % test error): {'; '.join(text)}."
