"""Tables of the paper's experiments: our pools beside max, and our numbers beside the paper's."""

import itertools
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from cpu_tables import RESULTS, iter_table
from learnpool.formatting import format_mean
from learnpool.lab.comparison.answer import format_difference
from learnpool.lab.comparison.summary import PairedDifference, PoolSummary
from learnpool.lab.experiments import imagenet, reproduce, sharing
from learnpool.lab.experiments.experiment import Scale, fix_unused_fields
from learnpool.lab.experiments.results import Results
from learnpool.lab.paper import format_value
from learnpool.lab.runs.run import Run
from run_tables import format_start, list_runs


@dataclass(frozen=True)
class Setting:
    """One network and schedule in which pools were compared: where its runs are, and what they have in common."""

    title: str
    folder: str
    scale: Scale

    @cached_property
    def results(self) -> Results:
        return Results(RESULTS / self.folder / "runs")


def make_small_scale(seeds: int, **changes: Any) -> Scale:
    """A fifth of CIFAR10's training images, augmented, in the `cpu` preset."""
    return Scale("cpu", seeds, ("cifar10+",), {"train_size": 10000, **changes})


SHORT = {"batch": 32, "rate": (0.035,), "precision": "bfloat16"}  # the schedule chosen for the paper's network
SETTINGS = {
    "dsn": Setting("the paper's network, a quarter as wide", "paper", make_small_scale(5, epochs=40, **SHORT)),
    "all": Setting("the same, all images", "paper/all-images", Scale("cpu", 3, ("cifar10+",), {"epochs": 8, **SHORT})),
    "small": Setting(
        "a network with batch normalisation",
        "paper/small",
        make_small_scale(3, epochs=20, rate=(0.1,), net="learnpool.nets:small"),
    ),
    "mnist": Setting("MNIST", "paper/mnist", Scale("cpu", 3, ("mnist",), {"epochs": 4, **SHORT})),
}
IN_README = ("dsn", "small")
LARGE = Setting("large images", "paper/imagenette", Scale("cpu", 3, ("imagenette",), {"epochs": 45}))
POOLS = (
    "max", "avg", "half", "stochastic", "mixed", "gated", "tree2+max", "tree2+gated", "tree3+gated",
    "Gate(Filter,Mix(Max,Avg))+gated",
)  # fmt: skip

SHARING = ("max", *(row.pool for row in sharing.TABLE.rows if row.pool.split(":")[0] in ("mixed", "gated")))


def group_runs(setting: Setting, pools: Iterable[str] = POOLS) -> dict[str, list[Run]]:
    """The runs of a setting by pool."""
    return {pool: setting.scale.list_runs(*setting.scale.data, pool) for pool in pools}


def compare_pools(setting: Setting, pools: Iterable[str] = POOLS) -> dict[str, PoolSummary]:
    """The pools of which at least one seed is finished, each beside max."""
    return setting.results.summarize(group_runs(setting, pools))


def format_machines(starts: Iterable[list[dict]]) -> str:
    """Where and when runs were started, each machine once, with the first and the last day."""
    days = dict[str, set[str]]()
    for first, *_ in starts:
        machine, _, day = format_start(first).rpartition(", ")
        days.setdefault(machine, set()).add(day)
    return "; ".join(f"{machine}, {' to '.join(sorted({min(d), max(d)}))}" for machine, d in sorted(days.items()))


def format_verdict(difference: PairedDifference | None) -> str:
    """A difference in points with its interval, bold and with the verdict where it is significant."""
    if difference is None:
        return "–"
    text = format_difference(difference)
    return f"**{text}, {difference.verdict}**" if difference.is_significant else text


