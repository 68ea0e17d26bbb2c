"""The statistics of a comparison: against numbers worked by hand and against scipy."""

import math
import random

import pytest
from scipy import stats

from learnpool.lab.comparison.summary import (
    RunScore,
    compute_differences,
    compute_power,
    correct_by_holm,
    count_seeds_needed,
    summarize,
)

IMAGES = 200  # one of them is half a point


def made(**errors):
    """Scores by pool and seed; the k-th pool takes 1 + k/10 seconds and has k parameters more than 100."""
    return {
        pool: {seed: RunScore(error, 1 + k / 10, k, 100 + k, 10**6) for seed, error in enumerate(values)}
        for k, (pool, values) in enumerate(errors.items())
    }


# By hand: differences 1, 2, 3 have mean 2 and standard deviation 1; t(0.975, 2) = 4.302653, so the interval reaches
# 4.302653 / √3 = 2.484138; t = 2 √3 = 3.464102, and with 2 degrees of freedom p = 1 − t / √(2 + t²) = 1 − √(6/7).
def test_a_paired_interval_by_hand():
    (difference,) = compute_differences([[1.0, 2.0, 3.0]], step=0.5)
    test = difference.test
    assert (difference.mean, test.low, test.high) == pytest.approx((2, 2 - 2.484138, 2 + 2.484138), abs=1e-6)
    assert test.p == test.p_holm == pytest.approx(1 - math.sqrt(6 / 7), abs=1e-9)
    assert (test.level, difference.verdict) == (0.05, "no clear difference")


def test_paired_differences_agree_with_scipy():
    chance = random.Random(3)
    for _ in range(20):
        base, other = ([chance.gauss(10, 2) for _ in range(7)] for _ in range(2))
        test = summarize(made(max=base, gated=other), 10**9)[1].difference.test
        theirs = stats.ttest_rel(other, base)
        interval = theirs.confidence_interval(0.95)
        assert (test.p, test.low, test.high) == pytest.approx((theirs.pvalue, interval.low, interval.high))


# Holm (1979): 0.01, 0.04, 0.03 and 0.005 become 4 · 0.005, 3 · 0.01, 2 · 0.03 and, not below its forerunner, 0.06. The
# third fails at 0.05 / 2, and so does the fourth, which is not tested any more.
def test_holm_by_hand():
    corrected, levels = zip(*correct_by_holm([0.01, 0.04, 0.03, 0.005]), strict=True)
    assert corrected == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert levels == pytest.approx((0.05 / 3, 0.05 / 2, 0.05 / 2, 0.05 / 4))
    assert correct_by_holm([0.6, 0.9]) == [(1.0, 0.025), (1.0, 0.025)]
    assert correct_by_holm([]) == []


# Cohen's tables for one sample at 5 %, two-sided, 80 % power: n = 34 for d = 0.5, 15 for 0.8, 199 for 0.2.
@pytest.mark.parametrize(("effect", "n"), [(0.5, 34), (-0.8, 15), (0.2, 199)])
def test_seeds_needed_as_in_the_tables(effect, n):
    assert count_seeds_needed(effect, 0.05, most=1000) == n
    assert count_seeds_needed(effect, 0.05) == (n if n <= 30 else None)


def test_a_stricter_level_needs_more_seeds_and_nothing_needs_none():
    assert count_seeds_needed(0.5, 0.01, most=1000) > 34
    assert count_seeds_needed(0.0, 0.05) is None
    assert count_seeds_needed(0.001, 0.05) is None


# Where scipy's lower tail of the noncentral t is NaN; by 40,000 simulated tests each the power passes 80 % here.
@pytest.mark.parametrize(
    ("effect", "level", "n"), [(9, 0.025, 3), (3, 0.05 / 15, 6), (9, 0.01, 3), (130, 0.05 / 15, 3)]
)
def test_a_large_effect_needs_few_seeds(effect, level, n):
    assert count_seeds_needed(effect, level) == n
    assert count_seeds_needed(1_000, 0.05) == 2
    assert all(0 <= compute_power(effect, k, level) <= 1 for k in range(2, 60))


def test_power_is_how_often_a_test_sees_it():
    chance = random.Random(1)
    trials = [stats.ttest_1samp([chance.gauss(1, 1) for _ in range(6)], 0).pvalue < 0.05 for _ in range(3000)]
    assert compute_power(1.0, 6, 0.05) == pytest.approx(sum(trials) / 3000, abs=0.03)
    assert compute_power(0.0, 6, 0.05) == pytest.approx(0.05)


def test_pairs_are_of_one_seed_and_equal_ones_are_no_certainty():
    scores = made(max=[1, 9, 5], gated=[2, 10, 6])
    scores["gated"] = dict(reversed(scores["gated"].items()))
    difference = summarize(scores, IMAGES)[1].difference
    test = difference.test
    assert difference.mean == 1
    # Equal differences have no spread; one image (0.5 points) is taken: 4.302653 · 0.5 / √3 = 1.242069.
    assert (test.low, test.high) == pytest.approx((1 - 1.242069, 1 + 1.242069), abs=1e-6)


