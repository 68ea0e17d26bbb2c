"""A network of the user's: called with what it asks for, converted, trained, loaded."""

import importlib.util
import json
import subprocess
import sys
from types import ModuleType

import pytest
import torch
from torch import nn

import learnpool
from learnpool import cli
from learnpool.lab.runs import networks, user_networks
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.train import train
from learnpool.nets.dsn import Table
from learnpool.parameters import TreeParameters
from runs import rows

pytestmark = pytest.mark.trains

CODE = """
from torch import nn
import learnpool

def plain(classes, channels):
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, classes))

def both(classes, channels):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, 2, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, classes))

def own(pool, classes, size):
    assert size == (8, 8)
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), learnpool.make_pool(pool, 2), nn.Flatten(),
                         nn.Linear(96, classes))

class Headed(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.heads = nn.Linear(64, classes)
    def forward(self, x):
        return self.heads(x.flatten(1))

def headed(classes): return Headed(classes)
def few(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
def flat(classes): return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
def passed_on(**options): return nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, options["num_classes"]))
def as_timm(num_classes, in_chans=3): return nn.Sequential(nn.Conv2d(in_chans, num_classes, 8), nn.Flatten())
def colour(): return nn.Conv2d(3, 10, 8)
def asking(width): return nn.Conv2d(1, width, 8)
def none(): return 3
def raising(): raise KeyError("theirs")
def leaving(): raise SystemExit(0)
def chatty(classes):
    print("made")
    return Chatty(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, classes))
def frozen(classes): return flat(classes).requires_grad_(False)
ready = few()

class Changed(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, classes))

class Chatty(nn.Sequential):
    def forward(self, x):
        print("forward")
        return super().forward(x)

class Pair(Changed):
    def forward(self, x): return (self.body(x), x) if self.training else self.body(x)

class Broken(Changed):
    def forward(self, x): return self.body(x).view(1, -1)

class Noted(Changed):
    def forward(self, x):
        self.seen = getattr(self, "seen", 0) + self.training * len(x)
        return self.body(nn.functional.dropout(x, 0.5, self.training))
"""
SMALL = {"epochs": 3, "rate": (0.05,), "batch": 40}


