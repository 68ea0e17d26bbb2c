"""The state of one training: what a step changes, what an epoch writes, and when it cannot continue."""

import pytest
import torch

from learnpool.lab.runs import checkpoint, directory
from learnpool.lab.runs.batches import load_batches
from learnpool.lab.runs.run import Run
from learnpool.lab.runs.training import Training, TrainingError
from runs import ALONE, SMALL, STEPS

pytestmark = pytest.mark.trains


def make_training(path, **changes):
    run = Run(**SMALL | changes)
    return Training(run, load_batches(run, None, ALONE, 0), ALONE, path, None)


def test_an_epoch_moves_every_parameter_and_writes_metrics_and_a_checkpoint(tmp_path):
    training, seen = make_training(tmp_path), []
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    metrics = training.run_epoch(lambda step: seen.append((step.step, step.epoch)))
    assert [step for step, _ in seen][:STEPS] == list(range(1, STEPS + 1))
    assert {epoch for _, epoch in seen} == {1}
    for name, p in training.model.named_parameters():
        assert not torch.equal(p, before[name]), name
    assert directory.read_metrics(tmp_path) == [metrics]
    tensors, state = checkpoint.load(tmp_path)
    assert (state["epoch"], training.epoch) == (1, 1)
    assert torch.equal(tensors["model.pool1.weight"], training.model.pool1.weight)
    assert 0 <= metrics["validation_error"] <= 100


def test_pools_have_a_rate_of_their_own(tmp_path):
    training = make_training(tmp_path, pool_rate=7.0)
    training.train_epoch(lambda step: None)
    pools = {id(p) for m in (training.model.pool1, training.model.pool2) for p in m.parameters()}
    groups = training.optimizer.param_groups
    (own,) = [g for g in groups if {id(p) for p in g["params"]} == pools]
    other = next(g for g in groups if g is not own)
    assert own["lr"] == pytest.approx(7 * other["lr"])


def test_pools_without_a_rate_stay_as_they_start(tmp_path):
    training = make_training(tmp_path, pool_rate=0.0)
    pools = [training.model.pool1, training.model.pool2]
    before = [p.detach().clone() for m in pools for p in m.parameters()]
    other = training.model.conv1.weight.detach().clone()
    training.train_epoch(lambda step: None)
    assert all(map(torch.equal, before, [p for m in pools for p in m.parameters()]))
    assert not torch.equal(other, training.model.conv1.weight)


def test_a_loss_that_is_no_number_stops_it_and_says_what_may_help(tmp_path):
    training = make_training(tmp_path)
    with torch.no_grad():
        next(training.model.parameters()).fill_(torch.nan)
    with pytest.raises(TrainingError, match=r"^the loss is nan in epoch 1, .*; a lower rate may help"):
        training.run_epoch(None)
    assert directory.read_metrics(tmp_path) == []
