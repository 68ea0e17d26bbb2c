"""The paper's network: its numbers of parameters, its maps, and pools that change nothing but themselves."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from learnpool.nets import Table, Votes
from learnpool.nets import dsn as supervised
from learnpool.nets.dsn import compute_head_factor

pytestmark = pytest.mark.trains

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
    ("cifar10", "conv", 479_552),
    ("mnist", "conv", 295_232),
]
MAPS = {"mnist": (28, 14, 7), "cifar10": (32, 16, 8), "cifar100": (32, 16, 8), "svhn": (32, 16, 8)}


HEADS = {"mnist": 3_010_620, "cifar10": 3_932_220, "cifar100": 51_610_200, "svhn": 4_751_420}
CONVS = ("conv1", "conv2", "conv3", "conv4", "conv5", "conv6")


def dsn(data="cifar10", pool="max", **options):
    """The network as it is after training."""
    return supervised(data, pool, **{"supervise": False} | options)


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


@pytest.mark.parametrize(("data", "count"), HEADS.items())
def test_parameters_of_the_heads(data, count):
    net = supervised(data)
    heads = {name: p.numel() for name, p in net.named_parameters() if name.startswith("heads.")}
    assert list(heads) == [f"heads.{conv}.{kind}" for conv in CONVS for kind in ("weight", "bias")]
    assert sum(heads.values()) == count
    assert parameters(net) == PARAMETERS[data] + count
    net.remove_heads()
    assert parameters(net) == PARAMETERS[data]
    assert not any(name.startswith("heads") for name in net.state_dict())


@pytest.mark.parametrize(("extra", "count"), [(1, 590_080), (2, 1_180_160)])
def test_parameters_of_extra_convolutions(extra, count):
    assert parameters(dsn(extra_convs=extra)) == PARAMETERS["cifar10"] + count
    net = supervised(extra_convs=extra, width=0.05)
    assert list(net.heads) == [*CONVS, *(f"extra{k}" for k in range(extra))]


def test_extra_convolutions_are_used():
    net = dsn(extra_convs=1, width=0.05).eval()
    x = torch.randn(2, 3, 32, 32)
    before = net(x)
    net.extra[0].weight.data *= 2
    assert not torch.equal(net(x), before)


@pytest.mark.parametrize("pool", ["max", "tree3+gated", "mixed:region_channel", "conv"])
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
    net = dsn("cifar10", "tree2+gated", width=0.05, init="kaiming").eval()  # DSN's own is for the full width
    x = y = torch.randn(2, 3, 32, 32)
    for stage in (("conv1", "conv2", "mlpconv1", "pool1"), ("conv3", "conv4", "mlpconv2", "pool2")):
        for name in stage:
            y = net.get_submodule(name)(y)
            y = y if name.startswith("pool") else F.relu(y)
    for name in ("conv5", "conv6", "mlpconv3"):
        y = F.relu(net.get_submodule(name)(y))
    torch.testing.assert_close(net(x), F.adaptive_avg_pool2d(net.mlpconv4(y), 1).flatten(1))


def test_heads_see_their_convolution_before_its_relu():
    net = supervised(width=0.05, extra_convs=1, init="kaiming")
    outputs = {}
    for name in (*CONVS, "extra.0"):
        net.get_submodule(name).register_forward_hook(lambda module, given, out, n=name: outputs.update({n: out}))
    output = net(torch.randn(2, 3, 32, 32))
    assert isinstance(output, Votes)
    assert len(output.heads) == 7
    for name, head, votes in zip(outputs, net.heads.values(), output.heads, strict=True):
        assert (outputs[name] < 0).any(), name
        torch.testing.assert_close(votes, F.linear(outputs[name].flatten(1), head.weight, head.bias))


def test_heads_speak_in_training_only():
    net = supervised(width=0.05)
    x = torch.randn(2, 3, 32, 32)
    assert isinstance(net.eval()(x), torch.Tensor)
    assert isinstance(net.train()(x), Votes)
    net.remove_heads()
    assert isinstance(net(x), torch.Tensor)


def test_other_images():
    net = supervised(Table(size=(20, 13), channels=2, classes=3), "gated:region_channel", width=0.05)
    output = net(torch.randn(2, 2, 20, 13))
    assert [votes.shape for votes in (output.votes, *output.heads)] == [(2, 3)] * 7
    assert not any(is_lazy(p) for p in net.parameters())
    assert net.pool1.grid == (10, 6)
    assert net.conv1.out_channels == 6
    strided = supervised(Table(size=(21, 14), channels=2, classes=3), "conv", width=0.05)
    assert len(strided(torch.randn(2, 2, 21, 14)).heads) == 6


def test_strided_convolutions():
    net = dsn("mnist", "conv", width=0.1)
    first, second = net.pool1[0], net.pool2[0]
    assert (first.kernel_size, first.stride, first.padding) == ((3, 3), (2, 2), (1, 1))
    assert (second.kernel_size, second.stride, second.padding) == ((2, 2), (2, 2), (0, 0))
    assert all(isinstance(pool[1], nn.ReLU) for pool in (net.pool1, net.pool2))


def test_start_values_of_dsn():
    net = supervised(width=0.5)
    for name, layer in net.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            assert not layer.bias.any()
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 2000:
            assert layer.weight.std().item() == pytest.approx(0.05, rel=0.1), name
    head = net.heads["conv6"].weight
    assert head.abs().max().item() == pytest.approx((6 / sum(head.shape)) ** 0.5, rel=0.01)  # Xavier's uniform


def test_start_values_of_kaiming():
    net = dsn(width=0.5, init="kaiming")
    assert net.conv4.weight.std().item() == pytest.approx((2 / (9 * net.conv4.in_channels)) ** 0.5, rel=0.05)
    assert not net.conv4.bias.any()
    neutral = dsn(width=0.05, pool="gated", start="neutral")
    assert not neutral.pool1.weight.any()


def test_rates_by_kind_of_parameter():
    net = supervised(pool="gated", width=0.05)
    groups = {group["name"]: group for group in net.parameter_groups(5e-4)}
    settings = {name: (group["factor"], group["weight_decay"]) for name, group in groups.items()}
    assert settings == {
        "weights": (1, 5e-4),
        "weights.bias": (2, 0),
        "classifier": (0.1, 5e-4),
        "classifier.bias": (0.2, 0),
        "heads": (0.001, 5e-4),
        "heads.bias": (0.002, 0),
        "pools": (1, 5e-4),
    }
    assert groups["classifier"]["params"] == [net.mlpconv4.weight]
    assert groups["classifier.bias"]["params"] == [net.mlpconv4.bias]
    assert {id(p) for p in groups["heads"]["params"]} == {id(head.weight) for head in net.heads.values()}
    assert {id(p) for p in groups["pools"]["params"]} == {id(net.pool1.weight), id(net.pool2.weight)}
    counted = [id(p) for group in groups.values() for p in group["params"]]
    assert sorted(counted) == sorted(id(p) for p in net.parameters())
    undecayed = net.parameter_groups(5e-4, pool_decay=0)
    assert {group["name"]: group["weight_decay"] for group in undecayed}["pools"] == 0
    assert "heads" not in {group["name"] for group in dsn(width=0.05).parameter_groups(0.0)}


def test_the_heads_rate_falls():
    assert compute_head_factor(0) == 1
    assert compute_head_factor(10_000) == pytest.approx(2**-0.75)


def test_heads_leave_the_other_weights_as_they_were():
    torch.manual_seed(1)
    base = dsn(width=0.05).state_dict()
    torch.manual_seed(1)
    state = supervised(width=0.05).state_dict()
    for name, value in base.items():
        assert torch.equal(state[name], value), name


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
    net = dsn(pool="tree3+gated", width=0.1, init="kaiming")  # DSN's own is for the full width
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
        ({"data": "imagenet"}, r"^dsn: unknown data 'imagenet'; known: mnist, .*cifar100, svhn, digits, or a Table"),
        ({"dropout": 1}, r"^dsn: dropout must be a number of at least 0 and below 1, got 1$"),
        ({"extra_convs": -1}, r"^dsn: extra_convs must be an int of at least 0, got -1$"),
        ({"norm": "layer"}, r"^dsn: norm must be one of none, batch, got 'layer'$"),
        ({"init": "xavier"}, r"^dsn: init must be one of dsn, kaiming, got 'xavier'$"),
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


@pytest.mark.parametrize("pool", ["max", "stochastic", "tree3+gated", "mixed:region_channel", "conv"])
@pytest.mark.parametrize("size", [(4, 4), (5, 4), (4, 33)])
def test_the_smallest_images(size, pool):
    net = supervised(Table(size, 1, 2), pool, width=0.05)
    output = net(torch.randn(3, 1, *size))
    assert [votes.shape for votes in (output.votes, *output.heads)] == [(3, 2)] * 7
    assert output.votes.isfinite().all()


def test_images_that_do_not_fit():
    with pytest.raises(ValueError, match=r"^dsn: images must be at least 4×4 for two pools, got 3×9$"):
        Table(size=(3, 9), channels=1, classes=2)
    with pytest.raises(ValueError, match=r"^dsn: classes must be at least 2, got 1$"):
        Table(size=8, channels=1, classes=1)
    with pytest.raises(TypeError, match=r"^dsn: data must be a name or a Table, got int$"):
        dsn(32)


def test_normalisation_behind_every_convolution_but_the_last():
    net = supervised("digits", "gated", norm="batch", width=0.1, extra_convs=1, supervise=False, dropout=0.0)
    seen = {}
    for name, norm in net.norms.items():
        norm.register_forward_hook(lambda _, x, y, name=name: seen.update({name: (x[0], y)}))
    net(torch.randn(8, 1, 8, 8))
    convs = [name for name, layer in net.named_children() if isinstance(layer, nn.Conv2d)]
    assert {*seen} == {*convs, "extra0"} - {"mlpconv4"}
    for _, y in seen.values():
        assert y.mean((0, 2, 3)).abs().max() < 1e-5
    plain = supervised("digits", "gated", width=0.1, extra_convs=1, supervise=False)
    assert [name for name in net.state_dict() if not name.startswith("norms.")] == [*plain.state_dict()]
