"""Many runs on the cores of one machine, each in a process of its own.

Whatever stops it, every run keeps its whole epochs: doing it again does only what is missing. A process that dies is
started again and resumes from its checkpoint. A process of its own also makes a run's peak memory its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..data import DataError
from ..runs import directory
from ..runs.run import Run, RunError
from ..runs.train import Result, Step, TrainingError, train, verify_done

TRIES = 3  # of a run whose process dies
EVERY = 0.2  # seconds between two words of a run about its progress
EXPECTED = (RunError, DataError, TrainingError, OSError)  # what a run may raise; anything else is a mistake of ours

Tell = Callable[[float], None]  # epochs done, over all runs


@dataclass
class Worker:
    """A process and the run it trains."""

    run: Run
    process: Any
    pipe: Connection


def launch(runs: Sequence[Run], out: Path, jobs: int, tell: Tell, **options: Any) -> list[Result]:
    """Train what is not done yet, ``jobs`` runs at a time, and return the results of all in their order.

    ``options`` are those of ``train``; the numbers do not depend on ``jobs``. A run that diverges does not stop the
    others.
    """
    progress = dict.fromkeys(runs, 0.0)
    results, failures = finished(runs, out), list[Exception]()
    progress |= {run: float(run.epochs) for run in results}
    todo = [run for run in progress if run not in results]
    tries = dict.fromkeys(todo, 0)
    todo.reverse()
    working: list[Worker] = []
    tell(sum(progress.values()))
    try:
        while todo or working:
            while todo and len(working) < jobs:
                tries[todo[-1]] += 1
                working.append(started(todo.pop(), out, options))
            for worker in heard(working):
                message = received(worker)
                if isinstance(message, float):
                    progress[worker.run] = max(message, progress[worker.run])
                    tell(sum(progress.values()))
                    continue
                working.remove(worker)
                ended(worker)
                if isinstance(message, Result):
                    results[worker.run] = message
                elif isinstance(message, TrainingError):
                    failures.append(message)
                elif message is not None:
                    raise message
                elif tries[worker.run] < TRIES:
                    todo.append(worker.run)
                else:
                    code = worker.process.exitcode
                    raise ChildProcessError(f"{worker.run.id}: its process died {TRIES} times ({told(code)})")
    finally:
        for worker in working:
            worker.process.terminate()
        for worker in working:
            ended(worker)
    if failures:
        raise failures[0]
    return [results[run] for run in runs]


def finished(runs: Sequence[Run], out: Path) -> dict[Run, Result]:
    """The runs that are done, with their results; RunError if their network or folder of images is not what it was."""
    found = {}
    digests: dict[str, str] = {}
    for run in runs:
        if (out / run.id).is_dir() and (result := directory.read_result(out / run.id)) is not None:
            with directory.open_run(run, out) as path:  # or it is the directory of another run
                verify_done(run, path, digests)
                found[run] = result
    return found


def started(run: Run, out: Path, options: dict[str, Any]) -> Worker:
    """A process that trains a run. Its torch is that of a server which imported it once, where there is one."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([__name__, "sklearn.datasets"])
    ours, theirs = context.Pipe()
    with interrupts_ignored():
        process = context.Process(target=work, args=(theirs, run, out, options))
        process.start()
    theirs.close()
    return Worker(run, process, ours)


def work(pipe: Connection, run: Run, out: Path, options: dict[str, Any]) -> None:
    """Train; numbers through the pipe are epochs done, what comes last is the result or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a polite end: what is half written goes
    last = 0.0

    def watch(step: Step) -> None:
        nonlocal last
        if time.monotonic() - last > EVERY or step.step == step.steps:
            last = time.monotonic()
            pipe.send(step.step / step.steps * run.epochs)

    last_word: Result | Exception
    try:
        with redirect_stdout(sys.stderr):  # what a user's network prints is no result
            last_word = train(run, out, watch=watch, **options)
    except EXPECTED as error:
        last_word = error
    except Exception:
        last_word = RuntimeError(f"{run.id}:\n{traceback.format_exc()}")
    try:
        pipe.send(last_word)
    except (BrokenPipeError, ConnectionResetError):  # the parent is gone, or does not want to hear more
        sys.exit(1)


def heard(working: Sequence[Worker]) -> list[Worker]:
    """Wait for workers that say something or die."""
    ready = wait([worker.pipe for worker in working])
    return [worker for worker in working if worker.pipe in ready]


def received(worker: Worker) -> Any:
    """What a worker says; None if it died without a word."""
    with suppress(EOFError, ConnectionError):
        return worker.pipe.recv()
    return None


def ended(worker: Worker) -> None:
    worker.pipe.close()
    worker.process.join(10)
    if worker.process.is_alive():  # deaf to a polite word
        worker.process.kill()
        worker.process.join()


def told(code: int | None) -> str:
    """How a process ended."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"{name}; out of memory?" if name == "SIGKILL" else name
    return f"exit code {code}"


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes started inside inherit a deaf ear for Ctrl-C, from their first instruction on: the parent decides."""
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
