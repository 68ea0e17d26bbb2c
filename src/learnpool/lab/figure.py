"""Draw one 3×3 region on its way through max, average, mixed, gated and tree pooling: the README's figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path as Curve
from torch import Tensor

from .. import Avg, Max, functional
from ..explanation.pictures import GREY, INK, LEFT, PALE, RIGHT, SIGNED
from ..formatting import format_number
from . import files

SUFFIXES = (".png", ".svg")
V1, V2 = "$v_1$·$x$", "$v_2$·$x$"
VALUES = LinearSegmentedColormap.from_list("values", ["#ffffff", "#8b949e"])
STYLE: dict[Any, Any] = {"svg.hashsalt": "learnpool", "svg.fonttype": "path", "font.family": "DejaVu Sans"}

REGION = [[0.1, 0.4, 0.2], [0.3, 0.9, 0.5], [0.0, 0.6, 0.2]]
MIX = 0.3
MASK = [[-1.0, 0.5, -1.0], [0.5, 0.5, 0.5], [-1.0, 0.5, -1.0]]
TREE_MASK = [[0.5, -1.0, 0.5], [0.5, -1.0, 0.5], [0.5, -1.0, 0.5]]
FILTERS = [[[0.0, 0.2, 0.0], [0.2, 0.4, 0.2], [0.0, 0.2, 0.0]], [[0.4, 0.4, 0.4], [0.0, 0.0, 0.0], [-0.4, -0.4, -0.4]]]

WIDTH, TOP, STEP, CELL, BAR = 1000, 46, 94, 24, 136  # in hundredths of an inch
REGION_AT, POOL_AT, MASK_AT, SOURCE_AT, LEFT_AT, BAR_AT, RIGHT_AT, OUTPUT_AT = 20, 180, 386, 466, 564, 646, 792, 898

Colours = Callable[[float], Any]


@dataclass(frozen=True)
class Row:
    """One pool at work on the region: ``value = p left + (1 − p) right``, all of it computed."""

    name: str
    formula: str
    p: float
    source: str  # of p
    left: float
    right: float
    value: float
    mask: Tensor | None = None
    filters: Tensor | None = None


def compute_rows() -> list[Row]:
    """The five pools on the region."""
    x = torch.tensor(REGION)[None, None]
    masks, filters = torch.tensor([MASK, TREE_MASK]), torch.tensor(FILTERS)
    largest = functional.pool2d(x, Max(), None, None, 3).item()
    mean = functional.pool2d(x, Avg(), None, None, 3).item()
    v1, v2 = (functional.tree_pool2d(x, None, v[None], 3).item() for v in filters)
    dots = [functional.tree_pool2d(x, None, w[None], 3) for w in masks]  # a gate's inner product is a filter's
    gate, root = (torch.sigmoid(dot).item() for dot in dots)
    gate_source, root_source = (
        f"$s$ = σ(ω·$x$)\n   = σ({format_number(dot.item())})\n   = {format_number(s)}"
        for dot, s in zip(dots, (gate, root), strict=True)
    )
    mixed = functional.mixed_pool2d(x, MIX, 3).item()
    gated = functional.gated_pool2d(x, masks[0], 3).item()
    tree = functional.tree_pool2d(x, masks[1:], filters, 3).item()
    mix = f"$a$ = {format_number(MIX)}\none learned number"
    return [
        Row("max", "max $x$", 1, "fixed: all max", largest, mean, largest),
        Row("average", "mean $x$", 0, "fixed: all mean", largest, mean, mean),
        Row("mixed", "$a$ max $x$ + (1 − $a$) mean $x$", MIX, mix, largest, mean, mixed),
        Row("gated", "$s$ max $x$ + (1 − $s$) mean $x$", gate, gate_source, largest, mean, gated, masks[0]),
        Row("tree, 2 levels", f"$s$ {V1} + (1 − $s$) {V2}", root, root_source, v1, v2, tree, masks[1], filters),
    ]


def draw() -> Figure:
    """The figure, on a white ground of its own."""
    rows = compute_rows()
    height = TOP + STEP * len(rows) + 6
    figure = Figure(figsize=(WIDTH / 100, height / 100), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    for x, head, align in (
        (POOL_AT, "pool", "left"),
        (MASK_AT, "proportion", "left"),
        (LEFT_AT + 1.5 * CELL, "left", "center"),
        (BAR_AT + BAR / 2, "blend", "center"),
        (RIGHT_AT + 1.5 * CELL, "right", "center"),
        (OUTPUT_AT + 41, "output", "center"),
    ):
        axes.text(x, 27, head, color=GREY, fontsize=9, ha=align, va="center")
    middle = TOP + STEP * len(rows) / 2
    axes.text(REGION_AT + 57, middle - 71, "region $x$", color=GREY, fontsize=9, ha="center", va="center")
    draw_cells(axes, REGION, REGION_AT, middle - 57, VALUES, GREY, cell=38, fontsize=11)
    for place, row in enumerate(rows):
        y = TOP + STEP * (place + 0.5)
        axes.plot([POOL_AT, WIDTH - 20], [y - STEP / 2] * 2, color=PALE, linewidth=0.8)
        draw_arrow(axes, (REGION_AT + 118, middle), (POOL_AT - 8, y))
        draw_row(axes, row, y)
    return figure


def draw_row(axes: Any, row: Row, y: float) -> None:
    """Name, proportion, blend and output of one pool, centred on height ``y``."""
    axes.text(POOL_AT, y - 11, row.name, fontsize=12, weight="bold", color=INK, va="center")
    axes.text(POOL_AT, y + 13, row.formula, fontsize=9.2, color=INK, va="center")
    source_at, top = MASK_AT, y - 1.5 * CELL
    if row.mask is not None:
        axes.text(MASK_AT - 7, y, "ω", fontsize=10, style="italic", color=INK, ha="right", va="center")
        draw_cells(axes, row.mask.tolist(), MASK_AT, top, SIGNED, GREY)
        source_at = SOURCE_AT
    axes.text(source_at, y, row.source, fontsize=9, color=INK, va="center", linespacing=1.5)

    words, grids = ("max", "mean"), [REGION, REGION]
    colours: tuple[Colours, Colours] = (colour_maximum, colour_evenly)
    if row.filters is not None:
        words, grids, colours = (V1, V2), row.filters.tolist(), (SIGNED, SIGNED)
    split, label = BAR * row.p, {"fontsize": 8.5, "va": "center"}
    if row.p > 0:  # a side without a part is not read at all
        draw_cells(axes, grids[0], LEFT_AT, top, colours[0], LEFT)
        draw_share(axes, BAR_AT, split, y, LEFT)
        axes.text(BAR_AT, y - 20, f"{words[0]} = {format_number(row.left)}", color=LEFT, **label)
    if row.p < 1:
        draw_cells(axes, grids[1], RIGHT_AT, top, colours[1], RIGHT)
        draw_share(axes, BAR_AT + split, BAR - split, y, RIGHT)
        axes.text(BAR_AT + BAR, y + 20, f"{words[1]} = {format_number(row.right)}", color=RIGHT, ha="right", **label)

    draw_arrow(axes, (RIGHT_AT + 3 * CELL + 5, y), (OUTPUT_AT - 5, y))
    box = FancyBboxPatch(
        (OUTPUT_AT, y - 17), 82, 34, boxstyle="round,pad=0,rounding_size=5", fc=blend_sides(row.p), ec=GREY
    )
    axes.add_patch(box)
    axes.text(
        OUTPUT_AT + 41, y + 1, format_number(row.value), fontsize=14, weight="bold", color=INK, ha="center", va="center"
    )


def draw_share(axes: Any, x: float, width: float, y: float, colour: str) -> None:
    """One side's part of the blend, with its percentage."""
    axes.add_patch(Rectangle((x, y - 9), width, 18, facecolor=colour, linewidth=0))
    axes.text(x + width / 2, y, f"{width / BAR:.0%}", fontsize=8, color="white", ha="center", va="center")