def format_answer_table() -> Iterator[str]:
    """The README's table: test error of each pool with two seeds or more, and its difference to max, by network."""
    settings = [SETTINGS[name] for name in IN_README]
    compared = {setting.title: compare_pools(setting) for setting in settings}
    heads, rows = ["pools"], []
    for title in compared:
        heads += [title, "seeds", "difference to max"]
    for pool in POOLS:
        summaries = [by_pool.get(pool) for by_pool in compared.values()]
        if any(summary and len(summary.errors) > 1 for summary in summaries):
            found = [
                [format_mean(s.errors), len(s.errors), format_verdict(s.difference)] if s else ["–"] * 3
                for s in summaries
            ]
            rows.append([f"`{pool}`", *itertools.chain(*found)])
    yield from iter_table(heads, rows)
    groups = [(setting, runs) for setting in settings for runs in group_runs(setting).values()]
    entries = (entry for setting, runs in groups for entry in setting.results.find_all(runs))
    yield ""
    yield f"Trained on {format_machines(entry.starts for entry in entries)}."


def format_setting_table(name: str, pools: Iterable[str] = POOLS) -> Iterator[str]:
    """A table of one setting: every pool with its seeds, parameters, errors and its difference to max."""
    setting = SETTINGS[name]
    summaries = compare_pools(setting, pools)
    heads = "pools|parameters in them|seeds|validation error, %|test error, %|difference to max, points"
    rows = []
    for pool, summary in summaries.items():
        entries = setting.results.find_all(setting.scale.list_runs(*setting.scale.data, pool))
        validation = format_mean([entry.result.validation_error for entry in entries])
        cells = [f"`{pool}`", f"{summary.pool_parameters:,}", len(summary.errors), validation]
        rows.append([*cells, format_mean(summary.errors), format_verdict(summary.difference)])
    yield from iter_table(heads, rows)


def format_learned_table() -> Iterator[str]:
    """What the pools of each setting have become: proportions, and the gates' means and entropies, over seeds."""
    rows = []
    for setting in SETTINGS.values():
        for pool, runs in group_runs(setting).items():
            entries = setting.results.find_all(runs)
            if entries and entries[0].result.pools:
                learned = [entry.result.pools for entry in entries]
                cells = [describe_pool(learned, name) for name in ("pool1", "pool2")]
                rows.append([setting.title, f"`{pool}`", len(entries), *cells])
    yield from iter_table(["network", "pools", "seeds", "first pool", "second pool"], rows)


def describe_pool(learned: list[dict[str, float]], pool: str) -> str:
    """``a 0.97; gate 0.48 (0.98 bit)``: means over seeds, and over images where it is a gate."""
    nodes = [
        name.removesuffix(".mean") for name in learned[0] if name.startswith(f"{pool}.") and name.endswith(".mean")
    ]
    parts = []
    for node in nodes:
        mean = statistics.fmean(one[f"{node}.mean"] for one in learned)
        if f"{node}.entropy" in learned[0]:
            entropy = statistics.fmean(one[f"{node}.entropy"] for one in learned)
            parts.append(f"gate {mean:.2f} ({entropy:.2f} bit)")
        else:
            parts.append(f"a {mean:.2f}")
    return "; ".join(parts) or "–"


def format_large_table() -> Iterator[str]:
    """AlexNet and GoogLeNet on Imagenette: errors from one view and from ten, and the difference to max."""
    (data,) = LARGE.scale.data
    results = LARGE.results
    heads = "network|pools|seeds|top-1, one view, %|top-5, one view, %|top-1, ten views, %"
    rows = []
    for net in imagenet.NETS:
        for label, summary in results.summarize(imagenet.group_runs(LARGE.scale, data, net)).items():
            row = next(row for row in imagenet.ROWS if row.label == label)
            errors = imagenet.measure_row(LARGE.scale, results, data, row)
            cells = [format_mean(errors[name]) for name in ("top-1 s-view", "top-5 s-view", "top-1 m-view")]
            names = f"`{row.net}`", f"`{row.pool}`", len(summary.errors)
            rows.append([*names, *cells, format_verdict(summary.difference)])
    yield from iter_table(f"{heads}|difference to max in the first, points", rows)


