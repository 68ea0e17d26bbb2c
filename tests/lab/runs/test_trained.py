"""A run directory is data: loaded anywhere, and running nothing that its files name."""

import json
import shutil
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import learnpool as lp
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.train import train

OWN = """
from pathlib import Path
from torch import nn

Path("imported").touch()

def net(classes, channels):
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, classes))

class Named(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes, self.body = classes, net(classes, 1)
    def forward(self, x):
        return self.body(x)[:, : self.classes]
"""


def forget(*names):
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A directory with a module of the user's, which nobody has imported."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "own_module.py").write_text(OWN)
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "home"
    forget("own_module")


@pytest.fixture
def own(here, monkeypatch):
    """A finished run of it, as if made elsewhere."""
    run = Run(net="own_module:net", pool="gated", start="neutral", epochs=1, train_size=40, batch=20)
    train(run, here.parent / "runs")
    forget("own_module")
    (here / "imported").unlink()
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(here)])
    return here.parent / "runs" / run.id


def test_nothing_of_the_working_directory_is_run_because_a_file_names_it(own, here, monkeypatch):
    for entry in ("", ".", str(here)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [entry, *sys.path])
            message = r'the network own_module:net is not in an installed package; model="own_module:net" \(or --model'
            with pytest.raises(RunError, match=message):
                lp.load(own)
    assert not (here / "imported").exists()


def test_a_named_model_is_taken_from_the_working_directory(own, here):
    model = lp.load(own, "own_module:net")
    assert (here / "imported").exists()
    assert isinstance(model[1], lp.Pool2d)
    assert model.predict(torch.zeros(8, 8)).label in model.classes


def test_a_function_or_a_network_may_be_given(own, here):
    wanted = lp.load(own, "own_module:net").state_dict()

    def anywhere(classes):
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, classes))

    network = anywhere(10)
    converted = anywhere(10)
    lp.convert(converted, "gated", example=torch.zeros(1, 1, 8, 8))
    for given in (anywhere, network, converted):
        found = lp.load(own, given)
        assert found is given or given is anywhere
        assert_close(found.state_dict(), wanted)
    with pytest.raises(ValueError, match="has shape|is only in the|must give"):
        lp.load(own, lambda classes: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, classes)))


def test_an_installed_package_needs_no_model(own, here, monkeypatch, tmp_path):
    (tmp_path / "site").mkdir()
    (here / "own_module.py").rename(tmp_path / "site" / "own_module.py")
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(tmp_path / "site")])
    assert isinstance(lp.load(own)[1], lp.Pool2d)


@pytest.mark.parametrize("net", ["os:getcwd", "subprocess:list2cmdline", "antigravity:fly"])
def test_no_function_of_pythons_own_library_is_called(net, own):
    described = json.loads((own / "run.json").read_text())
    (own / "run.json").write_text(json.dumps(described | {"net": net}))
    record = json.loads((own / "last.json").read_text())
    (own / "last.json").write_text(json.dumps({k: v for k, v in record.items() if k not in ("run", "digest")}))
    with pytest.raises(RunError, match=f"the network {net} is not in an installed package"):
        lp.load(own)


def test_a_network_keeps_its_own_attributes(here):
    run = Run(net="own_module:Named", epochs=1, train_size=40, batch=20)
    train(run, here.parent / "runs")
    model = lp.load(here.parent / "runs" / run.id)
    assert model.classes == 10
    assert model.predict.classes == tuple("0123456789")
    assert model.predict(torch.zeros(8, 8)).label in model.predict.classes


def test_our_own_network_is_not_to_be_replaced(tmp_path):
    run = Run(width=0.05, epochs=1, train_size=40, batch=20)
    train(run, tmp_path)
    with pytest.raises(RunError, match="is a run of our own network dsn; model= is for one of yours$"):
        lp.load(tmp_path / run.id, "own_module:net")


def test_a_description_that_was_changed_is_refused(tmp_path):
    run = Run(width=0.05, epochs=1, train_size=40, batch=20)
    train(run, tmp_path)
    shutil.copytree(tmp_path / run.id, tmp_path / "copy")
    assert lp.load(tmp_path / "copy")(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    described = json.loads((tmp_path / "copy" / "run.json").read_text())
    (tmp_path / "copy" / "run.json").write_text(json.dumps(described | {"prepare": "none"}))
    with pytest.raises(RunError, match="run.json is not the description this run was trained with$"):
        lp.load(tmp_path / "copy")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("learnpool.lab")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(lp, "lab", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ModuleNotFoundError, match="^load needs the extra lab: pip install "):
        lp.load("runs/digits")
