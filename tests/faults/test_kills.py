"""SIGKILL at random moments: whatever was being written, the same command ends with the same bits."""

import multiprocessing
import os
import random
import shutil
import signal
import time

import pytest
from rounds import ROUNDS

from learnpool.lab.runs import checkpoint, directory
from learnpool.lab.runs.run import Run
from learnpool.lab.runs.train import train
from runs import SMALL, assert_same_run

pytestmark = [pytest.mark.trains, pytest.mark.skipif(os.name != "posix", reason="SIGKILL")]

RUN = Run(**SMALL)
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["learnpool.lab.runs.train"])


def train_with_many_checkpoints(out):
    """A checkpoint after every step, so that most moments are inside the writing of one."""
    train(RUN, out, threads=1, save_every=0)


def start(out):
    process = processes.Process(target=train_with_many_checkpoints, args=(out,))
    process.start()
    return process


def test_killed_at_random_moments(tmp_path):
    begun = time.monotonic()
    process = start(tmp_path / "whole")
    process.join()
    duration, whole = time.monotonic() - begun, tmp_path / "whole" / RUN.id
    assert process.exitcode == 0
    chance, kills, ends = random.Random(0), 0, 0
    parts = tmp_path / "parts" / RUN.id
    while kills < ROUNDS or not ends:
        process = start(tmp_path / "parts")
        process.join(chance.uniform(0.02, 0.6 * duration) if kills < ROUNDS else None)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            kills += 1
            if parts.exists():  # what is there can be read
                checkpoint.load(parts)
                directory.read_metrics(parts)
            continue
        assert process.exitcode == 0
        assert_same_run(whole, parts)
        assert not list(parts.glob("*.part"))
        shutil.rmtree(parts)
        ends += 1
