"""What ``explain`` knows of a network's pools, as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import zip_longest

from torch import Tensor

from ..formatting import (
    escape_control_characters,
    format_count,
    format_html_table,
    format_number,
    format_percent,
    format_table,
)
from ..names import Part
from ..ops.window import format_size
from .pools import NEAR, FilterExplanation, GateExplanation, NumberExplanation, PoolExplanation

MAX_TREE = 40  # letters of a tree that decides
BANKS = 8  # masks and filters of one pool that are printed
HEADS = ("pool", "node", "left | right", "mean", "min", "max", f"s < {NEAR}", f"s > {1 - NEAR}", "entropy")
NUMBERS = range(3, len(HEADS))  # columns of numbers


def format_pools(pools: Sequence[PoolExplanation], images: int) -> str:
    """All pools: a line for each node with a proportion, then the masks and filters."""
    weights = [line for pool in pools for line in ("", *format_weights(pool))]
    return "\n".join([format_title(pools, images), "", format_table(*make_table(pools)), *weights])


def format_pools_as_html(pools: Sequence[PoolExplanation], images: int) -> str:
    """The same for a notebook."""
    weights = "\n\n".join("\n".join(format_weights(pool)) for pool in pools)
    title = escape(format_title(pools, images))
    return f"<p>{title}</p>\n{format_html_table(*make_table(pools))}\n<pre>{escape(weights)}</pre>"


def format_title(pools: Sequence[PoolExplanation], images: int) -> str:
    """How many pools and parameters, and what gates were measured on."""
    parameters = sum(pool.parameters for pool in pools if pool.tied_to is None)
    formulas = describe_gates(pools)
    batch = f"; gates {formulas} over all regions of {format_count(images, 'image')}" if images and formulas else ""
    return f"{format_count(len(pools), 'learned pool')}, {format_count(parameters, 'parameter')}{batch}"


def describe_gates(pools: Sequence[PoolExplanation]) -> str:
    """``s = σ(ω·x)``, ``s = σ(g·t + b)`` where trees decide, both, or nothing without gates."""
    gates = [gate for pool in pools for gate in pool.gates]
    formulas = ["σ(ω·x)"] * any(gate.by is None for gate in gates)
    formulas += ["σ(g·t + b)"] * any(gate.by is not None for gate in gates)
    return f"s = {' or '.join(formulas)}" if formulas else ""


def make_table(pools: Sequence[PoolExplanation]) -> tuple[list[list[str]], list[int]]:
    """Heads and rows of the columns that are not empty, and which of them hold numbers."""
    rows = [row for pool in pools for row in make_rows(pool)]
    used = [column for column in range(len(HEADS)) if column < 2 or any(row[column] for row in rows)]
    return [[row[c] for c in used] for row in (HEADS, *rows)], [used.index(c) for c in used if c in NUMBERS]


def make_rows(pool: PoolExplanation) -> list[tuple[str, ...]]:
    """A row for each node with a proportion; the first has the pool's name."""
    rows: list[tuple[str, ...]] = []
    for mix in pool.mixes:
        name = mix.name if mix.learned else f"{mix.name} (not learned)"
        rows.append((name, f"{mix.left} | {mix.right}", *format_values(mix), "", "", ""))
    for gate in pool.gates:
        mean, near_0, near_1, entropy = "", "", "", ""
        if gate.mean is not None and gate.near_0 is not None and gate.near_1 is not None and gate.entropy is not None:
            mean, entropy = format_number(gate.mean), f"{format_number(gate.entropy)} bit"
            near_0, near_1 = format_percent(gate.near_0), format_percent(gate.near_1)
        rows.append((gate.name, f"{gate.left} | {gate.right}", mean, "", "", near_0, near_1, entropy))
        for number in gate.numbers:
            words = f"g: times t = {shorten(repr(gate.by), MAX_TREE)}" if number is gate.g else "b: added to g·t"
            rows.append((number.name, words, *format_values(number), "", "", ""))
    for scalar in pool.scalars:
        rows.append((scalar.name, f"{scalar.symbol}: {scalar.words}", *format_values(scalar), "", "", ""))
    rows += [(rank.name, rank.words, *[""] * 6) for rank in pool.ranks]
    if not rows:
        name = pool.filters[0].name if pool.filters else "nothing to learn"
        rows.append((name, *[""] * 7))
    return [("" if place else pool.name, *row) for place, row in enumerate(rows)]


def format_values(item: NumberExplanation) -> tuple[str, str, str]:
    """The mean and, of several numbers, the least and the largest."""
    limits = (format_number(item.min), format_number(item.max)) if item.count > 1 else ("", "")
    return format_number(item.mean), *limits


def shorten(text: str, length: int) -> str:
    """A text that is cut where it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


def describe_pool(pool: PoolExplanation) -> str:
    """``gated, 3×3, stride 2×2, shared per layer``: a pool's tree, window and sharing."""
    window = pool.window
    size = "adaptive" if window is None else f"{format_size(window.kernel)}, stride {format_size(window.stride)}"
    if window is not None and any(window.padding):
        size += f", padding {format_size(window.padding)}"
    if window is not None and any(d != 1 for d in window.dilation):
        size += f", dilation {format_size(window.dilation)}"
    tied = f" with {pool.tied_to}" if pool.tied_to is not None else ""
    return f"{Part(pool.tree)}, {size}, shared per {pool.share.replace('_', ' and ')}{tied}"


def average_bank(weight: Tensor, kernel: Sequence[int]) -> tuple[Tensor, str]:
    """A mask or filter as ``[*kernel]``, the mean where it differs by channel or region, and of how many."""
    bank = weight.reshape(-1, *kernel)
    return bank.mean(0), "" if len(bank) == 1 else f"mean of {len(bank)}"


def format_weights(pool: PoolExplanation) -> list[str]:
    """The masks and filters of a pool side by side, under its description."""
    lines = [escape_control_characters(f"{pool.name}: {describe_pool(pool)}")]
    banks: list[GateExplanation | FilterExplanation] = [gate for gate in pool.gates if gate.weight is not None]
    banks += pool.filters
    if pool.window is not None and banks:
        columns = [format_bank(bank, pool.window.kernel) for bank in banks[:BANKS]]
        text = format_table(list(zip_longest(*columns, fillvalue="")), gap=4)
        lines += [f"  {line}".rstrip() for line in text.splitlines()]
    if len(banks) > BANKS:
        lines.append(f"  and {len(banks) - BANKS} more")
    for rank in pool.ranks:
        remark = f" (mean of {len(rank.rows)})" if len(rank.rows) > 1 else ""
        lines.append(f"  w of {rank.name}, largest cell first: {' '.join(map(format_number, rank.shares))}{remark}")
    return lines


def format_bank(item: GateExplanation | FilterExplanation, kernel: Sequence[int]) -> list[str]:
    """One mask or filter as lines; an empty line between the planes of a 3d window."""
    assert item.weight is not None
    values, remark = average_bank(item.weight, kernel)
    cells = [[format_number(v) for v in row] for row in values.reshape(-1, kernel[-1]).tolist()]
    width = max(len(cell) for row in cells for cell in row)
    lines = [f"{'ω' if isinstance(item, GateExplanation) else 'v'} of {item.name}", *([remark] if remark else [])]
    for place, row in enumerate(cells):
        if len(kernel) == 3 and place and place % kernel[1] == 0:
            lines.append("")
        lines.append(" ".join(f"{cell:>{width}}" for cell in row))
    return lines
