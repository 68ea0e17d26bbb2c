"""A table of test errors, the paper's beside ours: what most experiments are, with other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...formatting import format_count, format_mean, format_number
from ..comparison.summary import PoolSummary, Verdict
from ..paper import PAPER, Value
from ..runs.run import Run
from . import figures
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .notes import describe_differences
from .results import Results

TREE_GATED = "tree+gated"  # in a row's pool: the levels the paper has for each data set
VERDICTS = {
    Verdict.BETTER: "better than",
    Verdict.WORSE: "worse than",
    Verdict.NOT_SIGNIFICANT: "not told apart from",
    Verdict.ONE_SEED: "with one seed not to be judged against",
}


@dataclass(frozen=True)
class Row:
    """A row: pools by name, other fields of its runs, and the paper's errors by data set."""

    label: str
    pool: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Value] = field(default_factory=dict)

    def pool_for(self, data: str) -> str:
        """The pools of this row on a data set."""
        return PAPER[TREE_GATED].get(data, "tree2+gated") if self.pool == TREE_GATED else self.pool

    def runs(self, scale: Scale, data: str) -> list[Run]:
        return scale.runs(data, self.pool_for(data), **self.changes)


@dataclass(frozen=True)
class ErrorTable:
    """Rows × data sets; the first row is the baseline."""

    rows: Sequence[Row]
    data: Sequence[str]

    def plan(self, scale: Scale) -> list[Run]:
        """All runs of all cells."""
        return [run for data in scale.choose(self.data) for row in self.rows for run in row.runs(scale, data)]

    def build_page(self, scale: Scale, results: Results) -> Page:
        """A table for each data set with its chart, and a sentence for each."""
        parts: list[Table | Figure] = []
        answer, record = [], {}
        for data in scale.choose(self.data):
            groups = {row.label: row.runs(scale, data) for row in self.rows}
            lines = results.summarize(groups)
            parts.append(self._build_table(scale, results, data, lines))
            answer += [self._describe(data, lines), *results.list_caveats({label: groups[label] for label in lines})]
            if len(lines) > 1:
                parts.append(figures.draw_differences([(row, lines.get(row.label)) for row in self.rows], data))
            record[data] = {label: list(line.errors) for label, line in lines.items()}
        unasked = [data for data in self.data if data not in scale.choose(self.data)]
        if unasked:
            parts.append(self._build_paper_table(unasked))
        return Page(answer, parts, describe_differences(self.plan(scale)), record)

    def _build_table(self, scale: Scale, results: Results, data: str, lines: Mapping[str, PoolSummary]) -> Table:
        base = self.rows[0]
        rows = [
            [Cell(row.label, row.pool_for(data)), *self._make_cells(scale, results, data, row, lines)]
            for row in self.rows
        ]
        heads = [LABELS[data], "paper, %", "ours, %", f"difference to {base.label}", "parameters in pools", "seeds"]
        caption = (
            "Test error of the last epoch, mean ± standard deviation over seeds. Differences are taken seed by seed; "
            "below zero is better. Intervals and verdicts are those of paired t-tests, corrected together by Holm's "
            "method over the rows of a table."
        )
        return Table(heads, rows, caption)

    def _make_cells(
        self, scale: Scale, results: Results, data: str, row: Row, lines: Mapping[str, PoolSummary]
    ) -> list[Cell]:
        published = row.paper.get(data)
        entries = results.find_all(row.runs(scale, data))
        cells = [Cell(format_value(published))]
        if not entries:
            return [*cells, Cell("not run"), Cell("–"), Cell("–"), Cell("0")]
        errors = [entry.result.test_error for entry in entries]
        line = lines.get(row.label)
        cells.append(Cell(format_mean(errors)))
        if line and (difference := line.difference):
            test = difference.test
            note = "one seed" if test is None else f"{format_number(test.low)} … {format_number(test.high)}"
            if 1 < len(line.errors) < scale.seeds:
                note += f", {format_count(len(line.errors), 'pair')}"
            kind = str(difference.verdict) if difference.is_significant else ""
            cells.append(Cell(format_number(difference.mean), note, kind))
        else:
            cells.append(Cell("baseline" if row is self.rows[0] else "–"))
        return [*cells, Cell(f"{entries[0].result.pool_parameters:,}"), Cell(str(len(entries)))]

    def _describe(self, data: str, lines: Mapping[str, PoolSummary]) -> str:
        """Which pools are better or worse than the baseline, and which do not differ significantly."""
        base = self.rows[0].label
        if base not in lines:
            return f"{LABELS[data]}: the baseline is not finished yet."
        clauses = []
        for verdict, words in VERDICTS.items():
            pools = [line.pool for line in lines.values() if line.difference and line.difference.verdict is verdict]
            if pools:
                clauses.append(f"{words} {base}: {', '.join(pools)}")
        seeds = format_count(len(lines[base].errors), "seed")
        error = f"{base} {format_number(lines[base].mean)} % over {seeds}"
        return f"{LABELS[data]} ({error}): {'; '.join(clauses) or 'nothing to compare yet'}."

    def _build_paper_table(self, data: Sequence[str]) -> Table:
        """What the paper has on data sets that were not asked for."""
        heads = ["The paper's, not run here", *(LABELS[name] for name in data)]
        rows = [[Cell(row.label), *(Cell(format_value(row.paper.get(name))) for name in data)] for row in self.rows]
        return Table(heads, rows)


def format_value(value: Value | None) -> str:
    """``8.09 ± 0.19``."""
    if value is None:
        return "–"
    return format_number(value[0]) + ("" if value[1] is None else f" ± {value[1]:g}")
