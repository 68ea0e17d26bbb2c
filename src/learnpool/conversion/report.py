"""What ``convert`` saw and did, as data and as a plain table."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from torch import nn

from ..formatting import escape_control_characters, format_html_table, format_table
from ..names import Part
from ..parameters import TreeParameters

_COUNT = 4  # the column of parameters


@dataclass(frozen=True)
class Row:
    """One pool of the network."""

    name: str
    was: str
    window: str
    state: str  # replaced, left or unreachable
    now: str = ""
    parameters: int = 0  # added
    exact: str = ""  # with start="same": how near the new pool begins to the old one
    reason: str = ""


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
        return "\n".join([format_table(self._make_cells(), right=(_COUNT,)), self.summary, *self.notes])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        notes = "".join(f"<p>{escape(escape_control_characters(note))}</p>" for note in (self.summary, *self.notes))
        return format_html_table(self._make_cells(), right=(_COUNT,)) + notes

    @property
    def summary(self) -> str:
        """``2 replaced, 1 left, 0 not reachable; 13 parameters added``."""
        total = f"{len(self.replaced)} replaced, {len(self.left)} left, {len(self.unreachable)} not reachable"
        return f"{total}; {self.parameters:,} parameters added"

    def _make_cells(self) -> list[list[str]]:
        """Heads and rows of the table; how exact a start is only where it was asked for."""
        exact = any(row.exact for row in self.rows)
        lines = [["pool", "was", "window", "now", "parameters", *(["same as before"] if exact else []), "why"]]
        for row in self.rows:
            now = {"left": "left", "unreachable": "not reachable"}.get(row.state, row.now)
            cells = [row.name, row.was, row.window, now, f"{row.parameters:,}" if row.state == "replaced" else ""]
            lines.append([*cells, *([str(row.exact)] if exact else []), row.reason])
        return lines


def name_pool(pool: nn.Module) -> str:
    """``gated``, ``tree2:channel``, or a layer's class."""
    return str(Part(pool.tree, pool.share)) if isinstance(pool, TreeParameters) else type(pool).__name__
