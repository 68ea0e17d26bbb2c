"""One cycle, and a step down at a plateau."""

from itertools import pairwise

import pytest

from learnpool.lab.runs.run import Run
from learnpool.lab.runs.schedule import OneCycle, Plateau, make_schedule


def test_one_cycle():
    cycle = make_schedule(Run(rate=(0.8,), warmup=0.25), 40, {})
    rates = [cycle.rate_at(step) for step in range(40)]
    assert isinstance(cycle, OneCycle)
    assert rates[0] == pytest.approx(0.08)
    assert rates.index(max(rates)) in (9, 10)
    assert max(rates) == pytest.approx(0.8, rel=0.04)
    assert rates[-1] == pytest.approx(0.8 / 31)
    assert all(a < b for a, b in pairwise(rates[:10]))
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert min(rates) > 0


def test_one_cycle_without_warmup_starts_at_the_peak():
    assert make_schedule(Run(rate=(0.8,), warmup=0), 40, {}).rate_at(0) == pytest.approx(0.8, rel=0.03)


def test_plateau():
    run = Run(schedule="plateau", rate=(3, 2, 1), patience=2)
    plateau = make_schedule(run, 1, {})
    seen = []
    for error in (50, 40, 41, 39, 39, 40, 38.5, 60, 38.5, 60, 60, 60):
        plateau.end_epoch(error)
        seen.append(plateau.rate_at(0))
    # An equal error is not a lower one; a rate gets the whole patience; the last one stays.
    assert seen == [3, 3, 3, 3, 3, 2, 2, 2, 1, 1, 1, 1]


def test_a_plateau_is_taken_up_where_it_was_left():
    run = Run(schedule="plateau", rate=(3, 2, 1), patience=2)
    errors = (50, 40, 41, 39, 39, 40, 38.5, 60, 38.5, 60)
    whole = Plateau(run)
    for error in errors:
        whole.end_epoch(error)
    for cut in range(len(errors)):
        parts = Plateau(run)
        for number, error in enumerate(errors):
            if number == cut:
                parts = make_schedule(run, 1, parts.state)
            parts.end_epoch(error)
        assert parts.state == whole.state


def test_step_down():
    run = Run(schedule="step", rate=(3, 2, 1), milestones=(0.25, 0.5))
    assert [make_schedule(run, 8, {}).rate_at(step) for step in range(8)] == [3, 3, 2, 2, 1, 1, 1, 1]
    assert make_schedule(Run(schedule="step", rate=(3,)), 8, {}).rate_at(7) == 3
