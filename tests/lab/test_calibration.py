"""The calibration experiment: the lab's own training, then what converting and calibrating do to the test error."""

import json

import pytest
import torch

from learnpool.lab import calibration
from learnpool.lab.calibration import Settings
from learnpool.lab.runs import directory
from learnpool.nets import dsn

SMALL = {"data": "digits", "images": 32, "train": 200, "epochs": 1, "width": 0.05}


def test_the_experiment(tmp_path, capsys):
    calibration.run_experiment(Settings(pools=("mixed", "gated"), **SMALL), None, tmp_path)
    record = json.loads((tmp_path / "calibration-digits.json").read_text())
    result = directory.read_result(tmp_path / record["run"])
    assert record["images"] == {"train": 200, "test": result.images["test"], "calibrate": 32}
    assert record["error"] == pytest.approx(result.test_error, abs=1)  # the run evaluates in another memory layout
    assert [line["pool"] for line in record["lines"]] == ["mixed", "gated"]
    for line in record["lines"]:
        gap = line["converted"] - record["error"]
        closed = 100 * (line["converted"] - line["calibrated"]) / gap if gap > 0 else None
        assert line["closed"] == (None if closed is None else pytest.approx(closed))
        assert line["distance_after"] < line["distance_before"]
    mixed = record["lines"][0]
    assert (mixed["calibrated"], mixed["distance_after"]) == (record["error"], 0)
    page = (tmp_path / "calibration-digits.md").read_text()
    assert page.startswith("# A max network on digits, its pools swapped and calibrated\n")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| pools", "| ---", "| mixed", "| gated"]
    assert all(row.count("|") == 10 for row in rows)
    assert page in capsys.readouterr().out


def test_a_network_that_is_trained_is_not_trained_again(tmp_path, monkeypatch):
    calibration.run_experiment(Settings(pools=("mixed",), **SMALL), None, tmp_path)
    first = json.loads((tmp_path / "calibration-digits.json").read_text())
    monkeypatch.setattr("learnpool.lab.runs.train.Training", None)
    calibration.run_experiment(Settings(pools=("half", "mixed"), **SMALL), None, tmp_path)
    again = json.loads((tmp_path / "calibration-digits.json").read_text())
    assert again["lines"][1] | {"seconds": 0} == first["lines"][0] | {"seconds": 0}


def test_any_tree_by_the_command_line(tmp_path, learnpool):
    small = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    pools = "Gate(Filter,Max),half"
    status, out, error = learnpool("calibration", *small, "--pools", pools, "--test", "30", "--out", str(tmp_path))
    assert (status, error) == (0, "")
    record = json.loads((tmp_path / "calibration-digits.json").read_text())
    assert [line["pool"] for line in record["lines"]] == ["Gate(Filter,Max)", "half"]
    assert record["images"]["test"] == 30
    assert "learnpool calibration --data digits --pools 'Gate(Filter,Max),half' --images 32 --train 200" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pools", "treee"], "unknown pool 'treee'"),
        (["--pools", ","], "calibration: wanted at least one pool, got none"),
        (["--data", "nowhere"], "nowhere"),
        (["--width", "0"], "width"),
        (["--start", "same"], "start must be one of"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, learnpool):
    status, _, error = learnpool("calibration", "--data", "digits", *words, "--out", str(tmp_path))
    assert (status, error.count("\n")) == (2, 1)
    assert message in error


@pytest.mark.parametrize(("converted", "calibrated", "closed"), [(30.0, 12.0, 90), (30.0, 31.0, -5), (10.0, 9.0, None)])
def test_the_part_of_the_gap_that_was_closed(converted, calibrated, closed, monkeypatch):
    errors = iter([converted, calibrated])
    monkeypatch.setattr(calibration, "compute_error", lambda *_: next(errors))
    net = dsn("mnist", "max", width=0.05)
    result = calibration.measure_pool(net, "mixed", 10.0, torch.rand(4, 1, 28, 28), [], seed=0, start="paper")
    assert (result.converted, result.calibrated, result.closed) == (converted, calibrated, closed)


def test_the_error_is_that_of_the_first_test_images():
    images = [(torch.eye(3), torch.tensor([0, 1, 0])), (torch.eye(3), torch.tensor([1, 1, 1]))]
    assert calibration.compute_error(torch.nn.Identity(), images) == pytest.approx(50)
