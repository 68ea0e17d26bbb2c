"""Every table and figure of the paper as a command: on the digits, from the plan to its page."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import torch

from learnpool.lab.experiments import (
    configurations,
    confirmation,
    invariance,
    reproduce,
    screening,
    starts,
    timing,
    tsne,
)
from learnpool.lab.experiments.experiment import VARIANTS, Scale
from learnpool.lab.experiments.figure_networks import FigureNetwork
from learnpool.lab.experiments.results import Results
from learnpool.lab.paper import PAPER, SETS
from learnpool.lab.runs.directory import read_result
from learnpool.lab.runs.run import RunError
from learnpool.lab.runs.studies import pack_runs
from learnpool.lab.runs.train import train

TINY = Scale("cpu", 2, ("digits",), {"epochs": 1, "width": 0.05, "train_size": 120, "batch": 40})

CHOICES = (("gated", "neutral", 1.0), ("tree2+max", "neutral", 1.0), ("tree2+max", "spread", 10.0))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """All experiments on the digits, each run of one epoch; all but one run were there before, as after a kill."""
    out = tmp_path_factory.mktemp("paper")
    patch = pytest.MonkeyPatch()
    patch.setattr(tsne, "IMAGES", 60)
    patch.setattr(timing, "SECONDS", 0.0)
    patch.setattr(starts, "CHOICES", CHOICES)
    patch.setattr(screening, "POOLS", ("max", "gated"))
    patch.setattr(screening, "NETS", ("resnet9",))
    rates = {"max": 0.1, "half": 0.1, "gated": 0.05}
    patch.setattr(confirmation, "BLOCKS", (confirmation.Block("resnet9", "digits", rates, range(100, 102)),))
    for run in reproduce.plan(reproduce.NAMES, TINY)[:-1]:
        train(run, out / "runs", threads=1)
    pages = reproduce.reproduce(reproduce.NAMES, TINY, out, words=["--seeds", "2"], jobs=1)
    yield out, pages
    patch.undo()


def read(site, name):
    return json.loads((site[0] / f"{name}.json").read_text())


def test_every_experiment_has_its_page_and_the_index_names_it(site):
    out, pages = site
    assert [page.stem for page in pages] == ["index", *reproduce.NAMES]
    index = (out / "index.html").read_text()
    for name in reproduce.NAMES:
        page = (out / f"{name}.html").read_text()
        assert f'href="{name}.html"' in index
        assert reproduce.find(name).TITLE in page
        assert f"<pre><code>learnpool reproduce {name} --seeds 2</code></pre>" in page
        assert not re.search(r"(src|href)=\"https?:", page)  # self-contained


def test_experiments_share_their_runs(site):
    runs = reproduce.plan(reproduce.NAMES, TINY)
    alone = [reproduce.plan([name], TINY) for name in reproduce.NAMES]
    assert len(runs) < sum(map(len, alone))
    assert sorted(path.name for path in (site[0] / "runs").iterdir() if path.is_dir()) == sorted(run.id for run in runs)


def test_a_published_study_goes_on_where_it_ended(tmp_path):
    first, second = reproduce.plan(["table1"], replace(TINY, pools=("max",)))
    train(first, tmp_path / "runs", threads=1)
    pack_runs(tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs")
    assert reproduce.plan_missing(["table1"], replace(TINY, pools=("max",)), tmp_path) == [second]
    reproduce.reproduce(["table1"], replace(TINY, pools=("max",)), tmp_path, jobs=1)
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == [second.id]
    assert len(json.loads((tmp_path / "table1.json").read_text())["digits"].popitem()[1]) == 2


def test_numbers_of_a_page_are_those_of_the_run_files(site):
    found = read(site, "table1")["digits"]
    for label, errors in found.items():
        pool = next(pool for pool, row in PAPER["table1"].items() if row["label"] == label)
        results = [read_result(site[0] / "runs" / run.id) for run in TINY.list_runs("digits", pool)]
        assert errors == [result.test_error for result in results]
    assert list(found) == [row["label"] for row in PAPER["table1"].values()]


def test_no_change_of_the_images_is_the_plain_error_exactly(site):
    found = read(site, "invariance")["digits"]
    assert list(found) == list(invariance.POOLS.values())
    for pool, label in invariance.POOLS.items():
        for run, measured in zip(TINY.list_runs("digits", pool), found[label], strict=True):
            error = read_result(site[0] / "runs" / run.id).test_error
            for kind, change in invariance.CHANGES.items():
                assert list(measured[kind]) == [f"{amount:g}" for amount in change.amounts]
                assert measured[kind][f"{change.nothing:g}"] == error


def test_images_are_judged_in_the_precision_of_the_run(tmp_path):
    run = TINY.make_run("digits", "gated", 0, precision="bfloat16", epochs=3)
    result = train(run, tmp_path, threads=1)
    entry = Results(tmp_path).find(run)
    error = FigureNetwork(entry, None).compute_error(lambda images: images)
    assert error == result.test_error
    features = FigureNetwork(entry, None).compute_features(["pool2"], torch.arange(3))["pool2"]
    assert torch.equal(features, features.bfloat16().float())


def test_figures_have_their_curves_and_axes(site):
    page = (site[0] / "invariance.html").read_text()
    assert page.count("<figure") == len(invariance.CHANGES)
    for kind, change in invariance.CHANGES.items():
        assert f"{kind}, {change.unit}" in page
    scatter = (site[0] / "tsne.html").read_text()
    for pool in ("average", "max", "gated", "tree"):
        assert f"{pool}, first pool" in scatter
        assert f"{pool}, second pool" in scatter


def test_a_second_call_trains_and_measures_nothing(site, monkeypatch):
    out, _ = site
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.json")}
    monkeypatch.setattr(invariance, "measure", lambda results, entry: pytest.fail("measured again"))
    reproduce.reproduce(["invariance"], TINY, out, jobs=1)
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.json")} == before


def test_a_measurement_is_announced_before_it_is_made_and_only_then(site):
    heard: list[str] = []
    results = Results(site[0] / "runs", announce=heard.append)
    run = TINY.make_run("digits", "max", 0)
    try:
        for _ in range(2):
            assert results.measure(run, "probe", lambda entry: list(heard)) == [run.id]
        assert heard == [run.id]
    finally:
        (site[0] / "runs" / run.id / "probe.json").unlink()


def test_a_page_says_what_is_not_finished(tmp_path):
    pages = reproduce.write_site(["table1"], TINY, tmp_path)
    text = pages[1].read_text()
    assert "the baseline is not finished yet" in text
    assert "not run" in text


GATED = "Gated, 1 per pool layer"


def test_a_pool_with_fewer_seeds_is_compared_on_those(site, tmp_path):
    for run in reproduce.plan(["table1"], TINY):
        if (run.pool, run.seed) != ("gated", 0):
            (tmp_path / "runs").mkdir(exist_ok=True)
            (tmp_path / "runs" / run.id).symlink_to(site[0] / "runs" / run.id)
    reproduce.write_site(["table1"], TINY, tmp_path)
    whole, part = (json.loads((out / "table1.json").read_text())["digits"] for out in (site[0], tmp_path))
    assert part[GATED] == whole[GATED][1:]
    assert {**part, GATED: None} == {**whole, GATED: None}
    assert "one seed" in (tmp_path / "table1.html").read_text()


def test_configurations_are_the_papers_counts(tmp_path):
    page = configurations.build_page(Scale(), Results(tmp_path))
    for data, counts in page.data.items():
        tree = PAPER["tree+gated"][data].partition("+")[0]
        second = 4 if data == "mnist" else 9  # its second pool is 2×2
        expected = [0, 2, 9 + second, 27, 63, {"tree2": 27, "tree3": 63}[tree] + second]
        assert list(counts.values()) == expected
    assert [cell.text for cell in page.parts[1].rows[0]][1:3] == ["3×3 convolution", "128 × 32 × 32"]
    assert list(configurations.build_page(Scale(data=("cifar10+",)), Results(tmp_path)).data) == ["cifar10"]


def test_a_scale_in_words():
    changes = {"train_size": 10_000, "epochs": 1, "rate": (0.035,), "precision": "bfloat16", "decay": 0.001}
    scale = Scale("cpu", 5, ("cifar10+",), changes, ("gated",))
    start = "CIFAR10+, pools gated, preset cpu, 5 seeds, 10,000 training images, 1 epoch, learning rate 0.035, "
    assert scale.describe() == start + "computed in bfloat16, decay 0.001"


def test_augmented_and_plain_cifar10_are_different_runs():
    plain, augmented = (Scale().list_runs(data, "max")[0] for data in ("cifar10", "cifar10+"))
    assert (plain.pad, plain.mirror, augmented.pad, augmented.mirror) == (0, False, 4, True)
    assert {name for name in VARIANTS if name not in ("digits", "imagenet", "imagenette")} == set(SETS)


def test_one_run_serves_all_starts_and_rates_of_pools_that_do_not_have_them():
    one, other = Scale(changes={"start": "neutral"}), Scale(changes={"start": "spread", "pool_rate": 10.0})
    same = {
        pool: one.list_runs("cifar10", pool) == other.list_runs("cifar10", pool)
        for pool in ("max", "half", "stochastic", "conv")
    }
    assert all(same.values())
    (mixed, *_), (faster, *_) = (scale.list_runs("cifar10", "mixed") for scale in (one, other))
    assert (mixed.start, faster.start, faster.pool_rate) == ("neutral", "neutral", 10)  # a proportion has a rate
    assert other.list_runs("cifar10", "max+gated")[0].start == "spread"


def test_mistakes_are_one_line(learnpool):
    for words, message in (
        (["table9"], "wanted some of table1"),
        (["tabel1"], "got 'tabel1' (did you mean 'table1'?)"),
        ([], "wanted at least one of table1"),
        (["table1", "--data", "cifar"], "--data: wanted some of mnist"),
        (["table1", "--seeds", "0"], "--seeds: wanted at least 1"),
        (["table1", "--set", "pool=max"], "pool is part of the experiment"),
        (["table1", "--pools", "gated,tree2+max"], "--pools: wanted some of max, stochastic, half, mixed,"),
        (["table1", "--pools", "gatd"], "did you mean 'gated'?"),
        (["configurations", "--pools", "gated"], "--pools: wanted none, the pools of configurations, got 'gated'"),
    ):
        status, out, error = learnpool("reproduce", *words)
        assert (status, out) == (2, "")
        assert message in " ".join(error.split())


def test_the_command_line(learnpool, site):
    status, out, _ = learnpool("reproduce", "--list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == list(reproduce.NAMES)
    words = ["--data", "digits", "--seeds", "2", "--epochs", "1", "--train-size", "120", "--out", str(site[0])]
    words += ["--set", "width=0.05", "--set", "batch=40"]
    status, out, _ = learnpool("reproduce", "table1", "--dry-run", *words)
    assert status == 0
    assert "12 runs, 12 of them done" in out
    status, out, _ = learnpool("reproduce", "table1", "--dry-run", *words[:-1], "batch=30")
    assert "12 runs, 0 of them done" in out
    assert "steps measured just now" in out
    status, out, _ = learnpool("reproduce", "table1", *words, "--quiet")
    assert (status, len(out.splitlines())) == (0, 2)


def test_only_the_pools_asked_for_are_run_and_the_baseline(learnpool, site):
    some = replace(TINY, pools=("gated", "Gate(Filter,Mix(Max,Avg))+gated"))
    pools = ["max", "gated", "Gate(Filter(), Mix(Max(), Avg()))+gated"]
    assert [run.pool for run in reproduce.plan(["table1", "beyond"], some)] == [
        pool for pool in pools for _ in range(2)
    ]
    every = [run for run in reproduce.plan(["table1", "beyond"], TINY) if run.pool in pools]
    assert reproduce.plan(["table1", "beyond"], some) == every
    words = ["--data", "digits", "--seeds", "2", "--epochs", "1", "--train-size", "120", "--out", str(site[0])]
    words += ["--set", "width=0.05", "--set", "batch=40", "--pools", "half, gated"]
    status, out, _ = learnpool("reproduce", "table1", "--dry-run", *words)
    assert (status, "6 runs, 6 of them done" in out) == (0, True)
    page = reproduce.find("table1").build_page(replace(TINY, pools=("half",)), Results(site[0] / "runs"))
    assert set(page.data["digits"]) == {"Baseline", "50/50 mix, no learning"}


def test_unknown_changes_are_refused():
    with pytest.raises(RunError, match="unknown field"):
        Scale(changes={"colour": 1})
    with pytest.raises(RunError, match="epochs"):
        Scale(changes={"epochs": "many"})


def test_starts_are_judged_on_validation_images(site):
    found = read(site, "starts")
    assert list(found["digits"]) == ["gated, neutral, 1", "tree2+max, neutral, 1", "tree2+max, spread, 10"]
    for choice, errors in zip(CHOICES, found["digits"].values(), strict=True):
        results = [read_result(site[0] / "runs" / run.id) for run in starts.list_runs(TINY, "digits", choice)]
        assert errors == [result.validation_error for result in results]
    means = {label: sum(errors) for label, errors in found["digits"].items() if label.startswith("tree2")}
    best = min(means, key=means.get).split(", ")
    assert f"tree2+max: best from {best[1]} at {best[2]} × the rate" in found["answer"][1]
    page = (site[0] / "starts.html").read_text()
    assert all(f"{start}: gate ω" in page for start in starts.starts.STARTS)


def test_all_is_all_of_the_paper_and_others_are_asked_for_by_name():
    assert reproduce.choose(["all"]) == list(reproduce.IN_PAPER)
    assert reproduce.choose(["starts", "all", "table1"]) == ["starts", *reproduce.IN_PAPER]
    assert set(reproduce.IN_PAPER) < set(reproduce.NAMES)


def test_a_page_says_what_to_know_first_and_where_the_paper_disagrees(site):
    assert any(
        sentence.startswith("Nothing can be said about pools yet") for sentence in read(site, "table1")["answer"]
    )
    page = (site[0] / "table1.html").read_text()
    assert "50/50 mix on CIFAR10: table 8.11, text 8.07." in page
    assert "disagrees with itself" not in (site[0] / "timing.html").read_text()
    assert {name for entry in PAPER["disagreements"] for name in entry["pages"]} <= set(reproduce.NAMES)


def test_the_index_links_other_scales(site):
    out, _ = site
    scale = Scale("cpu", 1, ("digits",), {"epochs": 2})
    reproduce.write_site(["table1"], scale, out / "longer")
    reproduce.write_site(["table1"], TINY, out, words=["--seeds", "2"])
    index = (out / "index.html").read_text()
    assert '<a href="longer/index.html">longer</a>: digits, preset cpu, 1 seed, 2 epochs' in index
    reproduce.write_site(["table1"], scale, out / "longer")
    assert 'href="../index.html"' in (out / "longer/index.html").read_text()
    assert 'href="../index.html"' not in index


def test_the_index_tells_pages_of_several_scales_apart(tmp_path):
    for seeds in (3, 4):
        name = {3: "table1", 4: "table2"}[seeds]
        reproduce.write_site([name], replace(TINY, seeds=seeds), tmp_path, words=["--seeds", str(seeds)])
    index = (tmp_path / "index.html").read_text()
    for seeds in (3, 4):
        assert f'<p class="soft">digits, preset cpu, {seeds} seeds, 1 epoch' in index
    assert "learnpool reproduce table1 --seeds 3\nlearnpool reproduce table2 --seeds 4" in index
