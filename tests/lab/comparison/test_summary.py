"""The statistics of a comparison: against numbers worked by hand and against scipy; and what is said of them."""

import math
import random
from dataclasses import replace

import pytest
from scipy import stats

from learnpool.lab.comparison.summary import (
    RunScore,
    compose_answer,
    compute_differences,
    compute_power,
    correct_by_holm,
    count_seeds_needed,
    describe_pool,
    summarize,
)

IMAGES = 200  # one of them is half a point


def made(**errors):
    """Outcomes by pool and seed; the k-th pool takes 1 + k/10 seconds and has k parameters more than 100."""
    return {
        pool: {seed: RunScore(error, 1 + k / 10, k, 100 + k, 10**6) for seed, error in enumerate(values)}
        for k, (pool, values) in enumerate(errors.items())
    }


def said(**errors):
    return " ".join(compose_answer(summarize(made(**errors), IMAGES)))


# By hand: differences 1, 2, 3 have mean 2 and standard deviation 1; t(0.975, 2) = 4.302653, so the interval reaches
# 4.302653 / √3 = 2.484138; t = 2 √3 = 3.464102, and with 2 degrees of freedom p = 1 − t / √(2 + t²) = 1 − √(6/7).
def test_a_paired_interval_by_hand():
    (a,) = compute_differences([[1.0, 2.0, 3.0]], step=0.5)
    assert (a.gain, a.low, a.high) == pytest.approx((2, 2 - 2.484138, 2 + 2.484138), abs=1e-6)
    assert a.p == a.p_holm == pytest.approx(1 - math.sqrt(6 / 7), abs=1e-9)
    assert a.verdict == "not significant"


def test_paired_differences_agree_with_scipy():
    chance = random.Random(3)
    for _ in range(20):
        base, other = ([chance.gauss(10, 2) for _ in range(7)] for _ in range(2))
        line = summarize(made(max=base, gated=other), 10**9)[1]
        theirs = stats.ttest_rel(base, other)
        interval = theirs.confidence_interval(0.95)
        found = (line.difference.p, line.difference.low, line.difference.high)
        assert found == pytest.approx((theirs.pvalue, interval.low, interval.high))


# Holm (1979): 0.01, 0.04, 0.03 and 0.005 become 4 · 0.005, 3 · 0.01, 2 · 0.03 and, not below its forerunner, 0.06.
def test_holm_by_hand():
    corrected, levels = zip(*correct_by_holm([0.01, 0.04, 0.03, 0.005]), strict=True)
    assert corrected == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert levels == pytest.approx((0.05 / 3, 0.05, 0.05 / 2, 0.05 / 4))
    assert correct_by_holm([0.6, 0.9]) == [(1.0, 0.025), (1.0, 0.05)]
    assert correct_by_holm([]) == []


# Cohen's tables for one sample at 5 %, two-sided, 80 % power: n = 34 for d = 0.5, 15 for 0.8, 199 for 0.2.
@pytest.mark.parametrize(("effect", "n"), [(0.5, 34), (-0.8, 15), (0.2, 199)])
def test_seeds_needed_as_in_the_tables(effect, n):
    assert count_seeds_needed(effect, 0.05) == n


def test_a_stricter_level_needs_more_seeds_and_nothing_needs_none():
    assert count_seeds_needed(0.5, 0.01) > 34
    assert count_seeds_needed(0.0, 0.05) is None
    assert count_seeds_needed(0.001, 0.05) is None


# Where scipy's lower tail of the noncentral t is NaN; by 40,000 simulated tests each the power passes 80 % here.
@pytest.mark.parametrize(
    ("effect", "level", "n"), [(9, 0.025, 3), (3, 0.05 / 15, 6), (9, 0.01, 3), (130, 0.05 / 15, 3)]
)
def test_a_large_effect_needs_few_seeds(effect, level, n):
    assert count_seeds_needed(effect, level) == n
    assert all(0 <= compute_power(effect, k, level) <= 1 for k in range(2, 60))


def test_power_is_how_often_a_test_sees_it():
    chance = random.Random(1)
    trials = [stats.ttest_1samp([chance.gauss(1, 1) for _ in range(6)], 0).pvalue < 0.05 for _ in range(3000)]
    assert compute_power(1.0, 6, 0.05) == pytest.approx(sum(trials) / 3000, abs=0.03)
    assert compute_power(0.0, 6, 0.05) == pytest.approx(0.05)


def test_pairs_are_of_one_seed_and_equal_ones_are_no_certainty():
    scores = made(max=[1, 9, 5], gated=[2, 10, 6])
    scores["gated"] = dict(reversed(scores["gated"].items()))
    a = summarize(scores, IMAGES)[1].difference
    assert a.gain == -1
    # Equal differences have no spread; one image (0.5 points) is taken: 4.302653 · 0.5 / √3 = 1.242069.
    assert (a.low, a.high) == pytest.approx((-1 - 1.242069, -1 + 1.242069), abs=1e-6)


