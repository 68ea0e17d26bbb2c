"""Hooks and attributes that others attached to a pool move to the new one, and back."""

import pytest
import torch
from torch import nn

from learnpool import convert, restore
from networks import X, modules


def test_attributes_of_a_framework_are_kept():
    class Graph(nn.Module):
        """Ultralytics' way: every layer says where its input comes from."""

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Conv2d(3, 3, 1), nn.MaxPool2d(2), nn.ReLU()])
            for i, layer in enumerate(self.layers):
                layer.i, layer.f, layer.type, layer.np = i, -1, f"torch.nn.{type(layer).__name__}", 0

        def forward(self, x):
            seen = []
            for layer in self.layers:
                assert isinstance(layer.type, str)
                x = layer(seen[layer.f] if layer.i else x)
                seen.append(x)
            return x

    net = Graph()
    expected = net(X)
    old = net.layers[1]
    convert(net, "mixed", start="same")
    assert torch.equal(net(X), expected)
    new = net.layers[1]
    assert (new.i, new.f, new.type, new.np) == (1, -1, "torch.nn.MaxPool2d", 0)
    new.i = 7
    restore(net)
    assert net.layers[1] is old
    assert old.i == 7


def test_a_pools_own_names_are_not_overwritten():
    net = nn.Sequential(nn.MaxPool2d(2))
    net[0].tree, net[0].window, net[0].note = "a tree", "a window", "a note"
    convert(net, "gated")
    assert net[0].note == "a note"
    assert net[0].tree != "a tree"
    assert net[0](X).shape == (2, 3, 18, 18)


@pytest.mark.parametrize("when", ["before", "after"])
def test_full_backward_hooks(when):
    net, seen = modules(), []

    def hook(module, grads, outs):
        seen.append((type(module).__name__, grads[0].shape))

    handle = net[3].register_full_backward_hook(hook) if when == "before" else None
    convert(net, "gated")
    handle = handle or net[3].register_full_backward_hook(hook)
    net(X).sum().backward()
    restore(net)
    net(X).sum().backward()
    assert seen == [("GatedPool2d", (2, 4, 36, 36)), ("MaxPool2d", (2, 4, 36, 36))]
    handle.remove()
    net(X).sum().backward()
    assert len(seen) == 2


def test_backward_pre_hooks():
    net, seen = modules(), []
    net[3].register_full_backward_pre_hook(lambda module, grads: seen.append(type(module).__name__))
    convert(net, "gated")
    net(X).sum().backward()
    assert seen == ["GatedPool2d"]


def test_state_dict_hooks():
    net, seen = modules(), []
    pool = net[3]
    pool.register_state_dict_post_hook(lambda module, *args: seen.append(("saved", type(module).__name__)))
    pool.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append(("saving", type(module).__name__)))
    pool.register_load_state_dict_pre_hook(lambda module, *args: seen.append(("loading", type(module).__name__)))
    pool.register_load_state_dict_post_hook(lambda module, keys: seen.append(("loaded", type(module).__name__)))
    convert(net, "gated")
    net.load_state_dict(net.state_dict())
    words = ["saving", "saved", "loading", "loaded"]
    assert seen == [(word, "GatedPool2d") for word in words]
    restore(net)
    net.load_state_dict(net.state_dict())
    assert seen[4:] == [(word, "MaxPool2d") for word in words]
