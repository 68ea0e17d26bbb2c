"""What is said of leaves with one number and of rank pools: where they lie between average, max and min."""

import math

import pytest
import torch
from torch import nn

import learnpool
from learnpool.explanation.pools import RankExplanation, ScalarExplanation


@pytest.mark.parametrize(
    ("symbol", "value", "words"),
    [
        ("p", 1.0, "near average"),
        ("p", 3.0, "between average and max"),
        ("p", 64.0, "all but max"),
        ("β", 0.0, "near average"),
        ("β", 1.0, "between average and max"),
        ("β", -1.0, "between average and min"),
        ("β", 40.0, "all but max"),
        ("r", 100.0, "all but max"),
        ("β", math.nan, "not finite"),
    ],
)
def test_a_number_in_words(symbol, value, words):
    assert ScalarExplanation("leaf0", symbol, torch.full((1, 1, 1), value)).words == words


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([0.25, 0.25, 0.25, 0.25], "near average"),
        ([1.0, 0.0, 0.0, 0.0], "all but max"),
        ([0.0, 0.0, 0.0, 1.0], "all but min"),
        ([0.6, 0.3, 0.1, 0.0], "between average and max"),
        ([0.0, 0.1, 0.3, 0.6], "between average and min"),
        ([1.5, 0.0, 0.0, -0.5], "beyond max"),
        ([1.0, 0.0, 0.0, -1.0], "no sum: a difference of cells"),
        ([1.0, 0.0, 0.0, -0.999], "no sum: a difference of cells"),
        ([0.0, 0.0, 0.0, 0.0], "zero"),
        ([0.001, 0.0, 0.0, 0.001], "near zero"),
        ([-0.25, -0.25, -0.25, -0.25], "near average, times −1.00"),
        ([0.5, 0.5, 0.5, 0.5], "near average, times 2.00"),
        ([-1.0, 0.0, 0.0, 0.0], "all but max, times −1.00"),
        ([0.0, 0.5, 0.5, 0.0], "near the median"),
        ([0.05, 0.45, 0.45, 0.05], "near the median"),
        ([0.15, 0.35, 0.35, 0.15], "between average and the median"),
        ([0.5, 0.0, 0.0, 0.5], "near the mean of max and min"),
        ([0.4, 0.1, 0.1, 0.4], "between average and the mean of max and min"),
        ([0.0, 1.0, 0.0, 0.0], "near cell 2 of 4, largest first"),
        ([-0.5, 1.0, 1.0, -0.5], "weights of both signs"),
        ([math.nan, 0.5, 0.5, 0.0], "not finite"),
        ([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], "near the median"),
        ([0.0, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.0, 0.0], "near a trimmed mean"),
        ([0.0, *[1 / 7] * 7, 0.0], "near a trimmed mean"),
        ([1 / 9] * 9, "near average"),
        ([1.0], "near average"),
    ],
)
def test_weights_of_places_in_words(weights, words):
    assert RankExplanation("rank0", torch.tensor(weights).reshape(1, 1, 1, len(weights), 1)).words == words


def test_where_values_differ_the_words_say_so():
    soft = ScalarExplanation("soft0", "β", torch.tensor([-8.0, 8.0]).reshape(2, 1, 1))
    assert soft.words == "from below average to above average"
    power = ScalarExplanation("power0", "p", torch.tensor([1.0, 64.0]).reshape(2, 1, 1))
    assert power.words == "from near average to all but max"
    max_and_min = RankExplanation("rank0", torch.eye(4)[[0, 3]].reshape(2, 1, 1, 2, 2))
    assert max_and_min.words == "mean of 2: near the mean of max and min"


def test_every_learned_leaf_is_explained_and_drawn():
    """Values in use: p beyond its domain is shown as it is applied; weights are a mean over channels."""
    names = ("soft", "lse", "gem", "rank:channel")
    net = nn.Sequential(*(learnpool.make_pool(name, 3, 1, 1, channels=2) for name in names))
    with torch.no_grad():
        net[2].mix.fill_(1000.0)
        net[3].weight.copy_(torch.eye(9)[:2].reshape(1, 2, 1, 1, 3, 3))
    explanation = learnpool.explain(net, torch.rand(1, 2, 8, 8))
    soft, lse, gem, rank = explanation.pools
    assert (soft.scalars[0].symbol, lse.scalars[0].symbol, gem.scalars[0].mean) == ("β", "r", 64.0)
    assert rank.ranks[0].shares == [0.5, 0.5, 0, 0, 0, 0, 0, 0, 0]
    text = str(explanation)
    assert "p: all but max" in text
    assert "w of rank0, largest cell first: 0.50 0.50 0.00" in text
    assert explanation.statistics()["2.power0.mean"] == 64.0
    figure = explanation.draw()
    drawn = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert {"β of soft0", "r of lse0", "p of power0", "w of rank0", "largest cell"} <= set(drawn)
    bars = next(axes for axes in figure.axes if any(t.get_text() == "w of rank0" for t in axes.texts)).patches
    assert [bar.get_height() for bar in bars] == rank.ranks[0].shares
