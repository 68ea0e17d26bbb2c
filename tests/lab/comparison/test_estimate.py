"""``--dry-run``: what is done, what is left, and how long an epoch takes; nothing is trained or written."""

import itertools
import re
import shlex

import pytest

from learnpool.lab.comparison import estimate
from learnpool.lab.comparison.comparison import format_command
from learnpool.lab.runs.presets import preset

pytestmark = pytest.mark.trains


def test_a_dry_run_shows_what_is_done_and_writes_nothing(comparison, learnpool, monkeypatch):
    out, runs = comparison
    before = sorted(path.name for path in out.iterdir())
    measured = []
    monkeypatch.setattr(estimate, "measure_epoch", lambda run, **options: measured.append(run) or 90.0)
    words = shlex.split(format_command(runs))[1:]
    words[words.index("--seeds") + 1] = "3"
    status, text, error = learnpool(*words, "--out", str(out), "--jobs", "2", "--dry-run")
    assert (status, error) == (0, "")
    assert re.search(r"digits +gated +3 +2 +2 ", text)  # one seed of two epochs is left
    assert f"15 runs, 10 of them done in {out}; about " in text
    assert "with 2 at a time" in text
    assert [run.pool for run in measured] == ["max", "half", "mixed", "gated", "tree2:channel+max"]
    status, text, _ = learnpool(*shlex.split(format_command(runs))[1:], "--out", str(out), "--dry-run")
    assert text.endswith(f"10 runs, 10 of them done in {out}; nothing to train.\n")
    assert sorted(path.name for path in out.iterdir()) == before


def test_a_dry_run_of_data_that_is_not_there(learnpool, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ["compare", "--pools", "max,gated", "--seeds", "1", "--dry-run", "--data"]
    status, text, error = learnpool(*words, "digit")
    assert (status, text) == (2, "")
    assert "no folder and no data set 'digit' (did you mean 'digits'?)" in error
    status, text, _ = learnpool(*words, "mnist", "--data-dir", str(tmp_path), "--out", "a\x1b[31m")
    assert status == 0
    assert "done in a\\x1b[31m; no time could be measured. Not counted: " in text


def test_a_dry_run_calls_a_folder_by_its_name(learnpool, monkeypatch, tmp_path):
    (tmp_path / "photos").mkdir()
    monkeypatch.setattr(estimate, "measure_epoch", lambda run, **options: 1.0)
    monkeypatch.chdir(tmp_path)
    status, text, _ = learnpool("compare", "--pools", "max,gated", "--seeds", "1", "--dry-run", "--data", "photos")
    assert status == 0
    assert re.search(r"^photos +max ", text, re.MULTILINE)


def test_rows_that_differ_in_another_field_are_told_apart(monkeypatch, tmp_path):
    monkeypatch.setattr(estimate, "measure_epoch", lambda run, **options: 1.0)
    runs = [
        preset("cpu", "digits", pool="gated", start=start, seed=s) for start in ("neutral", "spread") for s in (0, 1)
    ]
    text = estimate.describe_plan([preset("cpu", "digits"), *runs], tmp_path, 1)
    assert re.search(r"^digits +max +1 ", text, re.MULTILINE)
    assert re.search(r"^digits +gated, start=neutral +2 ", text, re.MULTILINE)
    assert re.search(r"^digits +gated, start=spread +2 ", text, re.MULTILINE)


def test_an_epoch_is_estimated_from_its_steps(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    clock = itertools.count()
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: float(next(clock)))
    run = preset("cpu", "digits", width=0.05, batch=20, train_size=400)
    # 20 steps of a second each, and a third of the steps that 125 validation images would be, and 540 test images once.
    assert estimate.measure_epoch(run) == pytest.approx(20 + (125 + 540 / run.epochs) / 20 / 3)
    assert list(tmp_path.iterdir()) == []
