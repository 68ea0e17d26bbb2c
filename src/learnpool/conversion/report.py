"""What ``convert`` saw and did, as data and as a plain table."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from torch import nn

from ..formatting import escape_control_characters, format_count, format_html_table, format_large, format_table
from ..names import Part
from ..parameters import TreeParameters

_NUMBERS = ("parameters", "multiply-adds")  # columns that are aligned to the right


@dataclass(frozen=True)
class Row:
    """One pool of the network, or another place where its maps shrink."""

    name: str
    was: str
    window: str
    state: str  # replaced, left or unreachable
    now: str = ""
    parameters: int = 0  # added
    exact: str = ""  # with start="same": how near the new pool begins to what was there
    reason: str = ""
    multiply_adds_before: int | None = None  # of convolutions and inner products, of one image; None without an example
    multiply_adds: int | None = None
    kind: str = ""  # max, avg, global, strided or shortcut


@dataclass(frozen=True, repr=False)
class Report:
    """Every pool ``convert`` saw, in the order they run in; a table in a terminal and in a notebook."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # what the optimizers got

    @property
    def replaced(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.state == "replaced")

    @property
    def left(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.state == "left")

    @property
    def unreachable(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.state == "unreachable")

    @property
    def parameters(self) -> int:
        """Parameters added to the network."""
        return sum(row.parameters for row in self.rows)

    def __repr__(self) -> str:
        return "\n".join([format_table(self._make_cells(), right=self._right), self.summary, *self.notes])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        notes = "".join(f"<p>{escape(escape_control_characters(note))}</p>" for note in (self.summary, *self.notes))
        return format_html_table(self._make_cells(), right=self._right) + notes

    @property
    def summary(self) -> str:
        """``2 replaced, 1 left, 0 not reachable; 13 parameters added``, and what that costs, if it costs anything."""
        total = f"{len(self.replaced)} replaced, {len(self.left)} left, {len(self.unreachable)} not reachable"
        before = sum(row.multiply_adds_before or 0 for row in self.replaced)
        after = sum(row.multiply_adds or 0 for row in self.replaced)
        cost = f"; multiply-adds there: {format_large(before)} → {format_large(after)}" if before else ""
        return f"{total}; {format_count(self.parameters, 'parameter')} added{cost}"

    @property
    def _right(self) -> list[int]:
        return [place for place, head in enumerate(self._make_cells()[0]) if head in _NUMBERS]

    def _make_cells(self) -> list[list[str]]:
        """Heads and rows of the table; kinds where there are others than max and avg, costs and exactness if any."""
        exact = any(row.exact for row in self.rows)
        kinds = any(row.kind not in ("", "max", "avg") for row in self.rows)
        costs = any(row.multiply_adds_before or row.multiply_adds for row in self.rows)
        shown = {"kind": kinds, "multiply-adds": costs, "same as before": exact}
        lines = []
        for row in self.rows:
            cost = ""
            if row.multiply_adds is not None:
                cost = f"{format_large(row.multiply_adds_before or 0)} → {format_large(row.multiply_adds)}"
            lines.append(
                {
                    "pool": row.name,
                    "kind": row.kind,
                    "was": row.was,
                    "window": row.window,
                    "now": {"left": "left", "unreachable": "not reachable"}.get(row.state, row.now),
                    "parameters": f"{row.parameters:,}" if row.state == "replaced" else "",
                    "multiply-adds": cost,
                    "same as before": str(row.exact),
                    "why": row.reason,
                }
            )
        heads = [head for head in lines[0] if shown.get(head, True)] if lines else ["pool"]
        return [heads, *([line[head] for head in heads] for line in lines)]


def name_pool(pool: nn.Module) -> str:
    """``gated``, ``tree2:channel``, or a layer's class."""
    return str(Part(pool.tree, pool.share)) if isinstance(pool, TreeParameters) else type(pool).__name__
