"""Many runs on a Ray cluster: one task a run, started again elsewhere when its worker is lost.

Directories are those of a file system all machines share: there a task finds the checkpoint of the one it replaces.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runs import directory
from ..runs.run import Run, RunError
from ..runs.train import Result, TrainingError, train
from .processes import EXPECTED, TRIES, Tell, finished

EVERY = 0.5  # seconds between two looks at the metrics


def launch(runs: Sequence[Run], out: Path, address: str, tell: Tell, **options: Any) -> list[Result]:
    """Train what is not done yet on the cluster at ``address`` (``auto``, ``ray://…``; ``local`` starts one here)."""
    try:
        import ray
    except ImportError:
        raise RunError('--ray needs its package: pip install "learnpool[ray]"') from None
    out = out.resolve()
    results, failures = finished(runs, out), list[Exception]()
    todo = [run for run in dict.fromkeys(runs) if run not in results]
    reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"--ray: cannot join the cluster at {address!r}: {str(error).splitlines()[0]}") from None
    gpus = 1 if str(options.get("device") or "").startswith("cuda") else 0
    task = ray.remote(num_cpus=options.get("threads") or 1, num_gpus=gpus, max_retries=TRIES - 1)(remote)
    try:
        waiting = {task.remote(run.model_dump_json(), str(out), os.getcwd(), options): run for run in todo}
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=EVERY)
            for ref in done:
                run = waiting.pop(ref)
                try:
                    answer = ray.get(ref)
                except ray.exceptions.WorkerCrashedError:
                    raise ChildProcessError(f"{run.id}: its worker died {TRIES} times") from None
                if isinstance(answer, Result):
                    results[run] = answer
                elif isinstance(answer, TrainingError):
                    failures.append(answer)
                else:
                    raise answer
            tell(sum(float(len(directory.read_metrics(out / run.id))) for run in dict.fromkeys(runs)))
    finally:
        ray.shutdown()
    if failures:
        raise failures[0]
    return [results[run] for run in runs]


def reachable(address: str) -> None:
    """RunError if nobody listens at ``host:port``: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise RunError(f"--ray: cannot join the cluster at {address!r}: {error.strerror or error}") from None


def remote(text: str, out: str, home: str, options: dict[str, Any]) -> Any:
    """The result of a run, or what went wrong; paths mean what they mean to the one who asked."""
    if os.path.isdir(home):
        os.chdir(home)
        sys.path.insert(0, home)  # a network of the user's
    try:
        return train(Run.model_validate_json(text), Path(out), **options)
    except EXPECTED as error:
        return error
