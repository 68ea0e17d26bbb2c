"""The benchmark of a network: pairs are pairs, a pool is counted once, and the step is one of training."""

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from learnpool import Pool2d, make_pool
from learnpool.lab.bench import net

SETTINGS = {"pool": "tree3+gated", "batch": 2, "width": 0.05, "pairs": 4, "threads": 1}


def test_pairs_alternate_and_keep_their_times(monkeypatch):
    called = []

    def time_call(step, calls=1, device="cpu"):
        called.append((step, calls))
        return float(len(called))

    monkeypatch.setattr(net, "time_call", time_call)
    monkeypatch.setattr(net, "profile_pools", lambda step, device: (0.5, 0.25))
    steps = []
    first, second = net.time_pairs(net.NetBenchmark(**SETTINGS), lambda: steps.append(1))
    (base, warm), (learned, _) = called[:2]
    assert warm == net.WARM
    assert [step for step, _ in called[2:]] == [base, learned, learned, base] * 2
    assert (first.pool, first.seconds) == ("max", [3, 6, 7, 10])
    assert (second.pool, second.seconds, second.pools_share) == ("tree3+gated", [4, 5, 8, 9], 0.25)
    assert len(steps) == 4


def test_ratio_is_that_of_pairs():
    # 2, 0.5, 3, 1 and 1.5: in order 0.5, 1, 1.5, 2, 3.
    ratio = net.summarize_ratio([1, 2, 1, 4, 2], [2, 1, 3, 4, 3])
    assert ratio == {"median": 1.5, "low": 1.0, "high": 2.0}


@pytest.mark.parametrize("pool", ["max", "avg", "gated", "mixed", "stochastic"])
def test_profiler_counts_every_pool_once(pool):
    layer = make_pool(pool, 3, 2, 1)
    x = torch.randn(4, 8, 64, 64, requires_grad=True)
    grad = torch.randn(4, 8, 32, 32)

    def step():
        torch.autograd.grad(layer(x), [x, *layer.parameters()], grad)

    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    assert (
        len(net.find_pool_events(profiler.events())) == 2
    )  # forward and backward, whatever operators they call inside
    seconds, share = net.profile_pools(step)
    assert 0 < share <= 1
    assert seconds > 0
    assert net.profile_pools(lambda: torch.relu(x).sum().backward()) == (0, 0)


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_net_end_to_end(layout, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    net.bench(net.NetBenchmark(**SETTINGS | {"layout": layout, "data": "cifar100"}), tmp_path)
    record = json.loads((tmp_path / "net.json").read_text(encoding="utf-8"))
    assert [path.name for path in tmp_path.iterdir()] == ["net.json"]
    assert [o["pool"] for o in record["outcomes"]] == ["max", "tree3+gated"]
    first, second = (o["seconds"] for o in record["outcomes"])
    assert len(first) == len(second) == 4
    assert record["ratio"] == net.summarize_ratio(first, second)
    assert all(0 < o["pools_share"] < 1 and o["pools_seconds"] > 0 for o in record["outcomes"])
    other = {"model": "dsn", "size": 224, "inference": False, "device": "cpu"}
    assert record["settings"] == SETTINGS | other | {"layout": layout, "data": "cifar100"}
    text = capsys.readouterr().out
    assert f"takes {record['ratio']['median']:.3f} × the time with max: the median of 4 pairs" in text
    assert f"dsn for cifar100, width 0.05, batch 2, {layout}, threads: 1" in text


def test_a_step_trains_equal_networks(monkeypatch):
    built, dsn = [], net.dsn
    benchmark = net.NetBenchmark(**SETTINGS)

    def kept(*given, **options):
        built.append(dsn(*given, **options))
        return built[-1]

    monkeypatch.setattr(net, "dsn", kept)
    steps = [benchmark.make_step(pool) for pool in ("max", "gated")]
    assert torch.equal(built[0].conv1.weight, built[1].conv1.weight)
    before = [p.detach().clone() for p in built[1].parameters()]
    for step in steps:
        step()
    assert not any(torch.equal(p, was) for p, was in zip(built[1].parameters(), before, strict=True))


def test_inference_of_another_network(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    settings = {"model": "googlenet-bn", "pool": "gated", "size": 64, "width": 0.1, "inference": True, "batch": 1}
    benchmark = net.NetBenchmark(**settings, pairs=2, threads=1)
    model, x, _ = benchmark.make_network_and_batch("gated")
    assert x.shape == (1, 3, 64, 64)
    assert sum(isinstance(module, Pool2d) for module in model.modules()) == 4
    monkeypatch.setattr(net.NetBenchmark, "make_network_and_batch", lambda self, pool: (model, x, None))
    benchmark.make_step("gated")()
    assert not model.training
    monkeypatch.undo()
    monkeypatch.setenv("COLUMNS", "200")
    net.bench(benchmark, tmp_path)
    record = json.loads((tmp_path / "net.json").read_text(encoding="utf-8"))
    assert record["settings"]["inference"]
    text = capsys.readouterr().out
    assert "Inference with gated takes " in text
    assert "googlenet-bn at 64×64, width 0.1, batch 1, nchw" in text
