"""A comparison that knows nothing says so: chance level, training that is not over, gates that did not move."""

import pytest

from learnpool.lab.comparison.caveats import PoolTraining, find_caveats, measure_fall

FLAT = [[9.0, 5.0, 4.9], [9.0, 5.1, 4.9]]


def training(pool, errors, train_errors=FLAT, **entropies):
    return PoolTraining(pool, errors, train_errors, [entropies] * len(errors))


def test_nothing_to_say_of_a_network_that_learned():
    caveats = find_caveats([training("max", [5.0, 6.0]), training("gated", [5.0, 5.0], gate0=0.6)], 90.0, 1000)
    assert (caveats.sentences, caveats.unlearned) == ((), False)


def test_a_baseline_at_chance_level_is_said_first():
    caveats = find_caveats([training("max", [90.28, 90.0]), training("conv", [89.45, 89.0])], 89.81, 540)
    assert caveats.unlearned
    (sentence,) = caveats.sentences
    assert sentence == (
        "Nothing can be said about pools yet: with max the network has 90.14 % test error, and guessing has 89.81 %. "
        "Train longer, or at another rate."
    )


def test_the_mean_over_seeds_decides_about_chance():
    caveats = find_caveats([training("max", [90.0, 90.0, 60.0]), training("gated", [90.0] * 3)], 90.0, 1000)
    assert (caveats.sentences, caveats.unlearned) == (("At chance level (90.00 % test error): gated.",), False)


def test_an_error_below_chance_on_few_images_says_why_it_counts_as_a_guess():
    caveats = find_caveats([training("max", [38.89, 66.67]), training("gated", [50.0, 50.0])], 66.67, 18)
    assert "and guessing has 66.67 %, which 18 test images cannot tell apart." in caveats.sentences[0]


def test_another_pool_at_chance_level_is_named():
    caveats = find_caveats([training("max", [5.0]), training("tree3", [89.9]), training("half", [6.0])], 90.0, 1000)
    assert (caveats.sentences, caveats.unlearned) == (("At chance level (90.00 % test error): tree3.",), False)


@pytest.mark.parametrize(
    ("errors", "fall"),
    [
        ([[80.0]], None),  # after one epoch nobody knows
        ([[80.0, 60.0]], (80.0, 60.0, "epoch")),
        ([[80.0, 60.0], [80.0, 70.0]], (80.0, 65.0, "epoch")),
        ([[9.0, 5.0, 4.9]], None),
        ([[0.6, 0.3]], None),  # half of it, but a few images
        ([[5.0, 4.3]], None),  # a seventh, but less than a point
        ([[8.0, 6.5]], (8.0, 6.5, "epoch")),  # more than a point
        ([[50.0, 46.0]], None),  # more than a point, but less than a tenth
        ([[50.0, 44.0]], (50.0, 44.0, "epoch")),  # more than a tenth
        ([[*range(100, 70, -1)]], None),  # 73 to 71 in the last three of thirty
        ([[*range(120, 0, -4)]], (16.0, 4.0, "3 epochs")),
        # CIFAR10 in 16 epochs of one cycle: what a schedule that ends looks like
        ([[79.8, 61.8, 51.3, 43.7, 38.6, 35.1, 32.7, 30.9, 28.6, 27.4, 25.7, 24.2, 23.4, 22.3, 21.3, 20.1]], None),
    ],
)
def test_training_error_that_still_falls_steeply(errors, fall):
    assert measure_fall(errors) == fall
    sentences = find_caveats([training("max", [5.0] * len(errors), errors)], 90.0, 1000).sentences
    assert (fall is not None) == any("Training was not over" in sentence for sentence in sentences)


def test_gates_that_did_not_move_are_named():
    pools = [
        training("max", [5.0]),
        training("gated", [5.0], **{"pool1.gate0.entropy": 0.9996, "pool2.gate0.entropy": 0.998}),
        training("tree2", [5.0], **{"pool1.gate0.entropy": 0.9996, "pool2.gate0.entropy": 0.998}),
    ]
    pools[1].entropies.append({"pool1.gate0.entropy": 0.996, "pool2.gate0.entropy": 0.998})  # the next seed
    pools[2].entropies.append({"pool1.gate0.entropy": 0.996, "pool2.gate0.entropy": 0.994})
    (sentence,) = find_caveats(pools, 90.0, 1000).sentences
    assert sentence.startswith("Gates did not move (entropy 1.00 bit): gated. ")
    assert "--set pool_rate=10" in sentence
