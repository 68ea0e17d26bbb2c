"""New parameters reach the optimizers that exist already, beside their neighbours, and schedulers still work."""

import pytest
import torch
from torch import nn

from learnpool import convert
from networks import X, modules

S = torch.optim.lr_scheduler


def step(net, *optimizers):
    for optimizer in optimizers:
        optimizer.zero_grad()
    net(X).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_new_parameters_are_trained(make):
    net = modules()
    optimizer = make(net.parameters(), lr=0.01)
    step(net, optimizer)  # it has a state already
    convert(net, "gated", optimizers=optimizer)
    before = net[3].weight.clone()
    step(net, optimizer)
    assert not torch.equal(net[3].weight, before)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len([*net.parameters()])


def test_a_group_of_their_own_without_decay():
    net = modules()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    optimizer.param_groups[0]["lr"] = 0.01  # as a schedule by hand does
    report = convert(net, "gated", optimizers=[optimizer])
    new = optimizer.param_groups[1]
    assert (new["lr"], new["momentum"], new["weight_decay"]) == (0.01, 0.9, 0.0)
    assert [id(p) for p in new["params"]] == [id(net[3].weight), id(net[6].weight)]
    note = "SGD: 13 parameters in a new group with the settings of group 0, but without weight decay"
    assert report.notes == (note,)
    assert str(report).endswith(note)


def test_without_decay_they_join():
    net = modules()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert convert(net, optimizers=optimizer).notes == ("SGD: 13 parameters joined group 0",)
    assert len(optimizer.param_groups) == 1


SCHEDULERS = {
    "step": lambda o: S.StepLR(o, 1),
    "lambda": lambda o: S.LambdaLR(o, lambda epoch: 0.5**epoch),
    "cycle": lambda o: S.CyclicLR(o, 0.1, 1.0),
    "sequence": lambda o: S.SequentialLR(o, [S.LinearLR(o), S.ExponentialLR(o, 0.9)], [2]),
    "one cycle": lambda o: S.OneCycleLR(o, 1.0, total_steps=9),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_an_existing_scheduler_still_works(name):
    net = modules()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = SCHEDULERS[name](optimizer)
    report = convert(net, "mixed", optimizers=optimizer)
    assert report.notes == ("SGD: 2 parameters joined group 0, with its weight decay 0.0005 (a scheduler is attached)",)
    for _ in range(3):
        step(net, optimizer)
        scheduler.step()


def test_each_pool_goes_to_the_optimizer_of_its_neighbours():
    net = nn.ModuleDict({"one": modules(), "two": modules()})
    groups = [{"params": net["one"][0].parameters()}, {"params": net["one"][4].parameters(), "lr": 0.5}]
    one, two = torch.optim.SGD(groups, lr=0.1), torch.optim.Adam(net["two"].parameters())
    convert(net, "mixed", optimizers=(two, one))
    assert any(p is net["two"][3].mix for p in two.param_groups[0]["params"])
    assert any(p is net["one"][3].mix for p in one.param_groups[0]["params"])
    assert any(p is net["one"][6].mix for p in one.param_groups[1]["params"])


@pytest.mark.parametrize("decay", [0, 0.1])
def test_named_parameters_stay_named(decay):
    net = modules()
    optimizer = torch.optim.SGD(net.named_parameters(), lr=0.1, weight_decay=decay)
    convert(net, "gated", optimizers=optimizer)
    assert optimizer.param_groups[-1]["param_names"][-2:] == ["3.weight", "6.weight"]
    assert all(len(group["params"]) == len(group["param_names"]) for group in optimizer.param_groups)


def test_tied_parameters_are_handed_over_once():
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.MaxPool2d(2), nn.MaxPool2d(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    convert(net, "gated", share="net", optimizers=optimizer)
    assert len(optimizer.param_groups[0]["params"]) == 3


def test_lbfgs_is_refused():
    net = modules()
    with pytest.raises(ValueError, match="convert: LBFGS takes its parameters once; make it after convert"):
        convert(net, optimizers=torch.optim.LBFGS(net.parameters()))
