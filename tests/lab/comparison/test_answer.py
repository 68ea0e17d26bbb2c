"""The sentences about a comparison: they claim no more than the numbers, with the signs of the table."""

from dataclasses import replace

import pytest

from learnpool.lab.comparison.answer import compose_answer, describe_result, format_error
from learnpool.lab.comparison.summary import PairedDifference, RunScore, count_seeds_needed, summarize

IMAGES = 200  # one of them is half a point


def summaries(**errors):
    """The k-th pool takes 1 + k/10 seconds and has k parameters more than 100."""
    scores = {
        pool: {seed: RunScore(error, 1 + k / 10, k, 100 + k, 10**6) for seed, error in enumerate(values)}
        for k, (pool, values) in enumerate(errors.items())
    }
    return summarize(scores, IMAGES)


def answer(**errors):
    return " ".join(compose_answer(summaries(**errors)))


def test_the_sentence_has_the_form_that_was_promised():
    pools = summaries(max=[5.0, 5.5, 5.0], gated=[4.5, 5.5, 4.5])
    wanted = "gated: 0.33 points less test error than max (95 % interval −1.58 … 0.91 over 3 seeds): "
    wanted += "not significant (p = 0.37); 1 parameter, +10 % time"
    assert describe_result(pools[1], "max", 1) == wanted
    # The spread of 0.29 is below one image, so 0.5 is taken: d = 2/3, for which 80 % power at 5 % takes 20 pairs.
    assert count_seeds_needed(2 / 3, 0.05) == 20
    assert compose_answer(pools)[1].startswith("17 more seeds would show it with 80 % chance, if the true difference")


# By hand: 5, 5, 4.5 have mean 29/6 and a spread below one image, so 0.5 is taken and the interval reaches 1.242069;
# t = 29/6 · √3 / 0.5 = 16.743157 and p = 1 − t / √(2 + t²) = 0.003548.
def test_more_error_is_called_more():
    text = answer(max=[4.0, 4.5, 4.5], gated=[9.0, 9.5, 9.0])
    assert text.startswith("gated: 4.83 points more test error than max (95 % interval 3.59 … 6.08 over 3 seeds): ")
    assert "significantly worse (p = 0.0035)" in text
    assert text.endswith("Against max (4.33 % test error): significantly worse: gated.")
    assert "more seeds would" not in text


@pytest.mark.parametrize(
    ("mean", "text"),
    [
        (-0.004, "gated: no difference in test error from max (95 % interval −0.30 … 0.20 over 2 seeds)"),
        (0.004, "gated: no difference in test error from max (95 % interval −0.30 … 0.20 over 2 seeds)"),
        (-0.05, "gated: 0.05 points less test error than max (95 % interval −0.30 … 0.20 over 2 seeds)"),
        (0.05, "gated: 0.05 points more test error than max (95 % interval −0.30 … 0.20 over 2 seeds)"),
    ],
)
def test_the_interval_is_that_of_the_table_whatever_the_word(mean, text):
    pool = summaries(max=[5.0, 5.0], gated=[5.0, 5.0])[1]
    test = replace(pool.difference.test, low=-0.3, high=0.2)
    assert describe_result(replace(pool, difference=PairedDifference(mean, test)), "max", 1).startswith(text)


@pytest.mark.parametrize(("extra", "text"), [(-1_500, "−1,500"), (-1, "−1"), (0, "0"), (1_500, "1,500")])
def test_fewer_parameters_have_their_sign(extra, text):
    pool = summaries(max=[5.0, 5.0], gated=[5.0, 5.0])[1]
    assert f"; {text} parameters, +10 % time" in describe_result(replace(pool, extra_parameters=extra), "max", 1)


def test_an_error_has_its_spread():
    assert format_error(summaries(max=[5.0, 6.0, 7.0])[0]) == "6.00 ± 1.00"
    assert format_error(summaries(max=[5.0])[0]) == "5.00"


def test_a_win_is_called_one_only_after_the_correction():
    win = {"max": [9.0, 9.5, 9.0], "gated": [4.0, 4.5, 4.5]}
    assert "significantly better (p = 0.0035);" in answer(**win)
    others = {f"p{k}": [9.0, 8.5, 9.5] for k in range(14)}
    text = answer(**win, **others)
    assert "not significant (p = 0.053, corrected for 15 pools like the interval)" in text
    assert "no clear difference: gated, p0" in text
    assert "more seed" in text
    assert "(Holm's interval −9." in text  # and no longer one that leaves out zero


def test_the_best_is_the_lowest_error_and_all_are_judged():
    text = answer(max=[9.0, 9.5, 9.0], half=[9.0, 8.5, 9.5], gated=[4.0, 4.5, 4.5])
    assert text.startswith("gated: 4.83 points less test error than max (Holm's interval ")
    assert ", corrected for 2 pools like the interval)" in text
    assert text.endswith("Against max (9.17 % test error): significantly better: gated; no clear difference: half.")


def test_no_difference_at_all():
    assert "No difference was seen, so no number of seeds would show one." in answer(max=[1.0, 2.0], half=[1.0, 2.0])
    assert "even 1,000 seeds would not do" in answer(max=[1.0, 2.0, 50.0], half=[1.0, 2.5, 49.6])


def test_one_seed_claims_nothing():
    sentences = compose_answer(summaries(max=[9.0], gated=[4.0]))
    assert sentences == (
        "gated: 5.00 points less test error than max in one seed, which may be chance; 1 parameter, +10 % time.",
        "Against max (9.00 % test error): nothing is known about chance from one seed; --seeds 3 gives intervals.",
    )


def test_no_number_of_seeds_is_named_where_nothing_was_learned():
    pools = summaries(max=[90.0, 90.5, 90.0], gated=[89.5, 90.5, 89.0])
    assert "more seed" in " ".join(compose_answer(pools))
    assert "more seed" not in " ".join(compose_answer(pools, name_seeds=False))
