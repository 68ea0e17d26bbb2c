import inspect
import math
import pickle
import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import learnpool
from cases import GATED, MIXED, ODD, SHARES, W, distinct
from learnpool import (
    AdaptivePool2d,
    Avg,
    Gate,
    GatedPool2d,
    GatedPool3d,
    Max,
    Mix,
    MixedPool2d,
    Pool2d,
    Pool3d,
    Power,
    Std,
    StochasticPool2d,
    TreePool2d,
    make_pool,
)
from learnpool import functional as LF
from learnpool.tree import make_tree

NAMED = [
    getattr(learnpool, name)
    for name in learnpool.__all__
    if re.fullmatch(r"\w+Pool\dd", name) and not name.startswith("Adaptive")
]


def count(*modules):
    return sum(p.numel() for p in {id(p): p for m in modules for p in m.parameters()}.values())


@pytest.mark.parametrize("layer", NAMED, ids=lambda layer: layer.__name__)
def test_the_signature_is_that_of_max_pooling(layer):
    theirs = list(inspect.signature(nn.MaxPool2d.__init__).parameters.values())
    ours = list(inspect.signature(layer.__init__).parameters.values())[: len(theirs)]
    assert [(p.name, p.default, p.kind) for p in ours] == [(p.name, p.default, p.kind) for p in theirs]


def test_the_signature_of_a_pool_by_tree():
    ours = inspect.signature(Pool2d).parameters
    theirs = inspect.signature(nn.MaxPool2d).parameters
    assert list(ours) == [
        "tree", *theirs, "share", "channels", "grid", "count_include_pad", "start", "std", "device", "dtype"
    ]  # fmt: skip
    assert {p.name: p.default for p in ours.values() if p.kind == p.KEYWORD_ONLY} == {
        "share": "layer", "channels": None, "grid": None, "count_include_pad": False,
        "start": "spread", "std": 0.5, "device": None, "dtype": None,
    }  # fmt: skip


@pytest.mark.parametrize("layer", NAMED, ids=lambda layer: layer.__name__)
def test_it_stands_where_a_max_pool_stood(layer):
    dims = int(layer.__name__[-2])
    plain = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[dims - 1]
    for arguments in ((2,), (3, 2, 1), (3, 2, 1, 2), (3, 1, 0, 1, False, True), (2, 3, 1, 1, False, True)):
        x = torch.randn(2, 3, *(9, 8, 7)[:dims])
        assert layer(*arguments)(x).shape == plain(*arguments)(x).shape
        assert layer(*arguments)(x[0]).shape == plain(*arguments)(x[0]).shape


def test_arguments_are_attributes_and_may_be_set():
    layer = GatedPool2d(
        (3, 2), 2, 1, 1, False, True, share="channel", channels=4, count_include_pad=True, start="paper", std=0.1
    )
    for name, value in {
        "kernel_size": (3, 2), "stride": 2, "padding": 1, "dilation": 1, "return_indices": False, "ceil_mode": True,
        "share": "channel", "channels": 4, "grid": None, "count_include_pad": True, "start": "paper", "std": 0.1,
        "tree": GATED,
    }.items():  # fmt: skip
        assert getattr(layer, name) == value
    assert GatedPool2d(3).stride == 3
    with pytest.raises(ValueError, match="padding must be at most half"):
        layer.padding = 2
    assert (layer.padding, layer.window.padding) == (1, (1, 1))  # a refused value changes nothing
    assert (MixedPool2d(3, a=0.3, learn=False).a, MixedPool2d(3, a=0.3, learn=False).learn) == (0.3, False)
    layer.stride = (1, 3)
    assert layer(torch.randn(1, 4, 8, 8)).shape == (1, 4, 8, 3)


