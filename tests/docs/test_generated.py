"""Numbers in the pages are those of the files they come from."""

import json
import re

import pytest
from pages import PAGES, ROOT, name_page
from torch import nn

import architecture_figure
import generate_docs
import learnpool
from learnpool.lab.runs.directory import make_result
from learnpool.lab.runs.presets import preset
from learnpool.lab.runs.run import parse_run
from learnpool.lab.runs.studies import read_study

SOURCE = ROOT / "src" / "learnpool"
RESULTS = ROOT / "docs" / "results"


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_a_page_is_what_the_tool_generates(page):
    text = page.read_text(encoding="utf-8")
    assert generate_docs.fill(text) == text, "run python tools/generate_docs.py"


def test_every_block_is_on_a_page():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(f"<!-- generated: {name} -->" in text for name in generate_docs.BLOCKS)


def test_the_figure_is_what_the_tool_draws():
    assert architecture_figure.FIGURE.read_text(encoding="utf-8").splitlines() == list(architecture_figure.draw())


def test_the_figure_names_files_that_exist():
    text = architecture_figure.FIGURE.read_text(encoding="utf-8")
    names = re.findall(r"[\w/]+(?:\.py|/(?=<))", text)
    assert len(names) >= 12
    folders = [
        SOURCE,
        *(path for path in SOURCE.rglob("*") if path.is_dir()),
    ]  # cluster.py stands for lab/launch/cluster.py
    for name in names:
        assert any((folder / name).exists() for folder in folders), name


def test_an_outdated_page_is_found_and_filled(tmp_path, monkeypatch, capsys):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- generated: baseline -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(generate_docs, "ROOT", tmp_path)
    assert generate_docs.main(["--check"]) == 1
    assert capsys.readouterr().out == "out of date: README.md\n"
    assert generate_docs.main([]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- generated: baseline -->\n|")
    assert text.endswith("|\n<!-- end -->\nafter\n")
    assert generate_docs.main(["--check"]) == 0


@pytest.mark.parametrize("text", ["<!-- generated: nothing -->\n<!-- end -->\n", "<!-- generated: cpu -->\nno end\n"])
def test_a_broken_marker_is_an_error(text):
    with pytest.raises(ValueError, match="generated block|unknown block"):
        generate_docs.fill(text)


def test_the_baseline_is_the_cpu_presets():
    (line,) = read_study(RESULTS / "baseline.jsonl").values()
    run, result = parse_run(json.dumps(line["run"])), make_result(line["result"] | {"id": line["id"]})
    nothing_to_start = {"start": "neutral", "pool_rate": 1.0}  # as the preset had them for all; max pools have neither
    assert run == preset("cpu", "cifar10", **nothing_to_start)
    assert result.id == run.id
    metrics = line["metrics"]
    assert (len(metrics), metrics[-1]["validation_error"]) == (run.epochs, result.validation_error)


def test_the_numbers_of_parameters_in_the_readme():
    rows = re.findall(r"^\| `(\w+Pool2d)(?:\((.*?)\))?` \|.*\| (\d+) \|$", (ROOT / "README.md").read_text(), re.M)
    assert len(rows) >= 5
    for name, options, count in rows:
        layer = eval(f"{name}(3, {options})", vars(learnpool).copy())
        assert isinstance(layer, nn.Module)
        assert sum(p.numel() for p in layer.parameters()) == int(count), name
