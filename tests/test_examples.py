"""Every example runs, on little data; the notebook runs from top to bottom."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
from pages import drop_numbers

EXAMPLES = Path(__file__).parents[1] / "examples"
SETTINGS = {  # the arguments of main that make it short
    "fine_tune": {"epochs": 1},
    "resnet": {"epochs": 1, "images": 200, "size": 16},
    "signals": {"steps": 4, "length": 128},
    "unet": {"steps": 4, "size": 16},
    "volumes": {"steps": 4, "size": 12},
}


def test_every_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SETTINGS)
    listing = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [
        path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb") and f"`{path.name}`" not in listing
    ] == []


@pytest.mark.parametrize("name", SETTINGS)
def test_an_example_runs(name, capsys):
    pytest.importorskip("sklearn")
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer = module.main(**SETTINGS[name])
    shares = answer if isinstance(answer, list) else [answer]
    assert all(math.isfinite(share) and 0 <= share <= 1 for share in shares)
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", SETTINGS)
def test_an_example_fits_a_screen(name):
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 60


def test_the_notebook_prints_what_it_shows_and_ends_in_a_picture(tmp_path, monkeypatch, capsys):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "explain.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names = {}
    for cell in cells[:-1]:
        exec("".join(cell["source"]), names)
        shown = "".join(line for output in cell["outputs"] for line in output["text"])
        assert drop_numbers(capsys.readouterr().out) == drop_numbers(shown)
    picture = eval("".join(cells[-1]["source"]), names)
    assert isinstance(picture, matplotlib.figure.Figure)
    assert "image/png" in cells[-1]["outputs"][0]["data"]  # and the stored notebook shows it
