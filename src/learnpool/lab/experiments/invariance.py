"""Figure 2: the error on test images that are rotated, shifted or scaled, for average, max, gated and tree pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...formatting import format_number
from ..comparison.comparison import FinishedRun
from . import figures
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .figure_networks import DATA, POOLS, FigureNetwork, plan
from .notes import describe_differences
from .results import Results

TITLE = "Robustness to rotation, translation and scale"
SOURCE = "Figure 2"
CLAIM = (
    "Gated pooling and a 2-level tree have less error than max and average pooling at every amount of rotation, "
    "translation and scaling, except extreme down-scaling."
)


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Turned counter-clockwise around the centre."""
    turn = math.radians(degrees)
    return _warp(images, [[math.cos(turn), -math.sin(turn), 0.0], [math.sin(turn), math.cos(turn), 0.0]])


def shift(images: Tensor, pixels: float) -> Tensor:
    """Moved down."""
    return _warp(images, [[1.0, 0.0, 0.0], [0.0, 1.0, -2 * pixels / images.shape[2]]])


def scale_by(images: Tensor, factor: float) -> Tensor:
    """Larger or smaller around the centre."""
    return _warp(images, [[1 / factor, 0.0, 0.0], [0.0, 1 / factor, 0.0]])


def _warp(images: Tensor, matrix: list[list[float]]) -> Tensor:
    """Bilinear, with the border's pixels outside; uint8 as the files have it, so that no change gives the same bits."""
    height, width = images.shape[2:]
    theta = torch.tensor(matrix, dtype=torch.float64)
    theta[0, 1] *= height / width  # affine_grid's coordinates run from −1 to 1 along both sides
    theta[1, 0] *= width / height
    grid = F.affine_grid(theta.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    warped = F.grid_sample(images.double(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return warped.round().clamp(0, 255).to(torch.uint8)


def _list_amounts(first: int, last: int, step: int, unit: float = 1) -> list[float]:
    return [round(k * unit, 10) for k in range(first, last + 1, step)]


# what, unit, function, amounts, the amount that changes nothing
CHANGES: dict[str, tuple[str, Callable[[Tensor, float], Tensor], list[float], float]] = {
    "rotation": ("degrees", rotate, _list_amounts(-24, 24, 4), 0.0),
    "vertical translation": ("pixels", shift, _list_amounts(-8, 8, 2), 0.0),
    "scale": ("factor", scale_by, _list_amounts(6, 14, 1, 0.1), 1.0),
}


def measure(results: Results, entry: FinishedRun) -> dict[str, Any]:
    """The error of one network for every kind and amount of change."""
    network = FigureNetwork(entry, results.data_dir)
    return {
        kind: {f"{amount:g}": network.compute_error(change, amount) for amount in amounts}
        for kind, (_, change, amounts, _none) in CHANGES.items()
    }


def build_page(scale: Scale, results: Results) -> Page:
    """Three figures for each data set, and how often each pool has the least error."""
    parts: list[Table | Figure] = []
    answer, record = [], {}
    for data in scale.choose(DATA):
        groups = {label: scale.list_runs(data, pool) for pool, label in POOLS.items()}
        measurements = results.measure_groups(groups, "invariance", partial(measure, results))
        record[data] = measurements
        if not measurements:
            answer.append(f"{LABELS[data]}: no run is finished yet.")
            continue
        for kind, (unit, _change, amounts, _none) in CHANGES.items():
            curves = {
                label: [[one[kind][f"{amount:g}"] for amount in amounts] for one in seeds]
                for label, seeds in measurements.items()
            }
            parts.append(figures.draw_curves(curves, amounts, kind, unit))
        parts.append(_count_wins(measurements, data))
        answer.append(_describe(measurements, data))
    return Page(answer, parts, describe_differences(plan(scale)), record)


def _compute_means(measurements: Mapping[str, list[Mapping[str, Any]]], kind: str, amount: float) -> dict[str, float]:
    """The error of each pool at one amount, over its seeds."""
    return {label: sum(one[kind][f"{amount:g}"] for one in seeds) / len(seeds) for label, seeds in measurements.items()}


def _count_wins(measurements: Mapping[str, list[Mapping[str, Any]]], data: str) -> Table:
    """At how many amounts each pool has the least mean error, and its error without any change."""
    heads = [LABELS[data], "unchanged, %", *(f"least error, {kind}" for kind in CHANGES), "seeds"]
    rows = []
    for label, seeds in measurements.items():
        plain = _compute_means(measurements, "rotation", 0.0)[label]
        cells = [Cell(label), Cell(format_number(plain))]
        for kind, (_, _change, amounts, _none) in CHANGES.items():
            wins = sum(
                min(m, key=lambda l: m[l]) == label for a in amounts if (m := _compute_means(measurements, kind, a))
            )
            cells.append(Cell(f"{wins} of {len(amounts)}"))
        rows.append([*cells, Cell(str(len(seeds)))])
    return Table(heads, rows, "Counted by the mean over seeds, without a test of significance.")


def _describe(measurements: Mapping[str, list[Mapping[str, Any]]], data: str) -> str:
    """At how many of all amounts the learned pools have less mean error than both fixed ones."""
    clauses = []
    for learned in ("gated", "tree"):
        if learned not in measurements or not {"max", "average"} <= measurements.keys():
            continue
        amounts = [(kind, amount) for kind, (_, _c, values, _n) in CHANGES.items() for amount in values]
        ahead = [
            m[learned] < min(m["max"], m["average"])
            for kind, a in amounts
            if (m := _compute_means(measurements, kind, a))
        ]
        clauses.append(f"{learned} pooling has less mean error than both at {sum(ahead)} of {len(ahead)} amounts")
    return f"{LABELS[data]}: {'; '.join(clauses) or 'not all networks are finished'}."
