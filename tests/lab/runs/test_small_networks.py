"""The networks for small images as runs: built, grouped for the optimizer, trained, resumed, loaded."""

import pytest
import torch
from torch import nn

import learnpool
from learnpool.lab.runs import networks
from learnpool.lab.runs.presets import preset
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.train import train
from learnpool.nets.dsn import Table
from runs import Stop, assert_same_run, stop_at

IMAGE = Table((16, 12), 1, 10)


@pytest.mark.parametrize("net", ["resnet9", "fast"])
def test_a_run_names_its_network(net):
    model = networks.build(Run(net=net, pool="gated", width=0.1, start="spread"), IMAGE, 0)
    assert model(torch.zeros(2, 1, 16, 12)).shape == (2, 10)
    pools = [layer for layer in model.modules() if isinstance(layer, learnpool.Pool2d)]
    assert [pool.kernel_size for pool in pools] == [3 if net == "resnet9" else 2] * 3


def test_biases_of_normalisations_have_a_rate_of_their_own():
    run = Run(net="fast", pool="gated", width=0.1, norm_rate=64, decay=0.1, pool_rate=3)
    model = networks.build(run, IMAGE, 0)
    groups = {group["name"]: group for group in networks.make_parameter_groups(run, model)}
    assert {name: (g["factor"], g["weight_decay"]) for name, g in groups.items()} == {
        "weights": (1.0, 0.1), "biases": (1.0, 0.0), "norms": (64.0, 0.0), "pools": (3.0, 0.0),
    }  # fmt: skip
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {id(p) for p in groups["norms"]["params"]} == {id(m.bias) for m in norms}
    assert not any(p.requires_grad for p in groups["biases"]["params"])  # the scales, which are not learned
    every = [id(p) for group in groups.values() for p in group["params"]]
    assert sorted(every) == sorted(map(id, model.parameters()))


@pytest.mark.trains
def test_it_is_trained_resumed_and_loaded(tmp_path):
    run = preset("cpu", "digits", net="resnet9", pool="Mix(Max,Filter)", width=0.1, epochs=2, train_size=240, batch=40)
    with pytest.raises(Stop):
        train(run, tmp_path / "parts", threads=1, watch=stop_at(3), save_every=0)
    train(run, tmp_path / "parts", threads=1)
    train(run, tmp_path / "whole", threads=1)
    assert_same_run(tmp_path / "parts" / run.id, tmp_path / "whole" / run.id)
    model = learnpool.load(tmp_path / "whole" / run.id)
    assert model.predict(torch.zeros(1, 8, 8, dtype=torch.uint8)) is not None


def test_images_too_small_for_three_pools(tmp_path):
    with pytest.raises(RunError, match="^fast: size must be larger for 3 pools, got 8×8$"):
        train(preset("cpu", "digits", net="fast"), tmp_path)
