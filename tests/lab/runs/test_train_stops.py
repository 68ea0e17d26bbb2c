"""Whatever stops a run, the same command resumes it with the same bits; two processes draw the curve of one."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys

import pytest
import torch

import learnpool
from learnpool.lab import files
from learnpool.lab.runs import checkpoint, directory
from learnpool.lab.runs.errors import Errors
from learnpool.lab.runs.run import Run
from learnpool.lab.runs.train import train
from learnpool.lab.runs.training import Training
from runs import PLATEAU, SMALL, STEPS, Stop, assert_same_run, command, rows, stop_at, weights

pytestmark = pytest.mark.trains

VARIANTS = {
    "plateau": PLATEAU,
    "heads": SMALL | {"head_steps": 2 * STEPS, "factors": "dsn", "loss": "hinge", "pool": "tree2", "rate": (1e-3,)},
    "tied": SMALL | {"pool": "mixed:net", "nesterov": True, "channels_last": True},
    "bfloat16": SMALL | {"precision": "bfloat16", "pool": "stochastic"},
    "strided": SMALL | {"pool": "conv", "extra_convs": 1},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stop_anywhere_changes_nothing(variant, monkeypatch, tmp_path):
    run = Run(**VARIANTS[variant])
    if variant == "plateau":
        monkeypatch.setattr(Training, "evaluate", lambda self, split: Errors(50.0, None))  # a plateau on any processor
    train(run, tmp_path / "whole")
    for step in (3, 2 * STEPS - 1, 2 * STEPS + 4, 3 * STEPS, 3 * STEPS + 2):
        with pytest.raises(Stop):
            train(run, tmp_path / "parts", watch=stop_at(step))
    train(run, tmp_path / "parts")
    assert_same_run(tmp_path / "whole" / run.id, tmp_path / "parts" / run.id)
    starts = json.loads((tmp_path / "parts" / run.id / "env.json").read_text())["starts"]
    assert [start["epoch"] for start in starts] == [0, 0, 1, 2, 2, 3]
    if variant == "plateau":
        assert len({row["rate"] for row in rows(tmp_path / "parts" / run.id)}) > 1


@pytest.mark.parametrize("variant", ["heads", "tied", "bfloat16"])
def test_a_stop_inside_an_epoch_resumes_at_the_next_step(variant, tmp_path):
    """With a checkpoint after every step, no step is done twice, and nothing differs in the end."""
    run = Run(**VARIANTS[variant] | {"epochs": 2, "head_steps": STEPS * (variant == "heads")})
    train(run, tmp_path / "whole")
    seen = []
    for last in (3, 4, STEPS + 5, 2 * STEPS):

        def watch(step, last=last):
            seen.append(step.step)
            if step.step == last:
                raise Stop

        with pytest.raises(Stop):
            train(run, tmp_path / "parts", watch=watch, save_every=0)
        seen[-1:] = []  # the stop came after its checkpoint
    path = tmp_path / "parts" / run.id
    assert [p.name for p in path.glob("last-*")] == [f"last-1.{STEPS - 1}.safetensors"]  # before the epoch's last step
    assert learnpool.load(path).classes == tuple("0123456789")
    train(run, tmp_path / "parts", save_every=0)
    assert_same_run(tmp_path / "whole" / run.id, path)
    assert seen == [1, 2, *range(5, STEPS + 5), *range(STEPS + 6, 2 * STEPS)]


def test_checkpoints_inside_an_epoch_come_when_it_is_time(monkeypatch, tmp_path):
    run = Run(**SMALL | {"epochs": 1})
    times = iter(range(0, 10_000, 40))  # seconds: one look at the clock for a step
    monkeypatch.setattr("learnpool.lab.runs.training.time.monotonic", lambda: next(times))
    names = []

    def watch(step):
        names.extend(path.name for path in (tmp_path / run.id).glob("last-*"))

    train(run, tmp_path, watch=watch, save_every=100)
    assert sorted(set(names)) == ["last-0.3.safetensors", "last-0.6.safetensors", "last-0.9.safetensors"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "last.json", "result.json"])
def test_a_stop_between_two_files_changes_nothing(name, monkeypatch, tmp_path):
    """Metrics, tensors, last.json, result.json: whichever was the last to be written."""
    run = Run(**PLATEAU)
    train(run, tmp_path / "whole")
    path = tmp_path / "parts" / run.id
    with monkeypatch.context() as patch:
        store = files.write_bytes

        def stop(target, content):
            if target.name == name and (name != "last.json" or b'"epoch": 2' in content):
                raise Stop
            store(target, content)

        if name == "metrics.jsonl":
            append = directory.append_metrics

            def torn(where, row):
                append(where, row)
                with open(where / name, "a") as file:
                    file.write('{"epoch": ')
                raise Stop

            patch.setattr(directory, "append_metrics", torn)
        else:
            patch.setattr(files, "write_bytes", stop)
        with pytest.raises(Stop):
            train(run, tmp_path / "parts")
    assert directory.read_result(path) is None
    train(run, tmp_path / "parts")
    assert_same_run(tmp_path / "whole" / run.id, path)


HANG = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit a deaf ear
from learnpool.lab.runs import train as lab
train = lab.train
def hanging(*given, **options):
    def watch(step):
        if step.step == {step}:
            print("inside", step.epoch, file=sys.__stdout__, flush=True)
            time.sleep(600)
    return train(*given, **options | {{"watch": watch}})
lab.train = hanging
sys.argv = {words!r}
from learnpool.cli import main
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_inside_an_epoch(tmp_path):
    """The same command gives the bits of an uninterrupted run: dropout, augmentation, plateau, heads under way."""
    words = PLATEAU | {
        "channels_last": True,
        "precision": "bfloat16",
        "head_steps": 3 * STEPS,
        "rate": (2e-3, 1e-3, 1e-4),
    }
    script = HANG.format(step=2 * STEPS + 5, words=["learnpool", *command(words, tmp_path / "parts")[3:]])
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "inside 3\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    (path,) = (tmp_path / "parts").iterdir()
    assert len(directory.read_metrics(path)) == 2
    assert not (path / "result.json").exists()
    done = subprocess.run(command(words, tmp_path / "parts", "--json"), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["epochs"] == 4
    run = Run.model_validate_json((path / "run.json").read_text())
    train(run, tmp_path / "whole", threads=1)
    assert_same_run(tmp_path / "whole" / run.id, path)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_is_one_line(tmp_path):
    script = HANG.format(step=STEPS + 5, words=["learnpool", *command(SMALL, tmp_path)[3:], "--quiet"])
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "inside 2\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    (path,) = tmp_path.iterdir()
    kept = f"{path} keeps 1 of 4 epochs; run the same command to resume"
    assert (process.returncode, error) == (130, f"learnpool: interrupted; {kept}\n")
    assert checkpoint.load(path)[1]["epoch"] == 1


@pytest.mark.parametrize("pool", ["mixed+gated", "stochastic+gated"])
def test_two_processes_draw_the_same_curve(pool, tmp_path):
    """Dropout, stochastic pooling and augmentation are drawn for the whole batch, so only rounding differs."""
    words = SMALL | {"pool": pool, "width": 0.1, "channels_last": True, "accumulate": 2}
    done = on_two(command(words, tmp_path / "two", "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == 4  # one of the two speaks
    (path,) = (tmp_path / "two").iterdir()
    (start,) = json.loads((path / "env.json").read_text())["starts"]
    assert start["processes"] == 2
    run = Run.model_validate_json((path / "run.json").read_text())
    train(run, tmp_path / "one")
    alike(path, tmp_path / "one" / run.id, picks="stochastic" in pool)


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    words = SMALL | {"pool": "mixed+gated", "width": 0.1, "epochs": 3}
    subprocess.run(command(words, tmp_path / "one", "--quiet"), capture_output=True, text=True, check=True)
    (one,) = (tmp_path / "one").iterdir()
    run = Run.model_validate_json((one / "run.json").read_text())
    with pytest.raises(Stop):  # inside the first epoch
        train(run, tmp_path / "both", watch=stop_at(4), save_every=0)
    path = tmp_path / "both" / run.id
    assert json.loads((path / "last.json").read_text())["step"] == 4
    done = on_two(command(words, tmp_path / "both", "--quiet"))
    assert done.returncode == 0, done.stderr
    starts = json.loads((path / "env.json").read_text())["starts"]
    assert [start["processes"] for start in starts] == [1, 2]
    alike(path, one)


def on_two(words):
    """Run a command line in two processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([*torchrun, *words[1:]], capture_output=True, text=True, check=False, env=environment)