@pytest.fixture
def module(monkeypatch, tmp_path):
    (tmp_path / "theirs.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("theirs", None)


@pytest.mark.parametrize(
    ("net", "pool", "learned"),
    [
        ("plain", "max", 0),
        ("plain", "gated", 8),
        ("plain", "mixed:region_channel", 6 * 16 + 8 * 4),
        ("own", "gated", 4),
    ],
)
def test_it_is_trained_and_loaded(net, pool, learned, module, tmp_path):
    run = Run(net=f"theirs:{net}", pool=pool, start="neutral", **SMALL)
    result = train(run, tmp_path / "runs")
    assert result.pool_parameters == learned
    first, *_, last = (row["train_loss"] for row in rows(tmp_path / "runs" / run.id))
    assert last < first
    model = learnpool.load(tmp_path / "runs" / run.id)
    assert sum(p.numel() for m in model.modules() if isinstance(m, TreeParameters) for p in m.parameters()) == learned
    assert not any(isinstance(m, nn.MaxPool2d) for m in model.modules()) or pool == "max"
    assert model(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


@pytest.mark.parametrize(
    ("pool", "replace", "learned"), [("conv", "strided", 0), ("gated", "strided", 27), ("mixed", "global,strided", 4)]
)
def test_strided_convolutions_get_pools(pool, replace, learned, tmp_path):
    run = Run(net="resnet9", width=0.05, pool=pool, replace=replace, **SMALL)
    assert run.replace == replace
    assert train(run, tmp_path / "runs").pool_parameters == learned
    model = learnpool.load(tmp_path / "runs" / run.id)
    assert model.conv2[0].stride == (2, 2)
    assert hasattr(model.conv2[0], "pool") == (pool != "conv")
    assert model(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


@pytest.mark.parametrize(
    ("pool", "replace", "message"),
    [
        (
            "tree2",
            "strided,global",
            "^replace: no global place gets tree2 pools: windows of many sizes have no taps: .*",
        ),
        ("blur", "strided,global", "^replace: no global place gets blur pools: "),
        ("gated", "strided,avg", "^replace: no avg place gets gated pools: there is none$"),
    ],
)
def test_a_kind_of_place_without_pools_is_an_error(pool, replace, message):
    run = Run(net="resnet9", width=0.05, pool=pool, replace=replace)
    with pytest.raises(RunError, match=message):
        networks.build(run, Table((8, 8), 1, 10), 0)


def test_pools_behind_convolutions_begin_as_the_network_was():
    runs = [Run(net="resnet9", width=0.05, pool=pool, replace="strided") for pool in ("conv", "filter")]
    plain, filtered = (networks.build(run, Table((8, 8), 1, 10), 0).eval() for run in runs)
    x = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(filtered(x), plain(x))


@pytest.mark.parametrize("start", ["neutral", "paper"])
def test_max_pools_beside_them_have_the_start_of_the_run(start, module):
    run = Run(net="theirs:both", pool="tree2", replace="max,strided", start=start)
    model = networks.build(run, Table((8, 8), 1, 10), 0)
    pools = {name: m for name, m in model.named_modules() if isinstance(m, TreeParameters)}
    assert {name: m.start for name, m in pools.items()} == {"0.pool": "neutral", "1": start}
    assert pools["0.pool"].weight[1:].flatten(1).sum(1).tolist() == [1, 1]  # picks a cell
    assert (pools["1"].weight.std() > 0.2) == (start == "paper")


def test_a_network_that_places_its_pools_itself(module, tmp_path):
    run = Run(net="theirs:own", pool="gated", replace="strided", **SMALL)
    with pytest.raises(RunError, match="^replace: theirs:own takes `pool` and places its pools itself$"):
        train(run, tmp_path / "runs")


def test_batch_norm_survives_a_stop(module, tmp_path):
    run = Run(net="theirs:plain", pool="gated", **SMALL)
    train(run, tmp_path / "whole")

    def stop(step):
        if step.step == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "parts", watch=stop)
    train(run, tmp_path / "parts")
    one, two = (learnpool.load(tmp_path / name / run.id).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert one["1.num_batches_tracked"] == 3 * 28


def test_an_edit_while_it_trains_is_not_what_was_trained(module, tmp_path):
    run = Run(net="theirs:plain", epochs=1, train_size=40, batch=20)
    train(run, tmp_path / "runs", watch=lambda step: (tmp_path / "theirs.py").write_text(CODE + "\nmore = 3\n"))
    with pytest.raises(RunError, match="theirs:plain is not what this run began with; give another --out$"):
        train(run, tmp_path / "runs")


def test_heads_of_its_own_count(module, tmp_path):
    """Only DSN's heads are for training alone."""
    run = Run(net="theirs:headed", epochs=1, train_size=40, batch=20)
    assert train(run, tmp_path / "runs").parameters == 64 * 10 + 10


@pytest.mark.parametrize(
    ("package", "given"),
    [("torchvision", {"num_classes": 10}), ("timm", {"num_classes": 10, "in_chans": 1})],
)
def test_a_model_of_torchvision_or_timm_by_its_name(package, given, monkeypatch):
    """As theirs, the stand-in passes ``num_classes`` on through ``**kwargs``; only timm's takes channels."""
    asked = {}

    def resnet18(weights=None, **kwargs):
        asked.update(kwargs)
        return nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, kwargs["num_classes"]))

    monkeypatch.setitem(sys.modules, package, ModuleType(package))
    models = ModuleType(f"{package}.models")
    models.resnet18 = resnet18
    monkeypatch.setitem(sys.modules, f"{package}.models", models)
    model = networks.build(Run(net=f"{package}:resnet18", pool="gated"), Table((8, 8), 1, 10), 0)
    assert asked == given
    assert isinstance(model[0], TreeParameters)
    with pytest.raises(RunError, match=rf"^net: {package} has no function ResNet18 \(did you mean 'resnet18'\?\)$"):
        networks.build(Run(net=f"{package}:ResNet18"), Table((8, 8), 1, 10), 0)


@pytest.mark.parametrize(("net", "pool"), [("passed_on", "gated"), ("as_timm", "max")])
def test_names_of_torchvision_and_timm(net, pool, module, tmp_path):
    run = Run(net=f"theirs:{net}", pool=pool, epochs=1, train_size=40, batch=20)
    assert train(run, tmp_path / "runs").epochs == 1


@pytest.mark.parametrize(
    ("net", "pool", "message"),
    [
        ("few", "max", r"^net: theirs:few must give \[N, 10\], got \[1, 3\] for one image$"),
        ("flat", "gated", "^net: theirs:flat cannot get gated pools; .*; convert: Sequential has no pools"),
        ("colour", "max", r"^net: theirs:colour fails on an input of \[1, 1, 8, 8\]: .*to have 3 channels"),
        ("asking", "max", r"^net: theirs:asking wants 'width'; a network may ask for pool, classes, "),
        ("none", "max", r"^net: theirs:none must return a torch.nn.Module, got int$"),
        ("gone", "max", r"^net: theirs has no function gone"),
        ("raising", "max", r"^net: theirs:raising fails: KeyError: 'theirs'$"),
        ("leaving", "max", r"^net: theirs:leaving fails: SystemExit: 0$"),
        ("frozen", "max", r"^net: theirs:frozen has nothing to learn"),
        ("ready", "max", r"^net: theirs:ready is a network; wanted a function that makes one"),
        ("Pair", "max", r"^net: theirs:Pair must give \[N, 10\] in training, got tuple for 2 images$"),
        ("Broken", "max", r"^net: theirs:Broken must give \[N, 10\] in training, got \[1, 20\] for 2 images$"),
    ],
)
def test_what_cannot_be_trained(net, pool, message, module, tmp_path):
    with pytest.raises(RunError, match=message):
        train(Run(net=f"theirs:{net}", pool=pool), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def net(:", r"SyntaxError: invalid syntax \(broken_module.py, line 1\)"),
        ("raise RuntimeError('theirs')", "RuntimeError: theirs"),
        ("import sys; sys.exit()", "SystemExit: "),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_module_that_cannot_be_imported(code, message, module, tmp_path):
    (tmp_path / "broken_module.py").write_text(code)
    with pytest.raises(RunError, match=f"^net: cannot import broken_module: {message}$"):
        train(Run(net="broken_module:net"), tmp_path / "runs")


def test_a_library_of_networks_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(RunError, match="^net: timm:resnet18 needs timm: pip install timm$"):
        user_networks.import_function("timm:resnet18")


def test_a_class_without_a_signature(tmp_path):
    with pytest.raises(RunError, match="^net: builtins:dict does not tell its arguments: ValueError: "):
        train(Run(net="builtins:dict"), tmp_path / "runs")


def test_what_it_prints_is_no_result(module, monkeypatch, capfd):
    words = "train --model theirs:chatty --epochs 1 --train-size 40 --set batch=20 --json --out runs"
    monkeypatch.setattr(sys, "argv", ["learnpool", *words.split()])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    printed = capfd.readouterr()
    assert json.loads(printed.out)["epochs"] == 1
    assert printed.err.startswith("made\nforward\n")
    # In a process of its own: the server that starts workers keeps the streams of whoever started it.
    many = "compare --model theirs:chatty --pools max,half --seeds 2 --jobs 1 --epochs 1 --train-size 40 --set batch=20"
    words = [
        sys.executable,
        "-m",
        "learnpool",
        *many.split(),
        "--json",
        "--out",
        "runs",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["baseline"] == "max"
    assert "made\nforward\n" in done.stderr


def test_the_trial_changes_nothing(module):
    run, table = Run(net="theirs:Noted"), Table((8, 8), 1, 10)
    model = networks.build(run, table, 0)
    drawn = torch.rand(1)
    assert model.seen == 0
    torch.manual_seed(0)
    plain = sys.modules["theirs"].Noted(10)
    assert torch.equal(drawn, torch.rand(1))
    assert torch.equal(model.body[2].weight, plain.body[2].weight)
    with torch.inference_mode():
        networks.build(run, table, 0)
