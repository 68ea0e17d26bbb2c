"""Errors counted by hand: the first answer, the first five, each class."""

import pytest
import torch

from learnpool.lab.runs.errors import Errors, Tally, count_errors, is_chance

VOTES = torch.tensor(
    [
        [9.0, 8, 7, 6, 5, 4, 3],
        [3.0, 9, 8, 7, 6, 5, 4],
        [9.0, 8, 7, 6, 5, 4, 3],
        [1.0, 2, 3, 4, 5, 6, 7],
    ]
)
LABELS = torch.tensor([0, 0, 4, 1])  # first; sixth of seven; fifth; sixth


def test_counts():
    assert count_errors(VOTES, LABELS) == (3, 2)
    assert count_errors(VOTES[:, :5], torch.tensor([0, 1, 0, 4])) == (0, 0)  # five classes have no top-5 error


# One of 540 images is 0.19 points, and the standard error at 89.81 % is √(89.81 · 10.19 / 540) = 1.30 points.
@pytest.mark.parametrize(("error", "guess"), [(90.28, True), (92.0, True), (86.5, True), (85.0, False), (50.0, False)])
def test_an_error_near_chance_is_a_guess(error, guess):
    assert is_chance(error, 89.81, 540) == guess


def test_a_tally_is_the_counts_batch_by_batch():
    tally = Tally(tuple("abcdefg"))
    for votes, labels in zip(VOTES.split(3), LABELS.split(3), strict=True):
        tally.add(votes, labels)
    assert tally.images == 4
    assert tally.errors == Errors(75.0, 50.0)
    rows = {row.name: row for row in tally.list_classes()}
    assert list(rows) == ["b", "e", "a"]  # the worst first; those without images are left out
    assert rows["a"].errors == Errors(50.0, 50.0)
    assert (rows["a"].images, rows["a"].mistaken_for, rows["a"].times) == (2, "b", 1)
    assert rows["e"].errors == Errors(100.0, 0.0)
    assert (rows["b"].mistaken_for, rows["b"].errors.top5) == ("g", 100.0)


def test_few_classes():
    tally = Tally(("cat", "dog"))
    tally.add(torch.eye(2), torch.tensor([0, 1]))
    assert tally.errors == Errors(0.0, None)
    assert tally.list_classes()[0].mistaken_for is None
    assert tally.list_classes()[0].errors.top1 == pytest.approx(0)
