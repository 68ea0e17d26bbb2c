"""Training: what is written, what is refused, and that each setting does what it says."""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import learnpool
from learnpool.formatting import format_pip_install
from learnpool.lab import data
from learnpool.lab.runs import directory, networks
from learnpool.lab.runs import training as inner
from learnpool.lab.runs.batches import load_batches
from learnpool.lab.runs.errors import Errors
from learnpool.lab.runs.losses import LOSSES, squared_hinge
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.train import TrainingError, train
from runs import ALONE, SMALL, STEPS, Stop, edit, rows, stop_at, weights

pytestmark = pytest.mark.trains


def test_what_a_run_leaves(tmp_path):
    run = Run(**SMALL)
    seen, noise = [], set()

    def watch(step):
        seen.append(step)
        noise.add((step.epoch, torch.initial_seed()))

    result = train(run, tmp_path, watch=watch)
    assert len(noise) == len({seed for _, seed in noise}) == 4  # every epoch has its own dropout
    path = tmp_path / run.id
    names = ["env.json", "last-4.safetensors", "last.json", "metrics.jsonl"]
    names += ["preparation.safetensors", "result.json", "run.json"]
    assert sorted(p.name for p in path.iterdir()) == names
    assert json.loads((path / "run.json").read_text()) == run.model_dump(mode="json")
    written = json.loads((path / "result.json").read_text())
    assert written.pop("digest")
    assert written == asdict(result)
    metrics = directory.read_metrics(path)
    assert [row["epoch"] for row in metrics] == [1, 2, 3, 4]
    assert result.validation_error == metrics[-1]["validation_error"]
    assert not any("test_error" in row for row in metrics)  # test images are looked at once, at the end
    assert result.images == {"train": 400, "validation": 125, "test": 540}
    assert result.pool_parameters == 18
    assert result.parameters == sum(p.numel() for p in learnpool.load(path).parameters())
    assert {"pool1.gate0.mean", "pool2.gate0.entropy"} < metrics[0]["pools"].keys()
    assert [step.step for step in seen] == list(range(1, 4 * STEPS + 1))
    assert [step.epoch for step in seen][::STEPS] == [1, 2, 3, 4]
    assert seen[0].metrics is None
    assert seen[STEPS].metrics == metrics[0]
    (start,) = json.loads((path / "env.json").read_text())["starts"]
    assert (start["processes"], start["threads"], start["epoch"]) == (1, 1, 0)
    assert start["versions"]["torch"] == torch.__version__
    assert (start["out"], start["data_dir"]) == (str(tmp_path), None)


def test_it_learns_and_the_error_is_the_last_ones(tmp_path):
    run = Run(**SMALL | {"width": 0.125, "epochs": 8, "dropout": 0.0, "train_size": None, "pad": 0, "mirror": False})
    result = train(run, tmp_path)
    first, *_, last = (row["train_loss"] for row in rows(tmp_path / run.id))
    assert last < 0.9 * first  # how far it gets differs from processor to processor
    model = learnpool.load(tmp_path / run.id)
    shown = load_batches(run, None, ALONE)
    with torch.no_grad():
        wrong = int((model(shown.test.images).argmax(1) != shown.test.labels).sum())
    assert result.test_error == pytest.approx(100 * wrong / 540)
    assert not model.training


def test_the_reported_error_is_never_the_best_seen(monkeypatch, tmp_path):
    errors = iter([50.0, 20.0, 30.0, 40.0, 41.0])  # validation epoch by epoch, then test
    monkeypatch.setattr(inner.Training, "evaluate", lambda self, split: Errors(next(errors), None))
    result = train(Run(**SMALL), tmp_path)
    assert (result.validation_error, result.test_error) == (40, 41)


