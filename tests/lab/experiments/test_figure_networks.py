"""Which networks the studies of changed images measure."""

from learnpool.lab.experiments import confirmation, consistency, invariance
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.figure_networks import BESIDE, POOLS, list_networks
from learnpool.lab.experiments.screening import POOLS as SCREENED


def test_the_papers_networks_unless_a_network_is_named():
    groups = list_networks(Scale(seeds=2), "cifar10+")
    assert list(groups) == list(POOLS.values())
    assert [run.seed for run in groups["max"]] == [0, 1]


def test_the_confirmed_networks_are_measured_and_not_trained_again():
    scale = Scale("cpu", 5, ("cifar10+",), {"net": "resnet9"})
    groups = list_networks(scale, "cifar10+")
    (block,) = confirmation.list_blocks(scale)
    confirmed = confirmation.group_runs(scale, block)
    assert {pool: runs[:5] for pool, runs in confirmed.items()} == {pool: groups[pool] for pool in confirmed}
    assert invariance.plan(scale) == consistency.plan(scale) == [run for runs in groups.values() for run in runs]


def test_a_network_that_was_not_confirmed_has_the_papers_pools():
    groups = list_networks(Scale("cpu", 1, ("cifar10",), {"net": "resnet9"}), "cifar10")
    assert list(groups) == list(POOLS.values())


def test_every_block_says_what_stands_beside_it():
    assert BESIDE.keys() == {(block.net, block.data) for block in confirmation.BLOCKS}
    assert all(pool in SCREENED for rates in BESIDE.values() for pool in rates)
