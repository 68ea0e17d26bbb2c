"""Table 5: AlexNet and GoogLeNet on ImageNet, top-1 and top-5 errors from one view and from ten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...formatting import format_mean, format_number
from ..comparison.comparison import FinishedRun
from ..comparison.summary import PoolSummary
from ..paper import PAPER
from ..runs.evaluation import evaluate_checkpoint
from ..runs.run import Run
from .error_table import VERDICTS, make_difference_cell
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .notes import describe_differences
from .results import Results

TITLE = "AlexNet and GoogLeNet"
SOURCE = "Table 5"
CLAIM = (
    "45 more parameters in AlexNet's pools lower its top-5 error from 19.9 to 18.7 %, 36 more in those of GoogLeNet "
    "with batch normalisation from 9.53 to 9.16 % (single view)."
)
DATA = ("imagenet", "imagenette")
COLUMNS = ("top-1 s-view", "top-5 s-view", "top-1 m-view", "top-5 m-view")


@dataclass(frozen=True)
class Row:
    """A network with its pools; ``published`` is its row in the paper, if it has one."""

    label: str
    net: str
    pool: str
    published: Mapping[str, Any] = field(default_factory=dict)

    def list_runs(self, scale: Scale, data: str) -> list[Run]:
        return scale.list_runs(data, self.pool, net=self.net)


def _make_row(name: str, net: str, pool: str) -> Row:
    return Row(PAPER["table5"][name]["label"], net, pool, PAPER["table5"][name])


# The first row of a network is what its others are compared with. A fixed mix of max and average, which learns
# nothing, is in no row of the paper.
ROWS = (
    _make_row("alexnet", "alexnet", "max"),
    Row("AlexNet, 50/50 mix", "alexnet", "half"),
    _make_row("alexnet tree2+gated", "alexnet", "tree2+gated"),
    _make_row("googlenet", "googlenet", "max"),
    _make_row("googlenet bn", "googlenet-bn", "max"),
    Row("GoogLeNet w/ BN, 50/50 mix", "googlenet-bn", "half"),
    _make_row("googlenet bn gated", "googlenet-bn", "gated"),
)
NETS = tuple(dict.fromkeys(row.net for row in ROWS))


def choose_data(scale: Scale) -> list[str]:
    """ImageNet, or what was asked for of the sets with large images."""
    return [name for name in scale.data or DATA[:1] if name in DATA]


def plan(scale: Scale) -> list[Run]:
    """All rows on every data set."""
    return [run for data in choose_data(scale) for row in ROWS for run in row.list_runs(scale, data)]


def build_page(scale: Scale, results: Results) -> Page:
    """A table for each data set with the paper's errors beside ours, and a sentence for each network."""
    parts: list[Table | Figure] = []
    answer, record, notes = list[str](), dict[str, Any](), list[str]()
    for data in choose_data(scale):
        groups = {net: group_runs(scale, data, net) for net in NETS}
        summaries = {net: results.summarize(groups[net]) for net in NETS}  # paired differences of top-1, one view
        measured = {row.label: measure_row(scale, results, data, row) for row in ROWS}
        parts.append(build_table(scale, data, summaries, measured))
        answer += [sentence for net in NETS if (sentence := describe_network(data, summaries[net]))]
        for net in NETS:
            answer += results.list_caveats({label: groups[net][label] for label in summaries[net]})
        record[data] = measured
        notes += describe_images(data, results.find_all(plan(scale)))
    for net in NETS:
        runs = [run for data in choose_data(scale) for group in group_runs(scale, data, net).values() for run in group]
        notes += [f"{net}: {text}" for text in describe_differences(runs)]
    if not parts:
        parts.append(build_table(scale, "imagenet", {}, {}))
    return Page(answer or ["Nothing is finished yet: the paper's numbers stand alone."], parts, notes, record)


def describe_images(data: str, entries: Sequence[FinishedRun]) -> list[str]:
    """How many images there were, of another set than the paper's."""
    entry = next((entry for entry in entries if entry.run.data == data), None)
    if entry is None or data == "imagenet":
        return []
    counts = ", ".join(f"{use} {number:,}" for use, number in entry.result.images.items())
    return [f"Images of {LABELS[data]} ({counts}), not ImageNet's 1.28 million of 1,000 classes."]


def group_runs(scale: Scale, data: str, net: str) -> dict[str, list[Run]]:
    """The runs of each row of a network."""
    return {row.label: row.list_runs(scale, data) for row in ROWS if row.net == net}


def measure_row(scale: Scale, results: Results, data: str, row: Row) -> dict[str, list[float]]:
    """The four errors of every finished run of a row, by column."""

    def evaluate_views(entry: FinishedRun) -> dict[str, float | None]:
        errors = evaluate_checkpoint(
            entry.path, entry.run.data, views=10, data_dir=results.data_dir, skip_broken=entry.run.skip_broken
        ).tally.errors
        return {"top1": errors.top1, "top5": errors.top5}

    columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for run in row.list_runs(scale, data):
        entry, views = results.find(run), results.measure(run, "ten-views", evaluate_views)
        if entry is None:
            continue
        values = (entry.result.test_error, entry.result.test_error_top5, views["top1"], views["top5"])
        for name, value in zip(COLUMNS, values, strict=True):
            columns[name] += [] if value is None else [value]
    return columns


def build_table(
    scale: Scale,
    data: str,
    summaries: Mapping[str, Mapping[str, PoolSummary]],
    measured: Mapping[str, Mapping[str, list[float]]],
) -> Table:
    """The paper's four errors and ours, and the difference of top-1 errors to the first row of the same network."""
    heads = [LABELS[data], *(f"{name}, %" for name in COLUMNS), "difference in top-1 s-view", "seeds"]
    rows = []
    for row in ROWS:
        errors = measured.get(row.label, {})
        cells = [Cell(row.label, f"{row.net}, {row.pool}")]
        seeds = len(errors.get(COLUMNS[0], []))
        ours = {name: format_errors(errors[name]) if seeds else "not run" for name in COLUMNS}
        cells += [Cell(ours[name], format_published(row, name)) for name in COLUMNS]
        cells.append(make_difference_cell(summaries.get(row.net, {}).get(row.label), scale.seeds))
        rows.append([*cells, Cell(str(seeds))])
    caption = (
        "Ours, and below it the paper's on ImageNet. Error of the last epoch, mean ± standard deviation over seeds. "
        "s-view: the middle of an image; m-view: ten crops, whose probabilities are averaged. Differences are taken "
        "seed by seed, with the interval of a paired t-test, corrected by Holm's method within a network; below zero "
        "is better."
    )
    return Table(heads, rows, caption)


def describe_network(data: str, summaries: Mapping[str, PoolSummary]) -> str:
    """``Imagenette, AlexNet (20.1 % …): AlexNet w/ ours better than max``; empty where nothing is finished."""
    lines = list(summaries.values())
    if not lines:
        return ""
    clauses = [
        f"{line.pool} {format_number(line.mean)} %, {VERDICTS[line.difference.verdict]} it"
        for line in lines[1:]
        if line.difference is not None
    ]
    return f"{LABELS[data]}, {lines[0].pool} {format_number(lines[0].mean)} % top-1: {'; '.join(clauses) or 'alone'}."


def format_published(row: Row, column: str) -> str:
    return f"paper {row.published[column]:g}" if column in row.published else ""


def format_errors(errors: Sequence[float]) -> str:
    """Mean and deviation; nothing where there are too few classes for a top-5 error."""
    return format_mean(errors) if errors else "–"
