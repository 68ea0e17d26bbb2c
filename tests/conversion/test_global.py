"""Global pools: adaptive pools to one cell and means over the map become pools that learn, and begin as they were."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from learnpool import AdaptivePool2d, Avg, Filter, Gate, Max, Min, Mix, Soft, Std, convert, downsampling, restore
from learnpool.conversion.global_pools import decide_by_means
from learnpool.tree import make_tree

X = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(1))


class Calls(nn.Module):
    """Every way to take the mean or maximum of a map without a module."""

    def __init__(self):
        super().__init__()
        self.axes, self.keep = (2, 3), True

    def forward(self, x):
        a = x.mean((2, 3)) + x.mean(dim=[-1, -2]) + torch.mean(x, (2, 3))
        b = x.mean(self.axes, keepdim=self.keep) + F.adaptive_avg_pool2d(x, 1) + F.adaptive_avg_pool2d(x, (1, 1))
        c = x.amax((2, 3), keepdim=True) + F.adaptive_max_pool2d(x, 1)
        others = x.mean(1, keepdim=True).mean((1, 2, 3), keepdim=True) + x.mean() + x.sum((2, 3), keepdim=True)
        return a[..., None, None] + b + c + others


@pytest.mark.filterwarnings("ignore:Dynamo detected")  # of a cache, which it traces through
@pytest.mark.parametrize("example", [None, X])
def test_functional_calls(example):
    net = Calls()
    expected = net(X)
    report = convert(net, "mixed", replace=("global",), example=example)
    assert [row.name for row in report.replaced] == [
        *("mean_0", "mean_1", "mean_2", "mean_3", "adaptive_avg_pool2d_0", "adaptive_avg_pool2d_1"),
        *("amax_0", "adaptive_max_pool2d_0"),
    ]
    assert_close(net(X), expected)
    assert [row.was for row in report.rows][:2] == ["x.mean", "x.mean"]
    torch._dynamo.reset()
    assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(X), expected)
    with torch.no_grad():
        net.mean_0.mix.fill_(1)
    assert_close(net(X) - expected, (X.amax((2, 3)) - X.mean((2, 3)))[..., None, None], rtol=1e-4, atol=1e-5)
    restore(net)
    assert torch.equal(net(X), expected)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("function", ["Avg", "Max"])
def test_modules(dims, function):
    net = nn.Sequential(getattr(nn, f"Adaptive{function}Pool{dims}d")(1))
    x = torch.randn(2, 3, *(7, 6, 5)[:dims])
    expected = net(x)
    report = convert(net, "mixed", replace=("global",))
    assert_close(net(x), expected)
    assert [(row.kind, row.window, row.now) for row in report.rows] == [("global", "the whole map", "mixed")]
    assert net[0].mix.item() == (function == "Max")
    assert restore(net) == ["0"]
    assert type(net[0]).__name__ == f"Adaptive{function}Pool{dims}d"


STARTS = [
    ("mixed", "to the last bit"), ("soft", "up to rounding"), ("gem", "no"), ("lse", "no"), ("max", "no"),
    ("avg", "to the last bit"), (Mix(Max(), Gate(Avg(), Avg(), by=Soft())), "up to rounding"),
    (Gate(Max(), Avg(), by=Soft()), "no"), ("mixed:channel", "to the last bit"),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "exact"), STARTS, ids=[str(pool) for pool, _ in STARTS])
def test_what_begins_as_the_mean(pool, exact):
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1))
    expected = net(X)
    report = convert(net, pool, replace=("global",), example=X)
    assert report.rows[0].exact == exact
    assert (exact == "no") != torch.allclose(net(X), expected)
    assert net(X).shape == expected.shape
    if pool not in ("max", "avg"):
        assert isinstance(net[0], AdaptivePool2d)
        net(X).sum().backward()
        assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("function", ["avg", "max"])
def test_a_plain_pool_of_the_whole_map_begins_as_the_call(function, dims):
    class Head(nn.Module):
        def forward(self, x):
            axes = (2, 3, 4)[:dims]
            return x.mean(axes) if function == "avg" else x.amax(axes)

    net, x = Head(), torch.randn(2, 3, *(7, 6, 5)[:dims])
    expected = net(x)
    report = convert(net, function, replace=("global",), example=x)
    assert (report.rows[0].now, report.rows[0].exact) == (f"Adaptive{function.title()}Pool{dims}d", "to the last bit")
    assert torch.equal(net(x), expected)


@pytest.mark.parametrize("pool", ["filter", "tree2", "rank", "blur", "stochastic"])
def test_a_pool_that_needs_taps_is_left(pool):
    net = nn.Sequential(nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d(1))
    report = convert(net, pool, replace=("max", "global"))
    assert [row.state for row in report.rows] == ["replaced", "left"]
    assert "have no taps" in report.rows[1].reason or "no global form" in report.rows[1].reason
    assert isinstance(net[1], nn.AdaptiveAvgPool2d)
    assert "by=Avg()" not in report.rows[1].reason


GATES = [
    (Gate(Max(), Avg()), Gate(Max(), Avg(), by=Avg())),
    (Gate(Max(), Avg(), by=Std(), bias=True), Gate(Max(), Avg(), by=Std(), bias=True)),
    (
        Mix(Gate(Max(), Gate(Min(), Avg())), Soft(2.0), a=0.3),
        Mix(Gate(Max(), Gate(Min(), Avg(), by=Avg()), by=Avg()), Soft(2.0), a=0.3),
    ),
    (Mix(Max(), Avg(), a=0.2, learn=False), Mix(Max(), Avg(), a=0.2, learn=False)),
    (make_tree(3), Gate(*2 * (Gate(Filter(), Filter(), by=Avg()),), by=Avg())),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "expected"), GATES, ids=[str(tree) for tree, _ in GATES])
def test_means_decide_gates_of_the_whole_map(tree, expected):
    assert decide_by_means(tree) == expected


def test_a_gated_pool_stands_at_a_global_pool():
    net = nn.Sequential(nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d(1))
    report = convert(net, "gated", replace=("max", "global"))
    assert [row.now for row in report.replaced] == ["gated", "Gate(Max(), Avg(), by=Avg())"]
    x = net[0](X)
    gate = x.mean((2, 3)).sigmoid()
    assert_close(net(X).flatten(1), gate * x.amax((2, 3)) + (1 - gate) * x.mean((2, 3)))
    net(X).sum().backward()
    assert net[1].mix.grad is not None


def test_one_set_for_all_global_pools():
    class Three(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.a, self.b = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.AdaptiveMaxPool2d(1)

        def forward(self, x):
            x = self.pool(x)
            return self.a(x) + self.b(x) + x.mean((2, 3), keepdim=True)

    net = Three()
    report = convert(net, "mixed", share="net", replace=("max", "global"))
    assert report.parameters == 3
    assert net.a.mix is net.mean_0.mix
    assert net.a.mix is not net.b.mix  # which begins as a maximum
    assert {row.now for row in report.rows} == {"mixed:net"}
    x = net.pool(X)
    assert_close(net(X), 2 * x.mean((2, 3), keepdim=True) + x.amax((2, 3), keepdim=True))
    assert len(convert(Three(), "half", share="net", replace=("max", "global")).replaced) == 4


class Windows(nn.Module):
    """The whole map as a window: of a fixed size, or of the map's."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 3, 1), nn.AvgPool2d(6)

    def forward(self, x):
        x = self.conv(x)
        sizes = [x[..., :5, :4], x]
        both = sum(F.avg_pool2d(part, part.shape[2:]) for part in sizes)
        return self.pool(x) + both + F.max_pool2d(x, (x.shape[-2], x.shape[-1])) + F.avg_pool2d(x, 6)


