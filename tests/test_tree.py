import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import GATED, HALF, MIXED, ODD, TREES
from learnpool import Avg, Filter, Gate, Max, Min, Mix, Tree, parse
from learnpool.tree import MAX_NODES, Code, decode, from_program, make_tree

grammar = st.recursive(
    st.sampled_from([Max(), Min(), Avg(), Filter()]),
    lambda child: st.one_of(
        st.builds(Gate, child, child),
        st.builds(Mix, child, child, st.floats(0, 1), st.booleans()),
    ),
    max_leaves=40,
)


def test_programs_of_the_papers_pools():
    assert MIXED.program == (Code.MIX, Code.MAX, Code.AVG)
    assert GATED.program == (Code.GATE, Code.MAX, Code.AVG)
    assert make_tree(3).program == (
        Code.GATE,
        Code.GATE,
        Code.GATE,
        Code.FILTER,
        Code.FILTER,
        Code.FILTER,
        Code.FILTER,
    )
    assert HALF.program[0] == Code.FIXED
    assert HALF.program[2:] == (Code.MAX, Code.AVG)
    assert decode(HALF.program).nodes[0].a == 0.5


def test_codes_are_what_saved_programs_have():
    assert [code.name for code in Code] == ["MAX", "AVG", "FILTER", "MIX", "GATE", "FIXED", "MIN"]
    assert list(Code) == list(range(7))


def test_parameters_are_numbered_breadth_first():
    plan = decode(ODD.program)
    rows = [(node.code, node.parameter) for node in plan.nodes if node.parameter >= 0]
    assert rows == [(Code.GATE, 0), (Code.GATE, 1), (Code.MIX, 0), (Code.FILTER, 2), (Code.FILTER, 3)]
    assert (plan.weights, plan.mixes, plan.has_max, plan.has_avg) == (4, 1, True, True)
    assert ODD.starts == (0.8,)


@settings(max_examples=300, deadline=None, database=None)
@given(grammar)
def test_a_tree_survives_program_repr_parse_pickle_and_copy(tree):
    names = {"Max": Max, "Min": Min, "Avg": Avg, "Filter": Filter, "Mix": Mix, "Gate": Gate}
    again = [
        from_program(tree.program, tree.starts),
        eval(repr(tree), names),
        parse(repr(tree)).part().pool,
        pickle.loads(pickle.dumps(tree)),
        copy.deepcopy(tree),
    ]
    for other in again:
        assert other == tree
        assert hash(other) == hash(tree)
        assert repr(other) == repr(tree)


def test_trees_differ_by_shape_start_and_learning():
    trees = [*TREES, Mix(Max(), Avg(), 0.3), Mix(Max(), Avg(), 0.3, learn=False), Mix(Avg(), Max()), Gate(Avg(), Max())]
    assert len(set(trees)) == len(trees)
    assert Max() != "Max()"


def test_a_tree_as_deep_as_it_may_be():
    tree: Tree = Max()
    for _ in range(MAX_NODES // 2 - 2):
        tree = Gate(tree, Avg())
    tree = Mix(tree, Max(), 0.25)
    assert tree.size == MAX_NODES - 1  # binary trees have an odd number of nodes
    assert parse(repr(tree)).part().pool == tree
    assert pickle.loads(pickle.dumps(tree)) == tree
    with pytest.raises(ValueError, match=f"^Gate: a tree has at most {MAX_NODES} nodes, got {MAX_NODES + 1}$"):
        Gate(tree, Max())


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ((), "0 inner nodes need 1 nodes in all, got 0"),
        ((7,), "node 0 has code 7"),
        ((-1,), "node 0 has code -1"),
        ((Code.GATE,), "1 inner nodes need 3 nodes in all, got 1"),
        ((Code.GATE, Code.MAX), "1 inner nodes need 3 nodes in all, got 2"),
        ((Code.MAX, Code.AVG), "node 1 has no parent"),
        ((Code.GATE, Code.MAX, Code.AVG, Code.AVG), "node 3 has no parent"),
        ((Code.FIXED,), "a fixed mix without its proportion"),
        ((Code.FIXED, 0x7FF8000000000000, Code.MAX, Code.AVG), "a fixed mix of nan"),
        ((Code.FIXED, 0x4000000000000000, Code.MAX, Code.AVG), "a fixed mix of 2.0"),
        ((Code.FIXED, 2**70, Code.MAX, Code.AVG), "is not the bits of a double"),
        ((Code.GATE,) * 5000, f"more than {MAX_NODES} nodes"),
    ],
)
def test_invalid_programs(program, message):
    with pytest.raises(ValueError, match=f"^invalid program: .*{message}"):
        decode(program)


def test_bad_children_and_proportions():
    with pytest.raises(TypeError, match="^Gate: a child must be a tree such as Max"):
        Gate(Max, Avg())
    for a in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"^Mix: a must lie in \[0, 1\], got "):
            Mix(Max(), Avg(), a)
    for a in ("half", None, True):
        with pytest.raises(TypeError, match=r"^Mix: a must be a number in \[0, 1\], got "):
            Mix(Max(), Avg(), a)
    with pytest.raises(TypeError, match="^Mix: learn must be True or False, got 1$"):
        Mix(Max(), Avg(), 0.5, 1)
    for levels, error in ((0, ValueError), (13, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"levels|nodes"):
            make_tree(levels)
