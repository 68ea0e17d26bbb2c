"""What pools learned, drawn: masks and filters as heat maps, proportions as bars, and over an image what gates chose.

The only module of the library that needs matplotlib, so it is imported when a picture is asked for and not before. It
also defines the colours of all our pictures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation
from torch import Tensor

from ..formatting import format_number
from ..ops.window import format_size
from .pools import (
    NEAR,
    FilterExplanation,
    GateExplanation,
    MixExplanation,
    NumberExplanation,
    PoolExplanation,
    RankExplanation,
    ScalarExplanation,
)
from .positions import Grid
from .tables import average_bank, describe_gates, describe_pool, shorten

INK, GREY, PALE = "#1f2328", "#656d76", "#d8dee4"
LEFT, RIGHT = "#d9730d", "#2f6fb5"  # left is what a proportion multiplies: max, or the first filter
SIGNED = LinearSegmentedColormap.from_list("signed", ["#8250df", "#ffffff", "#1a7f37"])
SIDES = LinearSegmentedColormap.from_list("sides", [RIGHT, "#ffffff", LEFT])

WIDTH, EDGE, PANEL, GAP, BAR = 10.0, 0.35, 1.62, 0.3, 0.25  # inches
HEAD, TITLE, FOOT = 0.5, 0.3, 0.26  # above a pool, above and below a panel
LOGIT = math.log(1 / NEAR - 1)  # of 0.95
CHANNELS = 4  # shown singly
GATES = 7  # of one pool that are shown


def draw(pools: Sequence[PoolExplanation], image: Tensor | None) -> Figure:
    """A figure: a strip for each gate (its mask, and what it chose over ``image``), then filters and proportions."""
    strips: list[tuple[Any, ...]] = []  # height, what paints it, and its further arguments
    if image is not None:
        strips.append((TITLE + PANEL, draw_legend, image, describe_gates(pools)))
    for pool in pools:
        strips.append((HEAD, draw_heading, pool))
        reach = find_largest([*pool.gates, *pool.filters])
        mapped = [] if image is None or pool.regions is None else [gate for gate in pool.gates if gate.map is not None]
        strips += [(TITLE + PANEL + FOOT, draw_gate, pool, gate, reach, image) for gate in mapped[:GATES]]
        masks = [*([] if mapped else pool.gates), *pool.filters]
        rest = [(item, plane) for item in masks for plane in list_planes(pool, item)] + list_others(pool)
        across = int((WIDTH - 2 * EDGE + GAP) / (PANEL + GAP))
        for first in range(0, len(rest), across):
            row = rest[first : first + across]
            strips.append((TITLE + max(get_panel_height(item) for item, _ in row) + FOOT, draw_row, pool, row, reach))
    page, top = Page(sum(strip[0] for strip in strips) + 2 * EDGE), EDGE
    for height, paint, *arguments in strips:
        paint(page, top, *arguments)
        top += height
    return page.figure


class Page:
    """A figure measured in inches from its upper left corner."""

    def __init__(self, height: float) -> None:
        self.figure = Figure(figsize=(WIDTH, height), facecolor="white")
        self.height = height

    def add_panel(self, x: float, y: float, width: float, height: float) -> Any:
        return self.figure.add_axes((x / WIDTH, 1 - (y + height) / self.height, width / WIDTH, height / self.height))

    def add_text(self, x: float, y: float, text: str, **options: Any) -> None:
        self.figure.text(x / WIDTH, 1 - y / self.height, text, va="center", **options)


def draw_legend(page: Page, top: float, image: Tensor, gates: str) -> None:
    """The image itself, and how to read the colours."""
    axes = page.add_panel(EDGE, top + TITLE, PANEL, PANEL)
    axes.imshow(scale_to_unit(image).numpy(), cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    add_caption(axes, "the image", f"{image.shape[-2]}×{image.shape[-1]}")
    x = EDGE + PANEL + GAP
    bar = page.add_panel(x, top + TITLE + 0.45, 3.2, 0.16)
    bar.imshow(torch.linspace(0, 1, 128)[None].numpy(), cmap=SIDES, aspect="auto", extent=(0, 1, 0, 1))
    bar.set(yticks=[])
    bar.set_xticks([0, 0.5, 1], ["0: right", "undecided", "1: left"], fontsize=8.5, color=INK)
    bar.tick_params(length=2, color=GREY)
    for tick, align in zip(bar.get_xticklabels(), ("left", "center", "right"), strict=True):
        tick.set_horizontalalignment(align)
    page.add_text(x, top + TITLE + 0.1, "What the gates chose", fontsize=13, weight="bold", color=INK)
    page.add_text(x, top + TITLE + 0.31, f"{gates or 's'} blends s · left + (1 − s) · right", fontsize=9, color=GREY)
    where = "Tiles lie where their regions lie in the image, one for each output of the pool;"
    where += "\nthe image shows through as light and dark."
    page.add_text(x, top + TITLE + 1.2, where, fontsize=9, color=GREY, linespacing=1.5)


def draw_heading(page: Page, top: float, pool: PoolExplanation) -> None:
    """The pool's name and kind over a line."""
    height = 1 - (top + 0.08) / page.height
    page.figure.add_artist(Line2D([EDGE / WIDTH, 1 - EDGE / WIDTH], [height] * 2, color=PALE, linewidth=0.8))
    page.add_text(EDGE, top + 0.3, pool.name, fontsize=12, weight="bold", color=INK)
    text = shorten(describe_pool(pool), 100)
    if sum(gate.map is not None for gate in pool.gates) > GATES:
        text += f"; {GATES} of {len(pool.gates)} gates drawn"
    page.add_text(WIDTH - EDGE, top + 0.3, text, fontsize=8.5, color=GREY, ha="right")


