"""The paper's network: its numbers of parameters, its maps, and pools that change nothing but themselves."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from learnpool.nets import dsn

# By Table A1, with biases and without the deep-supervision heads.
PARAMETERS = {"mnist": 1_856_842, "cifar10": 1_859_146, "cifar100": 1_611_268, "svhn": 3_758_186}
EXTRA = [
    ("cifar10", "avg", 0),
    ("cifar10", "stochastic", 0),
    ("cifar10", "half", 0),
    ("cifar10", "mixed", 2),
    ("cifar10", "mixed:net", 1),
    ("cifar10", "gated", 18),
    ("cifar10", "gated:net", 9),
    ("cifar10", "filter", 18),
    ("cifar10", "tree2+max", 27),
    ("cifar10", "tree3+max", 63),
    ("cifar10", "tree2+gated", 36),
    ("cifar10", "tree3+gated", 72),
    ("cifar10", "mixed:region_channel", 45_056),
    ("cifar10", "gated:region_channel", 405_504),
    ("cifar100", "mixed:region_channel", 36_864),
    ("svhn", "mixed:region_channel", 40_960),
    ("mnist", "mixed:region_channel", 34_496),
    ("mnist", "gated", 13),
    ("mnist", "filter", 13),
    ("mnist", "tree2+gated", 31),
    ("mnist", "tree3+gated", 67),
]
MAPS = {"mnist": (28, 14, 7), "cifar10": (32, 16, 8), "cifar100": (32, 16, 8), "svhn": (32, 16, 8)}


def parameters(net):
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(("data", "count"), PARAMETERS.items())
def test_parameters_of_the_paper(data, count):
    assert parameters(dsn(data)) == count


@pytest.mark.parametrize(("data", "pool", "extra"), EXTRA)
def test_extra_parameters_of_a_pool(data, pool, extra):
    net = dsn(data, pool)
    assert not any(is_lazy(p) for p in net.parameters())
    assert parameters(net) == PARAMETERS[data] + extra


@pytest.mark.parametrize("pool", ["max", "tree3+gated", "mixed:region_channel"])
@pytest.mark.parametrize("data", MAPS)
def test_maps_and_votes(data, pool):
    net = dsn(data, pool, width=0.05)
    sizes = []
    for name in ("conv1", "conv3", "conv6"):
        net.get_submodule(name).register_forward_hook(lambda module, given, out: sizes.append(out.shape[2:]))
    channels = 1 if data == "mnist" else 3
    out = net(torch.randn(2, channels, MAPS[data][0], MAPS[data][0]))
    assert out.shape == (2, 100 if data == "cifar100" else 10)
    assert sizes == [(n, n) for n in MAPS[data]]


def test_layer_by_layer():
    net = dsn("cifar10", "tree2+gated", width=0.05).eval()
    x = y = torch.randn(2, 3, 32, 32)
    for stage in (("conv1", "conv2", "mlpconv1", "pool1"), ("conv3", "conv4", "mlpconv2", "pool2")):
        for name in stage:
            y = net.get_submodule(name)(y)
            y = y if name.startswith("pool") else F.relu(y)
    for name in ("conv5", "conv6", "mlpconv3"):
        y = F.relu(net.get_submodule(name)(y))
    torch.testing.assert_close(net(x), F.adaptive_avg_pool2d(net.mlpconv4(y), 1).flatten(1))


def test_dropout_follows_each_pool_in_training():
    net = dsn("cifar10", width=0.1)
    zeros = []
    for layer in (net.conv3, net.conv5):
        layer.register_forward_hook(lambda module, given, out: zeros.append((given[0] == 0).float().mean().item()))
    dead = []
    for pool in (net.pool1, net.pool2):
        pool.register_forward_hook(lambda module, given, out: dead.append((out == 0).float().mean().item()))
    net(torch.randn(16, 3, 32, 32))
    # A cell is zero because dropout or a ReLU made it so.
    assert zeros == pytest.approx([0.5 + 0.5 * d for d in dead], abs=0.05)
    zeros.clear()
    dead.clear()
    net.eval()(torch.randn(16, 3, 32, 32))
    assert zeros == dead


def test_windows():
    for data, second in (("cifar10", 3), ("mnist", 2)):
        net = dsn(data, "gated", width=0.05)
        for pool, kernel in ((net.pool1, 3), (net.pool2, second)):
            assert (pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode) == (kernel, 2, 0, True)
    assert isinstance(dsn(width=0.05).pool1, nn.MaxPool2d)


def test_width_scales_all_but_image_and_classes():
    net = dsn("cifar100", width=0.25)
    assert (net.conv1.in_channels, net.conv1.out_channels, net.mlpconv1.out_channels) == (3, 48, 24)
    assert net.mlpconv4.out_channels == 100
    assert dsn(width=0.001).conv1.out_channels == 1


@pytest.mark.parametrize("pool", ["gated", "tree3+gated", "mixed:region_channel", "gated:net"])
def test_a_pool_leaves_the_other_weights_as_they_were(pool):
    torch.manual_seed(1)
    base = dsn(width=0.05).state_dict()
    torch.manual_seed(1)
    state = dsn(pool=pool, width=0.05).state_dict()
    for name, value in base.items():
        assert torch.equal(state[name], value), name


def test_net_is_one_set_in_both_pools():
    net = dsn(pool="gated:net", width=0.05)
    assert net.pool1.weight is net.pool2.weight
    other = dsn(pool="gated", width=0.05)
    assert other.pool1.weight is not other.pool2.weight


def test_net_with_one_tree_only_is_that_pools_own():
    net = dsn(pool="tree2+gated:net", width=0.05)
    assert (net.pool1.share, net.pool2.share) == ("layer", "net")
    assert net.pool1.weight.shape[0] == 3


def test_it_learns():
    torch.manual_seed(0)
    net = dsn(pool="tree3+gated", width=0.1)
    x, target = torch.randn(8, 3, 32, 32), torch.arange(8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    before = [p.detach().clone() for p in net.parameters()]
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(x), target).backward()
        optimizer.step()
    assert all(p.grad.isfinite().all() for p in net.parameters())
    assert not any(torch.equal(p, was) for p, was in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": "imagenet"}, r"^dsn: unknown data 'imagenet'; known: mnist, cifar10, cifar100, svhn$"),
        ({"width": 0}, r"^dsn: width must be a number above 0, got 0$"),
        ({"width": float("nan")}, r"^dsn: width must be a number above 0, got nan$"),
        ({"width": "wide"}, r"^dsn: width must be a number above 0, got 'wide'$"),
        ({"pool": "gatet"}, r"^pool 'gatet': unknown pool 'gatet' \(did you mean 'gated'\?\) at column 1"),
        ({"pool": "tree2:net+gated:net"}, r"^tie: layers must have equal trees"),
        ({"data": "mnist", "pool": "gated:net"}, r"^tie: layers must have equal windows, got 3×3 and 2×2$"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError, match=message):
        dsn(**arguments)