@pytest.mark.filterwarnings("ignore:Dynamo detected")
def test_a_window_that_covers_the_map_is_a_global_pool():
    net, x = Windows(), torch.randn(2, 3, 6, 6)
    expected = net(x)
    report = convert(net, "mixed", replace=("global",), example=x)
    assert [(row.name, row.was, row.exact) for row in report.rows] == [
        ("avg_pool2d_0", "F.avg_pool2d", "up to rounding"),
        ("pool", "nn.AvgPool2d", "up to rounding"),
        ("max_pool2d_0", "F.max_pool2d", "to the last bit"),
        ("avg_pool2d_1", "F.avg_pool2d", "up to rounding"),
    ]
    assert report.rows[0].reason == "used 2 times"
    assert {row.window for row in report.rows} == {"the whole map"}
    assert_close(net(x), expected)
    torch._dynamo.reset()
    assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(x), expected)
    net(x).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    with torch.no_grad():
        net.avg_pool2d_0.mix.fill_(1)
    y = net.conv(x)
    parts = [y[..., :5, :4], y]
    assert_close(net(x) - expected, sum((part.amax((2, 3)) - part.mean((2, 3)))[..., None, None] for part in parts))
    restore(net)
    assert torch.equal(net(x), expected)
    assert isinstance(net.pool, nn.AvgPool2d)