@pytest.mark.parametrize(
    "layer",
    [
        MixedPool2d(3, 2),
        MixedPool2d((3, 2), 2, 1, learn=False),
        MixedPool2d(3, a=0.25),
        GatedPool2d(3, 2, ceil_mode=True, share="region", grid=(4, 5)),
        TreePool2d(3, 2, levels=3, start="neutral"),
        GatedPool3d((1, 2, 3), share="channel", channels=3, count_include_pad=True),
        Pool2d(ODD, 3, 2, start="paper", std=0.1),
        StochasticPool2d(3, 2, 1),
        learnpool.SoftPool2d(3, 2, beta=-2.0),
        learnpool.LogSumExpPool1d(3, 2, r=5.0, learn=False, share="channel", channels=2),
        learnpool.GeMPool3d(2, p=2.0, learn=False, absolute=True),
        learnpool.RankPool2d(3, 2),
        learnpool.MedianPool2d(3, 2),
        learnpool.BlurPool2d(3, 2, 1, border="zeros"),
        learnpool.MaxBlurPool2d(2, 2),
    ],
    ids=str,
)
def test_repr_round_trips(layer):
    again = eval(repr(layer), vars(learnpool))
    assert repr(again) == repr(layer)
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in layer.state_dict().items()}
    assert getattr(again, "tree", None) == getattr(layer, "tree", None)
    assert repr(pickle.loads(pickle.dumps(layer))) == repr(layer)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", [MIXED, GATED, make_tree(3), ODD], ids=str)
def test_a_layer_is_its_function(tree, share):
    layer = Pool2d(tree, 3, 2, 1, share=share)
    x = torch.randn(2, 4, 9, 7, requires_grad=True)
    y = layer(x)
    extent = (4 if "channel" in share else 1, *((5, 4) if "region" in share else (1, 1)))
    weights, mixes = (None if p is None else p.shape for p in (layer.weight, layer.mix))
    assert weights in (None, (len([c for c in tree.program if c in (2, 4)]), *extent, 3, 3))
    assert mixes in (None, (len(tree.starts), *extent))
    assert torch.equal(y, LF.pool2d(x, tree, layer.weight, layer.mix, 3, 2, 1))
    y.sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in layer.parameters())


def test_three_dimensions_with_everything_different():
    window = W((2, 3, 4), (3, 1, 2), (1, 0, 2), (1, 2, 1), True)
    x = distinct(2, 3, 7, 8, 9).float()
    layer = Pool3d(ODD, *window[:4], False, True, share="channel", channels=3)
    shape = window.of(3)
    expected = learnpool.ops.reference.forward(x, layer.weight, layer.mix, ODD.program, shape)
    assert_close(layer(x), expected)
    assert layer(x).shape == nn.MaxPool3d(*window[:4], ceil_mode=True)(x).shape


# Parameters


def test_parameter_counts_of_the_paper():
    """Two pools after mlpconv1 and mlpconv2; sizes of the four networks' maps."""

    def extra(name, maps=((128, 16), (192, 8)), kernels=(3, 3)):
        pools = [
            make_pool(name, k, 2, index=i, channels=c, grid=n)
            if name.split("+")[min(i, name.count("+"))] != "max"
            else make_pool(name, k, 2, index=i)
            for i, ((c, n), k) in enumerate(zip(maps, kernels, strict=True))
        ]
        return count(*pools)

    svhn, cifar100, mnist = ((96, 16), (256, 8)), ((96, 16), (192, 8)), ((128, 14), (192, 7))
    small = (3, 2)  # MNIST's second pool
    assert [extra(n) for n in ("mixed", "gated", "filter", "tree2+max", "tree3+max", "tree3+gated", "tree2+gated")] == [
        2, 18, 18, 27, 63, 72, 36
    ]  # fmt: skip
    assert extra("half") == 0
    per_region = [extra("mixed:region_channel", maps) for maps in (svhn, ((128, 16), (192, 8)), cifar100)]
    assert per_region == [40_960, 45_056, 36_864]
    assert extra("mixed:region_channel", mnist, small) == 34_496
    assert extra("gated:region_channel") == 405_504
    assert [extra(n, mnist, small) for n in ("gated", "filter", "tree2+gated", "tree3+gated")] == [13, 13, 31, 67]
    alexnet = [make_pool("tree2+gated", 3, 2, index=i) for i in range(3)]
    googlenet = [make_pool("gated", 3, 2, index=i) for i in range(4)]
    assert (count(*alexnet), count(*googlenet)) == (45, 36)


