"""Train one network: alone, under ``torchrun``, in a worker process or on a cluster, always by ``train``.

Whatever ends it, at most the current epoch is lost. Running it again continues from the last whole epoch and gives,
with the same number of threads, the bits an uninterrupted run would have given.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from .. import data, machine
from . import checkpoint, directory, networks
from .batches import batches
from .directory import Result
from .distributed import ranks
from .run import Run, RunError
from .training import Step, Training, TrainingError, Watch

__all__ = ["Result", "Step", "TrainingError", "Watch", "train", "unchanged"]


def train(
    run: Run,
    out: Path,
    *,
    data_dir: Path | None = None,
    threads: int | None = None,
    workers: int = 0,
    device: str | None = None,
    tensorboard: bool = False,
    watch: Watch | None = None,
) -> Result:
    """Train ``run`` in its directory ``out / run.id``, from where it stands, and return its result.

    ``watch`` is called after every step, in the first process only. None of the other arguments decides a result beyond
    rounding.
    """
    with ExitStack() as stack:
        stack.enter_context(machine.threads(threads or torch.get_num_threads()))
        group = stack.enter_context(ranks(device))
        on_gpu = group.device.type == "cuda"
        stack.enter_context(torch.random.fork_rng([group.device] if on_gpu else []))
        if on_gpu:
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True))
        where = group.agreed(lambda: stack.enter_context(directory.opened(run, out)))
        done = group.agreed(lambda: directory.read_result(where))
        if done is not None:
            group.agreed(lambda: unchanged(run, where, {}))
            return done
        shown = group.together(lambda: batches(run, data_dir, group, workers))
        found = group.agreed(lambda: directory.resume(where))
        training = Training(run, shown, group, where, found)
        started = {"processes": group.world, "threads": torch.get_num_threads(), "device": str(group.device)}
        group.agreed(lambda: directory.note_start(where, started | {"epoch": training.epoch}))
        group.agreed(lambda: checkpoint.save_fitted(where, shown.prepared.fitted))
        log = stack.enter_context(board(where, training.epoch)) if tensorboard and group.first else None
        while training.epoch < run.epochs:
            row = training.run_epoch(watch if group.first else None)
            if log is not None:
                for name, value in (row | row["pools"]).items():
                    if name != "pools":
                        log.add_scalar(name, value, row["epoch"])
        return group.agreed(training.finish)


def unchanged(run: Run, where: Path, digests: dict[str, str]) -> None:
    """RunError if a run that is done was of another network file or folder; ``digests`` of folders are kept there.

    The official sets are what they are: of them only the pairs of a comparison are held against each other.
    """
    state = checkpoint.record(where)
    if state is None:
        raise RunError(f"{where} has lost its checkpoint; remove it to train again")
    if run.data in data.NAMES or not Path(run.data).is_dir():
        digests[run.data] = state["data"]
    elif run.data not in digests:
        digests[run.data] = data.digest(data.load(run.data))
    directory.verify(where, state, run, digests[run.data], networks.source(run))


def board(where: Path, epoch: int) -> Any:
    """TensorBoard's writer; what it holds of epochs after the last checkpoint is dropped."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise RunError('--tensorboard needs its package: pip install "learnpool[tensorboard]"') from None
    return SummaryWriter(where / "tensorboard", purge_step=epoch + 1)
