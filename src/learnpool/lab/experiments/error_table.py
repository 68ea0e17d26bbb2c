"""A table of test errors, the paper's beside ours: what most experiments are, with other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...formatting import format_count, format_mean, format_number, format_range
from ..comparison.groups import OTHER, group_names
from ..comparison.summary import PoolSummary, Verdict
from ..paper import PAPER, Value, format_value
from ..runs.run import Run
from . import figures
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .notes import describe_differences
from .results import Results

TREE_GATED = "tree+gated"  # in a row's pool: the levels the paper has for each data set
VERDICTS = {
    Verdict.BETTER: "better than",
    Verdict.WORSE: "worse than",
    Verdict.NOT_SIGNIFICANT: "no clear difference from",
    Verdict.ONE_SEED: "not to be judged by one seed against",
}


@dataclass(frozen=True)
class Row:
    """A row: pools by name, other fields of its runs, and what the paper has: errors by data set, extra parameters."""

    label: str
    pool: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Value] = field(default_factory=dict)
    paper_parameters: str = ""

    def choose_pool(self, data: str) -> str:
        """The pools of this row on a data set."""
        return PAPER[TREE_GATED].get(data, "tree2+gated") if self.pool == TREE_GATED else self.pool

    def list_runs(self, scale: Scale, data: str, first_seed: int = 0) -> list[Run]:
        return scale.list_runs(data, self.choose_pool(data), first_seed, **self.changes)


@dataclass(frozen=True)
class ErrorTable:
    """Rows × data sets; the first row is the baseline. ``notes`` follow the page's own on differences to the paper."""

    rows: Sequence[Row]
    data: Sequence[str]
    notes: Sequence[str] = ()
    first_seed: int = 0

    def plan(self, scale: Scale) -> list[Run]:
        """All runs of all cells."""
        return [
            run for data in scale.choose(self.data) for row in self.rows for run in self.list_runs(scale, data, row)
        ]

    def list_runs(self, scale: Scale, data: str, row: Row) -> list[Run]:
        """The runs of a cell."""
        return row.list_runs(scale, data, self.first_seed)

    def build_page(self, scale: Scale, results: Results) -> Page:
        """A table for each data set with its chart, and a sentence for each."""
        table = self if scale.changes.get("net", "dsn") == "dsn" else self._leave_out_paper()
        parts: list[Table | Figure] = []
        answer, record = [], {}
        chosen = scale.choose(self.data)
        for data in chosen:
            groups = {row.label: table.list_runs(scale, data, row) for row in table.rows}
            summaries = results.summarize(groups)
            parts.append(table._build_table(scale, results, data, summaries))
            answer += [
                table._describe(data, summaries),
                *results.list_caveats({label: groups[label] for label in summaries}),
            ]
            if len(summaries) > 1:
                parts.append(figures.draw_differences([(row, summaries.get(row.label)) for row in table.rows], data))
            record[data] = {label: list(summary.errors) for label, summary in summaries.items()}
        if other_data := [data for data in self.data if data not in chosen and table._is_published(data)]:
            parts.append(table._build_paper_table(other_data))
        return Page(answer, parts, [*describe_differences(self.plan(scale)), *table.notes], record)

    def _leave_out_paper(self) -> ErrorTable:
        """The same without the paper's numbers, which say nothing about another network."""
        return replace(self, rows=[replace(row, paper={}, paper_parameters="") for row in self.rows], notes=())

    def _is_published(self, data: str) -> bool:
        return any(data in row.paper for row in self.rows)

    def _build_table(self, scale: Scale, results: Results, data: str, summaries: Mapping[str, PoolSummary]) -> Table:
        base = self.rows[0]
        heads = [LABELS[data], "ours, %", f"difference to {base.label}", "extra parameters", "seeds"]
        if self._is_published(data):
            heads.insert(1, "paper, %")
        rows = []
        names = [row.choose_pool(data) for row in self.rows]
        groups = group_names(names)
        for title, pools in (groups if OTHER in groups else {"": names}).items():  # the paper's need no groups
            if title:
                rows.append([Cell(f"— {title}"), *(Cell("") for _ in heads[1:])])
            rows += [
                [Cell(row.label, row.choose_pool(data)), *self._make_cells(scale, results, data, row, summaries)]
                for row in self.rows
                if row.choose_pool(data) in pools
            ]
        tested = [summary for summary in summaries.values() if summary.difference and summary.difference.test]
        caption = (
            "Test error of the last epoch, mean ± standard deviation over seeds. A difference is the mean over the "
            "seeds that both have; below zero is better. Intervals and verdicts are those of paired t-tests, corrected "
            f"together by Holm's method for the {format_count(len(tested), 'row')} tested here: a table with more rows "
            "is stricter."
        )
        return Table(heads, rows, caption)

    def _make_cells(
        self, scale: Scale, results: Results, data: str, row: Row, summaries: Mapping[str, PoolSummary]
    ) -> list[Cell]:
        cells = [Cell(format_value(row.paper.get(data)))] if self._is_published(data) else []
        parameters = f"paper: {row.paper_parameters}" if row.paper_parameters else ""
        entries = results.find_all(self.list_runs(scale, data, row))
        if not entries:
            return [*cells, Cell("not run"), Cell("–"), Cell("–", parameters), Cell("0")]
        summary = summaries.get(row.label)
        cells.append(Cell(format_mean([entry.result.test_error for entry in entries])))
        cells.append(Cell("baseline") if row is self.rows[0] else make_difference_cell(summary, scale.seeds))
        extra = Cell("–" if summary is None else f"{summary.extra_parameters:,}".replace("-", "−"), parameters)
        return [*cells, extra, Cell(str(len(entries)))]

    def _describe(self, data: str, summaries: Mapping[str, PoolSummary]) -> str:
        """Which pools are better or worse than the baseline, and which do not differ significantly."""
        base = self.rows[0].label
        if base not in summaries:
            return f"{LABELS[data]}: the baseline is not finished yet."
        clauses = []
        for verdict, words in VERDICTS.items():
            pools = [
                f"“{summary.pool}”"  # a label may have a comma
                for summary in summaries.values()
                if summary.difference and summary.difference.verdict is verdict
            ]
            if pools:
                clauses.append(f"{words} {base}: {', '.join(pools)}")
        seeds = format_count(len(summaries[base].errors), "seed")
        error = f"{base} {format_number(summaries[base].mean)} % over {seeds}"
        return f"{LABELS[data]} ({error}): {'; '.join(clauses) or 'nothing to compare yet'}."

    def _build_paper_table(self, data: Sequence[str]) -> Table:
        """The paper's rows for data sets that were not asked for."""
        heads = ["The paper's, not run here", *(LABELS[name] for name in data)]
        rows = [[Cell(row.label), *(Cell(format_value(row.paper.get(name))) for name in data)] for row in self.rows]
        return Table(heads, rows)


def make_difference_cell(summary: PoolSummary | None, seeds: int) -> Cell:
    """The mean difference to the baseline; in small print its interval, and over how many of the ``seeds`` it is."""
    if summary is None or summary.difference is None:
        return Cell("–")
    difference, test = summary.difference, summary.difference.test
    note = "one seed" if test is None else format_range(test.low, test.high)
    if 1 < len(summary.errors) < seeds:
        note += f", {format_count(len(summary.errors), 'pair')}"
    return Cell(format_number(difference.mean), note, str(difference.verdict) if difference.is_significant else "")
