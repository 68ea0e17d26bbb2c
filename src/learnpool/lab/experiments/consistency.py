"""Shift consistency: how often a network changes its answer when the image moves by one pixel.

The measure of Zhang, "Making convolutional networks shift-invariant again" (2019), for one pixel in four directions.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor
from torch.nn import functional as F

from ...formatting import format_mean
from ..comparison.answer import format_difference
from ..comparison.comparison import FinishedRun
from ..comparison.summary import PairedDifference, compute_differences
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .figure_networks import DATA, POOLS, FigureNetwork, list_networks, plan
from .notes import describe_differences
from .results import Results

TITLE = "Answers that change when the image moves by one pixel"
SOURCE = "Not in the paper"
CLAIM = "The paper's Figure 2 has errors on moved images, not how often an answer changes."
BASELINE = POOLS["max"]
DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

__all__ = ["build_page", "plan"]


def move(images: Tensor, down: int, right: int) -> Tensor:
    """Moved by whole pixels; what comes in repeats the border."""
    height, width = images.shape[2:]
    reach = max(abs(down), abs(right))
    padded = F.pad(images.float(), [reach] * 4, mode="replicate").to(images.dtype)
    return padded[:, :, reach - down : reach - down + height, reach - right : reach - right + width]


def count_changed(answers: Tensor, others: Tensor) -> float:
    """Percent of the answers that differ."""
    return 100 * float((answers != others).double().mean())


def measure(results: Results, entry: FinishedRun) -> dict[str, float]:
    """Percent of the test images whose answer changes, by direction."""
    network = FigureNetwork(entry, results.data_dir)
    answers = network.compute_answers(lambda images: images)
    return {name: count_changed(answers, network.compute_answers(move, *offset)) for name, offset in DIRECTIONS.items()}


def build_page(scale: Scale, results: Results) -> Page:
    """A table for each data set: changed answers, and how far each pool is from max."""
    parts: list[Table | Figure] = []
    answer, record = [], {}
    for data in scale.choose(DATA):
        runs = list_networks(scale, data)
        measured = results.measure_groups(runs, "consistency", partial(measure, results))
        record[data] = {label: list(seeds.values()) for label, seeds in measured.items()}
        if not measured:
            answer.append(f"{LABELS[data]}: no seed is finished with all pools yet.")
            continue
        means = {label: [statistics.fmean(one.values()) for one in seeds] for label, seeds in record[data].items()}
        images = next(entry for group in runs.values() for entry in results.find_all(group)).result.images["test"]
        differences = compare_pools(means, 100 / images)
        parts.append(build_table(data, means, differences))
        answer.append(describe(data, means, differences))
    return Page(answer, parts, describe_differences(plan(scale)), record)


def compare_pools(means: Mapping[str, Sequence[float]], step: float) -> dict[str, PairedDifference]:
    """Paired differences to max, tested together."""
    others = [label for label in means if label != BASELINE] if BASELINE in means else []
    changes = [[a - b for a, b in zip(means[label], means[BASELINE], strict=True)] for label in others]
    return dict(zip(others, compute_differences(changes, step), strict=True))


def build_table(data: str, means: Mapping[str, Sequence[float]], differences: Mapping[str, PairedDifference]) -> Table:
    """Changed answers by pool."""
    rows = []
    for label, values in means.items():
        difference = differences.get(label)
        kind = str(difference.verdict) if difference is not None and difference.is_significant else ""
        note = "baseline" if difference is None else format_difference(difference)
        rows.append([Cell(label), Cell(format_mean(values)), Cell(note, kind=kind), Cell(str(len(values)))])
    caption = (
        "Percent of the test images whose answer changes when they move by one pixel, the mean over four directions, ± "
        "standard deviation over seeds; differences are paired by seed and corrected by Holm's method. "
        "What moves in at a border repeats it."
    )
    return Table([LABELS[data], "answers that change, %", f"difference to {BASELINE}, points", "seeds"], rows, caption)


def describe(data: str, means: Mapping[str, Sequence[float]], differences: Mapping[str, PairedDifference]) -> str:
    """Every pool's changed answers, and which differ significantly from max's."""
    shown = ", ".join(f"{label} {format_mean(values)} %" for label, values in means.items())
    found = [
        f"{label} changes {'fewer' if one.mean < 0 else 'more'}"
        for label, one in differences.items()
        if one.is_significant
    ]
    seeds = len(next(iter(means.values())))
    return (
        f"{LABELS[data]}, {seeds} seeds: {shown}. Significant differences to {BASELINE}: {'; '.join(found) or 'none'}."
    )
