"""The pools in PyTorch's own operations, which exporters and forward mode are given, against the reference."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from cases import MIXED, ODD, SHARES, TREES, W, distinct, draw_window, parameters
from learnpool import Avg, Blur, Filter
from learnpool.ops import decomposition, reference, stochastic


def test_it_is_the_reference():
    """What exporters and forward mode are given, over many windows, sizes and dimensions; also beside infinities."""
    for dims, window, size in (
        (1, W(3, 2, 1, 2, True), (11,)),
        (1, W(2, 3, 1, 1, True, True), (9,)),
        (2, W(3, 2, 1), (7, 6)),
        (2, W(2, 2, 1, 1, True, True), (5, 6)),
        (2, W((2, 3), (3, 2), (1, 1), (4, 1), True), (5, 6)),
        (2, W((3, 2), (1, 5), (1, 0), (1, 3), True, True), (6, 7)),
        (3, W((2, 3, 1), (1, 2, 3), (1, 0, 0), (2, 1, 1), True, True), (4, 5, 4)),
    ):
        shape = window.of(dims)
        for share in SHARES:
            weight, mix = parameters(ODD, shape, share, 2, size)
            for x in (distinct(2, 2, *size), distinct(2, *size)):
                expected = reference.forward(x, weight, mix, ODD.program, shape)
                assert_close(decomposition.forward(x, weight, mix, ODD.program, shape), expected)
    window = W(3, 2, 1, 1, True).of()
    for x in (torch.randn(2, 3, 8, 7), -torch.rand(2, 8, 7), torch.randn(2, 3, 8, 7).relu() * (torch.rand(8, 7) > 0.8)):
        assert_close(stochastic.compute_expected(x, window), stochastic.forward(x, None, window))
    empty, none = W(2, 1, 1, 4).of(1), torch.empty(0, 1, 1, 2)  # both taps of its one region lie outside
    mean = decomposition.forward(torch.randn(1, 1, 3), none, torch.empty(0, 1, 1), Avg().program, empty)
    assert mean.tolist() == [[[0.0]]]
    x = torch.tensor([[1.0, -torch.inf], [2.0, 3.0]]).reshape(1, 1, 2, 2)
    none = torch.empty(0, 1, 1, 1, 2, 2)
    for a in (0.0, 1.0):
        window, mix = W(2).of(), torch.full((1, 1, 1, 1), a)
        expected = reference.forward(x, none, mix, MIXED.program, window)
        assert torch.equal(decomposition.forward(x, none, mix, MIXED.program, window), expected)


@pytest.mark.parametrize("tree", [ODD, Avg(), Blur()], ids=str)
def test_autocast_leaves_it_alone(tree):
    """A convolution would run in bfloat16, where the operator computes in float32."""
    window, x = W(3, 2, 1).of(), torch.randn(2, 3, 8, 7)
    weight, mix = parameters(tree, window, "layer", 3, (8, 7), torch.float32)
    expected = decomposition.forward(x, weight, mix, tree.fit((3, 3)), window)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(decomposition.forward(x, weight, mix, tree.fit((3, 3)), window), expected)


@pytest.mark.parametrize("tree", [tree for tree in TREES if "Filter" in str(tree) or "Gate" in str(tree)], ids=str)
@given(st.data())
def test_infinite_and_nan_weights(tree, data):
    """As the reference where all cells of a region exist. At an edge a convolution multiplies such a weight by the
    padding's zero, which is NaN, where the reference knows that there is no cell.
    """
    dims = data.draw(st.integers(1, 3))
    window, size = draw_window(data, kernel=3, stride=3, dilation=2, size=6, dims=dims)
    torch.manual_seed(data.draw(st.integers(0, 99)))
    weight, mix = parameters(tree, window, data.draw(st.sampled_from(SHARES)), 2, size)
    weight.view(-1)[data.draw(st.integers(0, weight.numel() - 1))] = data.draw(
        st.sampled_from([math.inf, -math.inf, math.nan])
    )
    x = distinct(1, 2, *size)
    result = decomposition.forward(x, weight, mix, tree.program, window)
    expected = reference.forward(x, weight, mix, tree.program, window)
    whole = reference.forward(torch.ones_like(x), *count_cells_of(window), window) == math.prod(window.kernel)
    assert_close(result[whole], expected[whole], equal_nan=True)
    assert_close(result[~result.isnan()], expected[~result.isnan()], equal_nan=True)


def count_cells_of(window):
    """Weight, mix and program of a pool that counts the cells of a region."""
    none = torch.empty(0, *(1,) * (window.dims + 1), dtype=torch.float64)
    return torch.ones(1, 1, *(1,) * window.dims, *window.kernel, dtype=torch.float64), none, Filter().program