def draw_gate(
    page: Page, top: float, pool: PoolExplanation, gate: GateExplanation, reach: float, image: Tensor
) -> None:
    """What decides a gate, its mean over channels over the image, and the channels in which it varies most."""
    assert gate.map is not None
    assert pool.regions is not None
    draw_item(page.add_panel(EDGE, top + TITLE, PANEL, PANEL), pool, gate, reach, None)
    top_channels = gate.map.flatten(1).std(1, correction=0).argsort(descending=True)[: CHANNELS - 1].tolist()
    maps = [(f"mean of {len(gate.map)}", gate.map.mean(0))]
    maps += [(f"channel {channel}", gate.map[channel]) for channel in top_channels if len(gate.map) > 1]
    for place, (title, values) in enumerate(maps):
        axes = page.add_panel(EDGE + (place + 1) * (PANEL + GAP), top + TITLE, PANEL, PANEL)
        draw_gate_map(axes, values, image, pool.regions)
        low, high = float(values.min()), float(values.max())
        add_caption(axes, title, f"s {format_number(low)} to {format_number(high)}")


def draw_gate_map(axes: Any, values: Tensor, image: Tensor, regions: Grid) -> None:
    """A gate map in the colours of the sides where its regions lie, darkened where the image is dark."""
    (y, x), (dy, dx) = regions
    rows, columns = values.shape
    extent = (x - dx / 2, x + (columns - 0.5) * dx, y + (rows - 0.5) * dy, y - dy / 2)
    axes.imshow(values.numpy(), cmap=SIDES, vmin=0, vmax=1, extent=extent, interpolation="nearest")
    grey = scale_to_unit(image)
    grey = grey.mean(-1) if grey.dim() == 3 else grey
    height, width = grey.shape
    shade = torch.zeros(height, width, 4)
    shade[..., 3] = 0.4 * (1 - grey)
    axes.imshow(shade.numpy(), extent=(0, width, height, 0), interpolation="nearest")
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])


def draw_row(page: Page, top: float, pool: PoolExplanation, row: Sequence[Any], reach: float) -> None:
    """Masks, filters and proportions side by side."""
    for place, (item, plane) in enumerate(row):
        axes = page.add_panel(EDGE + place * (PANEL + GAP), top + TITLE, PANEL, get_panel_height(item))
        draw_item(axes, pool, item, reach, plane)


def draw_item(axes: Any, pool: PoolExplanation, item: Any, reach: float, plane: int | None) -> None:
    """Whatever a pool learned, in a panel."""
    if isinstance(item, MixExplanation):
        draw_mix(axes, item)
    elif isinstance(item, ScalarExplanation):
        draw_scalar(axes, item)
    elif isinstance(item, RankExplanation):
        draw_rank(axes, item)
    elif isinstance(item, GateExplanation) and item.g is not None:
        draw_decision(axes, item, item.g)
    else:
        draw_weight(axes, pool, item, reach, plane)


def list_others(pool: PoolExplanation) -> list[tuple[Any, None]]:
    """Everything a pool learned except masks and filters."""
    return [(item, None) for item in (*pool.mixes, *pool.scalars, *pool.ranks)]


def get_panel_height(item: Any) -> float:
    """One number is a bar, anything else fills its panel."""
    is_bar = isinstance(item, ScalarExplanation) or (isinstance(item, MixExplanation) and item.a.numel() == 1)
    return BAR if is_bar else PANEL


