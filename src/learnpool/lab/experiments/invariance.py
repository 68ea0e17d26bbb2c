"""Figure 2: the error on test images that are rotated, shifted or scaled, for average, max, gated and tree pooling."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ...formatting import format_mean, format_number
from ..comparison.answer import format_difference
from ..comparison.comparison import FinishedRun
from ..comparison.summary import PairedDifference, compute_differences
from . import figures
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .figure_networks import DATA, POOLS, FigureNetwork, list_networks, plan
from .notes import describe_differences
from .results import Results

TITLE = "Robustness to rotation, translation and scale"
SOURCE = "Figure 2"
CLAIM = (
    "Gated pooling and a 2-level tree have less error than max and average pooling at every amount of rotation, "
    "translation and scaling, except extreme down-scaling."
)
BASELINE = POOLS["max"]


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


class Change(NamedTuple):
    """A kind of change: its unit, its function, the amounts tried, and the one that changes nothing."""

    unit: str
    apply: Callable[[Tensor, float], Tensor]
    amounts: list[float]
    nothing: float


CHANGES = {
    "rotation": Change("degrees", rotate, _list_amounts(-24, 24, 4), 0.0),
    "vertical translation": Change("pixels", shift, _list_amounts(-8, 8, 2), 0.0),
    "scale": Change("factor", scale_by, _list_amounts(6, 14, 1, 0.1), 1.0),
}
Errors = Mapping[str, Mapping[str, float]]  # of one network, by kind and amount


def format_amount(amount: float) -> str:
    """How a record names it."""
    return f"{amount:g}"


def measure(results: Results, entry: FinishedRun) -> dict[str, dict[str, float]]:
    """The error of one network for every kind and amount of change."""
    network = FigureNetwork(entry, results.data_dir)
    return {
        kind: {format_amount(amount): network.compute_error(change.apply, amount) for amount in change.amounts}
        for kind, change in CHANGES.items()
    }


def build_page(scale: Scale, results: Results) -> Page:
    """Three figures for each data set, and how far each pool is from max over all amounts of a change."""
    parts: list[Table | Figure] = []
    answer, record = [], {}
    for data in scale.choose(DATA):
        runs = list_networks(scale, data)
        measured = results.measure_groups(runs, "invariance", partial(measure, results))
        networks = {label: list(seeds.values()) for label, seeds in measured.items()}
        record[data] = networks
        if not networks:
            answer.append(f"{LABELS[data]}: no seed is finished with all pools yet.")
            continue
        for kind, change in CHANGES.items():
            curves = {
                label: [[errors[kind][format_amount(amount)] for amount in change.amounts] for errors in seeds]
                for label, seeds in networks.items()
            }
            parts.append(figures.draw_curves(curves, change.amounts, kind, change.unit))
        test_images = next(entry for group in runs.values() for entry in results.find_all(group)).result.images["test"]
        comparison = compare_networks(networks, 100 / test_images)
        parts.append(_build_table(networks, comparison, data))
        answer += [_describe(networks, data), describe_significance(comparison)]
    return Page(answer, parts, describe_differences(plan(scale)), record)


def compute_changed_error(errors: Errors, kind: str) -> float:
    """The mean error of one network over all amounts of a change but the one that changes nothing."""
    nothing = format_amount(CHANGES[kind].nothing)
    return statistics.fmean(error for amount, error in errors[kind].items() if amount != nothing)


class Comparison(NamedTuple):
    """By network and kind of change: errors by seed, and the paired difference to max."""

    errors: dict[tuple[str, str], list[float]]
    differences: dict[tuple[str, str], PairedDifference]


def compare_networks(networks: Mapping[str, Sequence[Errors]], step: float) -> Comparison:
    """The mean error over each kind of change; all differences to max are tested together."""
    errors = {
        (label, kind): [compute_changed_error(one, kind) for one in seeds]
        for label, seeds in networks.items()
        for kind in CHANGES
    }
    pairs = [(label, kind) for label, kind in errors if label != BASELINE and BASELINE in networks]
    by_seed = [
        [ours - base for ours, base in zip(errors[label, kind], errors[BASELINE, kind], strict=True)]
        for label, kind in pairs
    ]
    return Comparison(errors, dict(zip(pairs, compute_differences(by_seed, step), strict=True)))


def _build_table(networks: Mapping[str, Sequence[Errors]], comparison: Comparison, data: str) -> Table:
    rows = []
    for label, seeds in networks.items():
        cells = [Cell(format_mean([one["scale"][format_amount(CHANGES["scale"].nothing)] for one in seeds]))]
        for kind in CHANGES:
            note, verdict = "", ""
            if difference := comparison.differences.get((label, kind)):
                note = format_difference(difference)
                verdict = str(difference.verdict) if difference.is_significant else ""
            cells.append(Cell(format_mean(comparison.errors[label, kind]), note, verdict))
        rows.append([Cell(label), *cells, Cell(str(len(seeds)))])
    caption = (
        "Test error in percent, mean ± standard deviation over seeds; of a change the mean over all amounts but none. "
        f"In small print the difference to {BASELINE}, seed by seed, with the interval of a paired t-test, corrected "
        f"by Holm's method for the {len(comparison.differences)} differences of this table."
    )
    return Table([LABELS[data], "unchanged", *CHANGES, "seeds"], rows, caption)


def describe_significance(comparison: Comparison) -> str:
    """Which differences to max are significant, and how wide the intervals are."""
    tests = [difference.test for difference in comparison.differences.values() if difference.test]
    if not tests:
        return f"Differences to {BASELINE} were not tested: that takes two seeds."
    found = [
        f"{label} {difference.verdict} under {kind}"
        for (label, kind), difference in comparison.differences.items()
        if difference.is_significant
    ]
    reaches = [(test.high - test.low) / 2 for test in tests]
    reach = f"± {format_number(min(reaches), 1)} to ± {format_number(max(reaches), 1)} points"
    pools = "; ".join(found) or "none"
    return f"Significant differences to {BASELINE} in the mean over a change: {pools} (the intervals are {reach} wide)."


def _describe(networks: Mapping[str, Sequence[Errors]], data: str) -> str:
    """At how many amounts of each change the learned pools have less mean error than the fixed ones."""
    fixed = [label for label in (BASELINE, POOLS["avg"]) if label in networks]
    if BASELINE not in fixed or len(fixed) == len(networks):
        return f"{LABELS[data]}: not all networks are finished."
    means = {
        label: {
            (kind, amount): statistics.fmean(errors[kind][format_amount(amount)] for errors in seeds)
            for kind, change in CHANGES.items()
            for amount in change.amounts
            if amount != change.nothing
        }
        for label, seeds in networks.items()
    }
    clauses, whom = [], fixed[0] if len(fixed) == 1 else f"both {' and '.join(fixed)}"
    for label in networks:
        if label not in fixed:
            ahead = [kind for (kind, a), mean in means[label].items() if mean < min(means[f][kind, a] for f in fixed)]
            counts = [f"{ahead.count(kind)} of {len(c.amounts) - 1} amounts of {kind}" for kind, c in CHANGES.items()]
            clauses.append(f"{label} pooling has less mean error than {whom} at {', '.join(counts)}")
    return f"{LABELS[data]}: {'; '.join(clauses)}."
