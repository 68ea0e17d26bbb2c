"""Screening: the order of its runs, and what it chooses from validation errors."""

from dataclasses import replace

import pytest

from learnpool.lab.experiments import confirmation, screening
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.results import Results
from learnpool.lab.experiments.screening import choose_best, choose_rates, describe_choice, find_rate_outside

SCALE = Scale("cpu", 2, ("cifar10+",), {"net": "resnet9"})
ERRORS = {  # by pool, rate and seed
    "max": {0.05: {10: 12.4, 11: 12.6}, 0.1: {10: 12.0, 11: 12.2}, 0.2: {10: 12.9, 11: 12.1}},
    "gated": {0.05: {10: 11.0, 11: 11.2}, 0.1: {10: 11.3, 11: 11.1}, 0.2: {10: 11.4, 11: 11.5}},
    "filter": {0.05: {10: 11.8, 11: 11.6}, 0.1: {10: 11.2, 11: 11.6}, 0.2: {10: 11.5, 11: 11.3}},
    "rank": {0.05: {10: 13.0, 11: 13.0}, 0.1: {10: 12.0, 11: 12.0}, 0.2: {10: 12.0, 11: 12.0}},
}


def test_runs_go_seed_by_seed_and_rate_by_rate():
    runs = screening.plan(SCALE)
    pools = len(screening.POOLS)
    assert len(runs) == 2 * 3 * pools + 4
    assert [run.seed for run in runs] == [10] * 3 * pools + [11] * 3 * pools + [10] * 4
    rates = [rate for rate in (0.1, 0.2, 0.4) for _ in range(pools)]
    assert [run.rate[0] for run in runs] == 2 * rates + [0.05] * 4
    assert [run.pool for run in runs[-4:]] == ["max", "half", "gated", "Mix(Max(), Filter())"]
    assert screening.list_rates(SCALE, "fast") == [0.75, 0.375, 1.5, 0.1875]
    assert len({run.id for run in runs}) == len(runs)
    common = {
        str(run.model_copy(update={"pool": "", "seed": 0, "rate": (1.0,)})) for run in runs if run.start == "spread"
    }
    assert len(common) == 1  # a recipe is the same for all pools


def test_pools_asked_for_and_max():
    runs = screening.plan(Scale("cpu", 1, ("cifar10+",), {"net": "fast"}, ("soft", "Mix(Max, Filter)")))
    assert list(dict.fromkeys(run.pool for run in runs)) == ["max", "Mix(Max(), Filter())", "soft"]
    assert {(run.pad, run.mirror, run.alternate) for run in runs} == {(2, True, True)}


def test_without_augmentation():
    runs = screening.plan(Scale("cpu", 1, ("cifar10",), {"net": "fast"}, ("half",)))
    assert {(run.pad, run.mirror, run.alternate) for run in runs} == {(0, False, False)}


def test_each_pool_has_its_own_rate():
    chosen = choose_rates(ERRORS)
    assert {pool: rate for pool, (rate, _) in chosen.items()} == {"max": 0.1, "gated": 0.05, "filter": 0.1, "rank": 0.1}
    assert chosen["max"][1] == pytest.approx(12.1)
    assert chosen["rank"][0] == 0.1  # of equal ones the lower


def test_best_is_another_than_those_that_are_confirmed_anyway():
    assert choose_best(choose_rates(ERRORS)) == "filter"
    assert choose_best({"max": (0.1, 12.0), "half": (0.1, 11.0)}) is None


def test_only_seeds_count_that_all_pools_have_at_all_rates():
    partly = {pool: {rate: dict(seeds) for rate, seeds in of_pool.items()} for pool, of_pool in ERRORS.items()}
    del partly["gated"][0.2][11]
    assert choose_rates(partly)["max"][1] == 12.0
    del partly["gated"][0.2][10]
    assert choose_rates(partly) == {}
    del partly["gated"][0.2]
    assert describe_choice(partly) == ["Not all pools are finished at three common rates: nothing is chosen yet."]


def test_a_rate_that_only_some_pools_have_decides_nothing():
    more = {pool: dict(of_pool) for pool, of_pool in ERRORS.items()}
    more["max"][0.025] = {10: 1.0}
    assert choose_rates(more) == choose_rates(ERRORS)
    assert find_rate_outside(more) is None
    assert describe_choice(more) == describe_choice(ERRORS)


def test_max_must_be_best_inside():
    assert find_rate_outside(ERRORS) is None
    low = ERRORS | {"max": {0.05: {10: 1.0, 11: 1.0}, 0.1: {10: 2.0, 11: 2.0}, 0.2: {10: 3.0, 11: 3.0}}}
    high = ERRORS | {"max": {0.05: {10: 3.0, 11: 3.0}, 0.1: {10: 2.0, 11: 2.0}, 0.2: {10: 1.0, 11: 1.0}}}
    assert (find_rate_outside(low), find_rate_outside(high)) == (0.025, 0.4)
    assert "all pools need the rate 0.025 before" in describe_choice(low)[0]


def test_the_choice_in_words():
    wanted = "Over 3 rates and 2 seeds, least validation error beside max, gated: filter at 0.1 (11.40 %)."
    assert describe_choice(ERRORS) == [wanted]


def test_a_page_without_runs(tmp_path):
    page = screening.build_page(SCALE, Results(tmp_path))
    assert page.answer == [f"resnet9, CIFAR10+: 0 of {6 * len(screening.POOLS) + 4} runs are finished."]


def test_the_primary_family_of_confirmation():
    pairs = [("gated", "max"), ("gated", "half"), ("filter", "max"), ("filter", "half")]
    assert confirmation.list_pairs(["max", "half", "gated", "filter"]) == pairs


BLOCK = confirmation.Block("resnet9", "cifar10+", {"max": 0.1, "half": 0.05}, range(100, 106))


def test_confirmation_has_fresh_seeds(monkeypatch):
    monkeypatch.setattr(confirmation, "BLOCKS", (BLOCK,))
    runs = confirmation.plan(SCALE)
    assert [run.seed for run in runs] == [seed for seed in range(100, 106) for _ in range(2)]
    assert {(run.pool, run.rate) for run in runs} == {("max", (0.1,)), ("half", (0.05,))}
    assert confirmation.plan(replace(SCALE, changes={"net": "fast"})) == []


@pytest.mark.parametrize("block", confirmation.BLOCKS, ids=str)
def test_no_seed_of_a_block_was_looked_at_before(block):
    others = [other for other in confirmation.BLOCKS if other is not block and other[:2] == block[:2]]
    assert min(block.seeds) >= 100
    assert not {seed for other in others for seed in other.seeds} & {*block.seeds}


def test_a_block_that_is_not_finished_shows_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(confirmation, "BLOCKS", (BLOCK,))
    page = confirmation.build_page(SCALE, Results(tmp_path))
    assert page.answer == ["resnet9, CIFAR10+, seeds 100 to 105: 0 of 12 runs are finished."]
    assert not page.parts
    assert not page.data
