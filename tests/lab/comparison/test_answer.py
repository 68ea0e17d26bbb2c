"""The sentences about a comparison: they claim no more than the numbers, with the signs of the table."""

from dataclasses import replace

import pytest

from learnpool.lab.comparison.answer import (
    compose_answer,
    describe_cost,
    describe_result,
    describe_verdict,
    format_error,
    format_outlook,
    format_p,
)
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


def result(pool, baseline):
    return describe_result(pool, baseline, 1)


def test_the_verdict_leads_and_its_figures_follow():
    pools = summaries(max=[5.0, 5.5, 5.0], gated=[4.5, 5.5, 4.5])
    wanted = "gated: 4.83 % test error, 0.33 points less than max (5.17 %); 95 % interval −1.58 … 0.91 over 3 seeds, "
    assert compose_answer(pools)[:3] == (
        "gated does not differ clearly from max.",
        f"{wanted}p = 0.37.",
        "It adds 1 parameter and takes 10 % more time.",
    )
    # The spread of 0.29 is below one image, so 0.5 is taken: d = 2/3, for which 80 % power at 5 % takes 20 pairs.
    assert count_seeds_needed(2 / 3, 0.05) == 20
    assert compose_answer(pools)[3].startswith("17 more seeds would show it with 80 % chance, if the true difference")
    assert format_outlook(pools[1].difference) == "17 more seeds"


# By hand: 5, 5, 4.5 have mean 29/6 and a spread below one image, so 0.5 is taken and the interval reaches 1.242069;
# t = 29/6 · √3 / 0.5 = 16.743157 and p = 1 − t / √(2 + t²) = 0.003548.
def test_more_error_is_called_more():
    verdict, figures, _ = compose_answer(summaries(max=[4.0, 4.5, 4.5], gated=[9.0, 9.5, 9.0]))
    assert verdict == "gated is worse than max."
    assert figures.startswith(
        "gated: 9.17 % test error, 4.83 points more than max (4.33 %); 95 % interval 3.59 … 6.08 over 3 seeds, "
        "p = 0.0035."
    )


@pytest.mark.parametrize(
    ("mean", "text"),
    [
        (-0.004, "as much as max"),
        (0.004, "as much as max"),
        (-0.05, "0.05 points less than"),
        (0.05, "0.05 points more"),
    ],
)
def test_the_interval_is_that_of_the_table_whatever_the_word(mean, text):
    base, pool = summaries(max=[5.0, 5.0], gated=[5.0, 5.0])
    test = replace(pool.difference.test, low=-0.3, high=0.2)
    said = result(replace(pool, difference=PairedDifference(mean, test)), base)
    assert text in said
    assert "95 % interval −0.30 … 0.20 over 2 seeds" in said


@pytest.mark.parametrize(
    ("extra", "time", "text"),
    [
        (-1_500, 0.1, "It saves 1,500 parameters and takes 10 % more time."),
        (0, -0.2, "It adds no parameters and takes 20 % less time."),
        (1, 0.004, "It adds 1 parameter and takes the same time."),
    ],
)
def test_what_a_pool_costs(extra, time, text):
    pool = summaries(max=[5.0, 5.0], gated=[5.0, 5.0])[1]
    assert describe_cost(replace(pool, extra_parameters=extra, extra_time=time)) == text


def test_an_error_has_its_spread():
    assert format_error(summaries(max=[5.0, 6.0, 7.0])[0]) == "6.00 ± 1.00"
    assert format_error(summaries(max=[5.0])[0]) == "5.00"


def test_a_win_is_called_one_only_after_the_correction():
    win = {"max": [9.0, 9.5, 9.0], "gated": [4.0, 4.5, 4.5]}
    assert answer(**win).startswith("gated is better than max. gated: 4.33 % test error, 4.83 points less than max ")
    others = {f"p{k}": [9.0, 8.5, 9.5] for k in range(14)}
    text = answer(**win, **others)
    assert text.startswith("No pool differs clearly from max; the closest call is gated. gated: 4.33 % test error, ")
    assert "p = 0.053, corrected for 15 pools." in text
    assert "more seed" in text
    assert "; Holm's interval −9." in text  # and no longer one that leaves out zero


def test_the_best_is_the_lowest_error_and_all_are_judged():
    text = answer(max=[9.0, 9.5, 9.0], half=[9.0, 8.5, 9.5], gated=[4.0, 4.5, 4.5])
    assert text.startswith("gated is better than max; no clear difference: half. gated: 4.33 % test error, ")
    text = answer(max=[9.0, 9.5, 9.0], half=[3.0, 3.5, 2.5], gated=[4.0, 4.5, 4.5], avg=[20.0, 21.0, 20.0])
    assert text.startswith("half and gated are better than max; avg is worse than max. half: 3.00 % test error, ")


def test_the_closest_call_is_the_clearest_difference_not_the_lowest_error():
    pools = summaries(max=[5.0, 5.0, 5.0], noisy=[0.0, 9.0, 3.0], steady=[5.5, 5.5, 6.0])
    assert pools[1].mean < pools[2].mean
    assert describe_verdict(pools) == "No pool differs clearly from max; the closest call is steady."


def test_what_more_than_30_seeds_would_show_is_too_small_to_matter():
    for errors in ([1.0, 2.5, 49.6], [1.0, 2.5, 49.5]):  # a mean that is not zero, and one that is
        pools = summaries(max=[1.0, 2.0, 50.0], half=errors)
        assert compose_answer(pools)[3].endswith("too small to matter here.")
        assert "Any difference" not in compose_answer(pools)[3]  # the interval has differences of a point
        assert format_outlook(pools[1].difference) == "too small to matter here"
    assert "more than 30 seeds" in answer(max=[1.0, 2.0, 50.0], half=[1.0, 2.5, 49.6])
    assert format_outlook(summaries(max=[4.0, 4.5, 4.5], gated=[9.0, 9.5, 9.0])[1].difference) == ""


def test_one_seed_claims_nothing():
    assert compose_answer(summaries(max=[9.0], half=[7.0], gated=[4.0])) == (
        "One seed cannot show whether a pool differs from max; --seeds 3 gives intervals.",
        "gated: 4.00 % test error, 5.00 points less than max (9.00 %); in one seed, which may be chance.",
        "It adds 2 parameters and takes 20 % more time.",
    )


def test_equal_errors_have_no_closest_call():
    pools = summaries(max=[4.0, 4.5, 5.0], half=[4.0, 4.5, 5.0], gated=[4.5, 4.0, 5.0])
    assert pools[2].difference.test.high > 1  # that far a pool may differ for all these errors say
    assert describe_verdict(pools) == "No pool differs clearly from max."


def test_a_p_value_shows_on_which_side_of_the_level_it_is():
    shown = {0.0033: "0.0033", 0.0496: "0.0496", 0.049978: "0.04998", 0.0504: "0.0504", 0.05: "0.05", 1.0: "1"}
    assert {p: format_p(p) for p in shown} == shown
