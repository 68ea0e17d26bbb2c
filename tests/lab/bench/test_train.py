"""The benchmark of training: the lab's own loop is timed, and each time stands where it belongs."""

import json
import time

import pytest
import torch

from learnpool.lab.bench import train

SETTINGS = {"pool": "gated", "batch": 4, "width": 0.05, "pairs": 3, "threads": 1}


def test_the_labs_own_loop_is_timed(monkeypatch):
    """By a clock that only the step, the augmentation and the step by hand advance."""
    monkeypatch.setattr(train, "IMAGES", 40)
    step, apply, now = train.Training.train_step, train.Augment.apply, [0.0]

    def advance(seconds):
        now[0] += seconds

    def slow_step(self, *given):
        advance(0.5)
        return step(self, *given)

    def slow_apply(self, *given):
        advance(0.25)
        return apply(self, *given)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    monkeypatch.setattr(train.Training, "train_step", slow_step)
    monkeypatch.setattr(train.Augment, "apply", slow_apply)
    monkeypatch.setattr(train, "make_hand_step", lambda model, run: lambda: advance(2.0))
    turns = []
    times = train.time_pairs(train.TrainBenchmark(**SETTINGS), lambda: turns.append(1))
    assert len(turns) == len(times.lab) == len(times.batches) == len(times.hand) == 3
    assert times.lab == [0.75] * 3  # with its batch
    assert times.batches == [0.25] * 3
    assert times.hand == [2.0] * 3


def test_both_train_the_same_network(monkeypatch):
    monkeypatch.setattr(train, "IMAGES", 40)
    seen = []
    make_hand_step = train.make_hand_step

    def kept(model, run):
        seen.append((model, {name: p.detach().clone() for name, p in model.named_parameters()}))
        return make_hand_step(model, run)

    monkeypatch.setattr(train, "make_hand_step", kept)
    train.time_pairs(train.TrainBenchmark(**SETTINGS), lambda: None)
    ((model, before),) = seen
    assert model.training
    assert not any(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_end_to_end(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(train, "IMAGES", 40)
    train.bench(train.TrainBenchmark(**SETTINGS), tmp_path)
    record = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    seconds = record["seconds"]
    assert record["settings"] == SETTINGS
    assert record["ratio"] == train.summarize_ratio(seconds["hand"], seconds["lab"])
    assert record["batches_share"] == pytest.approx(
        sorted(b / w for b, w in zip(seconds["batches"], seconds["lab"], strict=True))[1]
    )
    text = capsys.readouterr().out
    assert f"{record['ratio']['median']:.3f} × the same step by hand" in text
    assert f"Making its batch is {record['batches_share']:.2%} of it" in text
