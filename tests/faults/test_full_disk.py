"""A disk that is really full, while a checkpoint, a download or a report is written: one line, and nothing is lost."""

import hashlib
import os
import subprocess
from contextlib import contextmanager

import pytest

from file_server import CONTENT, FILE
from learnpool.lab.comparison import report
from learnpool.lab.data import fetch
from learnpool.lab.data.source import Remote
from learnpool.lab.runs.run import Run
from learnpool.lab.runs.train import train
from runs import SMALL, assert_same_run, command

FILLER = "filler"


@pytest.fixture
def disk(tmp_path):
    """A disk of 4 MB that is empty."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "learnpool-test", str(path)]
    if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a disk needs root")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def leave(disk, room):
    """Fill a disk up to so many bytes, for a while."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / FILLER).write_bytes(bytes(free - room))
    yield
    (disk / FILLER).unlink()


@pytest.mark.trains
@pytest.mark.parametrize("room", [0, 8_000, 16_000, 30_000, 60_000])
def test_while_a_checkpoint_is_written(room, disk, tmp_path):
    words = command(SMALL, disk, "--quiet")
    with leave(disk, room):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(f"learnpool: No space left on device: {disk}")
        assert done.stderr.count("\n") == 1
        assert not list(disk.rglob("*.part"))
    assert subprocess.run(words, capture_output=True, text=True, check=True).stderr == ""
    (path,) = disk.iterdir()
    run = Run.model_validate_json((path / "run.json").read_text())
    train(run, tmp_path / "whole")
    assert_same_run(tmp_path / "whole" / run.id, path)


def test_while_a_file_is_fetched(disk, server):
    remote = Remote(FILE, len(CONTENT), hashlib.md5(CONTENT).hexdigest(), (f"{server.url}/right/",))
    with leave(disk, 300_000):
        with pytest.raises(OSError, match="No space left on device") as error:
            fetch.fetch_file(remote, disk)
        assert error.value.filename.startswith(str(disk / FILE))
        assert not (disk / FILE).exists()
    fetch.fetch_file(remote, disk)
    assert (disk / FILE).read_bytes() == CONTENT
    assert [path.name for path in disk.iterdir()] == [FILE]


@pytest.mark.trains
def test_while_a_report_is_written(comparison, disk):
    out, runs = comparison
    page = disk / "report.html"
    page.write_text("the report of before")
    with leave(disk, 20_000):
        with pytest.raises(OSError, match="No space left on device") as error:
            report.write([out / run.id for run in runs], page)
        assert error.value.filename == str(page)
        assert page.read_text() == "the report of before"
        assert {path.name for path in disk.iterdir()} == {"report.html", FILLER}
    report.write([out / run.id for run in runs], page)
    assert page.read_text().startswith("<!doctype html>")
