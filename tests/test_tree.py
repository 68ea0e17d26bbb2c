import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import learnpool
from cases import GATED, HALF, MIXED, ODD, TREES
from learnpool import (
    Avg,
    Blur,
    Filter,
    Gate,
    LogSumExp,
    Max,
    Median,
    Min,
    Mix,
    Power,
    Rank,
    Soft,
    Std,
    Tree,
    parse,
)
from learnpool.nodes import encode_value
from learnpool.program import MAX_NODES, Code, Kind, Op, decode
from learnpool.tree import from_program, make_tree

numbers = st.lists(st.floats(-8, 8), min_size=4, max_size=4)
grammar = st.recursive(
    st.one_of(
        st.sampled_from([Max(), Min(), Avg(), Filter(), Std(), Rank(), Median(), Blur()]),
        st.builds(Soft, st.floats(-8, 8), st.booleans()),
        st.builds(LogSumExp, st.floats(0.1, 100), st.booleans()),
        st.builds(Power, st.floats(1, 64), st.booleans(), st.booleans()),
        st.builds(lambda kind, values: kind(values, learn=False), st.sampled_from([Filter, Rank]), numbers),
        st.builds(Blur, st.lists(st.floats(0.125, 8), min_size=4, max_size=4)),
    ),
    lambda child: st.one_of(
        st.builds(Gate, child, child),
        st.builds(Gate, child, child, child, st.booleans()),
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
    assert decode(HALF.program).scalars == (0.5,)
    assert decode(HALF.program).nodes[0].row == 0  # behind the learned rows, of which there are none


def test_codes_are_what_saved_programs_have():
    first = ["MAX", "AVG", "FILTER", "MIX", "GATE", "FIXED", "MIN", "STD", "SOFT", "LSE", "POWER", "ABS_POWER", "RANK"]
    assert [code.name for code in Code] == [*first, "CONSTANT_FILTER", "BLUR", "GATE_BY", "MEDIAN"]
    assert list(Code) == list(range(17))


def test_parameters_are_numbered_breadth_first():
    plan = decode(ODD.program)
    rows = [(node.op, plan.get_weight_row(node)) for node in plan.nodes if plan.get_weight_row(node) >= 0]
    assert rows == [(Op.GATE, 0), (Op.GATE, 1), (Op.LEAF, 2), (Op.LEAF, 3)]
    assert [node.row for node in plan.nodes if node.op == Op.MIX] == [0, 1]  # the fixed one lies behind
    assert (plan.weights, plan.mixes, plan.scalars) == (4, 1, (0.3,))
    assert [r.kind for r in plan.responses].count(Kind.MAX) == 1  # read once, used twice
    assert ODD.starts == (0.8,)


@settings(max_examples=300, deadline=None, database=None)
@given(grammar)
def test_a_tree_survives_program_repr_parse_pickle_and_copy(tree):
    names = {name: getattr(learnpool, name) for name in learnpool.tree.__all__}
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
        ((), "its nodes need 1 places in all, got 0"),
        ((17,), "node 0 has code 17"),
        ((-1,), "node 0 has code -1"),
        ((Code.GATE,), "its nodes need 3 places in all, got 1"),
        ((Code.GATE, Code.MAX), "its nodes need 3 places in all, got 2"),
        ((Code.MAX, Code.AVG), "node 1 has no parent"),
        ((Code.GATE, Code.MAX, Code.AVG, Code.AVG), "node 3 has no parent"),
        ((Code.FIXED,), "it ends before the proportion of node 0"),
        ((Code.FIXED, 0x7FF8000000000000, Code.MAX, Code.AVG), "the proportion of node 0 is nan"),
        ((Code.FIXED, 0x4000000000000000, Code.MAX, Code.AVG), "the proportion of node 0 is 2.0"),
        ((Code.FIXED, 2**70, Code.MAX, Code.AVG), "is not the bits of a double"),
        ((Code.SOFT,), "it ends before node 0's switch"),
        ((Code.SOFT, 2), "node 0's switch is 2, wanted 0 or 1"),
        ((Code.POWER, 0, encode_value(0.5)), "the number of node 0 is 0.5, wanted a number in"),
        ((Code.BLUR, 0), "node 0 has a filter of 0 taps"),
        ((Code.RANK, 2, encode_value(1.0)), "it ends before tap 1 of node 0"),
        ((Code.MIX, Code.BLUR, 1, 0, Code.RANK, 2, 0, 0), "its constant filters differ in size"),
        ((Code.GATE_BY, 3), "the bias of node 0 is 3"),
        ((Code.GATE,) * 5000, f"more than {MAX_NODES} nodes"),
    ],
)
def test_invalid_programs(program, message):
    with pytest.raises(ValueError, match=f"^invalid program: .*{message}"):
        decode(program)


def test_numbers_of_numpy_are_numbers():
    assert Mix(Max(), Power(np.float64(2)), np.float32(0.25)) == Mix(Max(), Power(2.0), 0.25)
    assert type(Mix(Max(), Avg(), np.float32(0.25)).a) is float


def test_bad_children_and_proportions():
    with pytest.raises(TypeError, match="^Gate: a child must be a tree such as Max"):
        Gate(Max, Avg())
    for a in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"^Mix: a must be a number in \[0, 1\], got "):
            Mix(Max(), Avg(), a)
    for a in ("half", None, True):
        with pytest.raises(TypeError, match=r"^Mix: a must be a number in \[0, 1\], got "):
            Mix(Max(), Avg(), a)
    with pytest.raises(TypeError, match="^Mix: learn must be True or False, got 1$"):
        Mix(Max(), Avg(), 0.5, 1)
    for levels, error in ((0, ValueError), (13, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"levels|nodes"):
            make_tree(levels)
