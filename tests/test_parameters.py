"""A layer's parameters: sizes taken from the first input, one set for several layers, groups for an optimizer."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from cases import ODD
from learnpool import (
    GatedPool2d,
    MixedPool2d,
    Pool2d,
    parameter_groups,
    tie,
)


def count(*modules):
    return sum(p.numel() for p in {id(p): p for m in modules for p in m.parameters()}.values())


@pytest.mark.parametrize("share", ["region", "channel", "region_channel"])
def test_sizes_not_given_are_taken_from_the_first_input(share):
    layer = Pool2d(ODD, 3, 2, 1, share=share)
    assert all(nn.parameter.is_lazy(p) for p in layer.parameters())
    copied, pickled = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    for lazy in (layer, copied, pickled):
        y = lazy(torch.randn(2, 5, 8, 6))
        extent = (5 if "channel" in share else 1, *((4, 3) if "region" in share else (1, 1)))
        assert lazy.weight.shape == (4, *extent, 3, 3)
        assert lazy.mix.shape == (1, *extent)
        assert_close(lazy.mix, torch.full_like(lazy.mix, 0.8))
        assert lazy.channels == (5 if "channel" in share else None)
        assert lazy.grid == ((4, 3) if "region" in share else None)
        y.sum().backward()
        assert not hasattr(lazy, "_initialize_hook")


def test_a_lazy_layer_loads_a_state_dict():
    full = Pool2d(ODD, 3, 2, 1, share="region_channel", channels=5, grid=(4, 3))
    lazy = Pool2d(ODD, 3, 2, 1, share="region_channel")
    lazy.load_state_dict(full.state_dict())
    x = torch.randn(2, 5, 8, 6)
    assert (lazy.channels, lazy.grid) == (5, (4, 3))
    assert torch.equal(lazy(x), full(x))


def test_a_layer_that_needs_no_sizes_is_not_lazy():
    layer = GatedPool2d(3)
    assert not layer._forward_pre_hooks
    assert not layer._load_state_dict_pre_hooks


def test_a_lazy_layer_in_double_on_a_bad_input():
    layer = GatedPool2d(3, share="channel", dtype=torch.float64)
    with pytest.raises(ValueError, match="^GatedPool2d: input must have 3 or 4 dimensions"):
        layer(torch.randn(8, 8, dtype=torch.float64))
    assert layer(torch.randn(1, 2, 8, 8, dtype=torch.float64)).dtype == torch.float64
    assert layer.weight.dtype == torch.float64


def test_a_lazy_layer_keeps_what_was_loaded_before_its_first_input():
    layer = Pool2d(ODD, 3, 2, share="channel")
    weight = torch.randn(4, 3, 1, 1, 3, 3)
    layer.load_state_dict({"weight": weight}, strict=False)
    layer(torch.randn(1, 3, 9, 9))
    assert torch.equal(layer.weight, weight)
    assert_close(layer.mix, torch.full((1, 3, 1, 1), 0.8))


def test_a_lazy_layer_refuses_what_is_not_for_it():
    both = GatedPool2d(3, 2, share="region_channel", channels=3, grid=3).state_dict()
    for options in ({"share": "channel"}, {"share": "region"}, {"share": "region_channel", "channels": 5}):
        with pytest.raises(RuntimeError, match="GatedPool2d: weight of shape .* is not for share="):
            GatedPool2d(3, 2, **options).load_state_dict(both)
    lazy = GatedPool2d(3, 2, share="region_channel", grid=6)
    with pytest.warns(UserWarning, match="saved for grid 3×3, resampled to 6×6"):
        lazy.load_state_dict(both)
    assert lazy.weight.shape == (1, 3, 6, 6, 3, 3)


# Another grid


def tied_network():
    net = nn.Sequential(GatedPool2d(3, 2), nn.ReLU(), GatedPool2d(3, 1, 1), GatedPool2d(3, 2, share="net"))
    tie([net[0], net[2], net[3]])
    return net


def test_tied_layers_share_one_set():
    net = tied_network()
    assert count(net) == 9
    assert [net[i].share for i in (0, 2, 3)] == ["net"] * 3
    net(torch.randn(2, 3, 20, 20)).sum().backward()
    assert net[0].weight.grad is net[3].weight.grad


def test_copies_and_state_dicts_keep_the_tie():
    net = tied_network()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), net.double()):
        assert other[0].weight is other[2].weight is other[3].weight
    saved = net.state_dict()
    fresh = tied_network().double()
    fresh.load_state_dict(saved)
    assert torch.equal(fresh[3].weight, net[0].weight)
    assert fresh[0].weight is fresh[3].weight
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    assert loaded["0.weight"].data_ptr() == loaded["3.weight"].data_ptr()


def test_unequal_layers_are_not_tied():
    for layers, error, message in (
        ([GatedPool2d(3), GatedPool2d(2)], ValueError, "tie: layers must have equal windows, got 3×3 and 2×2"),
        ([GatedPool2d(3), MixedPool2d(3)], ValueError, "tie: layers must have equal trees, got Gate"),
        (
            [GatedPool2d(3), GatedPool2d(3, share="channel", channels=2)],
            ValueError,
            'tie: wanted share="layer" or "net", got',
        ),
        ([GatedPool2d(3), GatedPool2d(3).double()], ValueError, "tie: layers must be of one dtype and device, got"),
        ([GatedPool2d(3), nn.MaxPool2d(3)], TypeError, "tie: wanted learned pools over windows, got MaxPool2d"),
        ([], ValueError, "tie: wanted at least one layer, got none"),
    ):
        before = [list(layer.parameters()) for layer in layers]
        with pytest.raises(error, match=f"^{message}"):
            tie(layers)
        assert [[id(p) for p in layer.parameters()] for layer in layers] == [[id(p) for p in ps] for ps in before]


def test_parameter_groups_separate_the_pools():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), GatedPool2d(3, 2), nn.BatchNorm2d(4), tied_network())
    others, pools = parameter_groups(net, lr=0.01, weight_decay=1e-4)
    assert sum(p.numel() for p in pools["params"]) == 18
    assert [id(p) for p in others["params"]] == [id(p) for m in (net[0], net[2]) for p in m.parameters()]
    assert (pools["lr"], pools["weight_decay"]) == (0.01, 1e-4)
    assert "lr" not in others
    optimizer = torch.optim.SGD(parameter_groups(net, lr=0.01), lr=0.1, weight_decay=5e-4)
    assert [(g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [(0.1, 5e-4), (0.01, 0.0)]
    assert set(parameter_groups(net, weight_decay=None)[1]) == {"params"}
