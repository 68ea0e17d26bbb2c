"""GoogLeNet with learned pools: counts of the original, the paper's 36 parameters, shapes, and which pools stay max."""

import pytest
import torch
from torch import nn

import learnpool
from learnpool.nets import Votes, googlenet


def count(net):
    return sum(p.numel() for p in net.parameters())


def test_parameters_of_the_original_and_of_the_paper():
    with torch.device("meta"):
        assert count(googlenet(supervise=False)) == 6_998_552  # as Caffe's replication has
        assert count(googlenet()) == 13_378_280  # with its two classifiers
        for batch_norm in (False, True):
            plain, gated = (count(googlenet(pool=pool, batch_norm=batch_norm)) for pool in ("max", "gated"))
            assert gated - plain == 36


def test_nine_pools_stay_max_and_four_are_learned():
    net = googlenet(10, pool="gated", width=0.1, size=64)
    assert sum(isinstance(layer, learnpool.Pool2d) for layer in net.modules()) == 4
    inner = [layer for layer in net.modules() if isinstance(layer, nn.MaxPool2d)]
    assert [(layer.kernel_size, layer.stride, layer.padding) for layer in inner] == [(3, 1, 1)] * 9


def test_shapes_at_224_pixels():
    shapes = {}
    with torch.device("meta"):
        net = googlenet(pool="gated")
        for name, layer in net.named_modules():
            if name.startswith("pool") or (name.startswith("inception.") and name.count(".") == 1):
                layer.register_forward_hook(lambda _l, _i, out, name=name: shapes.update({name: tuple(out.shape[1:])}))
        votes, heads = net.train()(torch.empty(2, 3, 224, 224))
    expected = {"pool1": (64, 56, 56), "pool2": (192, 28, 28), "pool3": (480, 14, 14), "pool4": (832, 7, 7)}
    assert {name: shape for name, shape in shapes.items() if name.startswith("pool")} == expected
    assert shapes["inception.4a"] == (512, 14, 14)
    assert shapes["inception.5b"] == (1024, 7, 7)
    assert votes.shape == (2, 1000)
    assert [head.shape for head in heads] == [(2, 1000)] * 2


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("pool", ["max", "gated", "tree2+gated:channel", "mixed:region_channel"])
def test_any_pools_in_small_networks(pool, batch_norm):
    net = googlenet(7, pool=pool, batch_norm=batch_norm, width=0.05, size=40, channels=1)
    output = net.train()(torch.randn(2, 1, 40, 40))
    assert isinstance(output, Votes)
    (output.votes.sum() + sum(head.sum() for head in output.heads)).backward()
    assert all(p.grad is not None for p in net.parameters())
    assert net.eval()(torch.randn(1, 1, 40, 40)).shape == (1, 7)
    assert any(isinstance(layer, nn.LocalResponseNorm) for layer in net.modules()) != batch_norm
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in net.modules()) == batch_norm


def test_pools_change_no_other_start_value():
    torch.manual_seed(0)
    plain = googlenet(10, width=0.05, size=40).state_dict()
    torch.manual_seed(0)
    learned = googlenet(10, pool="tree2+gated", width=0.05, size=40).state_dict()
    assert all(torch.equal(learned[name], value) for name, value in plain.items())


def test_an_image_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="googlenet: size must be larger for 4 pools, got 16"):
        googlenet(10, size=16)