def test_start_values():
    big = Pool2d(make_tree(4), 3, share="region_channel", channels=64, grid=4, start="paper")
    assert big.weight.mean().abs() < 0.01
    assert big.weight.std().item() == pytest.approx(0.5, rel=0.02)
    assert Pool2d(
        make_tree(4), 3, share="channel", channels=256, start="paper", std=0.1
    ).weight.std().item() == pytest.approx(0.1, rel=0.05)
    mixes = Pool2d(Mix(Mix(Max(), Avg(), 0.2), Max(), 0.7), 3)
    assert mixes.mix.flatten().tolist() == pytest.approx([0.7, 0.2])
    before = big.weight.clone()
    big.reset_parameters()
    assert not torch.equal(big.weight, before)


def test_neutral_start_begins_at_one_half_and_near_average():
    gated = GatedPool2d(3, 2, start="neutral")
    assert torch.equal(gated.weight, torch.zeros_like(gated.weight))
    x = torch.randn(2, 3, 9, 9)
    assert_close(gated(x), MixedPool2d(3, 2, learn=False)(x))
    tree = TreePool2d(3, 2, start="neutral")
    gate, left, right = tree.weight
    assert torch.equal(gate, torch.zeros_like(gate))
    for leaf in (left, right):
        assert_close(leaf, torch.full_like(leaf, 1 / 9), rtol=0, atol=0.06)
    assert not torch.equal(left, right)  # or the two would stay equal for ever
    loss = (tree(x) * torch.randn(2, 3, 4, 4)).sum()
    loss.backward()
    assert tree.weight.grad[0].abs().max() > 0


def test_a_fixed_mix_has_nothing_in_the_state_dict():
    layer = MixedPool2d(3, learn=False)
    assert list(layer.state_dict()) == []
    assert layer.mix is None
    assert layer.weight is None
    assert list(MixedPool2d(3).state_dict()) == ["mix"]
    assert list(Pool2d(ODD, 3).state_dict()) == ["weight", "mix"]


@pytest.mark.parametrize("outward", [1.0, -1.0])
def test_the_borders_of_a_are_reachable_and_never_dead(outward):
    layer = MixedPool2d(2)
    x = torch.tensor([[0.0, 0], [0, 4.0]]).reshape(1, 1, 2, 2)  # max 4, mean 1
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)

    def step(direction):
        optimizer.zero_grad()
        (-direction * layer(x)).sum().backward()
        optimizer.step()

    for _ in range(1000):
        step(outward)
    border = nn.MaxPool2d(2) if outward > 0 else nn.AvgPool2d(2)
    assert torch.equal(layer(x), border(x))
    assert not 0 < layer.mix.item() < 1
    inside = []
    for _ in range(20):
        step(-outward)
        inside.append(0 < layer.mix.item() < 1)
    assert any(inside)


@pytest.mark.parametrize(("border", "inward"), [(1.0, 1.0), (0.0, -1.0)])
def test_exactly_at_a_border_only_the_outward_gradient_is_dropped(border, inward):
    """Descent moves against the gradient: at 1 a positive one leads inside, at 0 a negative one."""
    layer = MixedPool2d(2, a=border)
    x = torch.tensor([[0.0, 0], [0, 4.0]]).reshape(1, 1, 2, 2)  # max 4, mean 1
    for sign, expected in ((inward, inward * 3), (-inward, 0.0)):
        layer.zero_grad()
        (sign * layer(x)).sum().backward()
        assert layer.mix.grad.item() == expected


def test_forward_does_not_touch_the_parameter():
    layer = MixedPool2d(2)
    with torch.no_grad():
        layer.mix.fill_(3.0)
    version = layer.mix._version
    assert torch.equal(layer(torch.ones(1, 1, 2, 2)), torch.ones(1, 1, 1, 1))
    assert (layer.mix.item(), layer.mix._version) == (3.0, version)


@pytest.mark.parametrize("a", [-0.5, 0.0, 0.3, 1.0, 1.5])
def test_a_layer_is_the_pool_of_its_proportions(a):
    """Clamp and pool are one step of autograd in a layer: every gradient, each alone, and second derivatives."""
    layer = Pool2d(ODD, 3, 2, 1, start="paper", dtype=torch.float64)
    with torch.no_grad():
        layer.mix.fill_(a)
    x = distinct(2, 3, 7, 6).requires_grad_()
    inputs = [x, *layer.parameters()]

    def compute(y):
        first = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(g.sin().sum() for g in first), inputs)
        return y, first, second

    apart = LF.pool("pool", x, layer.tree, layer.weight, layer.proportions(), layer.window)
    _, first, _ = actual = compute(layer(x))
    assert_close(actual, compute(apart))
    for leaf, gradient in zip(inputs, first, strict=True):
        assert_close(torch.autograd.grad(layer(x).sin().sum(), leaf), (gradient,))
    for leaf in inputs:
        leaf.requires_grad_(False)
        assert layer(x).requires_grad == any(other.requires_grad for other in inputs)
    assert_close(layer(x), apart)


