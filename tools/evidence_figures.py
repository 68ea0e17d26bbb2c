"""Draw the figures of docs/results/evidence.md in docs/figures, from the studies: ``python tools/evidence_figures.py``.

forest.svg is what pools are worth over networks and settings; its rows are exploratory but those of the protocol's
confirmation. masks.svg is what gates had learned.
"""

from pathlib import Path

import matplotlib as mpl

from cpu_tables import RESULTS
from learnpool.lab.comparison.charts import PLAIN, open_figure
from learnpool.lab.experiments import confirmation, why
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.forest import Settings, draw_forest, list_rows, read_family
from learnpool.lab.experiments.results import Results
from paper_tables import SETTINGS, group_runs

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
PLAINLY = {"metadata": {"Date": None}}
BASELINES = ("max", "half")
CONFIRMED = {("resnet9", "cifar10+"): "CIFAR-10, all images: ResNet-9, ¼ as wide, with batch normalisation"}
OTHERS = {  # exploratory: what stands beside gated in each earlier study
    "dsn": ("CIFAR-10, 10,000 images: the paper's network, ¼ as wide", "tree3+gated"),
    "all": ("CIFAR-10: the paper's network, ¼ as wide", "tree3+gated"),
    "small": ("CIFAR-10, 10,000 images: a small network with batch normalisation", "Gate(Filter,Mix(Max,Avg))+gated"),
    "mnist": ("MNIST: the paper's network, ¼ as wide", "tree2+gated"),
}


def read_panels() -> dict[str, Settings]:
    """The rows of both panels, from the studies."""
    panels: dict[str, dict] = {baseline: {} for baseline in BASELINES}
    confirmed = Results(RESULTS / "confirmation" / "runs")
    for block in confirmation.BLOCKS:
        add(panels, CONFIRMED[block.net, block.data], confirmation.read_block(Scale(), block, confirmed), primary=True)
    for name, (title, other) in OTHERS.items():
        setting, pools = SETTINGS[name], ("max", "half", "gated", other)
        pairs = [(pool, baseline) for baseline in BASELINES for pool in pools[2:]]
        add(panels, title, read_family(setting.results, group_runs(setting, pools), pairs), primary=False)
    return panels


def add(panels, title, family, *, primary):
    """Put a family's rows into the panels of their baselines."""
    for baseline, settings in panels.items() if family is not None else ():
        settings[title] = list_rows(family, baseline, primary=primary)


def draw_masks(path):
    """The masks that were measured of confirmed gated networks."""
    confirmed = Results(RESULTS / "confirmation" / "runs")
    masks = why.read_masks(Scale("cpu", changes={"net": why.NET}), confirmed)
    with open_figure(why.HEIGHT) as (figure, axes):
        why.plot_masks(figure, axes, masks)
        figure.savefig(path, **PLAINLY)


if __name__ == "__main__":
    with mpl.rc_context(PLAIN):
        draw_forest(read_panels()).savefig(FIGURES / "forest.svg", **PLAINLY)
    draw_masks(FIGURES / "masks.svg")
