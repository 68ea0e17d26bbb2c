"""Draw docs/figures/starts.png, the start values of a 2-level tree: ``python tools/starts_figure.py``."""

from pathlib import Path

from learnpool.lab.experiments.starts import make_starts_figure

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "starts.png"

if __name__ == "__main__":
    make_starts_figure().savefig(FIGURE, dpi=90)
