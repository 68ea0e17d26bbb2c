"""Start values: what each start computes before anything is learned, and that a tree can leave it."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import learnpool
from learnpool import Avg, Filter, Gate, Max, Mix, Pool1d, Pool2d, Pool3d, TreePool2d, explain
from learnpool.lab.runs.presets import preset
from learnpool.starts import SHARPNESS, STARTS

SIDES = Gate(Filter(), Mix(Max(), Avg()))


@pytest.mark.parametrize("layer", [Pool1d(SIDES, 5), Pool2d(SIDES, (3, 2)), Pool3d(SIDES, 2)], ids=str)
@pytest.mark.parametrize("start", STARTS)
def test_every_start_fills_every_tree(start, layer):
    torch.manual_seed(0)
    layer.start = start
    with torch.no_grad():
        layer.weight.fill_(torch.nan)
    layer.reset_parameters()
    assert layer.weight.isfinite().all()
    gate, filters = layer.weight.detach()
    if start != "paper":
        scale = filters.numel() ** (0.5 if start == "spread" else 1)
        assert abs(float(filters.mean()) * scale - 1) < 1
    assert start == "paper" or float(gate.abs().max()) < 1


@pytest.mark.parametrize("share", ["layer", "region_channel"])
def test_spread_is_noise_of_the_order_of_the_mean(share):
    torch.manual_seed(0)
    layer = TreePool2d(3, 2, start="spread", share=share, channels=50, grid=6)
    gate, *filters = layer.weight.detach()
    if share == "layer":
        assert 0 < float(gate.std()) < 0.5
        return
    assert_close(float(gate.std()), 0.1, rtol=0.05, atol=0)
    for v in filters:
        assert_close([float(v.mean()), float(v.std())], [1 / 3, 1 / 3], rtol=0.05, atol=0)


@pytest.mark.parametrize("levels", [2, 3])
def test_a_tournament_is_a_soft_maximum_of_the_means_of_parts(levels):
    torch.manual_seed(0)
    layer = TreePool2d(4, 4, levels=levels, start="tournament").double()
    x = 10 * torch.rand(8, 4, 16, 16, dtype=torch.double)
    halves = [part.mean((-1, -2)) for part in x.unfold(2, 4, 4).unfold(3, 4, 4).split(2, dim=-2)]
    if levels == 2:
        expected = torch.maximum(*halves)
    else:
        quarters = [p.mean((-1, -2)) for h in x.unfold(2, 4, 4).unfold(3, 4, 4).split(2, -2) for p in h.split(2, -1)]
        winners = [torch.maximum(*quarters[:2]), torch.maximum(*quarters[2:])]
        expected = torch.where(halves[0] > halves[1], *winners)
    with torch.no_grad():
        off = (layer(x) - expected).abs()
    close = (halves[0] - halves[1]).abs() < 1  # near a tie a soft maximum is soft
    assert float(off[~close].median()) < 0.35  # the start's own noise, and the soft second round
    assert float(off.median()) < float((x.mean() - expected).abs().median())


def test_a_tournament_of_an_odd_window_shares_its_middle():
    layer = TreePool2d(3, 2, start="tournament")
    gate, left, right = layer.weight.reshape(3, 3, 3).detach()
    rows = torch.tensor([1.0, 0, -1]) / 6
    assert_close(gate, SHARPNESS * rows[:, None].expand(3, 3), rtol=0, atol=0.06)
    assert_close(left, torch.tensor([1.0, 1, 0])[:, None].expand(3, 3) / 6, rtol=0, atol=0.06)
    assert_close(right, torch.tensor([0, 1.0, 1])[:, None].expand(3, 3) / 6, rtol=0, atol=0.06)


@pytest.mark.parametrize("start", ["spread", "tournament"])
@pytest.mark.parametrize("levels", [2, 3, 4])
def test_no_two_filters_of_a_tree_begin_alike(start, levels):
    """Equal filters under a gate of one half would receive equal gradients for ever."""
    layer = TreePool2d(2, 2, levels=levels, start=start)
    filters = layer.weight.detach().flatten(1)[2 ** (levels - 1) - 1 :]
    apart = torch.cdist(filters, filters) + torch.eye(len(filters))
    assert float(apart.min()) > 1e-3


@pytest.mark.parametrize("start", ["spread", "tournament"])
def test_gates_have_a_gradient_from_the_first_step_on(start):
    torch.manual_seed(0)
    layer = TreePool2d(3, 2, levels=3, start=start)
    layer(torch.rand(16, 8, 17, 17)).square().mean().backward()
    assert (layer.weight.grad.flatten(1).norm(dim=1) > 1e-5).all()
    assert all(gate.entropy < 1 for pool in explain(layer, torch.rand(4, 8, 17, 17)).pools for gate in pool.gates)


def test_layers_names_and_convert_begin_alike():
    net = nn.Sequential(nn.MaxPool2d(3, 2))
    learnpool.convert(net, "tree2")
    layers = TreePool2d(3, 2), learnpool.make_pool("tree2", 3, 2), net[0]
    assert (
        {layer.start for layer in layers} == {"spread"} == {preset(name, "digits").start for name in ("modern", "cpu")}
    )
    weights = []
    for layer in layers:
        torch.manual_seed(0)
        layer.reset_parameters()
        weights.append(layer.weight)
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    assert preset("paper", "digits").start == "paper"
