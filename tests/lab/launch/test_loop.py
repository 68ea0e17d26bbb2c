"""Many runs: on processes of this machine and on Ray, with workers that are killed."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learnpool.formatting import format_pip_install
from learnpool.lab import hardware
from learnpool.lab.data import DataError
from learnpool.lab.launch import processes as lab
from learnpool.lab.launch.cluster import RayTasks
from learnpool.lab.launch.loop import train_all
from learnpool.lab.runs import directory
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.train import TrainingError, train
from runs import SMALL, assert_same_run, rows

pytestmark = pytest.mark.trains

TINY = SMALL | {"epochs": 2, "train_size": 120}

# A network that kills its own process once, in the second epoch: no word, no clean-up.
DYING = """
import os, signal
from pathlib import Path
from torch import nn

class Dying(nn.Flatten):
    calls = 0
    def forward(self, x):
        if self.training:
            Dying.calls += 1
            spared = Path("deaths")
            left = int(spared.read_text())
            if Dying.calls == 5 and left:
                spared.write_text(str(left - 1))
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

def net(classes):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), Dying(), nn.Linear(36, classes))

def slow(classes):
    import time
    Path("begun").touch()
    time.sleep(600)

def waits(classes):
    import time
    while not Path("begun").exists():
        time.sleep(0.05)
    return 7
"""


def launch(runs, out, jobs, report_progress, **options):
    """Train in processes of this machine."""
    return train_all(runs, out, lab.LocalProcesses(out, jobs, **options), report_progress)


def launch_on_ray(runs, out, report_progress):
    """Train on a cluster that is started here."""
    return train_all(runs, out, RayTasks(out, "local", threads=1), report_progress)


@pytest.fixture
def dying(monkeypatch, tmp_path):
    """A run whose process dies as often as the file says."""
    (tmp_path / "dying_network.py").write_text(DYING)
    (tmp_path / "deaths").write_text("1")
    monkeypatch.chdir(tmp_path)
    return Run(net="dying_network:net", epochs=2, train_size=120, batch=40)


def test_results_are_those_of_one_run_alone_and_in_order(tmp_path):
    runs = [Run(**TINY | {"pool": pool}) for pool in ("gated", "max", "mixed")]
    progress = []
    results = launch(runs, tmp_path / "many", 2, progress.append, threads=1)
    assert [result.id for result in results] == [run.id for run in runs]
    assert progress[0] == 0
    assert progress == sorted(progress)
    assert progress[-1] == 6
    train(runs[0], tmp_path / "one", threads=1)
    assert_same_run(tmp_path / "one" / runs[0].id, tmp_path / "many" / runs[0].id)


def test_what_is_done_is_not_done_again(monkeypatch, tmp_path):
    runs = [Run(**TINY | {"seed": seed}) for seed in (0, 1)]
    first = [train(run, tmp_path, threads=1) for run in runs]
    monkeypatch.setattr(lab, "start_worker", lambda *given: pytest.fail("started"))
    progress = []
    assert launch(runs, tmp_path, 2, progress.append) == first
    assert progress == [4]


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_dead_workers_run_is_resumed(dying, tmp_path):
    (result,) = launch([dying], tmp_path / "runs", 1, lambda done: None, threads=1)
    assert (tmp_path / "deaths").read_text() == "0"
    starts = json.loads((tmp_path / "runs" / dying.id / "env.json").read_text())["starts"]
    assert [start["epoch"] for start in starts] == [0, 1]  # the epoch before was not lost
    assert result.epochs == len(rows(tmp_path / "runs" / dying.id)) == 2
    train(dying, tmp_path / "whole", threads=1)
    assert_same_run(tmp_path / "whole" / dying.id, tmp_path / "runs" / dying.id)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_run_that_always_dies_is_given_up(dying, tmp_path):
    dying = dying.model_copy(update={"epochs": 3})
    (tmp_path / "dying_network.py").write_text(DYING.replace("Dying.calls == 5", "Dying.calls == 2"))
    (tmp_path / "deaths").write_text("9")
    with pytest.raises(
        ChildProcessError, match=rf"^{dying.id}: its process died 3 times \(SIGKILL; out of memory\?\)$"
    ):
        launch([dying], tmp_path / "runs", 1, lambda done: None, threads=1)
    assert (tmp_path / "deaths").read_text() == "6"


def test_a_mistake_of_the_user_reads_as_in_one_process(tmp_path):
    with pytest.raises(DataError, match="no data set 'imagenett'"):
        launch([Run(data="imagenett")], tmp_path, 1, lambda done: None)
    with pytest.raises(RunError, match="^net: cannot import nowhere"):
        launch([Run(net="nowhere:net")], tmp_path, 1, lambda done: None)
    assert not list(tmp_path.iterdir())


def test_a_mistake_in_code_comes_with_its_traceback(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)Traceback .*TypeError: .*'colour'"):
        launch([Run(**TINY)], tmp_path, 1, lambda done: None, colour="red")


def test_runs_that_are_stopped_before_they_begin_leave_nothing(dying, tmp_path):
    runs = [dying.model_copy(update={"net": f"dying_network:{name}"}) for name in ("slow", "waits")]
    with pytest.raises(RunError, match=r"must return a torch.nn.Module, got int$"):
        launch(runs, tmp_path / "runs", 2, lambda done: None)
    assert not list((tmp_path / "runs").glob("*"))


def test_workers_that_are_stopped_while_they_clean_up_leave_nothing(monkeypatch, tmp_path):
    class Worker:
        terminate = kill = join = close = lambda *_: None
        is_alive = lambda _: False  # noqa: E731

    runs = [Run(seed=seed) for seed in range(3)]
    workers = lab.LocalProcesses(tmp_path, 3)
    workers.workers = [lab.Worker(run, Worker(), Worker()) for run in runs]
    (tmp_path / runs[0].id).mkdir()  # stopped before it wrote its description, or after it removed it
    for run in runs[1:]:
        with directory.open_run(run, tmp_path):
            pass
    (tmp_path / runs[2].id / "env.json").touch()  # this one has begun
    workers.close()
    assert [path.name for path in tmp_path.iterdir()] == [runs[2].id]


def test_an_unknown_folder_is_refused_before_any_worker_starts(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "start_worker", lambda *_: pytest.fail("a worker was started"))
    with pytest.raises(DataError, match="^no folder and no data set 'photoss'"):
        launch([Run(), Run(data="photoss/")], tmp_path, 2, lambda done: None)


def test_an_error_after_the_parent_is_gone_is_silent(tmp_path):
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            lab.train_in_worker(theirs, Run(data="imagenett"), tmp_path, {})
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def test_a_run_that_diverges_does_not_stop_the_others(tmp_path):
    bad, good = Run(**TINY | {"rate": (1e9,)}), Run(**TINY)
    with pytest.raises(TrainingError, match="a lower rate may help"):
        launch([bad, good], tmp_path, 1, lambda done: None, threads=1)
    assert (tmp_path / good.id / "result.json").exists()


def test_the_directory_of_another_run_is_refused(tmp_path):
    run, other = Run(**TINY), Run(**TINY | {"seed": 1})
    train(run, tmp_path, threads=1)
    (tmp_path / run.id).rename(tmp_path / other.id)
    with pytest.raises(RunError, match="the directory of another run"):
        launch([other], tmp_path, 1, lambda done: None)


def test_a_process_of_its_own_has_memory_of_its_own(tmp_path):
    runs = [Run(**TINY | {"pool": pool, "epochs": 1}) for pool in ("gated", "max")]
    hog = bytearray(400_000_000)
    hog[::4096] = b"1" * len(hog[::4096])
    for result in launch(runs, tmp_path, 1, lambda done: None, threads=1):
        assert 0 < result.memory < hardware.read_peak_memory()  # ours, with the same packages and the hog


INTERRUPTED = """
import signal
import sys
from pathlib import Path
from learnpool.lab.launch.loop import train_all
from learnpool.lab.launch.processes import LocalProcesses
from learnpool.lab.runs.run import Run
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would not hear it
    runs = [Run(width=0.05, epochs=200, train_size=120, batch=40, seed=seed) for seed in (0, 1)]
    try:
        out = Path(sys.argv[1])
        train_all(runs, out, LocalProcesses(out, 2, threads=1), lambda done: print(done, flush=True))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals to a process group")