def draw_cells(
    axes: Any,
    grid: list[list[float]],
    x: float,
    y: float,
    colours: Colours,
    frame: str,
    cell: float = CELL,
    fontsize: float = 7.6,
) -> None:
    """A heat map with its numbers, its upper left corner at (x, y)."""
    for i, line in enumerate(grid):
        for j, value in enumerate(line):
            colour = colours(0.5 + 0.35 * value) if colours is SIGNED else colours(value)
            corner = (x + j * cell, y + i * cell)
            axes.add_patch(Rectangle(corner, cell, cell, facecolor=colour, edgecolor=PALE, linewidth=0.7))
            ink = INK if colours is not colour_maximum else "white" if colour == to_rgb(LEFT) else GREY
            text = (
                format_number(value, 1).replace("0.", ".").replace(".0", "")
                if colours is SIGNED
                else format_number(value, 1)
            )
            place = (corner[0] + cell / 2, corner[1] + cell / 2 + 1)
            axes.text(*place, text or "0", fontsize=fontsize, color=ink, ha="center", va="center")
    axes.add_patch(Rectangle((x, y), 3 * cell, 3 * cell, facecolor="none", edgecolor=frame, linewidth=1.2))


def colour_maximum(value: float) -> Any:
    """Colour only the largest cell of the region: what max reads."""
    return to_rgb(LEFT) if value == max(map(max, REGION)) else to_rgb("white")


def colour_evenly(value: float) -> Any:
    """Colour every cell alike: what the mean reads."""
    return blend_sides(0)


def blend_sides(p: float) -> tuple[float, ...]:
    """A light mixture of the two sides' colours."""
    return tuple(1 - 0.3 * (1 - (p * l + (1 - p) * r)) for l, r in zip(to_rgb(LEFT), to_rgb(RIGHT), strict=True))


def draw_arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow that leaves and arrives horizontally."""
    (x, y), neck = end, (end[0] - 7, end[1])
    bend = (start[0] + neck[0]) / 2
    path = Curve([start, (bend, start[1]), (bend, y), neck], [Curve.MOVETO] + [Curve.CURVE4] * 3)
    axes.add_patch(PathPatch(path, facecolor="none", edgecolor=GREY, linewidth=0.9))
    axes.add_patch(Polygon([(x - 7, y - 3), (x, y), (x - 7, y + 3)], facecolor=GREY, linewidth=0))


def save(out: Path) -> None:
    """Write the figure; equal bytes for equal versions of matplotlib."""
    metadata = {"Date": None, "Title": "One region through five pools"} if out.suffix == ".svg" else {}
    with mpl.rc_context(STYLE):
        files.save_figure(out, draw(), dpi=200, metadata=metadata)
