"""A comparison in a few sentences that claim no more than the numbers do."""

from __future__ import annotations

from collections.abc import Sequence

from ...formatting import format_count, format_mean, format_number, format_percent, format_range
from .summary import MOST_SEEDS, POWER, PairedDifference, PoolSummary, Verdict

VERDICTS = {
    Verdict.BETTER: "significantly better",
    Verdict.WORSE: "significantly worse",
    Verdict.NOT_SIGNIFICANT: "no clear difference",
}


def compose_answer(summaries: Sequence[PoolSummary], *, name_seeds: bool = True) -> tuple[str, ...]:
    """The sentence of the pool with the lowest error, what it would take to know more, and a sentence on the others.

    Without ``name_seeds`` no number of further seeds is named: if the networks did not learn, more seeds do not help.
    """
    best = find_best(summaries)
    difference = best.difference
    sentences = [f"{describe_result(best, summaries[0].pool, len(summaries) - 1)}."]
    if difference is not None and difference.test is not None and not difference.is_significant and name_seeds:
        sentences.append(describe_seeds_needed(difference.mean, difference.test.more_seeds))
    return *sentences, describe_verdicts(summaries)


def find_best(summaries: Sequence[PoolSummary]) -> PoolSummary:
    """The pool with the lowest error but for the baseline."""
    return min((summary for summary in summaries if summary.difference is not None), key=lambda summary: summary.mean)


def describe_result(summary: PoolSummary, baseline: str, pools: int) -> str:
    """``gated: 0.42 points less test error than max (95 % interval −0.94 … 0.10 over 3 seeds): not significant``, and
    what it costs. The interval is that of the table: below zero is less error.
    """
    difference = summary.difference
    if difference is None:
        return f"{summary.pool}: {format_number(summary.mean)} % test error"
    amount = "no difference in test error from" if is_zero(difference.mean) else format_amount(difference.mean)
    extra = summary.extra_parameters
    cost = f"{extra:+,} parameters".replace("-", "−") if extra < 0 else format_count(extra, "parameter")
    cost += f", {format_percent(summary.extra_time, sign=True)} time"
    seeds = format_count(len(summary.errors), "seed")
    if (test := difference.test) is None:
        return f"{summary.pool}: {amount} {baseline} in one seed, which may be chance; {cost}"
    interval = f"{format_interval_name(pools)} {format_range(test.low, test.high)} over {seeds}"
    verdict = f"significantly {difference.verdict}" if difference.is_significant else difference.verdict
    p = f"p = {test.p_holm:.2g}" + (f", corrected for {pools} pools like the interval" if pools > 1 else "")
    return f"{summary.pool}: {amount} {baseline} ({interval}): {verdict} ({p}); {cost}"


def is_zero(change: float) -> bool:
    """Whether a difference is none in the digits that are shown."""
    return not round(change, 2)


def format_amount(change: float) -> str:
    """``-0.42`` as ``0.42 points less test error than``."""
    return f"{format_number(abs(change))} points {'more' if change > 0 else 'less'} test error than"


def format_difference(difference: PairedDifference) -> str:
    """``−0.80 (−1.20 … −0.40)``; without an interval where one pair has none."""
    interval = "" if (test := difference.test) is None else f" ({format_range(test.low, test.high)})"
    return format_number(difference.mean) + interval


def format_interval_name(pools: int) -> str:
    """What the interval is called: with several pools tested together each has a level of its own."""
    return "95 % interval" if pools == 1 else "Holm's interval"


def format_error(summary: PoolSummary) -> str:
    """``8.13 ± 0.25``; without a spread where there is one seed."""
    return format_mean(summary.errors)


def describe_seeds_needed(change: float, more_seeds: int | None) -> str:
    """How many seeds a difference that is not significant lacks."""
    if is_zero(change):
        return "No difference was seen, so no number of seeds would show one."
    if more_seeds is None:
        return f"To see a difference this small, even {MOST_SEEDS:,} seeds would not do."
    seeds, chance = format_count(more_seeds, "more seed"), format_percent(POWER)
    return f"{seeds} would show it with {chance} chance, if the true difference and its spread are those seen."


def describe_verdicts(summaries: Sequence[PoolSummary]) -> str:
    """Which pools are significantly better or worse than the baseline, in one sentence."""
    baseline = f"{summaries[0].pool} ({format_number(summaries[0].mean)} % test error)"
    pools_by_verdict: dict[Verdict, list[str]] = {}
    for summary in summaries[1:]:
        if summary.difference is not None:
            pools_by_verdict.setdefault(summary.difference.verdict, []).append(summary.pool)
    if Verdict.ONE_SEED in pools_by_verdict:
        return f"Against {baseline}: nothing is known about chance from one seed; --seeds 3 gives intervals."
    parts = [
        f"{text}: {', '.join(pools_by_verdict[verdict])}"
        for verdict, text in VERDICTS.items()
        if verdict in pools_by_verdict
    ]
    return f"Against {baseline}: {'; '.join(parts)}."
