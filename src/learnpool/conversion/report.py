"""What ``convert`` saw and did, as data and as a plain table."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..formatting import format_table
from ..names import Part
from ..parameters import TreeParameters


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


@dataclass(frozen=True)
class Report:
    """Every pool ``convert`` saw, in order; printed, a table."""

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

    def __str__(self) -> str:
        columns = ["pool", "was", "window", "now", "parameters"]
        exact = any(row.exact for row in self.rows)
        if exact:
            columns.append("same as before")
        columns.append("why")
        lines = [columns]
        for row in self.rows:
            now = row.now if row.state == "replaced" else {"left": "left", "unreachable": "not reachable"}[row.state]
            cells = [row.name, row.was, row.window, now, f"{row.parameters:,}" if row.state == "replaced" else ""]
            lines.append([*cells, *([row.exact] if exact else []), row.reason])
        table = format_table(lines, right=(columns.index("parameters"),))
        total = f"{len(self.replaced)} replaced, {len(self.left)} left, {len(self.unreachable)} not reachable"
        return "\n".join([table, f"{total}; {self.parameters:,} parameters added", *self.notes])


def describe_pool(pool: nn.Module) -> str:
    """``gated``, ``tree2:channel``, or a layer's class."""
    return str(Part(pool.tree, pool.share)) if isinstance(pool, TreeParameters) else type(pool).__name__