def test_what_a_line_holds():
    base, line = summarize(made(max=[5.0, 6.0, 7.0], gated=[4.0, 5.0, 9.0]), IMAGES)
    assert (base.mean, base.spread, base.difference) == (6.0, 1.0, None)
    assert (line.mean, line.extra_parameters, line.pool_parameters) == (6.0, 1, 1)
    assert (line.seconds, line.extra_time, line.memory) == pytest.approx((1.1, 0.1, 10**6))


def test_the_sentence_has_the_form_that_was_promised():
    lines = summarize(made(max=[5.0, 5.5, 5.0], gated=[4.5, 5.5, 4.5]), IMAGES)
    wanted = "gated: 0.33 points less test error than max, 95 % paired interval −0.91 … 1.58 over 3 seeds: "
    wanted += "not significant (p = 0.37); 1 parameter, +10 % time"
    assert describe_pool(lines[1], "max", 1) == wanted
    # The spread of 0.29 is below one image, so 0.5 is taken: d = 2/3, for which 80 % power at 5 % takes 20 pairs.
    assert count_seeds_needed(2 / 3, 0.05) == 20
    assert compose_answer(lines)[1].startswith("17 more seeds would show it with 80 % chance, if the true difference")


# By hand: 5, 5, 4.5 have mean 29/6 and a spread below one image, so 0.5 is taken and the interval reaches 1.242069;
# t = 29/6 · √3 / 0.5 = 16.743157 and p = 1 − t / √(2 + t²) = 0.003548.
def test_a_loss_is_told_as_one():
    text = said(max=[4.0, 4.5, 4.5], gated=[9.0, 9.5, 9.0])
    assert text.startswith(
        "gated: 4.83 points more test error than max, 95 % paired interval 3.59 … 6.08 over 3 seeds: "
    )
    assert "significantly worse (p = 0.0035)" in text
    assert text.endswith("Against max (4.33 % test error): significantly worse: gated.")
    assert "more seeds would" not in text


def test_word_and_interval_are_seen_from_the_same_side():
    """A loss that rounds to nothing is told as 0.00 less, with the interval of the gain; one that does not, as more."""
    line = summarize(made(max=[5.0, 5.0], gated=[5.0, 5.0]), IMAGES)[1]
    tiny, loss = (
        replace(line, difference=replace(line.difference, gain=g, low=-0.3, high=0.2)) for g in (-0.004, -0.05)
    )
    assert describe_pool(tiny, "max", 1).startswith(
        "gated: 0.00 points less test error than max, 95 % paired interval −0.30 … 0.20"
    )
    assert describe_pool(loss, "max", 1).startswith(
        "gated: 0.05 points more test error than max, 95 % paired interval −0.20 … 0.30"
    )
    fewer = replace(line, extra_parameters=-1_500)
    assert "; −1,500 parameters, +10 % time" in describe_pool(fewer, "max", 1)


def test_a_win_is_called_one_only_after_the_correction():
    win = {"max": [9.0, 9.5, 9.0], "gated": [4.0, 4.5, 4.5]}
    assert "significantly better (p = 0.0035);" in said(**win)
    others = {f"p{k}": [9.0, 8.5, 9.5] for k in range(14)}
    text = said(**win, **others)
    assert "not significant (p = 0.053, corrected for 15 pools)" in text
    assert "no clear difference: gated, p0" in text


def test_the_best_is_the_lowest_error_and_all_are_judged():
    text = said(max=[9.0, 9.5, 9.0], half=[9.0, 8.5, 9.5], gated=[4.0, 4.5, 4.5])
    assert text.startswith("gated: 4.83 points less test error")
    judged = "Against max (9.17 % test error): significantly better: gated; no clear difference: half."
    assert text.endswith(judged)


def test_no_difference_at_all():
    assert "No difference was seen, so no number of seeds would show one." in said(max=[1.0, 2.0], half=[1.0, 2.0])
    tiny = said(max=[1.0, 2.0, 50.0], half=[1.0, 2.5, 49.6])
    assert "even 1,000 seeds would not do" in tiny


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match=r"^compare: no interval is possible from 1 seed; wanted at least 2$"):
        summarize(made(max=[1.0], gated=[2.0]), IMAGES)
    with pytest.raises(ValueError, match=r"^compare: gated wants the seeds of max, \[0, 1\], got \[0, 1, 2\]$"):
        summarize(made(max=[1.0, 2.0], gated=[1.0, 2.0, 3.0]), IMAGES)


def test_more_pools_ask_for_more_seeds():
    """The smaller p of two has to meet 2.5 %, so seeing it takes as many pairs as a test at that level."""
    (alone,) = compute_differences([[0.5, 1.5, 1.0]], step=0.5)
    beside, other = compute_differences([[0.5, 1.5, 1.0], [0.5, -0.5, 0.1]], step=0.5)
    assert (alone.p, other.p > beside.p) == (beside.p, True)
    assert alone.more_seeds == count_seeds_needed(2.0, 0.05) - 3
    assert beside.more_seeds == count_seeds_needed(2.0, 0.025) - 3 > alone.more_seeds
