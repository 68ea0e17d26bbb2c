import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.testing import assert_close

from cases import GATED, HALF, MIXED, distinct
from learnpool import (
    AdaptivePool1d,
    AdaptivePool2d,
    AdaptivePool3d,
    Avg,
    Blur,
    Filter,
    Gate,
    Max,
    Mix,
    Pool2d,
    Rank,
    Soft,
    Std,
)
from learnpool.functional import adaptive_pool2d
from learnpool.program import READINGS
from learnpool.tree import from_program

NESTED = Mix(Mix(Max(), Avg(), 0.3), Mix(Avg(), Max(), 0.9, learn=False), 0.6)


@pytest.mark.parametrize("size", [1, 3, (2, 5), (None, 4)])
def test_limits_are_adaptive_max_and_average(size):
    x = distinct(2, 3, 7, 9, dtype=torch.float32)
    x[0, 0, 0, 0] = torch.inf
    a = torch.ones(1)
    assert torch.equal(adaptive_pool2d(x, MIXED, a, size), F.adaptive_max_pool2d(x, size))
    assert torch.equal(adaptive_pool2d(x, MIXED, 0 * a, size), F.adaptive_avg_pool2d(x, size))


def test_any_maskless_tree():
    x = distinct(2, 3, 7, 9)
    largest, mean = F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool2d(x, 1)
    mix = torch.tensor([0.6, 0.3], dtype=torch.float64)  # root, then its left child
    expected = 0.6 * (0.3 * largest + 0.7 * mean) + 0.4 * (0.9 * mean + 0.1 * largest)
    assert_close(adaptive_pool2d(x, NESTED, mix, 1), expected)
    assert_close(adaptive_pool2d(x, HALF, None, 1), (largest + mean) / 2)
    assert torch.equal(adaptive_pool2d(x, Max(), None, 2), F.adaptive_max_pool2d(x, 2))


@pytest.mark.parametrize("code", [code for code, reading in READINGS.items() if not reading.taps], ids=str)
def test_every_leaf_without_taps_is_the_pool_whose_window_is_the_map(code):
    learned = [1] if READINGS[code].domain else []
    tree, x = from_program([code, *learned]), distinct(2, 3, 4, 5, dtype=torch.float32)
    assert_close(AdaptivePool2d(tree)(x), Pool2d(tree, (4, 5))(x))


def test_derivatives_inside_and_at_the_borders():
    x = distinct(2, 2, 5, 6).requires_grad_()
    mix = torch.tensor([0.6, 0.3], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, mix: adaptive_pool2d(x, NESTED, mix, 2), (x, mix))
    assert gradgradcheck(lambda x, mix: adaptive_pool2d(x, NESTED, mix, 2), (x, mix))
    border = torch.tensor([1.0, 0.0], dtype=torch.float64)  # of a proportion: there its own gradient has a rule
    assert gradcheck(lambda x: adaptive_pool2d(x, NESTED, border, 2), (x,))


@pytest.mark.parametrize("tree", [MIXED, NESTED, Gate(Soft(), Avg(), by=Std())], ids=str)
def test_a_compiled_pool_is_the_same_and_warns_of_nothing(tree):
    torch.compiler.reset()
    net, x = AdaptivePool2d(tree, 1), distinct(2, 3, 7, 9, dtype=torch.float32)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x), net(x))
    ours, theirs = (torch.autograd.grad(f(x).sum(), [*net.parameters()]) for f in (compiled, net))
    assert_close(ours, theirs)


def test_layers_replace_a_networks_last_pool():
    for layer, plain, shape in (
        (AdaptivePool1d(MIXED), nn.AdaptiveAvgPool1d(1), (2, 3, 9)),
        (AdaptivePool2d(MIXED), nn.AdaptiveAvgPool2d(1), (2, 3, 9, 8)),
        (AdaptivePool3d(MIXED, (2, None, 1)), nn.AdaptiveAvgPool3d((2, None, 1)), (2, 3, 4, 5, 6)),
    ):
        x = torch.randn(shape)
        assert layer(x).shape == plain(x).shape
        assert layer(x[0]).shape == plain(x[0]).shape
        assert sum(p.numel() for p in layer.parameters()) == 1
        with torch.no_grad():
            layer.mix.fill_(-3)  # clamped to 0
        assert torch.equal(layer(x), plain(x))


def test_sharing_and_repr():
    x = torch.randn(2, 3, 8, 8)
    for share, shape in (
        ("layer", (1, 1, 1, 1)),
        ("channel", (1, 3, 1, 1)),
        ("region", (1, 1, 2, 2)),
        ("region_channel", (1, 3, 2, 2)),
    ):
        layer = AdaptivePool2d(MIXED, 2, share=share)
        layer(x)
        assert layer.mix.shape == shape
        names = {"AdaptivePool2d": AdaptivePool2d, "Mix": Mix, "Max": Max, "Avg": Avg}
        assert eval(repr(layer), names).mix.shape == shape
    free = AdaptivePool2d(MIXED, (None, 2), share="region")
    free(x)
    assert free.mix.shape == (1, 1, 8, 2)
    assert free(torch.randn(2, 3, 5, 8)).shape == (2, 3, 5, 2)


@pytest.mark.parametrize("tree", [GATED, Filter(), Mix(Max(), Filter()), Rank(), Mix(Blur(), Max())], ids=str)
def test_leaves_with_taps_are_refused(tree):
    with pytest.raises(ValueError, match="^AdaptivePool2d: windows of many sizes have no taps: "):
        AdaptivePool2d(tree)


def test_bad_input():
    layer = AdaptivePool2d(MIXED)
    with pytest.raises(ValueError, match=r"^AdaptivePool2d: input must have 3 or 4 dimensions, got shape \[4, 4\]$"):
        layer(torch.randn(4, 4))
    with pytest.raises(TypeError, match="^AdaptivePool2d: input must be float16"):
        layer(torch.ones(1, 1, 4, 4, dtype=torch.int64))
    for size, error in ((0, ValueError), ((1, 2, 3), ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="^AdaptivePool2d: output_size must be one or 2 "):
            AdaptivePool2d(MIXED, size)
    with pytest.raises(TypeError, match="^AdaptivePool2d: tree must be a tree"):
        AdaptivePool2d("mixed")
