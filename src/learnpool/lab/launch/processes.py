"""Many runs on the cores of one machine, each in a process of its own, which also makes its peak memory its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from ..runs import directory
from ..runs.run import Run
from ..runs.train import Result, Step, train
from .loop import EXPECTED, Message, WorkerDied

REPORT_EVERY = 0.2  # seconds between two messages of a run about its progress


class Worker(NamedTuple):
    """A process and the run it trains."""

    run: Run
    process: Any
    pipe: Connection


class LocalProcesses:
    """``jobs`` processes at a time; ``options`` are those of ``train``. The numbers do not depend on ``jobs``."""

    name = "process"

    def __init__(self, out: Path, jobs: int, **options: Any) -> None:
        self.out, self.jobs, self.options = out, jobs, options
        self.workers: list[Worker] = []

    def can_start(self) -> bool:
        return len(self.workers) < self.jobs

    def start(self, run: Run) -> None:
        self.workers.append(start_worker(run, self.out, self.options))

    def receive(self) -> list[tuple[Run, Message]]:
        ready = wait([worker.pipe for worker in self.workers])
        received: list[tuple[Run, Message]] = []
        for worker in [worker for worker in self.workers if worker.pipe in ready]:
            message: Message | None = None
            with suppress(EOFError, ConnectionError):
                message = worker.pipe.recv()
            if not isinstance(message, float):
                self.workers.remove(worker)
                join_worker(worker)
            if message is None:
                message = WorkerDied(format_exit(worker.process.exitcode))
            received.append((worker.run, message))
        return received

    def close(self) -> None:
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            join_worker(worker)
            directory.remove_unused(self.out / worker.run.id)  # a worker that is stopped while it cleans up cannot


def start_worker(run: Run, out: Path, options: dict[str, Any]) -> Worker:
    """A process that trains a run, forked from a server that has imported torch once, where the system allows it."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([__name__, "sklearn.datasets"])
    ours, theirs = context.Pipe()
    with ignore_interrupts():
        process = context.Process(target=train_in_worker, args=(theirs, run, out, options))
        process.start()
    theirs.close()
    return Worker(run, process, ours)


def train_in_worker(pipe: Connection, run: Run, out: Path, options: dict[str, Any]) -> None:
    """Train; numbers through the pipe are epochs done, what comes last is the result or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an ordinary exit, so that half-written files are removed
    last = 0.0

    def watch(step: Step) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_EVERY or step.step == step.steps:
            last = time.monotonic()
            pipe.send(step.step / step.steps * run.epochs)

    end: Result | Exception
    try:
        with redirect_stdout(sys.stderr):  # what a user's network prints is no result
            end = train(run, out, watch=watch, **options)
    except EXPECTED as error:
        end = error
    except Exception:
        end = RuntimeError(f"{run.id}:\n{traceback.format_exc()}")
    try:
        pipe.send(end)
    except (BrokenPipeError, ConnectionResetError):  # the parent is gone, or has closed its end
        sys.exit(1)


def join_worker(worker: Worker) -> None:
    """Wait for a process to end, and kill it if it does not."""
    worker.pipe.close()
    worker.process.join(10)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def format_exit(code: int | None) -> str:
    """How a process ended."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"{name}; out of memory?" if name == "SIGKILL" else name
    return f"exit code {code}"


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C from their first instruction on: the parent decides."""
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
