"""A family of paired differences: by hand, against ordinary least squares, and on simulated runs with known effects."""

import math

import numpy as np
import pytest
from scipy import stats

from learnpool.lab.comparison.family import compare_family, compute_residual, subtract

PAIRS = (("gated", "max"), ("gated", "half"), ("best", "max"), ("best", "half"))
POOLS = ("max", "half", "gated", "best")
TINY = 1e-9


# By hand: the rows (1, 3, 5), (2, 2, 5) and (3, 4, 2) all have the mean 3, the columns 2, 3 and 4. So pool and seed
# leave error − column mean: (−1, 0, 1), (0, −1, 1) and (1, 1, −2), with squares 2 + 2 + 6 = 10; divided by
# (3 − 1)(3 − 1) degrees of freedom, s² = 2.5.
def test_residual_by_hand():
    assert compute_residual([[1, 3, 5], [2, 2, 5], [3, 4, 2]]) == pytest.approx(math.sqrt(2.5))


# The same three pools: b − a is (1, −1, 0), c − a is (2, 1, −3), c − b is (1, 2, −3), with variances 1, 7 and 7: seven
# times as large, so each has its own. With a limit of 7 they are pooled: the spread of a difference is √(2 · 2.5) = √5.
def test_pooling_by_hand(monkeypatch):
    errors = {"a": [1, 3, 5], "b": [2, 2, 5], "c": [3, 4, 2]}
    family = compare_family(errors, [("b", "a")], TINY)
    assert (family.pooled, family.degrees, family.ratio) == (False, 2, pytest.approx(7))
    assert family.spreads[("b", "a")] == pytest.approx(1)
    monkeypatch.setattr("learnpool.lab.comparison.family.MOST_RATIO", 7.001)
    family = compare_family(errors, [("b", "a")], TINY)
    assert (family.pooled, family.degrees) == (True, 4)
    assert family.spreads[("b", "a")] == pytest.approx(math.sqrt(5))
    test = family.differences[("b", "a")].test
    reach = 2.776445 * math.sqrt(5) / math.sqrt(3)  # t(0.975, 4)
    assert (test.low, test.high, test.p) == (pytest.approx(-reach, rel=1e-6), pytest.approx(reach, rel=1e-6), 1)


def test_two_pools_are_a_paired_t_test():
    one, two = [11.2, 12.1, 11.9, 12.4], [11.9, 12.2, 12.6, 12.5]
    family = compare_family({"max": two, "gated": one}, [("gated", "max")], TINY)
    theirs = stats.ttest_rel(one, two)
    test = family.differences[("gated", "max")].test
    assert (test.p, test.p_holm) == (pytest.approx(theirs.pvalue), pytest.approx(theirs.pvalue))
    assert (test.low, test.high) == pytest.approx((*theirs.confidence_interval(0.95),))


def test_the_pooled_test_is_that_of_least_squares(monkeypatch):
    """Errors regressed on pool and seed: the same estimate, standard error and degrees of freedom."""
    monkeypatch.setattr("learnpool.lab.comparison.family.MOST_RATIO", math.inf)
    errors = simulate(np.random.default_rng(2), 6, (0.0, -0.3, -0.6, -0.6))
    family = compare_family(errors, PAIRS, TINY)
    assert family.pooled
    design, target = [], []
    for place, pool in enumerate(POOLS):
        for seed, error in enumerate(errors[pool]):
            design.append([1.0, *(float(place == k) for k in (1, 2, 3)), *(float(seed == k) for k in range(1, 6))])
            target.append(error)
    x, y = np.array(design), np.array(target)
    solution, rest, *_ = np.linalg.lstsq(x, y, rcond=None)
    variance = rest[0] / (len(y) - x.shape[1])
    assert len(y) - x.shape[1] == family.degrees == 15
    error = math.sqrt(variance * np.linalg.inv(x.T @ x)[2, 2])  # of gated − max
    assert family.differences[("gated", "max")].mean == pytest.approx(solution[2])
    assert family.spreads[("gated", "max")] / math.sqrt(6) == pytest.approx(error)


