"""What PyTorch does, a pool does at its limits: to the last bit where the formulas allow it."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from cases import GATED, HALF, MIXED, WINDOWS, W, call, distinct, parameters
from learnpool import Avg, Gate, Max, Min, Mix
from learnpool.tree import make_tree

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
PLAIN = [window for window in WINDOWS if window.dilation == 1]


def max_pool(x, w):
    return F.max_pool2d(x, w.kernel_size, w.stride, w.padding, w.dilation, w.ceil_mode)


def avg_pool(x, w):
    return F.avg_pool2d(x, w.kernel_size, w.stride, w.padding, w.ceil_mode, w.count_include_pad)


def mixed(x, a, window, tree=MIXED):
    """The operator with a learned (or, with tree=None, a fixed) proportion of exactly ``a``."""
    w = window.of()
    fixed = Mix(Max(), Avg(), a, learn=False)
    weight, mix = parameters(tree or fixed, w, "layer", x.shape[1], x.shape[2:], torch.float32)
    return call(x, weight, torch.full_like(mix, a), tree or fixed, w)


def edges(dtype):
    """Ordinary numbers, with infinities strewn in so that windows meet one, both or none."""
    x = distinct(2, 3, 12, 11, dtype=dtype)
    x[0, 0, 3, 3] = torch.inf
    x[0, 1, 5, 5] = -torch.inf
    x[1, 2, 4:9, 4:9] = -torch.inf
    x[1, 0, 2, 2], x[1, 0, 2, 3] = torch.inf, -torch.inf
    return x


@pytest.mark.parametrize("tree", [MIXED, None], ids=["learned", "fixed"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_of_1_is_max_pooling_bit_for_bit(window, dtype, tree):
    for x in (distinct(2, 3, 12, 11, dtype=dtype), edges(dtype)):
        assert torch.equal(mixed(x, 1.0, window, tree), max_pool(x, window))


@pytest.mark.parametrize("tree", [MIXED, None], ids=["learned", "fixed"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("window", PLAIN, ids=str)
def test_a_of_0_is_average_pooling_bit_for_bit(window, dtype, tree):
    for x in (distinct(2, 3, 12, 11, dtype=dtype), edges(dtype)):
        ours, theirs = mixed(x, 0.0, window, tree), avg_pool(x, window)
        assert torch.equal(ours.nan_to_num(12345), theirs.nan_to_num(12345))  # inf − inf is NaN in both
        assert torch.equal(ours.isnan(), theirs.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("window", PLAIN, ids=str)
def test_gradients_at_the_limits_are_pytorchs_bit_for_bit(window, dtype):
    for a, pool in ((1.0, max_pool), (0.0, avg_pool)):
        for data in (distinct(2, 3, 12, 11, dtype=dtype), torch.randint(0, 3, (2, 3, 12, 11)).to(dtype), edges(dtype)):
            x = data.clone().requires_grad_()
            y = mixed(x, a, window)
            grad = torch.randn_like(y)
            (ours,) = torch.autograd.grad(y, x, grad)
            (theirs,) = torch.autograd.grad(pool(x, window), x, grad)
            assert torch.equal(ours, theirs)


def test_a_saturated_gate_is_max_or_average_beside_infinities():
    window = W(3, 2, 1)
    x = edges(torch.float64).abs() + 1  # one sign, so that the mask saturates the gate everywhere
    for sign, pool in ((1.0, max_pool), (-1.0, avg_pool)):
        mask = torch.full((1, 1, 1, 1, 3, 3), sign * 1e4, dtype=torch.float64)
        none = torch.empty(0, 1, 1, 1, dtype=torch.float64)
        leaf = x.clone().requires_grad_()
        y = call(leaf, mask, none, GATED, window.of())
        theirs = pool(leaf, window)
        assert torch.equal(y, theirs)
        finite = torch.where(theirs.isfinite(), torch.randn_like(y), 0)
        (ours,) = torch.autograd.grad(y, leaf, finite)
        assert torch.equal(ours, torch.autograd.grad(theirs, leaf, finite)[0])


def test_a_saturated_gate_does_not_move():
    x = distinct(1, 1, 4, 4).abs() + 1
    mask = torch.full((1, 1, 1, 1, 2, 2), 1e4, dtype=torch.float64, requires_grad=True)
    call(x, mask, torch.empty(0, 1, 1, 1, dtype=torch.float64), GATED, W(2).of()).sum().backward()
    assert torch.equal(mask.grad, torch.zeros_like(mask))


def test_a_filter_of_1_over_n_is_the_average_where_windows_are_whole():
    x = distinct(2, 3, 12, 12)
    for window in (W(2), W(3, 1), W(3, 3), W((4, 3), (2, 1))):
        w = window.of()
        n = w.kernel[0] * w.kernel[1]
        weight = torch.full((1, 1, 1, 1, *w.kernel), 1 / n, dtype=torch.float64)
        y = call(x, weight, torch.empty(0, 1, 1, 1, dtype=torch.float64), make_tree(1), w)
        assert_close(y, avg_pool(x, window))
    weight = torch.full((1, 1, 1, 1, 3, 3), 1 / 9, dtype=torch.float64)
    clipped = call(x, weight, torch.empty(0, 1, 1, 1, dtype=torch.float64), make_tree(1), W(3, 2, 1).of())
    assert not torch.allclose(clipped, avg_pool(x, W(3, 2, 1)))  # a filter meets zero outside, an average does not


def test_half_is_the_mean_of_the_two():
    x = distinct(2, 3, 12, 11)
    window = W(3, 2, 1)
    weight, mix = parameters(HALF, window.of(), "layer", 3, (12, 11))
    assert_close(call(x, weight, mix, HALF, window.of()), (max_pool(x, window) + avg_pool(x, window)) / 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_nan_wins_a_maximum_and_the_last_receives_the_gradient(layout, dtype):
    for holes in ([5], [5, 6], [0, 5, 10]):
        data = distinct(1, 1, 4, 4).to(dtype).to(memory_format=layout)
        data.view(-1)[holes] = torch.nan
        x = data.requires_grad_()
        for window in (W(4), W(2), W(3, 1, 1)):
            y, theirs = mixed(x, 1.0, window), max_pool(x, window)
            assert torch.equal(y.isnan(), theirs.isnan())
            grad = torch.randn_like(y)
            assert torch.equal(torch.autograd.grad(y, x, grad)[0], torch.autograd.grad(theirs, x, grad)[0])


def test_ties_and_windows_of_minus_infinity_give_the_first_cell_the_gradient():
    for data in (
        torch.zeros(1, 1, 6, 6),
        torch.full((1, 1, 6, 6), -torch.inf),
        torch.randint(0, 2, (1, 1, 6, 6)).float(),
    ):
        x = data.requires_grad_()
        for window in (W(2), W(3, 2, 1), W(3, 1, 1, 2)):
            y, theirs = mixed(x, 1.0, window), max_pool(x, window)
            grad = torch.randn_like(y)
            assert torch.equal(torch.autograd.grad(y, x, grad)[0], torch.autograd.grad(theirs, x, grad)[0])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_min_is_max_pooling_of_the_negated_input_bit_for_bit(window, dtype, layout):
    ties, holes = torch.randint(0, 2, (2, 19, 12, 11)).to(dtype), distinct(2, 19, 12, 11, dtype=dtype)
    holes.view(-1)[::50] = torch.nan
    infinite = torch.full((2, 19, 12, 11), torch.inf, dtype=dtype)
    for data in (distinct(2, 19, 12, 11, dtype=dtype), edges(dtype), -edges(dtype), ties, holes, infinite):
        x = data.contiguous(memory_format=layout).requires_grad_()
        y, theirs = pool_min(x, window, 2), -max_pool(-x, window)
        assert torch.equal(y.nan_to_num(7, torch.inf, -torch.inf), theirs.nan_to_num(7, torch.inf, -torch.inf))
        assert torch.equal(y.isnan(), theirs.isnan())
        grad = torch.randint(-8, 9, y.shape).to(dtype)  # sums without rounding
        assert torch.equal(torch.autograd.grad(y, x, grad)[0], torch.autograd.grad(theirs, x, grad)[0])


def pool_min(x, window, dims):
    w = window.of(dims)
    none = parameters(Min(), w, "layer", x.shape[1], x.shape[2:], x.dtype)
    return call(x, *none, Min(), w)


@pytest.mark.parametrize("dims", [1, 3])
def test_min_in_1d_and_3d(dims):
    x = distinct(2, 3, *(7, 6, 9)[:dims]).requires_grad_()
    max_pool_nd = {1: F.max_pool1d, 3: F.max_pool3d}[dims]
    for window in (W(2), W(3, 2, 1), W(3, 1, 1, 2, True)):
        y, theirs = pool_min(x, window, dims), -max_pool_nd(-x, *window[:5])
        assert torch.equal(y, theirs)
        grad = torch.randint(-8, 9, y.shape).to(y)
        assert torch.equal(torch.autograd.grad(y, x, grad)[0], torch.autograd.grad(theirs, x, grad)[0])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_minimum_of_a_region_without_a_cell_is_infinity_and_has_no_gradient(layout):
    x = torch.ones(1, 3, 2, 2).contiguous(memory_format=layout).requires_grad_()
    y = pool_min(x, W(2, 1, 1, 3), 2)
    assert y.flatten().tolist() == [torch.inf] * 3
    assert torch.equal(torch.autograd.grad(y, x, torch.ones_like(y))[0], torch.zeros_like(x))


def test_nan_spreads_through_masks_and_filters():
    x = distinct(1, 1, 4, 4)
    x[0, 0, 1, 1] = torch.nan
    for tree in (GATED, make_tree(2), Gate(Max(), Max())):
        weight, mix = parameters(tree, W(2).of(), "layer", 1, (4, 4))
        assert call(x, weight, mix, tree, W(2).of()).isnan().flatten().tolist() == [True, False, False, False]
