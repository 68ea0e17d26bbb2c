"""Train one network: alone, under ``torchrun``, in a worker process or on a cluster, always by ``train``.

Whatever ends it, at most a few minutes are lost. Running it again continues from the last checkpoint, also inside an
epoch, and gives, with the same number of threads, the bits an uninterrupted run would have given.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from ...formatting import format_pip_install
from .. import data, hardware
from . import checkpoint, directory, user_networks
from .batches import load_batches
from .directory import Result
from .distributed import join_ranks
from .run import Run, RunError
from .training import Step, Training, TrainingError, Watch

SAVE_EVERY = 300.0  # seconds between checkpoints inside an epoch

__all__ = ["Result", "Step", "TrainingError", "Watch", "train", "verify_done"]


def train(
    run: Run,
    out: Path,
    *,
    data_dir: Path | None = None,
    threads: int | None = None,
    workers: int = 0,
    device: str | None = None,
    tensorboard: bool = False,
    save_every: float = SAVE_EVERY,
    watch: Watch | None = None,
) -> Result:
    """Train ``run`` in its directory ``out / run.id``, from where it stands, and return its result.

    There is a checkpoint after every epoch and inside one every ``save_every`` seconds. ``watch`` is called after every
    step, in the first process only. None of the other arguments decides a result beyond
    rounding.
    """
    if threads is not None and not 0 < threads <= hardware.MOST_THREADS:
        raise RunError(f"--threads: wanted 1 to {hardware.MOST_THREADS}, got {threads}")
    hardware.keep_memory()
    with ExitStack() as stack:
        stack.enter_context(hardware.use_threads(threads or torch.get_num_threads()))
        ranks = stack.enter_context(join_ranks(device))
        on_gpu = ranks.device.type == "cuda"
        stack.enter_context(torch.random.fork_rng([ranks.device] if on_gpu else []))
        if on_gpu:
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True))
        path = ranks.on_rank0(lambda: stack.enter_context(directory.open_run(run, out)))
        result = ranks.on_rank0(lambda: directory.read_result(path))
        if result is not None:
            ranks.on_rank0(lambda: verify_done(run, path, {}))
            ranks.on_rank0(lambda: warn_if_damaged(path))
            return result
        batches = ranks.raise_if_any_fails(lambda: load_batches(run, data_dir, ranks, workers))
        saved = ranks.on_rank0(lambda: directory.resume(path))
        training = Training(run, batches, ranks, path, saved)
        started: dict[str, Any] = {
            "processes": ranks.world,
            "threads": torch.get_num_threads(),
            "device": str(ranks.device),
        }
        started |= {"out": str(out), "data_dir": None if data_dir is None else str(data_dir)}
        ranks.on_rank0(lambda: directory.record_start(path, started | {"epoch": training.epoch}))
        training.preparation = ranks.on_rank0(lambda: checkpoint.save_preparation(path, batches.preparation.tensors))
        log = stack.enter_context(open_tensorboard(path, training.epoch)) if tensorboard and ranks.first else None
        training.save_every = save_every
        while training.epoch < run.epochs:
            row = training.run_epoch(watch if ranks.first else None)
            if log is not None:
                for name, value in (row | row["pools"]).items():
                    if name != "pools":
                        log.add_scalar(name, value, row["epoch"])
        return training.finish()


def verify_done(run: Run, path: Path, digests: dict[str, str]) -> None:
    """RunError if a run that is done was of another network file or folder; ``digests`` caches those of folders.

    Official data sets are not hashed again; a comparison checks that its runs saw the same images.
    """
    state = checkpoint.read_record(path)
    if state is None:
        raise RunError(f"{path} has lost its checkpoint; remove it to train again")
    if run.data in data.NAMES or not Path(run.data).is_dir():
        digests[run.data] = state["data"]
    elif run.data not in digests:
        digests[run.data] = data.compute_digest(data.load(run.data))
    directory.verify_unchanged(path, state, run, digests[run.data], user_networks.hash_source(run))


def warn_if_damaged(path: Path) -> None:
    """Log a warning if a run that is done has lost its weights: its result holds, but it cannot predict."""
    try:
        checkpoint.load(path)
    except checkpoint.CheckpointError as error:
        logging.getLogger("learnpool").warning("learnpool: this run is done, but %s", error)


def open_tensorboard(path: Path, epoch: int) -> Any:
    """TensorBoard's writer; what it holds of epochs after the last checkpoint is dropped."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise RunError(f"--tensorboard needs its package: {format_pip_install('tensorboard')}") from None
    return SummaryWriter(path / "tensorboard", purge_step=epoch + 1)
