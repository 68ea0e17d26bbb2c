"""Groups of pools, by what their trees read and learn."""

import pytest

from learnpool.lab.comparison.groups import find_group, group_names
from learnpool.names import FIXED_NAMES, TREES


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("max", "Nothing to learn"),
        ("half", "Nothing to learn"),
        ("stochastic", "Nothing to learn"),
        ("median", "Nothing to learn"),
        ("lp2", "Nothing to learn"),
        ("maxblur", "Nothing to learn"),
        ("mixed", "The paper's"),
        ("tree3+gated:channel", "The paper's"),
        ("tree2+max", "The paper's"),
        ("filter", "The paper's"),
        ("Gate(Filter,Mix(Max,Avg))+gated", "The paper's"),
        ("soft", "Others that learn"),
        ("max+gem", "Others that learn"),
        ("gated+rank", "Others that learn"),
        ("Gate(Min,Max)", "Others that learn"),
        ("Gate(Max,Avg,by=Max)", "Others that learn"),
        ("conv", "No pool"),
    ],
)
def test_the_group_of_a_name(name, group):
    assert find_group(name) == group


def test_every_name_has_a_group_and_the_baselines_comes_first():
    groups = group_names(["gem", *FIXED_NAMES, *TREES])
    assert list(groups) == ["Others that learn", "Nothing to learn", "The paper's"]
    assert sorted(name for names in groups.values() for name in names) == sorted(["gem", *FIXED_NAMES, *TREES])
