"""Which pools are found, and which of them stay."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from learnpool import Pool2d, convert, restore
from networks import X


def rows(report):
    return {row.name: row for row in report.rows}


def test_one_tap_windows_are_left():
    net = nn.Sequential(nn.MaxPool2d(1), nn.MaxPool2d((1, 2)), nn.MaxPool2d(1, 2), nn.AvgPool2d(1, 2))
    report = convert(net, replace=("max", "avg"))
    one_cell = "a window of one cell: nothing to learn"
    assert (rows(report)["0"].reason, rows(report)["3"].reason) == (one_cell, one_cell)
    assert rows(report)["2"].reason == "your choice: replace=('max', 'avg')"  # a shortcut
    assert isinstance(net[1], Pool2d)
    with pytest.raises(ValueError, match=r"; its 1 shortcut pool: replace=\('shortcut',\)$"):
        convert(nn.Sequential(nn.MaxPool2d(1, 2)))


class Squeeze(nn.Module):
    """As timm's SEModule: a maximum that a flag switches on, and a call that only training makes."""

    def __init__(self, add_maxpool=False):
        super().__init__()
        self.add_maxpool = add_maxpool
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        if self.add_maxpool:
            s = 0.5 * s + 0.5 * x.amax((2, 3), keepdim=True)
        if self.training:
            s = s + F.adaptive_avg_pool2d(x, 1)
        return x * self.conv(s)


@pytest.mark.parametrize("example", [None, X])
def test_a_call_that_never_runs_is_left_and_every_pool_has_a_gradient(example):
    net = nn.Sequential(Squeeze(), Squeeze(add_maxpool=True))
    report = convert(net, "mixed", replace=("global",), example=example)
    never = "forward never calls it" if example is None else "the example never reached it"
    assert [(row.name, row.reason) for row in report.left] == [("0.amax_0", never)]
    assert {row.reason for row in report.replaced} == ({""} if example is None else {"", "in training alone"})
    net.train()(X).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize("example", [None, X])
def test_only_with_its_name_replaces_a_call_that_never_runs(example):
    net = Squeeze()
    report = convert(net, "mixed", replace=("global",), only=["mean_0", "amax_0"], example=example)
    assert [row.name for row in report.replaced] == ["mean_0", "amax_0"]
    assert report.replaced[1].reason.endswith(": no gradient" if example is None else "no gradient from such inputs")
    report = convert(Squeeze(), "mixed", replace=("global",), only="*", example=example)
    assert [row.name for row in report.left] == ["amax_0"]


def test_a_huge_window_without_an_example_is_left():
    net = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(640, ceil_mode=True))
    report = convert(net, "gated", replace=("max", "avg"))
    assert rows(report)["1"].reason == "a window of 640×640 looks global: give example="
    assert report.parameters == 4


def pad_same(x, kernel, stride, value):
    pads = []
    for n in reversed(x.shape[-2:]):
        total = max((-(-n // stride) - 1) * stride + kernel - n, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads, value=value)


class MaxPoolSame(nn.MaxPool2d):
    """TensorFlow's "same" padding, as timm writes it."""

    def forward(self, x):
        x = pad_same(x, self.kernel_size, self.stride, -float("inf"))
        return F.max_pool2d(x, self.kernel_size, self.stride, (0, 0), self.dilation, self.ceil_mode)


class MaxPoolInherited(nn.MaxPool2d):
    """The same by ``super()``, and with a padding module, as Hugging Face's BiT."""

    def __init__(self, *args):
        super().__init__(*args)
        self.pad = nn.ConstantPad2d((0, 1, 0, 1), torch.finfo(torch.float32).min)

    def forward(self, input):
        return super().forward(self.pad(input))


class AvgPoolSame(nn.AvgPool2d):
    def forward(self, x):
        x = pad_same(x, self.kernel_size, self.stride, 0)
        return F.avg_pool2d(x, self.kernel_size, self.stride, 0, self.ceil_mode, self.count_include_pad)


@pytest.mark.parametrize("example", [None, X])
@pytest.mark.parametrize("size", [36, 35])
@pytest.mark.parametrize("cls", [MaxPoolSame, MaxPoolInherited, AvgPoolSame])
def test_subclasses_with_a_forward_of_their_own_are_converted(cls, size, example):
    net = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), cls(3, 2))
    x = torch.randn(2, 3, size, size, requires_grad=True)
    expected = net(x)
    grad = torch.autograd.grad(expected.square().sum(), x)
    name = "1.avg_pool2d_0" if cls is AvgPoolSame else "1.max_pool2d_0"
    report = convert(net, "mixed", start="same", replace=("max", "avg"), example=example)
    assert [row.name for row in report.replaced] == [name]
    assert torch.equal(net(x), expected)
    torch.testing.assert_close(torch.autograd.grad(net(x).square().sum(), x), grad)
    restore(net)
    assert torch.equal(net(x), expected)
    convert(net, "gated", replace=("max", "avg"), example=example)
    out = net(x)
    assert out.isfinite().all()
    out.sum().backward()
    assert net.get_submodule(name).weight.grad.isfinite().all()


def test_only_the_pools_own_input_is_padded_otherwise():
    class Twice(nn.Module):
        def forward(self, x):
            x = F.pad(x, (1, 1, 1, 1), value=-torch.inf)
            return F.max_pool2d(x, 3, 2), x

    net = Twice()
    convert(net, "gated")
    y, padded = net(X)
    assert y.isfinite().all()
    assert padded.isneginf().any()


@pytest.mark.slow
def test_padding_by_hand_compiles():
    net = nn.Sequential(nn.Conv2d(3, 3, 3), MaxPoolSame(3, 2))
    convert(net, "gated")
    torch._dynamo.reset()
    got = torch.compile(net, fullgraph=True, backend="aot_eager")(X)
    assert got.isfinite().all()
    torch.testing.assert_close(got, net(X))


def test_a_pool_whose_input_is_masked_is_left():
    net = nn.Sequential(nn.ConstantPad2d(1, -torch.inf), nn.MaxPool2d(3), nn.MaxPool2d(2))
    assert rows(convert(net, example=X))["1"].reason == "its input holds −inf: an average of it would too"


def cyclic():
    class Child(nn.Module):
        def __init__(self, parent):
            super().__init__()
            self.parent = parent
            self.pool = nn.MaxPool2d(2)

        def forward(self, x):
            return self.pool(x)

    net = nn.Module()
    net.first = nn.MaxPool2d(2)
    net.child = Child(net)
    return net


@pytest.mark.parametrize("example", [None, X])
def test_modules_that_hold_each_other(example):
    net = cyclic().child
    report = convert(net, "gated", example=example)
    assert {row.name for row in report.replaced} == {"pool", "parent.first"}
    assert net(X).shape == (2, 3, 18, 18)
    assert copy.deepcopy(net)(X).shape == (2, 3, 18, 18)
    assert sorted(restore(net)) == ["parent.first", "pool"]


def test_no_pools_is_said_only_of_what_was_looked_at():
    net = nn.Sequential(nn.ReLU())
    with pytest.raises(ValueError, match="^convert: Sequential has no pools$"):
        convert(net, example=X)
    with pytest.raises(ValueError, match="has no pools among its modules and the calls its source shows; example="):
        convert(net)
