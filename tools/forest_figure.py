"""Draw docs/figures/forest.svg, what pools are worth over networks and settings: ``python tools/forest_figure.py``.

Everything comes from the studies in docs/results. Rows are exploratory but those of the protocol's confirmation.
"""

from pathlib import Path

import matplotlib as mpl

from cpu_tables import RESULTS
from learnpool.lab.comparison.charts import PLAIN
from learnpool.lab.experiments import confirmation
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.forest import Settings, draw_forest, list_rows, read_family
from learnpool.lab.experiments.results import Results
from paper_tables import SETTINGS, group_runs

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "forest.svg"
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


if __name__ == "__main__":
    with mpl.rc_context(PLAIN):
        draw_forest(read_panels()).savefig(FIGURE, metadata={"Date": None})
