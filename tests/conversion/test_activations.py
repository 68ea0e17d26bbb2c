"""``after="activation"``: pools behind the norm and the activation of a strided convolution."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from learnpool import convert, restore

X = torch.randn(2, 3, 33, 30, generator=torch.Generator().manual_seed(1))
OPTIONS = {"replace": ("strided",), "after": "activation", "example": X}


class Net(nn.Module):
    """Three strided convolutions: an activation of its own, one that is shared, and a functional one."""

    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), norm(4), nn.SiLU())
        self.conv1, self.conv2, self.conv3 = (nn.Conv2d(4, 4, 3, s, 1) for s in (2, 1, 2))
        self.bn1, self.bn2, self.relu = norm(4), norm(4), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.stem(x)
        x = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return F.gelu(self.conv3(x))


def make(**options):
    torch.manual_seed(0)
    net = Net(**options)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(), module.running_var.uniform_(0.5, 2), module.weight.normal_()
    return net


def test_pools_stand_behind_activations():
    net = make().eval()
    expected, old = net(X), copy.deepcopy(net)
    report = convert(net, "filter", **OPTIONS)
    assert [(row.name, row.now) for row in report.replaced] == [
        ("stem.0", "filter 3×3 behind stem.2"),
        ("conv1", "filter 3×3 behind the relu"),
        ("conv3", "filter 3×3 behind the gelu"),
    ]
    assert {row.exact for row in report.rows} == {"up to rounding, in eval()"}
    assert_close(net(X), expected)
    assert {key for key in net.state_dict() if "pool" in key} == {"pool.weight", "pool_0.weight", "stem.2.pool.weight"}
    seen = []
    net.stem[2].pool.register_forward_hook(lambda pool, args, out: seen.append(args[0]))
    net.pool.register_forward_hook(lambda pool, args, out: seen.append(args[0]))
    net(X)
    assert [tuple(x.shape[2:]) for x in seen] == [(33, 30), (17, 15)]
    assert_close(seen[0][:, :, ::2, ::2], old.stem(X))  # behind the SiLU
    assert seen[1].min() >= 0  # behind the ReLU
    assert sorted(restore(net)) == ["pool", "pool_0", "stem.2.pool"]
    assert torch.equal(net(X), expected)
    assert all(a.__dict__.keys() == b.__dict__.keys() for a, b in zip(net.modules(), old.modules(), strict=True))


def test_a_filter_there_is_more_than_a_larger_convolution():
    behind, after = make().eval(), make().eval()
    convert(behind, "filter", replace=("strided",), example=X, only="stem.0")
    convert(after, "filter", **OPTIONS, only="stem.0")
    with torch.no_grad():
        behind.stem[0].pool.weight.fill_(1 / 9), after.stem[2].pool.weight.fill_(1 / 9)
    assert not torch.allclose(behind(X), after(X), atol=1e-3)


def test_it_compiles_and_copies():
    net = make().eval()
    convert(net, "gated", **OPTIONS)
    torch._dynamo.reset()
    assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(X), net(X))
    assert_close(torch.export.export(net, (X,)).module()(X), net(X))
    other = copy.deepcopy(net)
    assert torch.equal(other(X), net(X))
    assert torch.equal(pickle.loads(pickle.dumps(net))(X), net(X))
    restore(other)
    assert torch.equal(other(X), make().eval()(X))


class Line(nn.Module):
    """An activation as a layer that is shared, or as a function."""

    def __init__(self, function):
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 4, 3, 2, 1), function

    def forward(self, x):
        return self.function(self.conv(self.function(x)))


HIDDEN = [F.hardswish, F.hardsigmoid, F.sigmoid, F.tanh, torch.relu_, nn.Hardswish()]  # from us while Dynamo traces
SHOWN = [F.relu, F.silu, torch.relu, torch.Tensor.tanh, nn.ReLU(), nn.SiLU(inplace=True)]


@pytest.mark.parametrize("layer", [nn.Hardswish, nn.Hardsigmoid, nn.ReLU6, nn.Sigmoid])
def test_a_compiled_layer_has_its_pool_behind_it(layer):
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), layer())
    report = convert(net, "filter", **OPTIONS)
    assert report.rows[0].now == "filter 3×3 behind 1"
    torch.nn.init.normal_(net[1].pool.weight)
    torch._dynamo.reset()
    assert_close(torch.compile(net, fullgraph=True, backend="eager")(X), net(X))


@pytest.mark.parametrize("function", [*HIDDEN, *SHOWN], ids=lambda f: getattr(f, "__name__", str(f)))
def test_a_function_that_compilers_hide_gets_no_pool(function):
    net = Line(function).eval()
    report = convert(net, "gated", **OPTIONS)
    hidden = any(function is other for other in HIDDEN)
    assert report.rows[0].now.startswith("then gated 3×3" if hidden else "gated 3×3 behind the ")
    x = X.clone()
    torch._dynamo.reset()
    assert_close(torch.compile(net, fullgraph=True, backend="eager")(x.clone()), net(x.clone()))


def test_a_shared_activation_is_named_by_its_function_and_block():
    net = nn.Sequential(nn.Conv2d(3, 3, 1), make())
    report = convert(net, "filter", **OPTIONS)
    assert [row.now for row in report.replaced] == [
        "filter 3×3 behind 1.stem.2", "filter 3×3 behind the relu in 1", "filter 3×3 behind the gelu in 1",
    ]  # fmt: skip


def test_a_norm_over_the_map_is_not_exact():
    net = make(norm=lambda channels: nn.GroupNorm(2, channels))
    report = convert(net, "filter", **OPTIONS)
    assert [row.exact for row in report.rows] == ["no", "no", "up to rounding, in eval()"]
    assert net(X).shape == make()(X).shape


class Forked(nn.Module):
    """The convolution's output is read twice: the pool cannot stand behind one of them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)

    def forward(self, x):
        x = self.conv(x)
        return F.relu(x) + x


class Bare(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3), nn.ReLU())


@pytest.mark.parametrize("net", [Forked, Bare])
def test_without_an_activation_of_its_own_the_pool_is_behind_the_convolution(net):
    net = net()
    expected = net(X)
    report = convert(net, "filter", **OPTIONS)
    assert report.rows[0].now == "then filter 3×3"
    assert report.rows[0].reason.endswith("no activation follows it alone, so its pool is behind the convolution")
    assert_close(net(X), expected)


def test_a_convolution_the_example_never_reached_keeps_both_remarks():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.spare = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(3, 4, 4, 4)

        def forward(self, x):
            return F.relu(self.spare(x) if x.shape[-1] > 1000 else self.conv(x))

    reason = convert(Spare(), "filter", **OPTIONS, first="spare").rows[1].reason
    assert reason.split("; ")[-3:] == [
        "its pool cannot come first: d(k − 1) is not 2p",
        "no activation follows it alone, so its pool is behind the convolution",
        "the example never reached it: no gradient from such inputs",
    ]


def test_bad_input():
    with pytest.raises(ValueError, match="^convert: after must be 'convolution' or 'activation', got 'norm'$"):
        convert(make(), "filter", replace=("strided",), after="norm")
    with pytest.raises(ValueError, match="^convert: after='activation' needs example=, an input of the network"):
        convert(make(), "filter", replace=("strided",), after="activation")
