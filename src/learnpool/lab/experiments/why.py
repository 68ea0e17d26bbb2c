"""Why gated pools are better than max: what is left when a gate may not learn, or decides by less.

Max, the fixed half and gated are the confirmed runs of the same seeds, so only the other rows are trained.
``docs/results/protocol.md``.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ...explanation.pictures import INK, SIGNED, draw_heat_map
from ...formatting import format_number
from ...layers import Pool2d
from ..comparison.charts import open_figure, render_svg
from ..comparison.comparison import FinishedRun
from ..runs.run import Run
from ..runs.trained import restore_run
from .error_table import ErrorTable, Row
from .experiment import Figure, Page, Scale
from .results import Results

TITLE = "Why gated pools are better"
SOURCE = "Not in the paper, whose tables compare gated pools with mixed ones alone"
CLAIM = "The paper explains the lead of gated over mixed pools by gates that respond to the region, not by parameters."
NET, DATA = "resnet9", "cifar10+"
FIRST_SEED = 105  # confirmed ones; the masks of hindsight were learned with the five before it
TEACHERS = range(100, FIRST_SEED)
GATED = {"rate": (0.2,)}  # the rates that screening chose
HEIGHT = 2.1  # of the figure of masks, in inches
Masks = Sequence[Sequence[float]]  # of each pool, row by row
TABLE = ErrorTable(
    [
        Row("Max", "max", GATED),
        Row("Fixed half", "half", {"rate": (0.1,)}),
        Row("One learned proportion", "mixed", GATED),
        Row("Gated", "gated", GATED),
        Row("Gated, masks as fast as other weights", "gated", GATED | {"pool_rate": 1.0}),
        Row("Gated, masks stay as they start, random", "gated", GATED | {"pool_rate": 0.0}),
        Row("Gated by the region's mean", "Gate(Max,Avg,by=Avg,bias=True)", GATED),
        Row("Max blended with a learned filter", "Mix(Max,Filter)", {"rate": (0.1,)}),
    ],
    (DATA,),
    first_seed=FIRST_SEED,
)
plan = TABLE.plan


def list_teachers(scale: Scale) -> list[Run]:
    """The confirmed gated runs whose masks hindsight has."""
    return [scale.make_run(DATA, "gated", seed, net=NET, **GATED) for seed in TEACHERS]


def measure_masks(entry: FinishedRun) -> list[list[float]]:
    """The mask of each pool of a network, as it was after training."""
    network, _ = restore_run(entry.path)
    pools = [module for module in network.modules() if isinstance(module, Pool2d)]
    return [pool.weight.flatten().tolist() for pool in pools if pool.weight is not None]


def read_masks(scale: Scale, results: Results) -> list[Masks]:
    """The masks of each teacher whose network is there, or that were measured while it was."""
    entries = {run: results.find(run) for run in list_teachers(scale)}
    known = [run for run, entry in entries.items() if entry and ("masks" in entry.measured or entry.path.is_dir())]
    return [results.measure(run, "masks", measure_masks) for run in known]


def average(masks: Sequence[Masks]) -> list[list[float]]:
    """The mean over teachers, tap by tap."""
    return [[statistics.fmean(taps) for taps in zip(*of_pool, strict=True)] for of_pool in zip(*masks, strict=True)]


def build_page(scale: Scale, results: Results) -> Page:
    """The table, and what the gates had learned."""
    page = TABLE.build_page(scale, results)
    if not (masks := read_masks(scale, results)):
        return page
    return Page(page.answer, [*page.parts, draw_masks(masks)], page.notes, {**page.data, "masks": average(masks)})


def draw_masks(masks: Sequence[Masks]) -> Figure:
    """The mean masks as heat maps, with their spread over seeds."""
    with open_figure(HEIGHT) as (figure, axes):
        plot_masks(figure, axes, masks)
        svg = render_svg(figure, "Masks of gated pools after training")
    return Figure(svg, f"Masks after training, mean over {len(masks)} seeds: green towards max, violet towards average")


def plot_masks(figure: Any, axes: Any, masks: Sequence[Masks]) -> None:
    """A heat map for each pool, side by side."""
    spreads = [[statistics.stdev(taps) for taps in zip(*of_pool, strict=True)] for of_pool in zip(*masks, strict=True)]
    axes.set_axis_off()
    for place, (mean, spread) in enumerate(zip(average(masks), spreads, strict=True)):
        draw_mask(figure.add_axes((0.02 + place / 3, 0.13, 0.29, 0.75)), f"pool {place + 1}", mean, spread)


def draw_mask(axes: Any, title: str, mean: Sequence[float], spread: Sequence[float]) -> None:
    """One mask: what the gate adds up of a region."""
    reach = 2 * max(map(abs, mean))
    draw_heat_map(axes, [list(mean[i : i + 3]) for i in (0, 3, 6)], SIGNED, (-reach, reach))
    axes.set_title(title, fontsize=9, color=INK)
    axes.set_xlabel(f"± {format_number(statistics.fmean(spread))} over seeds", fontsize=8)
