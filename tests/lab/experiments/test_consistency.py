"""Shift consistency: moved pixels by hand, and answers that change counted on networks of known behaviour."""

import pytest
import torch

from learnpool.lab.experiments import consistency
from learnpool.lab.experiments.consistency import DIRECTIONS, count_changed, measure, move
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.figure_networks import FigureNetwork
from learnpool.lab.experiments.results import Results
from learnpool.lab.runs.directory import read_result
from learnpool.lab.runs.train import train

TINY = Scale("cpu", 2, ("digits",), {"epochs": 1, "width": 0.05, "train_size": 120, "batch": 40})


def test_moving_by_hand():
    image = torch.arange(6, dtype=torch.uint8).view(1, 1, 2, 3)  # 0 1 2 / 3 4 5
    assert move(image, 1, 0)[0, 0].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert move(image, -1, 0)[0, 0].tolist() == [[3, 4, 5], [3, 4, 5]]
    assert move(image, 0, 1)[0, 0].tolist() == [[0, 0, 1], [3, 3, 4]]
    assert move(image, 0, -1)[0, 0].tolist() == [[1, 2, 2], [4, 5, 5]]
    assert move(image, 0, 1).dtype is torch.uint8


def test_changed_answers_by_hand():
    assert count_changed(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 0, 4])) == 25


@pytest.mark.trains
def test_the_answers_are_those_of_the_evaluation(tmp_path):
    run = TINY.make_run("digits", "gated", 0)
    error = train(run, tmp_path, threads=1).test_error
    entry = Results(tmp_path).find(run)
    network = FigureNetwork(entry, None)
    answers = network.compute_answers(lambda images: images)
    assert count_changed(answers, network.test.labels) == pytest.approx(error)
    measured = measure(Results(tmp_path), entry)
    assert list(measured) == list(DIRECTIONS)
    moved = network.compute_answers(move, 1, 0)
    assert measured["down"] == 100 * (moved != answers).sum().item() / len(answers)
    assert read_result(tmp_path / run.id).test_error == error


def test_what_the_page_says():
    means = {"max": [10.0, 11.0, 12.0], "gated": [8.0, 9.1, 9.9], "average": [10.1, 11.0, 11.8]}
    differences = consistency.compare_pools(means, 0.01)
    text = consistency.describe("digits", means, differences)
    assert text.startswith("digits, 3 seeds: max 11.00 ± 1.00 %")
    assert text.endswith("Significant differences to max: gated changes fewer.")
    table = consistency.build_table("digits", means, differences)
    assert [row[0].text for row in table.rows] == list(means)
    assert [cell.kind for cell in (table.rows[1][2], table.rows[2][2])] == ["better", ""]