def format_paper_table() -> Iterator[str]:
    """Every row of the paper's tables of errors: the paper's, and ours at our scale where it was run."""
    setting = SETTINGS["dsn"]
    (data,) = setting.scale.data
    rows = []
    for name in ("table1", "table2", "filter", "depth", "alternatives", "sharing"):
        experiment = reproduce.find(name)
        for index, row in enumerate(experiment.TABLE.rows):
            entries = setting.results.find_all(row.list_runs(setting.scale, data))
            ours = format_mean([entry.result.test_error for entry in entries]) if entries else "not run"
            papers = row.paper.get(data, row.paper.get("cifar10"))
            published = format_value(papers) + " (CIFAR10)" * (papers is not None and data not in row.paper)
            rows.append([f"`{name}`" if index == 0 else "", row.label, published, ours, len(entries)])
    yield from iter_table(["`learnpool reproduce`", "pools", "paper, %", "ours, %", "seeds"], rows)


def format_figures_table() -> Iterator[str]:
    """What the paper says of its figures and other tables, and what our page of each answers."""
    rows = []
    for name in ("invariance", "tsne", "timing", "configurations", *reproduce.LARGE):
        experiment = reproduce.find(name)
        folder = LARGE.folder if name in reproduce.LARGE else "paper"
        page_data = json.loads((RESULTS / folder / f"{name}.json").read_text(encoding="utf-8"))
        answer = " ".join(page_data["answer"])
        page = f"[`{name}`](results/{folder}/{name}.html)"
        rows.append([page, experiment.SOURCE, experiment.CLAIM, answer])
    yield from iter_table(["`learnpool reproduce`", "in the paper", "the paper says", "ours"], rows)


def format_runs_table() -> Iterator[str]:
    """Every finished run of the paper's experiments, seeds of the same run in one summary."""
    heads = "network|data|images|epochs|batch|rate|pools|start|their rate|seeds|validation|test"
    groups: dict[tuple[str, ...], list[dict]] = {}
    lines = [line for path in sorted((RESULTS / "paper").rglob("runs.jsonl")) for line in list_runs(path)]
    for line in lines:
        groups.setdefault(describe_run(line["run"]), []).append(line["result"])
    rows = []
    for cells, results in sorted(groups.items()):
        errors = [format_mean([result[f"{name}_error"] for result in results]) for name in ("validation", "test")]
        rows.append([*cells, len(results), *errors])
    yield from iter_table(heads, rows)
    yield ""
    yield "Errors in percent after the last epoch, mean ± standard deviation over seeds."
    yield f"Trained on {format_machines(line['starts'] for line in lines)}."


def describe_run(run: dict) -> tuple[str, ...]:
    """What distinguishes a run from others but its seed; pools without masks have no start, fixed ones no rate."""
    images = "all" if run["train_size"] is None else f"{run['train_size']:,}"
    unused = fix_unused_fields(run["pool"])
    start = "–" if "start" in unused else run["start"]
    rate = "–" if "pool_rate" in unused else f"× {run['pool_rate']:g}"
    rate += ", decayed" if run["pool_decay"] and "pool_rate" not in unused else ""
    batch = f"{run['batch']}" + ("" if run["precision"] == "float32" else f", {run['precision']}")
    scale = (f"`{run['net']}`", run["data"], images, str(run["epochs"]), batch, f"{run['rate'][0]:g}")
    return (*scale, f"`{run['pool']}`", start, rate)


BLOCKS = {
    "paper-answer": format_answer_table,
    "paper-dsn": partial(format_setting_table, "dsn"),
    "paper-sharing": partial(format_setting_table, "dsn", SHARING),
    "paper-all": partial(format_setting_table, "all"),
    "paper-small": partial(format_setting_table, "small"),
    "paper-mnist": partial(format_setting_table, "mnist"),
    "paper-learned": format_learned_table,
    "paper-large": format_large_table,
    "paper-numbers": format_paper_table,
    "paper-figures": format_figures_table,
    "paper-runs": format_runs_table,
}
