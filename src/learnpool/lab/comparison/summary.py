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
MOST = 1000  # seeds: nobody will run more


@dataclass(frozen=True)
class Outcome:
    """What a run gave, as far as a comparison asks."""

    error: float  # % of the test images, after the last epoch
    seconds: float  # of training an epoch
    pool_parameters: int = 0
    parameters: int = 0
    memory: int = 0  # peak bytes of its process


@dataclass(frozen=True)
class Against:
    """A pool against the baseline, over pairs of one seed; positive is less error, in points of it."""

    gain: float
    low: float
    high: float
    p: float  # of the paired t-test
    corrected: float  # the same after Holm's correction
    more: int | None  # seeds that are wanting to see it; None if it is significant, or nothing can be said

    @property
    def verdict(self) -> str:
        return "not significant" if self.corrected >= LEVEL else "better" if self.gain > 0 else "worse"


@dataclass(frozen=True)
class Line:
    """One pool over all seeds."""

    pool: str
    errors: tuple[float, ...]
    pool_parameters: int
    parameters: int  # more than the baseline's network has
    seconds: float
    slower: float  # part of the baseline's time that is added
    memory: int
    against: Against | None  # None: this is the baseline

    @property
    def mean(self) -> float:
        return statistics.fmean(self.errors)

    @property
    def spread(self) -> float:
        return statistics.stdev(self.errors)


def summarize(outcomes: Mapping[str, Mapping[int, Outcome]], test_images: int) -> list[Line]:
    """A line for every pool, by ``outcomes[pool][seed]``; the first pool is the baseline.

    An error moves in steps of one image, so a spread of differences below one step is taken as one step: a few equal
    numbers are no certainty.
    """
    baseline, *others = outcomes
    seeds = sorted(outcomes[baseline])
    if len(seeds) < 2:
        raise ValueError(f"compare: no interval is possible from {format_count(len(seeds), 'seed')}; wanted at least 2")
    if odd := next((pool for pool in others if sorted(outcomes[pool]) != seeds), None):
        raise ValueError(f"compare: {odd} wants the seeds of {baseline}, {seeds}, got {sorted(outcomes[odd])}")
    errors = {pool: tuple(of_pool[seed].error for seed in seeds) for pool, of_pool in outcomes.items()}
    gains = [[b - e for b, e in zip(errors[baseline], errors[pool], strict=True)] for pool in others]
    against = dict(zip(others, compared(gains, 100 / test_images), strict=True))
    base, lines = outcomes[baseline][seeds[0]], []
    for pool, of_pool in outcomes.items():
        first = of_pool[seeds[0]]
        seconds = [statistics.median(o.seconds for o in runs.values()) for runs in (of_pool, outcomes[baseline])]
        lines.append(
            Line(
                pool,
                errors[pool],
                first.pool_parameters,
                first.parameters - base.parameters,
                seconds[0],
                seconds[0] / seconds[1] - 1,
                max(o.memory for o in of_pool.values()),
                against.get(pool),
            )
        )
    return lines


def compared(gains: Sequence[Sequence[float]], step: float) -> list[Against]:
    """Paired differences of several pools to one baseline: t-intervals, and p-values corrected together."""
    means = [statistics.fmean(values) for values in gains]
    spreads = [max(statistics.stdev(values), step) for values in gains]
    n = len(gains[0]) if gains else 0
    ps = [2 * float(stats.t.sf(abs(m) / s * n**0.5, n - 1)) for m, s in zip(means, spreads, strict=True)]
    found = []
    for mean, spread, p, (corrected, level) in zip(means, spreads, ps, holm(ps), strict=True):
        reach = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * spread / n**0.5
        needed = None if corrected < LEVEL else seeds_needed(mean / spread, level)
        more = None if needed is None else max(1, needed - n)
        found.append(Against(mean, mean - reach, mean + reach, p, corrected, more))
    return found


def holm(ps: Sequence[float]) -> list[tuple[float, float]]:
    """``max over j ≤ i of min(1, (m − j) p_j)``, p ascending from p_0; and the level 0.05 / (m − i) of each."""
    found, worst = [(0.0, LEVEL)] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda k: ps[k])):
        tests = len(ps) - rank
        worst = max(worst, min(1.0, tests * ps[place]))
        found[place] = worst, LEVEL / tests
    return found