def test_ctrl_c_keeps_all_whole_epochs_and_leaves_no_process(tmp_path):
    (tmp_path / "script.py").write_text(INTERRUPTED)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "runs")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while float(process.stdout.readline()) < 3:
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the whole group
        _, error = process.communicate(timeout=300)  # and the pipe is closed by all of it
    assert (process.returncode, error) == (130, "")
    kept = [len(rows(path)) for path in (tmp_path / "runs").iterdir()]
    assert sum(kept) >= 2
    assert not list((tmp_path / "runs").glob("*/*.part"))
    while group(process.pid):  # the timeout of all tests ends it
        time.sleep(0.1)


WRITING = """
import os, time
from pathlib import Path
from torch import nn

def net(classes):
    calls = []
    def slow(file):
        calls.append(file)
        if len(calls) == 3:  # after env.json and metrics.jsonl: the tensors
            Path("writing").touch()
            time.sleep(600)
    os.fsync = slow
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM")
def test_an_end_in_the_middle_of_a_file_leaves_no_part_of_it(monkeypatch, tmp_path):
    (tmp_path / "writing_network.py").write_text(WRITING)
    monkeypatch.chdir(tmp_path)
    run = Run(net="writing_network:net", epochs=2, train_size=120, batch=40)

    def tell(done):
        if done:
            while not (tmp_path / "writing").exists():
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch([run], tmp_path / "runs", 1, tell, threads=1)
    assert not list((tmp_path / "runs").glob("*/*.part"))


def group(number):
    """The processes of a group that are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == number and fields[0] != "Z":
            found.append(path.parent.name)
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
def test_on_ray_a_killed_workers_run_is_resumed(dying, monkeypatch, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    other = dying.model_copy(update={"net": "dsn", "width": 0.05})
    progress = []
    results = launch_on_ray([dying, other], tmp_path / "runs", progress.append)
    assert [result.id for result in results] == [dying.id, other.id]
    assert (tmp_path / "deaths").read_text() == "0"
    starts = json.loads((tmp_path / "runs" / dying.id / "env.json").read_text())["starts"]
    assert [start["epoch"] for start in starts] == [0, 1]
    assert progress[-1] == 4
    train(dying, tmp_path / "whole", threads=1)
    assert_same_run(tmp_path / "whole" / dying.id, tmp_path / "runs" / dying.id)
    assert launch_on_ray([dying], tmp_path / "runs", progress.append) == results[:1]


def test_ray_that_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=rf"^--ray needs its package: {re.escape(format_pip_install('ray'))}$"):
        RayTasks(tmp_path, "auto")