def list_planes(pool: PoolExplanation, item: Any = None) -> Sequence[int | None]:
    """The parts of a mask or filter that fit a panel: all of it, or each plane of a 3d one. A gate may have no mask."""
    if pool.window is None or pool.window.dims < 3 or (isinstance(item, GateExplanation) and item.weight is None):
        return (None,)
    return range(pool.window.kernel[0])


def draw_weight(
    axes: Any, pool: PoolExplanation, item: GateExplanation | FilterExplanation, reach: float, plane: int | None
) -> None:
    """One mask or filter; below it, what a gate chooses between."""
    assert pool.window is not None
    assert item.weight is not None
    values, remark = average_bank(item.weight, pool.window.kernel)
    grid = values if plane is None else values[plane]
    limits = (-2 * reach, 2 * reach)  # pale enough for the numbers to stay legible
    draw_heat_map(axes, grid.reshape(-1, grid.shape[-1]).tolist(), SIGNED, limits)
    name = f"{'ω' if isinstance(item, GateExplanation) else 'v'} of {item.name}"
    add_caption(axes, name if plane is None else f"{name}[{plane}]", remark)
    if isinstance(item, GateExplanation):
        label_sides(axes, item.left, item.right)


def draw_decision(axes: Any, gate: GateExplanation, g: NumberExplanation) -> None:
    """s = σ(g t + b) against t, the value of the tree that decides; ticks where s is 0.05, 0.5 and 0.95."""
    slope, shift = g.mean, gate.b.mean if gate.b is not None else 0.0
    middle, unit = (-shift / slope, 1 / abs(slope)) if slope else (0.0, 1.0)
    t = middle + unit * torch.linspace(-4, 4, 65)
    axes.plot(t.tolist(), (slope * t + shift).sigmoid().tolist(), color=INK, linewidth=1.2)
    axes.set(ylim=(-0.1, 1.1), xticks=[], yticks=[])
    axes.margins(x=0)
    if slope and math.isfinite(middle):
        ticks = [middle + z * unit for z in (-LOGIT, 0, LOGIT)]
        axes.set_xticks(ticks, [format_number(tick) for tick in ticks], fontsize=7.5, color=GREY)
        axes.tick_params(length=2, pad=1, color=GREY)
    add_caption(axes, f"s of {gate.name}", f"by {shorten(repr(gate.by), 11)}")
    near, far = (0.04, 0.96) if slope >= 0 else (0.96, 0.04)  # the corners that the curve leaves free
    near_side, far_side = ("left", "right") if slope >= 0 else ("right", "left")
    text = ", ".join(f"{number.symbol} {format_number(number.mean)}" for number in gate.numbers)
    text += f"\nmean of {g.count}" if g.count > 1 else ""
    options: Any = {"transform": axes.transAxes, "fontsize": 8}
    axes.text(near, 0.96, f"1: {gate.left}", color=LEFT, va="top", ha=near_side, **options)
    axes.text(near, 0.86, text, color=GREY, va="top", ha=near_side, **options | {"fontsize": 7})
    axes.text(far, 0.04, f"0: {gate.right}", color=RIGHT, ha=far_side, **options)


def draw_mix(axes: Any, mix: MixExplanation) -> None:
    """One proportion as a bar, one per channel as dots, one per region as a map."""
    channels, *grid = mix.a.shape
    values = mix.a.flatten().sort().values.tolist()
    if len(values) == 1:
        axes.barh([0, 0], [mix.mean, 1 - mix.mean], left=[0, mix.mean], color=[LEFT, RIGHT], height=1)
        axes.set(xlim=(0, 1), ylim=(-0.5, 0.5), xticks=[], yticks=[])
        add_caption(axes, f"a of {mix.name}", "" if mix.learned else "not learned")
        label_sides(axes, f"{mix.left} {format_number(mix.mean)}", f"{mix.right} {format_number(1 - mix.mean)}")
    elif math.prod(grid) > 1 and len(grid) == 2:
        draw_heat_map(axes, mix.a.mean(0).tolist(), SIDES, (0, 1))
        add_caption(axes, f"a of {mix.name}", f"mean of {channels}" if channels > 1 else format_size(grid))
        label_sides(axes, mix.left, mix.right)
    else:
        axes.scatter(range(len(values)), values, s=14, c=values, cmap=SIDES, vmin=0, vmax=1, ec=GREY, lw=0.5)
        axes.axhline(0.5, color=PALE, linewidth=0.8, zorder=0)
        axes.set(ylim=(-0.1, 1.1), xticks=[], yticks=[])
        add_caption(axes, f"a of {mix.name}", f"{format_number(mix.min)} to {format_number(mix.max)}")
        axes.text(0.03, 0.97, f"1: {mix.left}", transform=axes.transAxes, fontsize=8, color=LEFT, va="top")
        axes.text(0.97, 0.03, f"0: {mix.right}", transform=axes.transAxes, fontsize=8, color=RIGHT, ha="right")
        axes.set_xlabel(f"{len(values)} values, sorted", fontsize=8, color=GREY)