def test_a_run_that_is_done_is_not_run_again(tmp_path):
    run = Run(**SMALL | {"epochs": 1})
    result = train(run, tmp_path)
    assert train(run, tmp_path, watch=lambda step: pytest.fail("trained again")) == result


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_epoch(monkeypatch, tmp_path):
    run = Run(**SMALL)
    calls = []

    def failing(votes, labels):
        calls.append(1)
        loss = F.cross_entropy(votes, labels)
        return loss * float("nan") if len(calls) == 2 * STEPS + 3 else loss

    monkeypatch.setitem(LOSSES, "softmax", failing)
    monkeypatch.setattr(inner, "CHECK_EVERY", 4)
    message = r"^the loss is nan in epoch 3, step 4 or shortly before, at a rate of .*; .* keeps epoch 2$"
    with pytest.raises(TrainingError, match=message):
        train(run, tmp_path)
    monkeypatch.undo()
    assert len(rows(tmp_path / run.id)) == 2
    assert all(value.isfinite().all() for value in weights(tmp_path / run.id).values())
    assert train(run, tmp_path).epochs == 4


def test_weights_that_are_no_numbers_are_not_kept(monkeypatch, tmp_path):
    run = Run(**SMALL)
    step = inner.Training.train_step

    def poisoned(self, images, labels):
        output = step(self, images, labels)
        if self.epoch == 1:
            self.model.conv1.bias.data[0] = float("inf")
        return torch.zeros(()), output[1]

    monkeypatch.setattr(inner.Training, "train_step", poisoned)
    with pytest.raises(TrainingError, match=r"^the weights are not finite in epoch 2"):
        train(run, tmp_path)
    assert all(value.isfinite().all() for value in weights(tmp_path / run.id).values())


def test_the_directory_of_another_run(tmp_path):
    run = Run(**SMALL)
    path = tmp_path / run.id
    path.mkdir()
    (path / "run.json").write_text(Run(**SMALL | {"seed": 1}).model_dump_json())
    with pytest.raises(RunError, match="the directory of another run; give another --out$"):
        train(run, tmp_path)
    (path / "run.json").write_text("{}}")
    with pytest.raises(RunError, match="run.json is damaged; remove .* to train again$"):
        train(run, tmp_path)
    (path / "run.json").rename(path / "thesis.tex")
    with pytest.raises(RunError, match=r"wanted an empty directory or this run's, got one with thesis.tex$"):
        train(run, tmp_path)
    assert [p.name for p in path.iterdir()] == ["thesis.tex"]


def test_two_at_once_are_refused(tmp_path):
    run = Run(**SMALL)
    with directory.open_run(run, tmp_path), pytest.raises(RunError, match="another process is training this run$"):
        train(run, tmp_path)
    assert train(run, tmp_path).epochs == 4


def test_other_data_is_refused(monkeypatch, tmp_path):
    run = Run(**SMALL)
    with pytest.raises(Stop):
        train(run, tmp_path, watch=stop_at(STEPS + 1))
    load = data.load

    def other(name, data_dir):
        found = load(name, data_dir)
        found.test.images[0, 0, 0, 0] ^= 1
        return found

    monkeypatch.setattr(data, "load", other)
    with pytest.raises(RunError, match="digits is not what this run began with; give another --out$"):
        train(run, tmp_path)


