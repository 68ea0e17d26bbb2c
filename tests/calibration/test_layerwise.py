"""Calibrating: what it fits to, how close it comes, and that nothing else changes."""

import copy
import itertools
import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import learnpool
import learnpool.nets
from learnpool import calibrate, convert, restore
from learnpool.calibration import layerwise as calibrating
from learnpool.calibration import least_squares
from learnpool.conversion.swap import list_swaps

pytestmark = pytest.mark.trains


class Net(nn.Module):
    """Two max pools, batch normalisation, dropout, and a ReLU in place right behind a pool."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.pool1 = nn.MaxPool2d(3, 2, 1)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.pool2 = nn.MaxPool2d(2, ceil_mode=True)
        self.inplace, self.dropout = nn.ReLU(inplace=True), nn.Dropout(0.5)
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        x = self.pool1(self.norm(self.conv1(x)).relu())
        x = self.dropout(self.inplace(self.pool2(self.conv2(x))))
        return self.linear(x.mean((2, 3)))


@pytest.fixture
def net():
    model = Net()
    with torch.no_grad():
        model(torch.randn(64, 1, 14, 14))  # running statistics
    return model.eval()


BATCHES = torch.randn(48, 1, 14, 14, generator=torch.Generator().manual_seed(1)).split(16)


def distance(new, old):
    return float((new - old).norm() / old.norm())


def outputs(net, batches=BATCHES):
    """What every pool and the network give, in evaluation."""
    seen = {}
    hooks = [
        module.register_forward_hook(lambda m, args, out, name=name: seen.setdefault(name, []).append(out.clone()))
        for name, module in net.named_modules()
        if name.startswith("pool")
    ]
    with torch.no_grad():
        seen["output"] = [net(x) for x in batches]
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(parts) for name, parts in seen.items()}


def test_mixed_becomes_max_to_the_last_bit(net):
    old = outputs(net)
    convert(net, "mixed")
    report = calibrate(net, BATCHES)
    assert [pool.proportions().item() for pool in (net.pool1, net.pool2)] == [1, 1]
    new = outputs(net)
    assert all(torch.equal(new[name], old[name]) for name in old)
    assert [fit.after for fit in report.pools] == [0, 0]
    assert report.output_after == 0 < report.output_before


def test_channels_that_hardly_count_become_max_as_well():
    """The goal is reached before a faint channel has moved; a proportion that fits no worse at its end goes there."""
    net = nn.Sequential(nn.MaxPool2d(2))
    scale = torch.tensor([1.0, 1e-3])[:, None, None]
    convert(net, "mixed", share="channel", example=torch.ones(1, 2, 4, 4))
    report = calibrate(net, [torch.rand(16, 2, 4, 4, generator=torch.Generator().manual_seed(0)) * scale])
    assert net[0].proportions().flatten().tolist() == [1, 1]
    assert report.output_after == 0


def test_average_becomes_a_mix_of_nothing_but_the_mean():
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.AvgPool2d(2)).eval()
    convert(net, "mixed", replace=("avg",))
    calibrate(net, BATCHES)
    assert net[1].proportions().item() == 0


def test_a_gate_comes_close_to_max_and_can_still_learn(net):
    old = outputs(net)
    torch.manual_seed(3)
    convert(net, "gated", only="pool1")  # behind a ReLU, where ω · x can be above 0 wherever max and mean differ
    before = distance(outputs(net)["pool1"], old["pool1"])
    report = calibrate(net, BATCHES)
    new = outputs(net)
    (fit,) = report.pools
    assert fit.before == pytest.approx(before, rel=1e-4)
    assert fit.after == pytest.approx(distance(new["pool1"], old["pool1"]), rel=1e-3)
    assert report.output_after == pytest.approx(distance(new["output"], old["output"]), rel=1e-3)
    assert fit.after < 0.011 < 0.1 < fit.before
    assert fit.after > 0.001  # it stops at the goal: gates driven further have no gradient
    net(BATCHES[0]).sum().backward()
    assert net.pool1.weight.grad.abs().max() > 1e-6


def test_two_filters_under_a_gate_can_be_the_maximum_of_two_cells():
    """max(x, y) = x where x > y, else y: a gate that compares, over filters that pick."""
    net = nn.Sequential(nn.MaxPool2d((1, 2)))
    convert(net, "tree2")
    report = calibrate(net, [torch.rand(64, 1, 4, 4, generator=torch.Generator().manual_seed(0))])
    assert report.pools[0].after < 0.011
    gate, left, right = net[0].weight.detach().reshape(3, 2)
    assert gate[0] * gate[1] < 0
    picked = (left, right) if gate[0] > 0 else (right, left)
    assert_close(torch.stack(picked), torch.eye(2), atol=0.1, rtol=0)


def test_fitted_layer_by_layer_to_the_original_network(net, monkeypatch):
    """x comes from the network as it is by then, y from the network as it was."""
    old = outputs(net)
    convert(net, "tree2")
    reached, wanted, real = [], [], calibrating.fit

    def fit(pools, pairs):
        now = {}
        for name in ("pool1", "pool2"):
            if getattr(net, name) is pools[0]:
                hook = pools[0].register_forward_pre_hook(
                    lambda m, args: now.setdefault("x", []).append(args[0].clone())
                )
                with torch.no_grad():
                    for x in BATCHES:
                        net(x)
                hook.remove()
                assert torch.equal(torch.cat([x for _, x, _ in pairs]), torch.cat(now["x"]))
                assert torch.equal(torch.cat([y for _, _, y in pairs]), old[name])
                reached.append(name)
        before = pools[0].weight.clone()
        real(pools, pairs)
        wanted.append(not torch.equal(before, pools[0].weight))

    monkeypatch.setattr(calibrating, "fit", fit)
    calibrate(net, BATCHES)
    assert (reached, wanted) == (["pool1", "pool2"], [True, True])


def test_the_order_is_the_forwards_not_the_modules():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.late, self.early = nn.MaxPool2d(2), nn.MaxPool2d(2)

        def forward(self, x):
            return self.late(self.early(x))

    net = Backwards()
    convert(net, "mixed")
    assert [fit.name for fit in calibrate(net, BATCHES).pools] == ["early", "late"]


def test_nothing_else_changes_and_twice_is_the_same(net):
    net.train()
    net.norm.eval()
    convert(net, "tree2+gated")
    net.conv1.weight.requires_grad_(False)
    net.pool1.weight.requires_grad_(False)
    weight = net.pool1.weight
    other = copy.deepcopy(net)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    random = torch.get_rng_state()
    first = calibrate(net, BATCHES)
    assert torch.equal(torch.get_rng_state(), random)
    torch.manual_seed(99)
    second = calibrate(other, BATCHES)
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key]) == (not key.startswith("pool")), key
        assert torch.equal(value, other.state_dict()[key]), key
    assert first == second
    assert net.pool1.weight is weight
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == ["conv1.weight", "pool1.weight"]
    assert all(p.grad is None for p in net.parameters())
    assert net.training
    assert not net.norm.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_what_is_close_already_is_left_alone(net):
    convert(net, "mixed", start="same")
    with torch.no_grad():
        net.pool1.mix.fill_(1.5)  # 1 in use: exact, so nothing is better
    calibrate(net, BATCHES)
    assert net.pool1.mix.item() == 1.5


def test_a_fit_that_fails_keeps_what_was_there(net, monkeypatch):
    convert(net, "gated")
    before = copy.deepcopy(net.state_dict())

    def spoil(trial, pairs, steps):
        with torch.no_grad():
            for p in trial.parameters():
                p.fill_(math.nan)
        return trial

    monkeypatch.setattr(least_squares, "minimise", spoil)
    report = calibrate(net, BATCHES)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert all(fit.before == fit.after for fit in report.pools)


def test_tied_pools_are_fitted_together():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    convert(net, "gated")
    learnpool.tie([net[2], net[5]])
    report = calibrate(net, BATCHES)
    assert net[2].weight is net[5].weight
    assert all(fit.after < 0.02 < fit.before for fit in report.pools)


def test_one_pool_in_two_places(net):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool2d(2)

        def forward(self, x):
            return self.pool(self.pool(x.abs()).sqrt())

    net = Twice()
    with torch.no_grad():
        old = torch.cat([net(x) for x in BATCHES])
    convert(net, "gated")
    report = calibrate(net, BATCHES)
    with torch.no_grad():
        assert report.output_after == pytest.approx(distance(torch.cat([net(x) for x in BATCHES]), old), rel=1e-3)
    assert report.output_after < 0.02


def test_functional_calls():
    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 3)

        def forward(self, x):
            return F.max_pool2d(F.relu(self.conv(x)), 2)

    net = Calls()
    assert len(convert(net, "gated").replaced) == 1
    assert calibrate(net, BATCHES).output_after < 0.011


@pytest.mark.parametrize("share", ["channel", "region", "region_channel"])
def test_every_sharing(net, share):
    torch.manual_seed(0)
    convert(net, "gated", share=share, only="pool1", example=BATCHES[0])
    assert calibrate(net, BATCHES).pools[0].after < 0.011


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(net, dtype):
    net.to(dtype)
    convert(net, "gated", only="pool1")
    report = calibrate(net, [x.to(dtype) for x in BATCHES])
    assert net.pool1.weight.dtype == dtype
    assert report.pools[0].after < 0.02 < report.pools[0].before


def test_pools_without_parameters_are_only_measured(net):
    convert(net, "stochastic", only="pool1")
    (fit,) = calibrate(net, BATCHES).pools
    assert fit.before == fit.after > 0


def test_batches_of_all_forms_and_no_more_than_asked(net):
    convert(net, "mixed")
    taken = []

    def loader():
        for number in itertools.count():
            taken.append(number)
            yield BATCHES[0], torch.zeros(16)

    report = calibrate(net, loader(), images=40)
    assert (report.images, len(taken)) == (40, 3)
    assert calibrate(net, [{"x": BATCHES[0]}, {"x": BATCHES[1]}], images=20).images == 20


def test_a_large_map_is_fitted_on_fewer_images(net, monkeypatch):
    monkeypatch.setattr(calibrating, "MAX_VALUES", 16 * 6 * 14 * 14)  # the first batch of the first pool
    convert(net, "gated", only="pool1")
    seen, real = [], calibrating.fit
    monkeypatch.setattr(
        calibrating, "fit", lambda pools, pairs: (seen.append(sum(len(x) for _, x, _ in pairs)), real(pools, pairs))
    )
    report = calibrate(net, BATCHES)
    assert seen == [16]
    assert (report.images, report.pools[0].after < 0.02) == (48, True)


def test_the_report_prints(net):
    convert(net, "mixed")
    text = str(calibrate(net, BATCHES)).splitlines()
    assert text[0] == "2 pools fitted on 48 images; distance to the original network: ‖new − old‖ / ‖old‖"
    assert text[2].split() == ["pool", "before", "after"]
    assert [line.split()[0] for line in text[3:]] == ["pool1", "pool2", "the"]
    assert all(line.endswith(" 0.00 %") for line in text[3:])


def test_the_report_is_shown_in_a_prompt_and_a_notebook(net):
    convert(net, "mixed")
    report = calibrate(net, BATCHES)
    assert repr(report) == str(report)
    cells = re.findall("<t[dh][^>]*>(.*?)</t[dh]>", report._repr_html_())
    assert cells[:5] == ["pool", "", "before", "after", "pool1"]
    assert cells[-4:] == ["the network&#x27;s output", "", report.__repr__().split()[-4] + " %", "0.00 %"]


def test_restore_still_puts_the_old_pools_back(net):
    old = outputs(net)
    convert(net, "tree2")
    calibrate(net, BATCHES)
    restore(net)
    assert torch.equal(outputs(net)["output"], old["output"])
    assert list_swaps(net) == []


@pytest.mark.parametrize(
    ("model", "batches", "error", "message"),
    [
        (nn.Sequential(nn.MaxPool2d(2)), [torch.ones(1)], ValueError, "calibrate: no pool of the model was swapped; "),
        ("net", [], TypeError, "calibrate: model must be a module, got str"),
        (None, [], ValueError, "calibrate: wanted at least one image, got none"),
        (None, torch.ones(4, 1, 14, 14), TypeError, "calibrate: batches must be a list .* got Tensor"),
        (None, 5, TypeError, "calibrate: batches must be a list .* got int"),
        (None, ["images"], TypeError, "calibrate: a batch must be a tensor, .* got str"),
    ],
)
def test_bad_input(net, model, batches, error, message):
    if model is None:
        convert(net, "mixed")
    with pytest.raises(error, match=message):
        calibrate(net if model is None else model, batches)