def test_a_computed_window_follows_the_map_and_a_fixed_one_does_not():
    class Fixed(nn.Module):
        def forward(self, x):
            return F.avg_pool2d(x, 6), F.avg_pool2d(x, x.shape[2:])

    net = Fixed()
    convert(net, "mixed", replace=("global",), example=torch.randn(2, 3, 6, 6))
    with torch.no_grad():
        net.avg_pool2d_0.mix.fill_(1), net.avg_pool2d_1.mix.fill_(1)
    x = torch.randn(2, 3, 12, 12)
    fixed, computed = net(x)
    assert torch.equal(fixed, F.avg_pool2d(x, 6))
    assert torch.equal(computed, x.amax((2, 3), keepdim=True))


def test_such_a_window_becomes_a_plain_pool_too():
    net, x = nn.Sequential(nn.AvgPool2d(6)), torch.randn(2, 3, 6, 6)
    report = convert(net, "avg", replace=("global",), example=x)
    assert (report.rows[0].exact, type(net[0])) == ("up to rounding", nn.AdaptiveAvgPool2d)
    net = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(6))
    report = convert(net, "mixed", replace=("max", "avg"), example=torch.randn(2, 3, 12, 12))
    assert report.rows[1].reason == "global: its window covers the whole input 6×6"


def test_a_mean_with_channels_last_is_left():
    class Last(nn.Module):
        def forward(self, x):
            x = x.permute(0, 2, 3, 1)
            return x.mean((1, 2)) + x.amax((-3, -2)) + x.mean((2, 3)).mean() + x.flatten(2).mean((1, 2))[:, None]

    report = convert(nn.Sequential(nn.MaxPool2d(2), Last()), "mixed", replace=("max", "global"), example=X)
    assert [(row.name, row.kind, row.reason) for row in report.left] == [
        (name, "global", "channels last: pools take maps as [N, C, …]") for name in ("1.mean_1", "1.amax_0")
    ]


def test_other_sizes_and_indices_are_left():
    net = nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((2, 1)), nn.AdaptiveMaxPool2d(1, return_indices=True))
    report = convert(net, "mixed", replace=("max", "global"))
    assert [row.reason for row in report.left] == [
        "adaptive: its windows differ in size",
        "return_indices: a learned pool has none",
    ]


def test_pools_of_other_sorts_are_left():
    fractional = nn.FractionalMaxPool2d(2, output_ratio=0.5)
    report = convert(nn.Sequential(nn.MaxPool2d(2), nn.LPPool2d(2, 2), fractional), "mixed", replace=("max", "global"))
    assert [row.reason for row in report.left] == ["neither a maximum nor an average"] * 2


def test_a_mean_of_another_tensor_stays():
    class Tokens(nn.Module):
        def forward(self, x):
            return x.flatten(2).mean((1, 2)) + x[None].mean((2, 3)).sum()

    net = Tokens()
    expected = net(X)
    report = convert(nn.Sequential(net, nn.MaxPool1d(2)), "mixed", replace=("max", "global"))
    assert_close(net(X), expected)  # the second looks like a map's, and is not when it runs
    assert [row.name for row in report.rows if row.kind == "global"] == ["0.mean_0"]


def test_downsampling_knows_global_pools():
    assert downsampling(nn.AdaptiveAvgPool2d(1))
    net = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.AdaptiveAvgPool2d(1))
    report = convert(net, "mixed", replace=("max", "global"), only=downsampling)
    assert [row.name for row in report.replaced] == ["1"]


def test_a_fresh_head_is_converted_again():
    net = nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1))
    convert(net, "mixed", replace=("max", "global"))
    net[1] = nn.AdaptiveAvgPool2d(1)  # as timm's reset_classifier does
    old = copy.deepcopy(net)
    report = convert(net, "mixed", replace=("max", "global"))
    assert [row.name for row in report.replaced] == ["1"]
    assert_close(net(X), old(X))


class Computed(nn.Module):
    """As timm's AdaptiveAvgMaxPool2d: a function gets the output size."""

    def __init__(self):
        super().__init__()
        self.output_size = 1

    def forward(self, x):
        return pool_twice(x, self.output_size)


def pool_twice(x, output_size):
    return F.adaptive_avg_pool2d(x, output_size) + F.adaptive_max_pool2d(x, output_size)


def test_an_example_shows_a_size_that_forward_computes():
    with pytest.raises(ValueError, match="adaptive, to a size that is computed in forward: give example="):
        convert(Computed(), "mixed", replace=("global",))
    net = Computed()
    assert len(convert(net, "mixed", replace=("global",), example=X).replaced) == 2
    assert torch.equal(net(X), Computed()(X))
