"""AlexNet with learned pools: the paper's counts, shapes of every layer, sizes and widths."""

import pytest
import torch
from torch import nn

from learnpool.nets import alexnet

SHAPES = {
    "conv1": (96, 55, 55), "pool1": (96, 27, 27), "conv2": (256, 27, 27), "pool2": (256, 13, 13),
    "conv3": (384, 13, 13), "conv4": (384, 13, 13), "conv5": (256, 13, 13), "pool5": (256, 6, 6),
    "fc6": (4096,), "fc7": (4096,), "fc8": (1000,),
}  # fmt: skip


def count(net):
    return sum(p.numel() for p in net.parameters())


def test_parameters_of_the_paper():
    with torch.device("meta"):
        assert count(alexnet()) == 60_965_224
        assert count(alexnet(pools="tree2+gated")) == 60_965_224 + 27 + 9 + 9


def test_shapes_of_all_layers():
    with torch.device("meta"):
        net, x = alexnet(pools="tree2+gated"), torch.empty(2, 3, 227, 227)
        for name, layer in net.named_children():
            x = layer(x)
            if name in SHAPES:
                assert x.shape == (2, *SHAPES[name]), name


def test_order_of_the_layers():
    names = [type(layer).__name__ for layer in alexnet(10, width=0.1, size=67)][:8]
    assert names == ["Conv2d", "ReLU", "LocalResponseNorm", "MaxPool2d"] * 2
    assert [net.groups for net in alexnet(10, width=0.1, size=67) if isinstance(net, nn.Conv2d)] == [1, 2, 1, 2, 2]


@pytest.mark.parametrize("pools", ["max", "tree2+gated", "mixed:region_channel", "stochastic", "gated:net"])
@pytest.mark.parametrize("size", [40, 67, 96])
def test_any_pools_in_small_networks(pools, size):
    net = alexnet(7, pools=pools, width=0.05, size=size, channels=1)
    votes = net(torch.randn(2, 1, size, size))
    assert votes.shape == (2, 7)
    votes.sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_pools_change_no_other_start_value():
    torch.manual_seed(0)
    plain = alexnet(10, width=0.05, size=67).state_dict()
    for pools in ("tree2+gated", "mixed"):
        torch.manual_seed(0)
        learned = alexnet(10, pools=pools, width=0.05, size=67).state_dict()
        assert all(torch.equal(learned[name], value) for name, value in plain.items())


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"size": 32}, "alexnet: size must be larger for 3 pools, got 32"),
        ({"width": 0}, "alexnet: width must be a number above 0, got 0"),
        ({"pools": "gatd"}, "gatd"),
    ],
)
def test_mistakes(options, part):
    with pytest.raises(ValueError, match=part):
        alexnet(10, **options)
