"""A study stands for a directory of runs: the same numbers, without the weights."""

import json
import shutil

import pytest

from learnpool.lab.comparison.comparison import read_run
from learnpool.lab.experiments.results import Results
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.studies import get_study_path, pack_runs, read_study
from learnpool.lab.runs.train import train
from runs import SMALL

pytestmark = pytest.mark.trains
RUNS = [Run(**SMALL | {"epochs": 2, "seed": seed}) for seed in (0, 1)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "runs"
    for run in RUNS:
        train(run, out, threads=1)
    Results(out).measure(RUNS[0], "probe", lambda entry: {"error": entry.result.test_error})
    Results(out).measure_once("timing", lambda: {"seconds": [1.5, 2.0]})
    return out


@pytest.fixture
def packed(trained, tmp_path):
    """A directory whose runs are in its study alone."""
    out = tmp_path / "runs"
    shutil.copytree(trained, out)
    assert pack_runs(out) == (tmp_path / "runs.jsonl", 2)
    shutil.rmtree(out)
    return out


def test_a_packed_run_is_the_run(trained, packed):
    for run in RUNS:
        whole, line = read_run(trained / run.id), Results(packed).find(run)
        for name in ("run", "result", "metrics", "classes", "digest", "score", "chance_error"):
            assert getattr(line, name) == getattr(whole, name), name
        assert len(line.starts) == len(whole.starts) == 1
        assert set(whole.starts[0]) - set(line.starts[0]) == {"out", "data_dir"}  # paths of the machine that trained
        assert all(value == whole.starts[0][name] for name, value in line.starts[0].items())


def test_measurements_come_along(packed):
    results = Results(packed, announce=lambda name: pytest.fail(f"measured {name} again"))
    error = results.find(RUNS[0]).result.test_error
    assert results.measure(RUNS[0], "probe", lambda entry: None) == {"error": error}
    assert results.measure_once("timing", lambda: None) == {"seconds": [1.5, 2.0]}


def test_what_was_not_measured_needs_the_weights(packed):
    with pytest.raises(FileNotFoundError):
        Results(packed).measure(RUNS[1], "probe", lambda entry: {"error": entry.result.test_error})


def test_packing_adds_to_a_study(packed, trained):
    shutil.copytree(trained / RUNS[0].id, packed / RUNS[0].id)
    other = read_study(get_study_path(packed))[RUNS[1].id]
    (packed / RUNS[0].id / "probe.json").write_text('{"error": -1}')
    assert pack_runs(packed)[1] == 2
    lines = read_study(get_study_path(packed))
    assert lines[RUNS[0].id]["measured"] == {"probe": {"error": -1}}
    assert lines[RUNS[1].id] == other


def test_a_run_that_is_not_done_is_left_out(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    (tmp_path / "runs" / RUNS[1].id / "result.json").unlink()
    assert pack_runs(tmp_path / "runs")[1] == 1
    assert Results(tmp_path / "elsewhere").find(RUNS[0]) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"id": 3}', '{"id": "a", "run": {}}'])
def test_a_damaged_line_is_named(packed, text):
    path = get_study_path(packed)
    path.write_text(path.read_text() + text + "\n")
    with pytest.raises(RunError, match=r"runs\.jsonl: line 4 is damaged: "):
        read_study(path)


def test_a_damaged_result_is_named(packed):
    path = get_study_path(packed)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.get("result", {})["test_error"] = 101.0
        del line["digest"]  # lines of earlier versions have none
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RunError, match=rf"runs\.jsonl: the line of {RUNS[0].id} is damaged"):
        Results(packed).find(RUNS[0])


def test_nothing_to_pack(tmp_path):
    with pytest.raises(RunError, match="^pack: wanted a directory with finished runs, got "):
        pack_runs(tmp_path)
    for name in ("run.json", "result.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(RunError, match="^pack: wanted a directory with finished runs, got the run "):
        pack_runs(tmp_path)
    assert not tmp_path.with_suffix(".jsonl").exists()