def test_damaged_checkpoints_and_results_are_refused(tmp_path):
    run = Run(**SMALL | {"epochs": 2})
    with pytest.raises(Stop):
        train(run, tmp_path, watch=stop_at(STEPS + 1))
    path = tmp_path / run.id
    whole = (path / "metrics.jsonl").read_bytes()
    (path / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match="metrics.jsonl: wanted 1 epochs, got 0$"):
        train(run, tmp_path)
    nan, wrong = (
        whole.replace(b'"train_error": ', b'"train_error": NaN, "_": '),
        whole.replace(b'"epoch": 1', b'"epoch": 2'),
    )
    for damaged in (b"{}\n", b"[]\n", b"7\n", b"{{}\n", b"\xff\n", b"[" * 10**5 + b"\n", nan, wrong):
        (path / "metrics.jsonl").write_bytes(damaged)
        with pytest.raises(RunError, match="metrics.jsonl is damaged; remove .* to train again$"):
            train(run, tmp_path)
    (path / "metrics.jsonl").write_bytes(whole)
    starts = (path / "env.json").read_bytes()
    no_device = starts.replace(b'"device"', b'"devise"')
    for damaged in (b"{}", b"[]", b"{", b"\xff", b'{"starts": [{}]}', b'{"starts": 7}', no_device):
        (path / "env.json").write_bytes(damaged)
        with pytest.raises(RunError, match="env.json is missing or damaged; remove .* to train again$"):
            train(run, tmp_path)
    (path / "env.json").write_bytes(starts)
    content = bytearray((path / "last-1.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "last-1.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="last-1.safetensors is damaged"):
        train(run, tmp_path)
    (path / "result.json").write_text("{}")
    with pytest.raises(RunError, match="result.json is not a result"):
        train(run, tmp_path)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_run_that_is_done_says_that_its_weights_are_lost(damage, tmp_path, caplog):
    run = Run(**SMALL | {"epochs": 1, "train_size": 40})
    result = train(run, tmp_path)
    assert (train(run, tmp_path), caplog.messages) == (result, [])
    path = tmp_path / run.id
    damage(path / "last-1.safetensors")
    assert train(run, tmp_path) == result
    (message,) = caplog.messages
    assert message.startswith(f"learnpool: this run is done, but checkpoint: {path / 'last-1.safetensors'} is ")
    assert message.endswith(f"; remove {path} to train this run again")


def test_a_result_that_was_edited_is_refused(tmp_path):
    run = Run(**SMALL | {"epochs": 1, "train_size": 40})
    result = train(run, tmp_path)
    path = tmp_path / run.id / "result.json"
    whole = path.read_text()
    for changes in (
        {"test_error": 1.0},  # the digest is of what it was
        {"digest": None, "test_error": float("nan")},
        {"digest": None, "test_error": 101},
        {"digest": None, "test_error": "low"},
        {"digest": None, "seconds": None},
        {"digest": None, "images": {}},
        {"digest": None, "pools": {"gate": "open"}},
        {"digest": None, "colour": "red"},
    ):
        path.write_text(whole)
        edit(path, **changes)
        with pytest.raises(RunError, match="result.json is not a result, or damaged; remove it to train again$"):
            train(run, tmp_path)
    path.write_text(whole)
    edit(path, digest=None)  # as an earlier version wrote it
    assert train(run, tmp_path) == result


@pytest.mark.parametrize("state", [{"level": 7}, {"height": 1}, {"level": "x"}])
def test_a_schedule_that_was_edited_is_refused(state, tmp_path):
    run = Run(**SMALL | {"schedule": "plateau"})
    with pytest.raises(Stop):
        train(run, tmp_path, watch=stop_at(STEPS + 1))
    edit(tmp_path / run.id / "last.json", digest=None, schedule=state)
    with pytest.raises(
        RunError, match="is no state of a plateau schedule; remove its directory to train this run again$"
    ):
        train(run, tmp_path)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({"pad": 9}, {}, "^pad: wanted at most the size of an image, 8×8, got 9$"),
        ({"pad": 10**6}, {}, "^pad: wanted at most the size of an image"),
        ({}, {"threads": 100_000}, r"^--threads: wanted 1 to \d+, got 100000$"),
    ],
)
def test_what_would_end_the_process_is_refused(values, options, message, tmp_path):
    with pytest.raises(RunError, match=message):
        train(Run(**SMALL | values), tmp_path, **options)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("tpu", "^--device: wanted cpu or cuda, got 'tpu'$"),
        ("meta", "^--device: wanted cpu or cuda, got 'meta'$"),
        ("cuda:99", "^--device: wanted cuda:99, but torch [^ ]+ finds [0-9]+ CUDA devices$"),
    ],
)
def test_a_device_that_is_not_there(device, message, tmp_path):
    with pytest.raises(RunError, match=message):
        train(Run(**SMALL), tmp_path, device=device)
    assert not list(tmp_path.iterdir())


