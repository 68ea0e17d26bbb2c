"""The benchmark of training: the lab's own loop is timed, and each time stands where it belongs."""

import json
import time

import pytest
import torch

from learnpool.lab.bench import train

RACE = {"pool": "gated", "batch": 4, "width": 0.05, "pairs": 3, "threads": 1}


def test_the_labs_own_loop_is_timed(monkeypatch):
    monkeypatch.setattr(train, "IMAGES", 40)
    step, apply = train.Training.step, train.Augment.apply

    def slow_step(self, *given):
        time.sleep(0.05)
        return step(self, *given)

    def slow_apply(self, *given):
        time.sleep(0.02)
        return apply(self, *given)

    monkeypatch.setattr(train.Training, "step", slow_step)
    monkeypatch.setattr(train.Augment, "apply", slow_apply)
    monkeypatch.setattr(train, "by_hand", lambda model, run: lambda: time.sleep(0.03))
    turns = []
    outcome = train.race(train.Race(**RACE), lambda: turns.append(1))
    assert len(turns) == len(outcome.lab) == len(outcome.batches) == len(outcome.hand) == 3
    assert min(outcome.lab) >= 0.07  # with its batch
    assert min(outcome.batches) >= 0.02
    assert max(outcome.hand) < min(outcome.lab)
    assert min(outcome.hand) >= 0.03


def test_both_train_the_same_network(monkeypatch):
    monkeypatch.setattr(train, "IMAGES", 40)
    seen = []
    by_hand = train.by_hand

    def kept(model, run):
        seen.append((model, {name: p.detach().clone() for name, p in model.named_parameters()}))
        return by_hand(model, run)

    monkeypatch.setattr(train, "by_hand", kept)
    train.race(train.Race(**RACE), lambda: None)
    ((model, before),) = seen
    assert model.training
    assert not any(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_end_to_end(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(train, "IMAGES", 40)
    train.bench(train.Race(**RACE), tmp_path)
    record = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    times = record["seconds"]
    assert record["settings"] == RACE
    assert record["ratio"] == train.ratio(times["hand"], times["lab"])
    assert record["batches_share"] == pytest.approx(
        sorted(b / w for b, w in zip(times["batches"], times["lab"], strict=True))[1]
    )
    text = capsys.readouterr().out
    assert f"{record['ratio']['median']:.3f} × the same step by hand" in text
    assert f"Making its batch is {record['batches_share']:.2%} of it" in text


@pytest.mark.slow
def test_the_promise(tmp_path):
    """Under 2 % of a step for its batch; the step within 3 % of one by hand, with room for a busy machine."""
    outcome = train.race(train.Race(width=0.25, pairs=20, threads=1), lambda: None)
    assert sorted(b / w for b, w in zip(outcome.batches, outcome.lab, strict=True))[10] < train.BATCHES
    assert train.ratio(outcome.hand, outcome.lab)["low"] < train.STEP