def test_a_spread_below_one_image_is_taken_as_one():
    (difference,) = compute_differences([[0.9, 1.0, 1.1]], step=0.5)
    assert difference.test.high - difference.mean == pytest.approx(1.242069, abs=1e-6)


def test_what_a_summary_holds():
    base, pool = summarize(made(max=[5.0, 6.0, 7.0], gated=[4.0, 5.0, 9.0]), IMAGES)
    assert (base.mean, base.spread, base.difference) == (6.0, 1.0, None)
    assert (pool.mean, pool.extra_parameters, pool.pool_parameters) == (6.0, 1, 1)
    assert (pool.seconds, pool.extra_time, pool.memory) == pytest.approx((1.1, 0.1, 10**6))


def test_time_is_the_median_and_memory_the_most_of_all_seeds():
    scores = {"max": {0: RunScore(5.0, 1.0, memory=7), 1: RunScore(5.0, 1.0), 2: RunScore(5.0, 1.0)}}
    scores["gated"] = {0: RunScore(5.0, 9.0, memory=1), 1: RunScore(5.0, 2.0, memory=3), 2: RunScore(5.0, 1.5)}
    base, pool = summarize(scores, IMAGES)
    assert (base.memory, pool.seconds, pool.extra_time, pool.memory) == (7, 2.0, 1.0, 3)


@pytest.mark.parametrize(("sign", "verdict"), [(-1, "better"), (1, "worse")])
def test_the_sign_of_a_small_difference_decides(sign, verdict):
    (difference,) = compute_differences([[sign * 0.5, sign * 0.51, sign * 0.49]], step=0.01)
    assert difference.verdict == verdict


def test_pools_are_compared_on_the_seeds_they_share_with_the_baseline():
    scores = made(max=[5.0, 6.0, 7.0, 8.0], gated=[4.0, 5.0, 9.0], tree2=[9.0])
    del scores["gated"][0]  # seeds 1 and 2 are left, with differences −1 and 2
    scores["gated"][7] = RunScore(0.0, 1.0)
    base, gated, tree = summarize(scores, IMAGES)
    assert (len(base.errors), gated.errors, tree.errors) == (4, (5.0, 9.0), (9.0,))
    assert (gated.difference.mean, tree.difference.mean) == (0.5, 4.0)
    assert tree.difference.test is None
    # By hand: mean 0.5, standard deviation 1.5 √2, so t = 0.5 / 1.5; with 1 degree of freedom p = 1 − 2/π atan t.
    assert gated.difference.test.p == pytest.approx(1 - 2 / math.pi * math.atan(1 / 3))
    assert gated.difference.test.p_holm == gated.difference.test.p  # the tree has no test to correct for


def test_what_cannot_be_compared():
    scores = made(max=[1.0, 2.0], gated=[1.0])
    scores["gated"] = {5: scores["gated"][0]}
    with pytest.raises(ValueError, match=r"^compare: gated wants one of the seeds of max, \[0, 1\], got \[5\]$"):
        summarize(scores, IMAGES)


def test_more_pools_ask_for_more_seeds():
    """The smaller p of two has to meet 2.5 %, so seeing it takes as many pairs as a test at that level."""
    (alone,) = (d.test for d in compute_differences([[0.5, 1.5, 1.0]], step=0.5))
    beside, other = (d.test for d in compute_differences([[0.5, 1.5, 1.0], [0.5, -0.5, 0.1]], step=0.5))
    assert (alone.p, other.p > beside.p) == (beside.p, True)
    assert alone.more_seeds == count_seeds_needed(2.0, 0.05) - 3
    assert beside.more_seeds == count_seeds_needed(2.0, 0.025) - 3 > alone.more_seeds


def test_one_seed_has_no_interval():
    base, pool = summarize(made(max=[4.0], gated=[3.0]), IMAGES)
    assert (base.spread, pool.difference.mean, pool.difference.test) == (None, -1.0, None)
    assert pool.difference.verdict == "one seed"


def test_an_interval_leaves_out_zero_exactly_if_the_verdict_is_one():
    """Also where p is below the level of its own rank, but an earlier pool has failed."""
    chance, verdicts = random.Random(5), set()
    for _ in range(300):
        effects = [chance.choice((0.0, 0.5, 1.5, -1.5)) for _ in range(chance.randint(1, 6))]
        changes = [[chance.gauss(effect, 1) for _ in range(4)] for effect in effects]
        for difference in compute_differences(changes, step=0.01):
            outside = not difference.test.low <= 0 <= difference.test.high
            assert outside == (difference.verdict != "no clear difference")
            assert outside == (difference.test.p_holm < 0.05)
            verdicts.add(difference.verdict)
    assert verdicts == {"better", "worse", "no clear difference"}
