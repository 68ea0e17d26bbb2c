"""Table 5 from the plan to its page, on a generated folder of tiny images."""

import json
import re

import pytest

from data_files import write_folder
from learnpool.lab.experiments import imagenet, reproduce
from learnpool.lab.experiments.experiment import Cell, Scale
from learnpool.lab.experiments.results import Results
from learnpool.lab.paper import PAPER
from learnpool.lab.runs.directory import read_result
from learnpool.lab.runs.evaluation import evaluate_checkpoint
from learnpool.lab.runs.train import train

pytestmark = pytest.mark.trains

CHANGES = {"epochs": 1, "width": 0.05, "image_size": 40, "batch": 8, "validation": 4}
TINY = Scale("cpu", 1, ("imagenet",), CHANGES)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Six classes of three images each, so that there are top-5 errors; one run is left for the command itself."""
    root = tmp_path_factory.mktemp("table5")
    write_folder(root / "data/imagenet", {f"{split}/n{k:02}": 3 for split in ("train", "val") for k in range(6)})
    runs = imagenet.plan(TINY)
    for run in runs[:-1]:
        train(run, root / "out/runs", data_dir=root / "data", threads=1)
    options = {"data_dir": root / "data", "jobs": 1, "threads": 1}
    pages = reproduce.reproduce(["imagenet"], TINY, root / "out", **options)
    return root, pages, runs


def test_the_page_has_the_papers_numbers_and_ours(site):
    root, pages, runs = site
    page = pages[1].read_text()
    assert [row.label for row in imagenet.ROWS if row.published] == [row["label"] for row in PAPER["table5"].values()]
    for row in PAPER["table5"].values():
        assert row["label"] in page
        assert all(f"paper {row[name]:g}<" in page for name in imagenet.COLUMNS if name in row)
    assert "not run" not in page
    found = json.loads((root / "out/imagenet.json").read_text())["imagenet"]
    for row, run in zip(imagenet.ROWS, runs, strict=True):
        result = read_result(root / "out/runs" / run.id)
        ten = evaluate_checkpoint(root / "out/runs" / run.id, "imagenet", views=10, data_dir=root / "data").tally.errors
        values = (result.test_error, result.test_error_top5, *ten)
        assert [found[row.label][name] for name in imagenet.COLUMNS] == [[value] for value in values]
    assert "alexnet: To take minutes, not days: 0.05 of the paper" in page
    assert re.search(r"<li>googlenet: [^<]*images of 40 pixels, not 224", page)
    assert not re.search(r"<li>googlenet: [^<]*masks and filters", page)  # it has max pools alone


def test_rows_are_the_papers_networks():
    runs = {row.label: row.list_runs(Scale("paper"), "imagenet")[0] for row in imagenet.ROWS}
    ours = runs["AlexNet w/ ours"]
    assert (ours.net, ours.pool, ours.batch, ours.decay, ours.image_size) == ("alexnet", "tree2+gated", 256, 5e-4, 227)
    assert (runs["GoogLeNet w/ BN + ours"].net, runs["GoogLeNet w/ BN + ours"].decay) == ("googlenet-bn", 2e-4)
    assert len({run.id for run in runs.values()}) == 7


def test_without_runs_the_paper_stands_alone(tmp_path):
    for data in (("imagenet",), ("digits",)):
        page = imagenet.build_page(Scale("cpu", 1, data), Results(tmp_path))
        assert page.answer == ["Nothing is finished yet: the paper's numbers stand alone."]
        assert page.parts[0].rows[0][1] == Cell("not run", "paper 43.1")
    assert imagenet.plan(Scale("cpu", 1, ("digits",))) == []


def test_it_is_not_part_of_all():
    assert "imagenet" not in reproduce.choose(["all"])
    assert reproduce.choose(["imagenet"]) == ["imagenet"]