@pytest.mark.parametrize(("tree", "parameter"), [(GATED, "weight"), (MIXED, "mix")], ids=str)
def test_a_parameter_changed_before_backward_is_an_error(tree, parameter):
    layer = Pool2d(tree, 2)
    y = layer(torch.randn(1, 1, 4, 4))
    with torch.no_grad():
        getattr(layer, parameter).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_the_function_clamps_like_the_layer():
    x = torch.tensor([[0.0, 0], [0, 4.0]]).reshape(1, 1, 2, 2)
    assert LF.mixed_pool2d(x, 2.0, 2).item() == 4.0
    a = torch.tensor(2.0, requires_grad=True)
    LF.mixed_pool2d(x, a, 2).sum().backward()
    assert a.grad.item() == 3.0  # back inside


# Sizes from the first input


# With the rest of PyTorch


def test_data_parallel_replicates_a_layer_with_sizes_and_refuses_one_without():
    assert isinstance(GatedPool2d(3)._replicate_for_data_parallel(), GatedPool2d)
    with pytest.raises(RuntimeError, match="uninitialized parameters"):
        GatedPool2d(3, share="channel")._replicate_for_data_parallel()


def test_symbolic_trace():
    layer = GatedPool2d(3, 2, 1)
    x = torch.randn(2, 3, 9, 9)
    assert torch.equal(torch.fx.symbolic_trace(layer)(x), layer(x))


@pytest.mark.parametrize("tree", [Mix(Max(), Power(2.5)), Gate(Max(), Avg(), by=Std(), bias=True)], ids=str)
def test_symbolic_trace_of_a_global_pool(tree):
    layer = AdaptivePool2d(tree)
    traced = torch.fx.symbolic_trace(nn.Sequential(layer))
    for size in (9, 5):
        x = torch.randn(2, 3, size, size)
        assert torch.equal(traced(x), layer(x))
        assert torch.equal(pickle.loads(pickle.dumps(traced))(x), layer(x))
    traced(x).sum().backward()
    assert layer.mix.grad is not None


def test_device_and_dtype():
    layer = GatedPool2d(3, device="meta", dtype=torch.bfloat16)
    assert (layer.weight.device.type, layer.weight.dtype) == ("meta", torch.bfloat16)
    assert layer(torch.empty(1, 2, 9, 9, device="meta", dtype=torch.bfloat16)).shape == (1, 2, 3, 3)
    half = GatedPool2d(3).half()
    assert half(torch.randn(1, 2, 9, 9).half()).dtype == torch.float16


@pytest.mark.trains
def test_training_lowers_the_loss_of_every_pool():
    for name in ("mixed", "gated", "filter", "tree2", "tree3", "Gate(Filter, Mix(Max, Avg))"):
        torch.manual_seed(0)
        layer = make_pool(name, 3, 2, start="neutral")
        x = torch.rand(64, 4, 9, 9)
        target = nn.functional.max_pool2d(x, 3, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.05, momentum=0.9)
        losses = []
        for _ in range(60):
            optimizer.zero_grad()
            loss = (layer(x) - target).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.7 * losses[0], name
        assert math.isfinite(losses[-1])


def test_doctest_examples():
    import doctest

    names = dict(vars(learnpool), torch=torch, model=nn.Sequential(nn.Conv2d(3, 4, 3), GatedPool2d(3, 2)))
    ran = 0
    for module in (learnpool.layers, learnpool.named_layers, learnpool.names, learnpool.parameters):
        result = doctest.testmod(module, extraglobs=names)
        assert result.failed == 0
        ran += result.attempted
    assert ran >= 8


def test_every_public_name_is_documented():
    for name in learnpool.__all__:
        if name != "__version__":
            assert (getattr(learnpool, name).__doc__ or "").strip(), name
