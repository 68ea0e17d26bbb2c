"""A run's directory: who may use it, and what is read from it."""

import json
from dataclasses import asdict, replace

import pytest

from learnpool.lab.runs import directory
from learnpool.lab.runs.directory import Result
from learnpool.lab.runs.run import Run, RunError

RUN = Run(epochs=2)
IMAGES = {"train": 60, "validation": 10, "test": 20}
RESULT = Result(RUN.id, 5.0, 6.0, 1.0, 0.5, 2, IMAGES, 100, 9, 2.0, 2.0, 1.0, 0, {"pool1.gate0.mean": 0.5}, "today")
ROW = {
    "epoch": 1, "rate": 0.1, "train_loss": 2.0, "train_error": 90.0, "validation_error": 91.0, "seconds": 1.0,
    "cpu_seconds": 1.0, "pools": {},
}  # fmt: skip


def test_a_result_is_read_as_it_was_written(tmp_path):
    assert directory.read_result(tmp_path) is None
    directory.write_result(tmp_path, RESULT)
    assert directory.read_result(tmp_path) == RESULT


@pytest.mark.parametrize(
    "change",
    [
        {"test_error": 100.5}, {"train_error": -1}, {"epochs": 1.5}, {"memory": True}, {"pools": {"a": "b"}},
        {"images": {"train": 60}}, {"surprise": 1}, {"id": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_result(change, tmp_path):
    (tmp_path / "result.json").write_text(json.dumps(asdict(RESULT) | change))
    with pytest.raises(RunError, match=r"result\.json is not a result, or damaged; remove it to train again$"):
        directory.read_result(tmp_path)


def test_a_result_that_cannot_be_is_not_made():
    with pytest.raises(ValueError, match="less than or equal to 100"):
        replace(RESULT, test_error=101.0)


def test_epochs_are_appended_and_a_torn_line_is_ignored(tmp_path):
    assert directory.read_metrics(tmp_path) == []
    rows = [ROW, ROW | {"epoch": 2}]
    for row in rows:
        directory.append_metrics(tmp_path, row)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 3, ')
    assert directory.read_metrics(tmp_path) == rows


@pytest.mark.parametrize("lines", [[ROW | {"epoch": 2}], [ROW, ROW], [ROW | {"rate": None}], ["nothing"]], ids=str)
def test_metrics_that_do_not_belong_together(lines, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged; remove .* to train again$"):
        directory.read_metrics(tmp_path)


def test_a_directory_is_of_one_run_and_of_one_process_at_a_time(tmp_path):
    with directory.open_run(RUN, tmp_path) as path:
        assert path == tmp_path / RUN.id
        assert directory.read_description(path) == RUN
        with pytest.raises(RunError, match="another process is training this run"), directory.open_run(RUN, tmp_path):
            pass
    other = Run(epochs=3)
    (tmp_path / RUN.id).rename(tmp_path / other.id)
    with pytest.raises(RunError, match="the directory of another run"), directory.open_run(other, tmp_path):
        pass


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    (tmp_path / RUN.id).mkdir()
    (tmp_path / RUN.id / "thesis.tex").touch()
    refusal = r"wanted an empty directory or this run's, got one with thesis\.tex$"
    with pytest.raises(RunError, match=refusal), directory.open_run(RUN, tmp_path):
        pass
    assert [path.name for path in (tmp_path / RUN.id).iterdir()] == ["thesis.tex"]


def test_a_run_that_never_began_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), directory.open_run(RUN, tmp_path / "runs"):
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []  # not even the directory of all runs
    (tmp_path / RUN.id).mkdir()
    with pytest.raises(ZeroDivisionError), directory.open_run(RUN, tmp_path):
        1 / 0  # noqa: B018
    assert list((tmp_path / RUN.id).iterdir()) == []  # it was there before


@pytest.mark.parametrize("step", ["lock", "_claim"])
def test_a_run_that_is_stopped_while_its_directory_is_made_leaves_nothing(step, monkeypatch, tmp_path):
    def stopped(*_):
        raise SystemExit(1)

    monkeypatch.setattr(directory, step, stopped)
    with pytest.raises(SystemExit), directory.open_run(RUN, tmp_path / "runs"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_starts_are_added_up(tmp_path):
    place = {"device": "cpu", "threads": 1, "processes": 1, "epoch": 0}
    directory.record_start(tmp_path, place)
    directory.record_start(tmp_path, place | {"epoch": 1})
    assert [start["epoch"] for start in directory.read_starts(tmp_path)] == [0, 1]
    (tmp_path / "env.json").write_text('{"starts": [{}]}')
    with pytest.raises(RunError, match=r"env\.json is missing or damaged; remove .* to train again$"):
        directory.read_starts(tmp_path)
