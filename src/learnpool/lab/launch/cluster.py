"""Many runs on a Ray cluster, one task for each run.

Directories are those of a file system all machines share: there a task finds the checkpoint of the one it replaces.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from ...formatting import format_pip_install
from ..runs import directory
from ..runs.run import Run, RunError
from ..runs.train import Result, train
from .loop import EXPECTED, Message, WorkerDied

POLL_EVERY = 0.5  # seconds between two readings of the metrics


class RayTasks:
    """Tasks on the cluster at ``address`` (``auto``, ``ray://…``; ``local`` starts one); Ray places them."""

    name = "worker"

    def __init__(self, out: Path, address: str, **options: Any) -> None:
        self.ray = join_cluster(address)
        self.out, self.options = out.resolve(), options
        gpus = 1 if str(options.get("device") or "").startswith("cuda") else 0
        self.task = self.ray.remote(num_cpus=options.get("threads") or 1, num_gpus=gpus, max_retries=0)(train_in_task)
        self.runs: dict[Any, Run] = {}

    def can_start(self) -> bool:
        return True

    def start(self, run: Run) -> None:
        self.runs[self.task.remote(run.model_dump_json(), str(self.out), os.getcwd(), self.options)] = run

    def receive(self) -> list[tuple[Run, Message]]:
        errors = self.ray.exceptions
        done, training = self.ray.wait(list(self.runs), timeout=POLL_EVERY)
        received: list[tuple[Run, Message]] = [
            (self.runs[task], float(len(directory.read_metrics(self.out / self.runs[task].id)))) for task in training
        ]
        for task in done:
            run = self.runs.pop(task)
            try:
                message = self.ray.get(task)
            except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
                message = WorkerDied(type(error).__name__)
            if isinstance(message, Result):
                received.append((run, float(run.epochs)))
            received.append((run, message))
        return received

    def close(self) -> None:
        self.ray.shutdown()


def join_cluster(address: str) -> Any:
    """The module ``ray``, connected; RunError says why it cannot be."""
    try:
        import ray
    except ImportError:
        raise RunError(f"--ray needs its package: {format_pip_install('ray')}") from None
    check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"--ray: cannot join the cluster at {address!r}: {str(error).splitlines()[0]}") from None
    return ray


def check_reachable(address: str) -> None:
    """RunError if nothing listens at ``host:port``; Ray itself would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise RunError(f"--ray: cannot join the cluster at {address!r}: {error.strerror or error}") from None


def train_in_task(text: str, out: str, home: str, options: dict[str, Any]) -> Any:
    """Train in a Ray task; return the result or the error. Relative paths are those of the driver."""
    if os.path.isdir(home):
        os.chdir(home)
        sys.path.insert(0, home)  # a network of the user's
    try:
        return train(Run.model_validate_json(text), Path(out), **options)
    except EXPECTED as error:
        return error