def start_rank(words, rank, port):
    """One of two processes without torchrun, which ends the other one itself, before or after that has noticed."""
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=os.environ | place | {"OMP_NUM_THREADS": "1"})


def alike(path, other, picks=False):
    """Two runs that differ in rounding only, which may also decide a random pick."""
    for ours, theirs in zip(rows(path), rows(other), strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
        for name in ("train_error", "validation_error"):
            assert ours[name] == pytest.approx(theirs[name], abs=1.0)  # one image of the 125 is 0.8
    ours, theirs = weights(path), weights(other)
    assert ours.keys() == theirs.keys()
    tolerance = {"rtol": 1e-2, "atol": 1e-3} if picks else {"rtol": 1e-3, "atol": 1e-4}  # 40 steps of rounding
    for name, value in theirs.items():
        if not picks or name.startswith("model."):  # a single pick is a large part of a momentum
            torch.testing.assert_close(ours[name], value, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


DEADLY = """
import os, signal
from torch import nn

class Deadly(nn.Dropout):
    calls = 0
    def forward(self, x):
        Deadly.calls += self.training
        if Deadly.calls == 15 and os.environ.get("RANK") == "1" and os.path.exists("deadly"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

def net(classes):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), Deadly(0.2), nn.Linear(36, classes))
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_process_that_dies_stops_the_other_and_both_can_resume(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "deadly_network.py").write_text(DEADLY)
    (tmp_path / "deadly").touch()
    words = command(PLATEAU, tmp_path / "two", "--model", "deadly_network:net", "--quiet", "--save-every", "0")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    both = [start_rank(words, rank, port) for rank in (0, 1)]
    (_, message), _ = [process.communicate() for process in both]
    (path,) = (tmp_path / "two").iterdir()
    assert [process.returncode for process in both] == [1, -signal.SIGKILL]
    assert message == "learnpool: another process of this run has ended; run the same command to resume\n"
    assert len(rows(path)) == 1
    record = json.loads((path / "last.json").read_text())
    assert (record["epoch"], record["step"], len(record["sums"])) == (1, 3, 2)  # the fourth step killed it
    (tmp_path / "deadly").unlink()
    done = on_two(words)
    assert done.returncode == 0, done.stderr
    starts = json.loads((path / "env.json").read_text())["starts"]
    assert [(start["processes"], start["epoch"]) for start in starts] == [(2, 0), (2, 1)]
    run = Run.model_validate_json((path / "run.json").read_text())
    train(run, tmp_path / "one")
    alike(path, tmp_path / "one" / run.id)


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))}
    words = command(SMALL, tmp_path, "--quiet")
    done = subprocess.run(words, capture_output=True, text=True, check=False, **limited)
    (path,) = tmp_path.iterdir()
    assert done.returncode == 2
    assert done.stderr == f"learnpool: File too large: {path / 'last-1.safetensors'}\n"
    assert not list(path.glob("*.part"))
    run = Run.model_validate_json((path / "run.json").read_text())
    train(run, tmp_path)
    train(run, tmp_path / "whole")
    assert_same_run(path, tmp_path / "whole" / run.id)
