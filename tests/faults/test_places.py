"""Two processes in one directory, and directories that nobody may write to."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from learnpool.lab.runs.run import Run
from learnpool.lab.runs.train import train
from runs import SMALL, assert_same_run, command

pytestmark = [pytest.mark.trains, pytest.mark.skipif(os.name != "posix", reason="locks and users")]

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def test_two_commands_train_one_run(tmp_path):
    """One trains; the other says so in a line, or finds the run done; neither disturbs the other."""
    words = command(SMALL, tmp_path, "--quiet", "--save-every", "0")
    pair = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [(process.communicate()[1], process.returncode) for process in pair]
    (path,) = tmp_path.iterdir()
    assert {status for _, status in ends} <= {0, 2}
    assert 0 in {status for _, status in ends}
    for message, status in ends:
        assert message == (f"learnpool: {path}: another process is training this run\n" if status else "")
    run = Run.model_validate_json((path / "run.json").read_text())
    train(run, tmp_path / "whole")
    assert_same_run(tmp_path / "whole" / run.id, path)
    assert len(json.loads((path / "env.json").read_text())["starts"]) == 1


@pytest.fixture
def as_nobody():
    """How to run a command as a user who owns nothing."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    return NOBODY


@pytest.fixture
def locked(tmp_path):
    """A directory to read only, below ones that everybody may enter."""
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    path = tmp_path / "locked"
    path.mkdir()
    yield path
    path.chmod(0o755)


COMMANDS = {
    "train": "train --out {locked}/runs --quiet",
    "compare": "compare --out {locked}/runs --quiet",
    "reproduce": "reproduce table1 --out {locked}/paper --quiet",
    "figure": "figure {locked}/region.svg",
    "data show": "data show digits --out {locked}/digits.png",
    "data get": "data get mnist --data-dir {locked}/data --mirror http://127.0.0.1:9 --quiet",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_directory_that_may_not_be_written_to(name, locked, as_nobody, tmp_path):
    locked.chmod(0o555)
    words = COMMANDS[name].format(locked=locked).split()
    environment = os.environ | {"HOME": str(locked), "MPLCONFIGDIR": "/tmp", "XDG_CACHE_HOME": str(locked / "cache")}
    done = subprocess.run(
        [*as_nobody, sys.executable, "-m", "learnpool", *words], cwd=locked, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "Permission denied" in done.stderr
    assert str(locked) in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