def seeds_needed(effect: float, level: float) -> int | None:
    """The least n for which a paired t-test at ``level`` sees a true ``effect`` (mean / spread) with 80 % chance.

    None for no effect at all, and beyond 1,000.
    """
    if not effect or not math.isfinite(effect):
        return None
    return next((n for n in range(2, MOST + 1) if power(abs(effect), n, level) >= POWER), None)


def power(effect: float, n: int, level: float) -> float:
    """The chance that a two-sided paired t-test over n pairs rejects, by the noncentral t distribution."""
    limit, centre = float(stats.t.ppf(1 - level / 2, n - 1)), effect * n**0.5
    # The far side as the upper tail of the mirrored distribution: scipy's lower tail is NaN for some large effects.
    return sum(float(stats.nct.sf(limit, n - 1, side)) for side in (centre, -centre))


def sentence(line: Line, baseline: str, pools: int) -> str:
    """``gated: 0.42 points less test error than max, 95 % paired interval −0.10 … 0.94 over 3 seeds: not significant``,
    and what it costs.
    """
    a = line.against
    if a is None:
        return f"{line.pool}: {format_number(line.mean)} % test error over {format_count(len(line.errors), 'seed')}"
    more = round(a.gain, 2) < 0  # decides the word and the side the interval is seen from
    amount = f"{format_number(abs(a.gain))} points {'more' if more else 'less'} test error than {baseline}"
    low, high = (-a.high, -a.low) if more else (a.low, a.high)
    interval = f"95 % paired interval {format_number(low)} … {format_number(high)}"
    interval += f" over {format_count(len(line.errors), 'seed')}"
    verdict = "not significant" if a.verdict == "not significant" else f"significantly {a.verdict}"
    corrected = f" (p = {a.corrected:.2g}, corrected for {pools} pools)" if pools > 1 else f" (p = {a.corrected:.2g})"
    cost = f"{line.parameters:+,} parameters".replace("-", "−") if line.parameters < 0 else ""
    cost = cost or format_count(line.parameters, "parameter")
    time = f"{format_percent(line.slower, sign=True)} time"
    return f"{line.pool}: {amount}, {interval}: {verdict}{corrected}; {cost}, {time}"


def best(lines: Sequence[Line]) -> Line:
    """The pool with the lowest error but for the baseline."""
    return min((line for line in lines if line.against is not None), key=lambda line: line.mean)


def answer(lines: Sequence[Line]) -> tuple[str, ...]:
    """The sentence of the pool with the lowest error, what it would take to know more, and a sentence on the others."""
    top = best(lines)
    said = f"{sentence(top, lines[0].pool, len(lines) - 1)}."
    unsure = top.against is not None and top.against.verdict == "not significant"
    return said, *([wanting(top.against)] if unsure and top.against else []), others(lines)


def wanting(a: Against) -> str:
    """How many seeds a difference that is not significant lacks."""
    if not round(a.gain, 10):
        return "No difference was seen, so no number of seeds would show one."
    if a.more is None:
        return f"To see a difference this small, even {MOST:,} seeds would not do."
    seeds = f"{format_count(a.more, 'more seed')} would"
    return f"{seeds} show it with {POWER:.0%} chance, if the true difference and its spread are those seen.".replace(
        "80%", "80 %"
    )


def others(lines: Sequence[Line]) -> str:
    """Which pools are significantly better or worse than the baseline, in one sentence."""
    judged: dict[str, list[str]] = {"better": [], "worse": [], "not significant": []}
    for line in lines[1:]:
        if line.against is not None:
            judged[line.against.verdict].append(line.pool)
    words = {"better": "significantly better", "worse": "significantly worse", "not significant": "no clear difference"}
    said = [f"{words[verdict]}: {', '.join(pools)}" for verdict, pools in judged.items() if pools]
    return f"Against {lines[0].pool} ({format_number(lines[0].mean)} % test error): {'; '.join(said)}."
