"""A comparison as one page of HTML that needs nothing else: no network, no script, no other file.

It reads run directories only, so it can be made again from them at any time. Every string is escaped where it is shown;
only our own pictures are not.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup

from ... import __version__
from ...explanation.measurement import explain
from ...explanation.tables import describe_pool
from ...formatting import format_count, format_mean, format_number, format_percent, format_pip_install, format_range
from ...parameters import TreeParameters
from .. import files
from ..data.catalog import SOURCES
from ..paper import Value, find_error, format_value
from ..runs.run import OWN_NETS, Run
from ..runs.trained import load
from ..templates import make_environment
from . import charts
from .answer import format_error, format_interval_name, format_outlook, format_p
from .comparison import Comparison, FinishedRun, format_command, read_comparison
from .groups import group_names
from .summary import LEVEL, MOST_SEEDS, POWER, PoolSummary

MAX_CLASSES = 12  # that are named
MIN_GROUPED = 7  # pools, from which on the table has groups


def write(paths: Sequence[Path], out: Path) -> Comparison:
    """Write the page about the runs in ``paths`` to ``out``, all or nothing, and return what it says."""
    compared = read_comparison(paths)
    files.write_bytes(out, render(compared).encode())
    return compared


def render(c: Comparison) -> str:
    """The page."""
    environment = make_environment("comparison")
    environment.filters |= {"number": format_number, "percent": partial(format_percent, sign=True)}
    environment.filters |= {"counted": format_count, "error": format_error, "outlook": format_outlook}
    environment.filters |= {"p_value": format_p, "mean": format_mean, "interval": format_range}
    paper, step = read_paper_errors(c), 100 / c.first.result.images["validation"]
    pictures = {
        "errors": charts.draw_errors(c, {pool: error[0] for pool, error in paper.items() if error is not None}),
        "gains": charts.draw_differences(c),
        "curve": charts.draw_curves(c, "validation_error", "validation error, %", step / 2, c.chance_error),
        "loss": charts.draw_curves(c, "train_loss", "training loss", 1e-6),
    }
    return environment.get_template("report.html").render(
        version=__version__,
        c=c,
        run=c.first.run,
        result=c.first.result,
        classes=format_classes(c.first),
        answer=c.answer,
        pictures={name: Markup(text) for name, text in pictures.items()},
        paper={pool: format_value(error) for pool, error in paper.items() if error is not None},
        groups=group_summaries(c),
        learned=list(describe_learned(c)),
        commands=format_commands(c),
        settings=[(name, getattr(c.first.run, name), f.description) for name, f in Run.model_fields.items()],
        machines=describe_machines(c),
        seconds=sum(finished.result.seconds for finished in c.runs),
        level=LEVEL,
        interval_name=format_interval_name(len(c.pools) - 1),
        name_seeds=not c.caveats.unlearned,
        few_seeds=len(c.seeds) <= charts.FEW_SEEDS,
        power=POWER,
        most_seeds=MOST_SEEDS,
    )


def group_summaries(c: Comparison) -> list[tuple[str, list[PoolSummary]]]:
    """The pools of the table by group, with titles only where there are several groups of several pools."""
    groups = group_names(summary.pool for summary in c.pools)
    if len(c.pools) < MIN_GROUPED or len(groups) == 1:
        return [("", list(c.pools))]
    return [(title, [s for s in c.pools if s.pool in names]) for title, names in groups.items()]


def read_paper_errors(c: Comparison) -> dict[str, Value | None]:
    """The paper's error for the data of a comparison and each of its pools."""
    run = c.first.run
    options: Any = {"augmented": bool(run.pad or run.mirror), "net": run.net, "extra_convs": run.extra_convs}
    return {summary.pool: find_error(run.data, summary.pool, **options) for summary in c.pools}


def format_classes(finished: FinishedRun) -> str:
    """The first names, and how many more there are."""
    more = len(finished.classes) - MAX_CLASSES
    return ", ".join(finished.classes[:MAX_CLASSES]) + (f" and {more:,} more" if more > 0 else "")


def describe_learned(c: Comparison) -> Iterator[dict[str, Any]]:
    """For each pool that learns: its proportions and gates over all seeds, and its masks in the first."""
    for summary in c.pools:
        runs = c.get_runs(summary.pool)
        net = runs[0].run.net  # named by the user who asked for these runs
        model = load(runs[0].path, None if net in OWN_NETS else net)
        if not any(isinstance(module, TreeParameters) and list(module.parameters()) for module in model.modules()):
            continue
        with torch.random.fork_rng():
            pools = [pool for pool in explain(model).pools if pool.parameters]
        yield {
            "name": summary.pool,
            "seed": runs[0].run.seed,
            "nodes": list(describe_nodes(runs)),
            "pools": [
                (pool.name, describe_pool(pool), [Markup(text) for text in charts.draw_masks(pool)]) for pool in pools
            ],
        }


def describe_nodes(runs: Sequence[FinishedRun]) -> Iterator[dict[str, Any]]:
    """Every Mix and Gate with its mean proportion in each seed and, for gates, how decided they are on average."""
    by_seed = [finished.result.pools for finished in runs]
    for key in (key for key in by_seed[0] if key.endswith(".mean")):
        name = key.removesuffix(".mean")
        extra = {
            what: statistics.fmean(stats[f"{name}.{what}"] for stats in by_seed)
            for what in ("near_0", "near_1", "entropy")
            if f"{name}.{what}" in by_seed[0]
        }
        yield {"name": name, "values": [stats[key] for stats in by_seed], **extra}


def format_commands(c: Comparison) -> list[str]:
    """What to type to get these numbers."""
    run, start = c.first.run, c.first.starts[-1]
    out, data_dir = start.get("out") or str(c.first.path.parent), start.get("data_dir")  # older runs do not say
    words = ["learnpool", "data", "get", run.data, *(["--data-dir", data_dir] if data_dir is not None else [])]
    fetch = [shlex.join(words)] if run.data in SOURCES else []
    return [format_pip_install("lab"), *fetch, format_command([finished.run for finished in c.runs], out, data_dir)]


def describe_machines(c: Comparison) -> list[dict[str, Any]]:
    """Each different machine and set of versions the runs were begun or resumed on."""
    machines: dict[str, dict[str, Any]] = {}
    for finished in c.runs:
        for start in finished.starts:
            details = {
                "processor": f"{start['hardware']['cpu']}, {format_count(start['hardware']['cores'], 'core')}",
                "device": f"{start['device']}, {format_count(start['threads'], 'thread')} per process"
                + (f", {start['processes']} processes per run" if start["processes"] > 1 else ""),
                "pools' kernel": ("compiled" if start["kernel"]["live"] else "reference")
                + f" ({start['kernel']['detail']})",
                "versions": ", ".join(f"{name} {version}" for name, version in start["versions"].items()),
            }
            known = machines.setdefault(
                str(details), details | {"starts": 0, "from": start["date"], "to": start["date"]}
            )
            known["starts"] += 1
            known["from"], known["to"] = min(known["from"], start["date"]), max(known["to"], start["date"])
    return list(machines.values())
