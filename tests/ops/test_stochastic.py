import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.nn import functional as F
from torch.testing import assert_close

from cases import WINDOWS, W, distinct, draw_window, numbers
from learnpool import StochasticPool1d, StochasticPool2d, StochasticPool3d
from learnpool.functional import stochastic_pool2d
from learnpool.ops import stochastic


def chi_square(counts, expected):
    return ((counts - expected) ** 2 / expected).sum().item()


def test_cells_are_picked_with_probability_proportional_to_their_value():
    """Chi-square with 3 degrees of freedom stays below 16.27 in 999 of 1,000 fair samples (the seed is fixed)."""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).expand(1, 20_000, 2, 2)
    picked = stochastic_pool2d(x, 2).flatten()
    counts = torch.stack([(picked == value).sum() for value in (1, 2, 3, 4)]).double()
    assert counts.sum() == 20_000
    assert chi_square(counts, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64) * 20_000) < 16.27
    assert chi_square(counts, torch.full((4,), 5_000.0, dtype=torch.float64)) > 100  # uniform picks would be seen


def test_negative_cells_are_never_picked_beside_a_positive_one():
    x = torch.tensor([[-5.0, 2.0], [6.0, -1.0]]).expand(1, 20_000, 2, 2)
    picked = stochastic_pool2d(x, 2).flatten()
    counts = torch.stack([(picked == value).sum() for value in (2, 6)]).double()
    assert counts.sum() == 20_000
    assert chi_square(counts, torch.tensor([5_000.0, 15_000.0], dtype=torch.float64)) < 10.83  # 1 degree of freedom


def test_without_a_positive_cell_all_are_equally_likely():
    x = torch.tensor([[-1.0, -2.0], [-3.0, 0.0]]).expand(1, 20_000, 2, 2)
    picked = stochastic_pool2d(x, 2).flatten()
    counts = torch.stack([(picked == value).sum() for value in (-1, -2, -3, 0)]).double()
    assert chi_square(counts, torch.full((4,), 5_000.0, dtype=torch.float64)) < 16.27
    assert stochastic_pool2d(x[:, :1], 2, training=False).item() == -1.5
    assert stochastic_pool2d(torch.zeros(1, 1, 2, 2), 2).item() == 0


def test_evaluation_is_the_expected_pick():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 1, 2, 2)
    # (1 + 4 + 9 + 16) / 10
    assert stochastic_pool2d(x, 2, training=False).item() == pytest.approx(3.0)
    x = distinct(1, 1, 6, 6, dtype=torch.float32)
    many = stochastic_pool2d(x.expand(20_000, 1, 6, 6), 3, 1, 1)
    mean = stochastic_pool2d(x, 3, 1, 1, training=False)
    assert_close(many.mean(0, keepdim=True), mean, rtol=0, atol=0.04)  # 5 standard errors of a spread of about 1


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_picks_are_cells_of_their_region_and_receive_the_gradient(window):
    k, s, p, d, ceil, _ = window
    x = distinct(2, 3, 9, 8).requires_grad_()
    y = stochastic_pool2d(x, k, s, p, d, ceil)
    assert y.shape == F.max_pool2d(x, k, s, p, d, ceil).shape
    grad = torch.arange(1.0, y.numel() + 1, dtype=y.dtype).reshape(y.shape)
    (dx,) = torch.autograd.grad(y, x, grad)
    expected = torch.zeros_like(dx)
    for value, g in zip(y.flatten().tolist(), grad.flatten().tolist(), strict=True):
        expected[x == value] += g  # all cells differ: the value says which one it was
    assert torch.equal(dx, expected)


def test_first_and_second_derivatives():
    window = W((3, 2), (2, 1), (1, 0), 1, True).of()
    numbers = (window.kernel, window.stride, window.padding, window.dilation, window.ceil_mode)
    x = distinct(2, 2, 5, 5).requires_grad_()
    for seed in (torch.tensor([3, 4]), None):

        def pool(x, seed=seed):
            return torch.ops.learnpool.stochastic_pool(x, seed, *numbers)

        assert gradcheck(pool, x)
        assert gradgradcheck(pool, x, fast_mode=True)
        small = x.detach().float().requires_grad_()
        opcheck(torch.ops.learnpool.stochastic_pool.default, (small, seed, *numbers))


def test_backward_by_hand_is_autograd_through_forward():
    x = distinct(2, 2, 7, 7).requires_grad_()
    for window in WINDOWS:
        window = window.of()
        sample = torch.rand(2, 2, *window.output_size((7, 7)), dtype=torch.float64)
        for drawn in (sample, None):
            y = stochastic.forward(x, drawn, window)
            grad = torch.randn_like(y)
            (theirs,) = torch.autograd.grad(y, x, grad)
            assert_close(stochastic.backward(grad, x.detach(), drawn, window), theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_layer_draws_from_torchs_generator(dtype):
    layer = StochasticPool2d(3, 2, 1)
    x = torch.rand(2, 3, 9, 9).to(dtype).to(memory_format=torch.channels_last)
    torch.manual_seed(3)
    first = layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(layer(x), first)
    assert first.dtype == dtype
    assert first.is_contiguous(memory_format=torch.channels_last)
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_one_and_three_dimensions():
    for layer, shape, pooled in (
        (StochasticPool1d(2), (3, 8), (3, 4)),
        (StochasticPool3d((1, 2, 3)), (2, 3, 2, 4, 6), (2, 3, 2, 2, 2)),
    ):
        assert layer(torch.rand(shape)).shape == pooled


def test_nan_and_infinity_give_nan():
    x = torch.rand(1, 1, 2, 6)
    x[..., 0, 0], x[..., 0, 2] = torch.nan, torch.inf
    for training in (True, False):
        assert stochastic_pool2d(x, 2, training=training).isnan().flatten().tolist() == [True, True, False]


def test_minus_infinity_is_never_picked():
    x = torch.tensor([[1.0, 2.0], [3.0, -torch.inf]]).reshape(1, 1, 2, 2)
    assert stochastic_pool2d(x, 2, training=False).item() == pytest.approx(14 / 6)
    assert stochastic_pool2d(x.expand(500, 1, 2, 2), 2).min() >= 1


def test_checkpointing_recomputes_the_same_picks():
    from torch.utils.checkpoint import checkpoint

    layer = StochasticPool2d(3, 2, 1)
    x = torch.rand(2, 3, 9, 9, requires_grad=True)
    torch.manual_seed(1)
    plain = torch.autograd.grad(layer(x).square().sum(), x)
    torch.manual_seed(1)
    again = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).square().sum(), x)
    assert torch.equal(plain[0], again[0])


