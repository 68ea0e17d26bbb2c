"""Why gated pools are better: what is compared, and that its baselines are the confirmed runs."""

from learnpool.lab.experiments import confirmation, why
from learnpool.lab.experiments.experiment import Scale

SCALE = Scale("cpu", 4, ("cifar10+",), {"net": why.NET})


def test_the_confirmed_runs_are_not_trained_again():
    (block,) = confirmation.list_blocks(SCALE)
    confirmed = {run for runs in confirmation.group_runs(SCALE, block).values() for run in runs}
    shared = [row.label for row in why.TABLE.rows if set(why.TABLE.list_runs(SCALE, "cifar10+", row)) <= confirmed]
    assert shared == ["Max", "Fixed half", "Gated"]


def test_every_row_has_runs_of_its_own():
    runs = why.plan(SCALE)
    assert len(runs) == len(set(runs)) == 4 * len(why.TABLE.rows)
    assert {run.seed for run in runs} == {105, 106, 107, 108}
    assert [run.pool_rate for run in runs if run.pool == "gated"] == [3.0] * 4 + [1.0] * 4 + [0.0] * 4
