"""The forest plot: its rows are the family's, a filled circle is a significant difference."""

import pytest
from matplotlib.collections import PathCollection

from learnpool.lab.comparison.family import compare_family
from learnpool.lab.experiments.forest import draw_forest, list_rows, read_family
from learnpool.lab.experiments.results import Results
from learnpool.lab.runs.run import Run
from learnpool.lab.runs.train import train
from runs import SMALL

ERRORS = {
    "max": [12.5, 12.7, 12.8, 12.4, 12.6],
    "half": [11.9, 12.3, 12.2, 11.9, 12.2],
    "gated": [11.6, 12.0, 12.1, 11.7, 11.9],
}
PAIRS = [("gated", "max"), ("gated", "half"), ("half", "max")]


def draw():
    family = compare_family(ERRORS, PAIRS, 0.01)
    panels = {
        "max": {"one": list_rows(family, "max", primary=True), "two": list_rows(family, "max")},
        "half": {"one": list_rows(family, "half")},
    }
    return family, draw_forest(panels)


def test_rows_are_those_of_the_baseline():
    family, _ = draw()
    assert [row.pool for row in list_rows(family, "max")] == ["gated", "half"]
    assert [row.pool for row in list_rows(family, "half")] == ["gated"]
    assert {row.seeds for row in list_rows(family, "max")} == {5}


def test_what_is_drawn():
    family, figure = draw()
    above, below = figure.axes
    assert [label.get_text() for label in above.get_yticklabels()] == ["gated", "half"] * 2
    assert [text.get_text() for text in below.texts] == ["one", "−0.24, 5 seeds"]
    means = [float(c.get_offsets()[0][0]) for c in above.collections if isinstance(c, PathCollection)]
    one, two = (family.differences[pair].mean for pair in (PAIRS[0], PAIRS[2]))
    assert means == pytest.approx([one, two] * 2)
    faces = [tuple(c.get_facecolor()[0]) for c in above.collections if isinstance(c, PathCollection)]
    assert family.differences[PAIRS[0]].is_significant
    assert faces[0] != faces[2] != (1.0, 1.0, 1.0, 1.0)  # primary and exploratory


@pytest.mark.trains
def test_a_family_needs_two_seeds_that_all_have(tmp_path):
    runs = {
        pool: [Run(**SMALL | {"pool": pool, "epochs": 1, "seed": seed}) for seed in (0, 1, 2)]
        for pool in ("max", "half")
    }
    for run in (*runs["max"], *runs["half"][:1]):
        train(run, tmp_path, threads=1)
    pairs = [("half", "max")]
    assert read_family(Results(tmp_path), runs, pairs) is None
    train(runs["half"][2], tmp_path, threads=1)
    assert read_family(Results(tmp_path), runs, pairs).seeds == 2