def compare(x, seed, window):
    """The operator and its backward against the reference: equal picks, and the expected pick closely."""
    arguments = numbers(window)[:5]
    y = torch.ops.learnpool.stochastic_pool(x, seed, *arguments)
    expected = stochastic.pool(x, seed, *arguments)
    grad = torch.randn(y.shape).to(y.dtype)
    dx = torch.ops.learnpool.stochastic_pool_backward(grad, x, seed, *arguments)
    expected_dx = stochastic.pool_backward(grad, x, seed, *arguments)
    assert (y.stride(), dx.stride()) == (expected.stride(), expected_dx.stride())
    if seed is not None:
        assert_close(y, expected, rtol=0, atol=0, equal_nan=True)
    else:
        assert_close(y, expected, equal_nan=True)
    assert_close(dx, expected_dx, equal_nan=True)


LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("window", [*WINDOWS, W(3, 2, 1), W(3, 1, 1)], ids=str)
def test_kernel_agrees_with_the_reference(kernel, window, dtype, layout):
    window = window.of()
    for size, channels in (((9, 8), 3), ((7, 37), 19)):  # not multiples of any vector
        x = distinct(2, channels, *size)
        for cells in (x, x.relu(), -x.relu(), x * (torch.rand_like(x) > 0.8)):  # regions without a positive cell, too
            cells = cells.to(dtype).to(memory_format=LAYOUTS[layout])
            compare(cells, torch.tensor([2**62 + 12345, -7]), window)
            compare(cells, None, window)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernel_agrees_beside_infinity_and_nan(kernel, layout):
    x = distinct(2, 19, 9, 40, dtype=torch.float32)
    for value in (torch.nan, torch.inf, -torch.inf, 1e-30, 1e30):
        x[torch.rand(x.shape) > 0.98] = value
        for cells in (x, x.clamp(max=0)):
            cells = cells.contiguous(memory_format=LAYOUTS[layout])
            for window in (W(3, 2, 1).of(), W(2, 2).of(), W((3, 2), 1, 1, 2, True).of()):
                compare(cells, torch.tensor([5, 6]), window)
                compare(cells, None, window)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_kernel_agrees_on_random_calls(kernel, data):
    dims = data.draw(st.sampled_from([1, 2, 3]))
    window, size = draw_window(data, kernel=5, stride=4, dilation=3, size=40 if dims < 3 else 9, dims=dims)
    lead = data.draw(st.sampled_from([(1,), (2, 5), (3, 17), (0, 2)]))
    x = distinct(*lead, *size, dtype=data.draw(st.sampled_from([torch.float32, torch.float64])))
    if dims > 1 and len(lead) == 2 and data.draw(st.booleans()):
        x = x.to(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
    images = lead[0] if len(lead) == 2 else 1
    compare(x, data.draw(st.sampled_from([None, torch.arange(images) * 2**33 - 1])), window)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_halves_in_many_bands(kernel, dtype):
    """In channels_last they collect in a band of float32 that moves over the image."""
    for window, size in ((W(3, 2, 1), (67, 45)), (W(2, 3), (64, 48)), (W(3, 2, 1), (13, 16, 15))):
        layout = torch.channels_last if len(size) == 2 else torch.channels_last_3d
        x = torch.randn(2, 83, *size).to(dtype).to(memory_format=layout)
        arguments = numbers(window.of(len(size)))[:5]
        for seed in (torch.tensor([3, 4]), None):
            grad = torch.randn_like(torch.ops.learnpool.stochastic_pool(x, seed, *arguments))
            dx = torch.ops.learnpool.stochastic_pool_backward(grad, x, seed, *arguments)
            wide = torch.ops.learnpool.stochastic_pool_backward(grad.float(), x.float(), seed, *arguments)
            assert_close(dx, wide.to(dtype))


def test_picks_do_not_depend_on_threads_or_layout(kernel):
    x = torch.rand(5, 35, 33, 31)
    arguments = numbers(W(3, 2, 1).of())[:5]
    seed, results = torch.arange(5), []
    for layout in LAYOUTS.values():
        for threads in (1, 2, 3, 7):
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            cells = x.contiguous(memory_format=layout)
            y = torch.ops.learnpool.stochastic_pool(cells, seed, *arguments)
            dx = torch.ops.learnpool.stochastic_pool_backward(y, cells, seed, *arguments)
            results.append((y, dx))
            torch.set_num_threads(before)
    for y, dx in results[1:]:
        assert torch.equal(y, results[0][0])
        assert torch.equal(dx, results[0][1])
