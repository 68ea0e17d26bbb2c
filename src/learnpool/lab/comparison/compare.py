"""Does another pool help this network on these images? Train what is missing, then answer in one sentence."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...formatting import format_number, format_percent, format_range, format_table
from .. import files
from ..launch.launching import train_missing
from ..runs.presets import preset
from ..runs.run import Run, RunError, make_file_name
from . import report
from .answer import format_error, format_interval_name, format_p
from .comparison import Comparison
from .summary import PairedDifference, PoolSummary, Verdict


def plan(name: str, data: Sequence[str], pools: Sequence[str], seeds: int, /, **changes: Any) -> list[Run]:
    """A run for every data set, pool and seed, the baseline first."""
    if odd := next((field for field in ("data", "pool", "seed") if field in changes), None):
        raise RunError(f"--set: {odd} is part of what is compared; see --data, --pools and --seeds")
    if seeds < 1:
        raise RunError(f"--seeds: wanted at least 1, got {seeds}")
    each = itertools.product(data, pools, range(seeds))
    runs = [preset(name, images, **changes | {"pool": pool, "seed": seed}) for images, pool, seed in each]
    kinds = list(dict.fromkeys(run.pool for run in runs))
    if len(kinds) < 2:
        raise RunError(f"--pools: wanted at least two to compare, got {', '.join(kinds) or 'none'}")
    return list(dict.fromkeys(runs))


def compare(runs: Sequence[Run], out: Path, **options: Any) -> dict[Path, Comparison]:
    """Train what is missing in ``out``, write ``report.html`` and ``compare.json`` there, and return what they say.

    The options are those of ``train_missing``. For several data sets that is a report each, ``report-mnist.html`` and
    so on. A report of other runs is not replaced: ours then has its pools in its name.
    """
    train_missing(runs, out, **options)
    comparisons = {}
    for data in (several := list(dict.fromkeys(run.data for run in runs))):
        ours = [run for run in runs if run.data == data]
        ending = choose_ending(ours, out, f"-{make_file_name(data)}" if len(several) > 1 else "")
        page = out / f"report{ending}.html"
        comparisons[page] = report.write([out / run.id for run in ours], page)
        files.write_json(out / f"compare{ending}.json", make_record(comparisons[page]))
    return comparisons


def choose_ending(runs: Sequence[Run], out: Path, ending: str) -> str:
    """The first unused ending of ``report.html`` and ``compare.json``, or one whose runs are a subset of ours."""
    pools = make_file_name("-".join(dict.fromkeys(run.pool for run in runs)))[:80]
    digest = hashlib.sha256(" ".join(run.id for run in runs).encode()).hexdigest()[:8]
    endings = [ending, f"{ending}-{pools}", f"{ending}-{pools}-{digest}"]
    return next((name for name in endings[:2] if may_replace(runs, out, name)), endings[2])


def may_replace(runs: Sequence[Run], out: Path, ending: str) -> bool:
    """Whether there is no such report yet, or one with the same baseline whose runs are all among ours."""
    record, page = out / f"compare{ending}.json", out / f"report{ending}.html"
    if not record.exists():
        return not page.exists()
    try:
        before = json.loads(record.read_text(encoding="utf-8"))
        return bool(before["baseline"] == runs[0].pool and {*before["runs"]} <= {run.id for run in runs})
    except (OSError, ValueError, KeyError, TypeError):
        return False


def make_record(compared: Comparison) -> dict[str, Any]:
    """The numbers of a comparison, for programs."""
    return {
        "answer": list(compared.answer),
        "data": compared.first.run.data,
        "baseline": compared.pools[0].pool,
        "seeds": compared.seeds,
        "images": compared.first.result.images,
        "skipped": compared.skipped,
        "chance": compared.chance_error,
        "pools": [_make_pool_record(summary) for summary in compared.pools],
        "runs": [finished.path.name for finished in compared.runs],
    }


def _make_pool_record(summary: PoolSummary) -> dict[str, Any]:
    return {
        "pool": summary.pool,
        "errors": summary.errors,
        "mean": summary.mean,
        "spread": summary.spread,
        "pool_parameters": summary.pool_parameters,
        "parameters": summary.extra_parameters,
        "seconds": summary.seconds,
        "slower": summary.extra_time,
        "memory": summary.memory,
        "verdict": summary.difference and summary.difference.verdict,
        "against": summary.difference and _make_difference_record(summary.difference),
    }


def _make_difference_record(difference: PairedDifference) -> dict[str, Any]:
    if (test := difference.test) is None:
        return {"difference": difference.mean}
    return {
        "difference": difference.mean,
        "low": test.low,
        "high": test.high,
        "confidence": 1 - test.level,
        "p": test.p,
        "corrected": test.p_holm,
        "more": test.more_seeds,
    }


def format_comparison(compared: Comparison) -> str:
    """The summary as a table for a terminal: no name is ever broken."""
    baseline, pools = compared.pools[0].pool, len(compared.pools) - 1
    head = ["pool", "error, %", f"difference to {baseline}", format_interval_name(pools), "p", "", "parameters", "time"]
    rows = [head]
    for summary in compared.pools:
        error = format_error(summary)
        if (difference := summary.difference) is None:
            rows.append([summary.pool, error, "", "", "", "", "", ""])
            continue
        interval = p = "–"
        if (test := difference.test) is not None:
            interval, p = format_range(test.low, test.high), format_p(test.p_holm)
        verdict = "unclear" if difference.verdict is Verdict.NOT_SIGNIFICANT else difference.verdict
        cost = [f"{summary.extra_parameters:+,}".replace("-", "−"), format_percent(summary.extra_time, sign=True)]
        rows.append([summary.pool, error, format_number(difference.mean), interval, p, verdict, *cost])
    return f"{format_table(rows, right=(1, 2, 3, 4, 6, 7))}\n{describe_table(compared)}"


def describe_table(compared: Comparison) -> str:
    """What the columns mean."""
    if len(compared.seeds) == 1:
        return "Difference in points, below zero is better; one seed has no interval."
    text = f"± over {len(compared.seeds)} seeds; difference in points, below zero is better"
    if (pools := len(compared.pools) - 1) == 1:
        return f"{text}; paired t-test."
    return f"{text}; paired t-tests, intervals and p corrected together\nby Holm's method for {pools} pools."