def draw_scalar(axes: Any, scalar: ScalarExplanation) -> None:
    """Where between min, average and max a leaf with one number lies; from where to where if its numbers differ."""
    low, high = scalar.reaches
    differs = low < high
    first, last = -1 if low < 0 else 0, 0 if high <= 0 and low < 0 else 1
    begin = low if differs else 0.0
    axes.barh([0], [high - begin], left=[begin], color=LEFT, height=1)
    axes.set(xlim=(first, last), ylim=(-0.5, 0.5), xticks=[], yticks=[])
    limits = f"{format_number(scalar.min)} to {format_number(scalar.max)}"
    add_caption(axes, f"{scalar.symbol} of {scalar.name}", limits if differs else format_number(scalar.mean))
    below = axes.transAxes + ScaledTranslation(0, -3 / 72, axes.figure.dpi_scale_trans)
    for place, align in ((first, "left"), (last, "right")):
        colour, name = LEFT if place else GREY, ("average", "max", "min")[place]
        axes.text(align == "right", 0, name, color=colour, transform=below, fontsize=8, va="top", ha=align)


def draw_rank(axes: Any, rank: RankExplanation) -> None:
    """A bar for each place in the sorted region; the dashed line is average pooling."""
    shares = rank.shares
    axes.bar(range(len(shares)), shares, color=LEFT, width=0.8)
    axes.axhline(1 / len(shares), color=GREY, linewidth=0.8, linestyle="--")
    axes.axhline(0, color=GREY, linewidth=0.6)
    axes.set(xticks=[], yticks=[])
    add_caption(axes, f"w of {rank.name}", f"{format_number(min(shares))} to {format_number(max(shares))}")
    label_sides(axes, "largest cell", "smallest")


def label_sides(axes: Any, left: str, right: str) -> None:
    """What is blended, below a panel in its colours."""
    below = axes.transAxes + ScaledTranslation(0, -3 / 72, axes.figure.dpi_scale_trans)
    axes.text(0, 0, left, color=LEFT, transform=below, fontsize=8, va="top")
    axes.text(1, 0, right, color=RIGHT, transform=below, fontsize=8, va="top", ha="right")


def add_caption(axes: Any, title: str, beside: str) -> None:
    """What is seen, and how to read it, on one line above a panel."""
    above = axes.transAxes + ScaledTranslation(0, 4 / 72, axes.figure.dpi_scale_trans)
    axes.text(0, 1, title, transform=above, fontsize=8.5, weight="bold", color=INK, va="bottom")
    axes.text(1, 1, beside, transform=above, fontsize=7.5, color=GREY, va="bottom", ha="right")
    axes.spines[:].set_color(GREY)


def find_largest(items: Sequence[GateExplanation | FilterExplanation]) -> float:
    """The largest mask or filter value of a pool, so that its heat maps share a scale."""
    return max([1e-6, *(float(item.weight.abs().max()) for item in items if item.weight is not None)])


def scale_to_unit(image: Tensor) -> Tensor:
    """``[channels, h, w]`` as ``[h, w, 3]`` or ``[h, w]`` from 0 to 1, whatever a network's preparation made of it."""
    pixels = image.movedim(0, -1) if len(image) == 3 else image.mean(0)
    low, high = pixels.min(), pixels.max()
    return (pixels - low) / (high - low).clamp(min=1e-12)


def draw_heat_map(axes: Any, grid: list[list[float]], colours: Any, limits: tuple[float, float]) -> None:
    """Numbers on their colours, as far as they are legible."""
    axes.imshow(grid, cmap=colours, vmin=limits[0], vmax=limits[1])
    axes.set(xticks=[], yticks=[])
    size = min(9.0, 32 / max(len(grid), len(grid[0])))
    for i, row in enumerate(grid if size >= 4.5 else []):
        for j, value in enumerate(row):
            axes.text(j, i, format_number(value), ha="center", va="center", fontsize=size, color=INK)
