"""What is measured of gates that a tree decides: s by hand, and as the output of the pool shows it."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import learnpool
from cases import SHARES
from learnpool import AdaptivePool2d, Avg, Filter, Gate, Max, Mix, Pool2d, Power, Rank, Soft, Std

DECIDERS = [
    Std(),
    Filter(),
    Gate(Filter(), Mix(Soft(), Rank(), a=0.3)),
    Mix(Gate(Rank(), Power(), by=Mix(Std(), Max(), a=0.1, learn=False), bias=True), Gate(Soft(2.0), Filter())),
]


def test_one_region_by_hand():
    pool = Pool2d(Gate(Max(), Avg(), by=Std(), bias=True), 2)
    with torch.no_grad():
        pool.mix[0], pool.mix[1] = 2.0, -1.0
    x = torch.tensor([[[[0.0, 2.0], [2.0, 0.0]]]])  # its standard deviation is 1
    explanation = learnpool.explain(pool, x)
    (gate,) = explanation.pools[0].gates
    s = 1 / (1 + math.exp(-1))
    entropy = -(s * math.log2(s) + (1 - s) * math.log2(1 - s))
    assert (gate.name, gate.left, gate.right, gate.weight) == ("gate0", "max", "mean", None)
    assert (gate.by, gate.g.mean, gate.b.mean) == (Std(), 2, -1)
    assert explanation.statistics() == pytest.approx(
        {
            "Pool2d.gate0.g.mean": 2,
            "Pool2d.gate0.b.mean": -1,
            "Pool2d.gate0.mean": s,
            "Pool2d.gate0.near_0": 0,
            "Pool2d.gate0.near_1": 0,
            "Pool2d.gate0.entropy": entropy,
        }
    )


def shuffle_numbers(pool):
    """Every learned number another one, so that a row in a wrong place is seen."""
    with torch.no_grad():
        for parameter in pool.parameters():
            parameter += torch.rand_like(parameter)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("by", DECIDERS, ids=str)
def test_s_is_what_the_output_shows(by, share):
    """y = s max + (1 − s) mean, so s = (y − mean) / (max − mean)."""
    pool = Pool2d(Gate(Max(), Avg(), by=by, bias=True), 3, 3, share=share)
    x = torch.rand(2, 3, 9, 6)
    pool(x)
    shuffle_numbers(pool)
    top, mean = F.max_pool2d(x, 3), F.avg_pool2d(x, 3)
    with torch.no_grad():
        s = (pool(x) - mean) / (top - mean)
    gate = learnpool.explain(pool, x).pools[0].gates[0]
    assert_close(gate.map, s[0], rtol=1e-4, atol=1e-5)  # the difference of two outputs loses digits
    assert gate.mean == pytest.approx(float(s.mean()), rel=1e-4)


@pytest.mark.parametrize("share", SHARES)
def test_adaptive_pools_have_gates_too(share):
    pool = AdaptivePool2d(Gate(Max(), Avg(), by=Mix(Std(), Soft())), (2, 1), share=share)
    net, x = nn.Sequential(nn.AvgPool2d(2), pool), torch.rand(2, 3, 12, 8)
    net(x)
    shuffle_numbers(pool)
    cells = F.avg_pool2d(x, 2)
    top, mean = F.adaptive_max_pool2d(cells, (2, 1)), F.adaptive_avg_pool2d(cells, (2, 1))
    explained = learnpool.explain(net, x)["1"]
    with torch.no_grad():
        assert_close(explained.gates[0].map, ((net(x) - mean) / (top - mean))[0], rtol=1e-4, atol=1e-5)
    assert explained.regions == ((3.0, 4.0), (6.0, 8.0))  # two regions, each as wide as the image


def test_masks_and_trees_decide_side_by_side():
    tree = Gate(Gate(Max(), Avg()), Gate(Max(), Filter(), by=Gate(Std(), Avg())), by=Soft())
    pool, x = Pool2d(tree, 2), torch.randn(2, 3, 8, 8)
    shuffle_numbers(pool)
    gates = learnpool.explain(pool, x).pools[0].gates
    assert [gate.name for gate in gates] == ["gate0", "gate1", "gate2", "gate3"]
    assert [gate.by for gate in gates] == [Soft(), None, Gate(Std(), Avg()), None]
    alone = Pool2d(Gate(Max(), Avg()), 2)  # the mask of gate3, in a pool of its own
    with torch.no_grad():
        alone.weight.copy_(gates[3].weight[None])
    expected = learnpool.explain(alone, x).pools[0].gates[0]
    assert (gates[3].mean, gates[3].entropy) == (expected.mean, expected.entropy)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    pool, x = Pool2d(Gate(Max(), Avg(), by=Std(), bias=True), 2), torch.randn(2, 3, 8, 8).to(dtype)
    wide = learnpool.statistics(pool, x.float())
    assert learnpool.statistics(pool.to(dtype), x) == pytest.approx(wide, rel=1e-5)
