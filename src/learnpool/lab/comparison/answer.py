"""A comparison in a few sentences that claim no more than the numbers do: the verdict first, then its figures."""

from __future__ import annotations

from collections.abc import Sequence

from ...formatting import format_count, format_mean, format_number, format_percent, format_range, join_words
from .summary import LEVEL, MOST_SEEDS, POWER, PairedDifference, PoolSummary, Verdict

TOO_SMALL = "too small to matter here"


def compose_answer(summaries: Sequence[PoolSummary]) -> tuple[str, ...]:
    """Which pools differ clearly from the baseline, the figures of the one that matters most, and what it would take
    to know more."""
    baseline, pool = summaries[0], choose_pool(summaries)
    difference = pool.difference
    figures = describe_result(pool, baseline, len(summaries) - 1), describe_cost(pool)
    sentences = [describe_verdict(summaries), *figures]
    if difference is not None and difference.verdict is Verdict.NOT_SIGNIFICANT:
        sentences.append(describe_seeds_needed(difference))
    return tuple(sentences)


def choose_pool(summaries: Sequence[PoolSummary]) -> PoolSummary:
    """The pool whose figures are given: the best of those that are better, else the clearest difference."""
    others = [summary for summary in summaries if summary.difference is not None]
    if better := [summary for summary in others if summary.difference and summary.difference.verdict is Verdict.BETTER]:
        return min(better, key=lambda summary: summary.mean)
    return min(others, key=rank_clearness)


def rank_clearness(summary: PoolSummary) -> tuple[float, float]:
    """Lowest for the clearest difference: by p, and by error where one seed gives no p."""
    test = summary.difference and summary.difference.test
    return (test.p if test else 1.0), summary.mean


def describe_verdict(summaries: Sequence[PoolSummary]) -> str:
    """``gated is better than max; no clear difference: mixed, tree2.``"""
    baseline, others = summaries[0].pool, [summary for summary in summaries[1:] if summary.difference is not None]
    pools: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
    for summary in others:
        if summary.difference is not None:
            pools[summary.difference.verdict].append(summary.pool)
    if pools[Verdict.ONE_SEED]:
        return f"One seed cannot show whether a pool differs from {baseline}; --seeds 3 gives intervals."
    unclear = pools[Verdict.NOT_SIGNIFICANT]
    if len(unclear) == len(others):
        if len(others) == 1:
            return f"{others[0].pool} does not differ clearly from {baseline}."
        closest = choose_pool(summaries)
        is_call = closest.difference is not None and not is_zero(closest.difference.mean)
        return f"No pool differs clearly from {baseline}{f'; the closest call is {closest.pool}' if is_call else ''}."
    parts = [
        f"{join_words(pools[verdict])} {'is' if len(pools[verdict]) == 1 else 'are'} {verdict} than {baseline}"
        for verdict in (Verdict.BETTER, Verdict.WORSE)
        if pools[verdict]
    ]
    return "; ".join([*parts, *([f"no clear difference: {', '.join(unclear)}"] if unclear else [])]) + "."


def describe_result(summary: PoolSummary, baseline: PoolSummary, pools: int) -> str:
    """``gated: 7.70 % test error, 0.43 points less than max (95 % interval −0.94 … 0.10 over 3 seeds, p = 0.14).``

    The interval is that of the table: below zero is less error.
    """
    difference = summary.difference
    error = f"{summary.pool}: {format_number(summary.mean)} % test error"
    if difference is None:
        return f"{error}."
    than = f"{baseline.pool} ({format_number(baseline.mean)} %)"
    amount = f"as much as {than}" if is_zero(difference.mean) else f"{format_amount(difference.mean)} than {than}"
    if (test := difference.test) is None:
        evidence = "in one seed, which may be chance"
    else:
        interval = f"{format_interval_name(pools)} {format_range(test.low, test.high)}"
        corrected = f", corrected for {pools} pools" if pools > 1 else ""
        evidence = (
            f"{interval} over {format_count(len(summary.errors), 'seed')}, p = {format_p(test.p_holm)}{corrected}"
        )
    return f"{error}, {amount}; {evidence}."


def describe_cost(summary: PoolSummary) -> str:
    """``It adds 18 parameters and takes 3 % more time.``"""
    extra, time = summary.extra_parameters, summary.extra_time
    parameters = "no parameters" if not extra else format_count(abs(extra), "parameter")
    if not round(100 * time):
        return f"It {'saves' if extra < 0 else 'adds'} {parameters} and takes the same time."
    took = f"takes {format_percent(abs(time))} {'more' if time > 0 else 'less'} time"
    return f"It {'saves' if extra < 0 else 'adds'} {parameters} and {took}."


def is_zero(change: float) -> bool:
    """Whether a difference is zero in the digits that are shown."""
    return not round(change, 2)


def format_amount(change: float) -> str:
    """``-0.42`` as ``0.42 points less``."""
    return f"{format_number(abs(change))} points {'more' if change > 0 else 'less'}"


def format_difference(difference: PairedDifference) -> str:
    """``−0.80 (−1.20 … −0.40)``; without an interval where one pair has none."""
    interval = "" if (test := difference.test) is None else f" ({format_range(test.low, test.high)})"
    return format_number(difference.mean) + interval


def format_p(p: float) -> str:
    """``0.0033``; with more digits where two would hide on which side of the level it is, such as ``0.04998``."""
    texts = [f"{p:.{digits}g}" for digits in range(2, 7)]
    return next((text for text in texts if float(text) != LEVEL), texts[0])


def format_interval_name(pools: int) -> str:
    """What the interval is called: with several pools tested together each has a level of its own."""
    return "95 % interval" if pools == 1 else "Holm's interval"


def format_error(summary: PoolSummary) -> str:
    """``8.13 ± 0.25``; without a spread where there is one seed."""
    return format_mean(summary.errors)


def format_outlook(difference: PairedDifference) -> str:
    """``4 more seeds`` for the table: what it would take to show a difference that is not clear."""
    if difference.test is None or difference.verdict is not Verdict.NOT_SIGNIFICANT:
        return ""
    if is_zero(difference.mean) or difference.test.more_seeds is None:
        return TOO_SMALL
    return format_count(difference.test.more_seeds, "more seed")


def describe_seeds_needed(difference: PairedDifference) -> str:
    """How many more seeds would show an unclear difference."""
    if is_zero(difference.mean):
        return f"The difference seen is {TOO_SMALL}."
    if difference.test is None or difference.test.more_seeds is None:
        return f"It would take more than {MOST_SEEDS} seeds to show this difference: it is {TOO_SMALL}."
    seeds, chance = format_count(difference.test.more_seeds, "more seed"), format_percent(POWER)
    return f"{seeds} would show it with {chance} chance, if the true difference and its spread are those seen."