def test_a_network_too_large_for_the_memory(tmp_path):
    with pytest.raises(RunError, match="memory"):
        train(Run(**SMALL | {"width": 1e12}), tmp_path)
    assert not list(tmp_path.iterdir())


def training(tmp_path, **options):
    run = Run(**SMALL | options)
    return inner.Training(run, load_batches(run, None, ALONE), ALONE, tmp_path, None)


@pytest.mark.parametrize(("loss", "judge"), [("hinge", squared_hinge), ("softmax", F.cross_entropy)])
def test_the_loss_is_that_of_the_output_and_squared_hinge_of_the_heads(loss, judge, tmp_path):
    begun = training(tmp_path, head_steps=5, loss=loss, dropout=0.0)
    images, labels = next(begun.batches.train_batches(0, ALONE))
    output = begun.model(images)
    wanted = judge(output.votes, labels) + sum(squared_hinge(votes, labels) for votes in output.heads)
    assert len(output.heads) == 6
    loss, _ = begun.train_step(images, labels)
    torch.testing.assert_close(loss, wanted.detach())


def test_rates_of_the_groups(tmp_path):
    begun = training(tmp_path, factors="dsn", head_steps=5, pool_rate=0.3, decay=5e-4, warmup=0.0)
    rate = begun.set_rate(20)
    found = {group["name"]: group["lr"] / rate for group in begun.optimizer.param_groups}
    falling = (1 + 1e-4 * 20) ** -0.75
    wanted = {"weights": 1, "weights.bias": 2, "classifier": 0.1, "classifier.bias": 0.2, "pools": 0.3}
    assert found == pytest.approx(wanted | {"heads": 0.001 * falling, "heads.bias": 0.002 * falling})
    plain = networks.make_parameter_groups(Run(decay=5e-4, pool_decay=True), begun.model)
    assert {group["name"]: group["weight_decay"] for group in plain} == {"weights": 5e-4, "biases": 0, "pools": 5e-4}
    undecayed = networks.make_parameter_groups(Run(decay=5e-4), begun.model)
    assert undecayed[-1]["weight_decay"] == 0
    assert len({id(p) for group in plain for p in group["params"]}) == len(list(begun.model.parameters()))