def test_holm_over_the_family():
    errors = simulate(np.random.default_rng(1), 12, (0.0, -0.1, -0.5, -0.9))
    tests = [one.test for one in compare_family(errors, PAIRS, TINY).differences.values()]
    ordered = sorted(tests, key=lambda test: test.p)
    worst = 0.0
    for rank, test in enumerate(ordered):
        worst = max(worst, min(1.0, (4 - rank) * test.p))
        assert test.p_holm == pytest.approx(worst)
        assert (test.low <= 0 <= test.high) == (test.p_holm >= 0.05)


def test_a_spread_of_less_than_one_image_is_one_image():
    family = compare_family({"max": [10.0] * 4, "gated": [9.99] * 4}, [("gated", "max")], 0.01)
    assert family.spreads[("gated", "max")] == 0.01
    assert family.ratio is None


def simulate(chance, seeds, effects, residual=0.3, ratio=1.0):
    """Errors of four pools: 12 + effect + a part that all pools of a seed share + their own; max's own is larger."""
    shared = chance.normal(0, 0.5, seeds)
    scales = (residual * ratio, residual, residual, residual)
    return {
        pool: list(12 + effect + shared + chance.normal(0, scale, seeds))
        for pool, effect, scale in zip(POOLS, effects, scales, strict=True)
    }


# 1,500 families: a share of 5 % is known to ± 1.1 points (two standard errors), one of 95 % too.
FAMILIES = 1500


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_false_positives_over_the_family_are_rare(ratio):
    """No pool differs: a family claims anything in at most 5 % of cases, also where max varies three times as much."""
    chance = np.random.default_rng(7)
    families = (compare_family(simulate(chance, 12, (0,) * 4, ratio=ratio), PAIRS, TINY) for _ in range(FAMILIES))
    claims = (any(one.is_significant for one in family.differences.values()) for family in families)
    assert sum(claims) / FAMILIES < 0.065


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_intervals_cover_the_truth(ratio):
    """An interval of one difference tested alone has 95 %."""
    chance, truth, inside = np.random.default_rng(8), -0.25, 0
    for _ in range(FAMILIES):
        errors = simulate(chance, 12, (0, 0, truth, -0.9), ratio=ratio)
        test = compare_family(errors, [("gated", "max")], TINY).differences[("gated", "max")].test
        inside += test.low <= truth <= test.high
    assert 0.935 < inside / FAMILIES < 0.965


def test_a_true_effect_is_seen_as_often_as_the_theory_says():
    """gated − max = 0.35 with a spread of 0.3 √2, n = 12: power by the noncentral t distribution, 33 degrees."""
    chance, truth, seen, alone = np.random.default_rng(9), -0.35, 0, 0
    for _ in range(FAMILIES):
        errors = simulate(chance, 12, (0, 0, truth, 0))
        test = compare_family(errors, [("gated", "max")], TINY).differences[("gated", "max")].test
        seen += test.p < 0.05
        alone += stats.ttest_1samp(subtract(errors, ("gated", "max")), 0).pvalue < 0.05
    effect = abs(truth) / (0.3 * math.sqrt(2 / 12))
    power = float(stats.nct.sf(stats.t.ppf(0.975, 33), 33, effect))
    assert seen / FAMILIES == pytest.approx(power, abs=0.04)
    assert seen > alone


@pytest.mark.parametrize(
    ("errors", "pairs", "message"),
    [
        ({"max": [1, 2], "half": [1]}, [("half", "max")], "wanted the same two seeds or more of every pool"),
        ({"max": [1], "half": [1]}, [("half", "max")], "wanted the same two seeds or more of every pool"),
        ({"max": [1, 2], "half": [1, 2]}, [("gated", "max")], "wanted some of max, half, got 'gated'"),
    ],
)
def test_mistakes(errors, pairs, message):
    with pytest.raises(ValueError, match=message):
        compare_family(errors, pairs, TINY)
