"""Small networks for the tests of ``convert``: pools as modules, as functional calls, and in odd places."""

import copy
import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import max_pool2d as pool_alias
from torch.nn.parameter import is_lazy

X = torch.randn(2, 3, 36, 36, generator=torch.Generator().manual_seed(1))


def modules():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 6, 3, padding=1), nn.Dropout(0.3), nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(3, 2, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5),
    )  # fmt: skip


def helper(x):
    return F.max_pool2d(x, 2)


class Block(nn.Module):
    """Its forward calls pools, one of them in training only."""

    def __init__(self, channels=4, inner=None):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.aux = nn.Linear(channels, 1)
        self.inner = inner

    def forward(self, x):
        x = F.relu(self.conv(x))
        if self.inner is not None:
            x = self.inner(x)
        if self.training:
            x = x + self.aux(F.max_pool2d(x, 3, 1, 1).mean((2, 3)))[..., None, None]
        return F.max_pool2d(x, kernel_size=3, stride=1, padding=1)


class Calls(nn.Module):
    """Every way to call a pool without a module."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.block = Block(4)
        self.size = 2
        self.pool = nn.MaxPool2d(2)
        self.partial = functools.partial(torch.max_pool2d, kernel_size=3, stride=1, padding=1)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = self.block(self.stem(x))
        x = F.max_pool2d(x, self.size)  # 36 -> 18
        x = torch.max_pool2d(x, 3, 1, 1) + pool_alias(
            x,
            3,
            stride=1,
            padding=(1, 1),
        )
        x = self.tail(self.drop(x))
        x = sum(F.max_pool2d(x, k, 1, k // 2) for k in (3, 5))
        x = self.pool(self.partial(x))  # 9 -> 4
        return F.avg_pool2d(x, x.shape[-2:]).flatten(1)

    def tail(self, x):
        return helper(x) + F.avg_pool2d(x, 2, count_include_pad=False)  # 18 -> 9


def outputs(net, x, train, seed=0):
    """What a network computes from a seed, in train() or eval(); its own state is left alone."""
    net = copy.deepcopy(net).train(train)
    torch.manual_seed(seed)
    return net(x)


def take_snapshot(net):
    """Everything a failed convert must leave alone."""
    tensors = {
        key: (value, value.clone()) for key, value in net.state_dict().items() if not (value.is_meta or is_lazy(value))
    }
    tree = [(name, module, module.training) for name, module in net.named_modules(remove_duplicate=False)]
    fields = [(module, set(module.__dict__)) for module in net.modules()]
    return tensors, tree, fields


def assert_unchanged(net, snapshot):
    tensors, tree, fields = snapshot
    now = [(name, module, module.training) for name, module in net.named_modules(remove_duplicate=False)]
    assert [(a, id(b), c) for a, b, c in now] == [(a, id(b), c) for a, b, c in tree]
    assert all(set(module.__dict__) == names for module, names in fields)
    state = net.state_dict()
    assert all(torch.equal(state[key], value) for key, (_, value) in tensors.items())