def test_tensorboard_has_the_metrics_once(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = Run(**SMALL | {"pool": "mixed"})
    with pytest.raises(Stop):
        train(run, tmp_path, tensorboard=True, watch=stop_at(3 * STEPS + 1))
    train(run, tmp_path, tensorboard=True)
    events = accumulator.EventAccumulator(str(tmp_path / run.id / "tensorboard"))
    events.Reload()
    metrics = directory.read_metrics(tmp_path / run.id)
    for name in ("train_loss", "validation_error"):
        seen = {event.step: event.value for event in events.Scalars(name)}
        assert len(events.Scalars(name)) == 4
        assert seen == pytest.approx({row["epoch"]: row[name] for row in metrics}, rel=1e-5)
    (proportion, *_) = metrics[0]["pools"]
    assert [event.step for event in events.Scalars(proportion)] == [1, 2, 3, 4]


def test_without_tensorboard_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    command = re.escape(format_pip_install("tensorboard"))
    with pytest.raises(RunError, match=f"^--tensorboard needs its package: {command}$"):
        train(Run(**SMALL), tmp_path, tensorboard=True)


@pytest.mark.slow
def test_compiled(tmp_path):
    run = Run(**SMALL | {"compile": True, "epochs": 2, "dropout": 0.0, "head_steps": STEPS})
    result = train(run, tmp_path)
    plain = train(run.model_copy(update={"compile": False}), tmp_path)
    assert result.train_loss == pytest.approx(plain.train_loss, rel=1e-3)
    assert learnpool.load(tmp_path / run.id)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_what_stays_when_heads_go_keeps_its_momentum(tmp_path):
    begun = training(tmp_path, head_steps=5)
    begun.set_rate(0)
    begun.train_step(*next(begun.batches.train_batches(0, ALONE)))
    before = {name: begun.optimizer.state[p]["momentum_buffer"] for name, p in begun.model.named_parameters()}
    begun.drop_heads(begun.model)
    after = {name: begun.optimizer.state[p]["momentum_buffer"] for name, p in begun.model.named_parameters()}
    assert after.keys() == {name for name in before if not name.startswith("heads.")}
    assert all(after[name] is before[name] for name in after)
    assert sum(len(group["params"]) for group in begun.optimizer.param_groups) == len(after)


def test_heads_go_at_the_end_of_an_epoch(tmp_path):
    run = Run(**SMALL | {"head_steps": STEPS + 1, "epochs": 3, "rate": (0.002,)})
    with pytest.raises(Stop):
        train(run, tmp_path, watch=stop_at(2 * STEPS + 1))
    heads = [name for name in weights(tmp_path / run.id) if "heads" in name]
    assert len(heads) == 24  # weight, bias and their momentum of six heads
    assert not any("heads" in name for name in learnpool.load(tmp_path / run.id).state_dict())
    train(run, tmp_path)
    assert not any("heads" in name for name in weights(tmp_path / run.id))


@pytest.mark.parametrize("pool", ["max", "gated:net", "tree2+gated:region_channel", "conv"])
def test_load_gives_the_model_back(pool, tmp_path):
    run = Run(**SMALL | {"pool": pool, "epochs": 1, "head_steps": 5, "rate": (0.002,)})
    train(run, tmp_path)
    state = torch.get_rng_state()
    model = learnpool.load(str(tmp_path / run.id))
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    if pool == "gated:net":
        assert model.pool1.weight is model.pool2.weight


def test_load_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^load: .* is no run directory: it has no run.json$"):
        learnpool.load(tmp_path)
    (tmp_path / "run.json").write_text(Run().model_dump_json())
    with pytest.raises(FileNotFoundError, match=r"^load: .* has no checkpoint yet$"):
        learnpool.load(tmp_path)


def test_training_leaves_the_callers_random_numbers_and_threads(tmp_path):
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    train(Run(**SMALL | {"epochs": 1, "train_size": 40}), tmp_path, threads=2)
    assert torch.equal(torch.rand(3), wanted)
    assert torch.get_num_threads() == 1


def test_the_pool_does_not_change_the_other_weights_or_the_batches(tmp_path):
    one, two = training(tmp_path, pool="max"), training(tmp_path, pool="tree3+gated")
    for name, value in one.model.state_dict().items():
        assert torch.equal(two.model.state_dict()[name], value)
    for (x, y), (u, v) in zip(one.batches.train_batches(1, ALONE), two.batches.train_batches(1, ALONE), strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_of_a_batch_give_its_gradient(parts, tmp_path):
    options = {"dropout": 0.0, "momentum": 0.9, "rate": (0.01,)}
    whole, divided = (training(tmp_path, accumulate=n, **options) for n in (1, parts))
    images, labels = next(whole.batches.train_batches(0, ALONE))
    same, _ = next(divided.batches.train_batches(0, ALONE))
    assert torch.equal(images, same)
    for begun in (whole, divided):
        begun.set_rate(0)
    (loss, votes), (mean, all_votes) = (begun.train_step(images, labels) for begun in (whole, divided))
    torch.testing.assert_close(loss, mean)
    torch.testing.assert_close(votes, all_votes)
    for ours, theirs in zip(divided.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_parts_that_do_not_divide_a_batch(tmp_path):
    with pytest.raises(RunError, match="^batch: 40 images cannot be shared evenly by 1 processes in 3 parts; "):
        train(Run(**SMALL | {"accumulate": 3}), tmp_path)
