"""The networks of the paper's figures on their test images: errors of changed images, and what comes out of a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import data
from ..comparison.comparison import FinishedRun
from ..runs.batches import EVAL_BATCH
from ..runs.evaluation import evaluate
from ..runs.run import Run
from ..runs.trained import restore_run
from . import confirmation
from .experiment import Scale

POOLS = {
    "avg": "average",
    "max": "max",
    "gated": "gated",
    "tree2+max": "tree",
}  # of the paper's figures, with their labels
DATA = ("cifar10", "cifar10+")
BESIDE = {("resnet9", "cifar10+"): {"blur": 0.4}}  # what joins a confirmed block, at the rate that screening chose


def list_networks(scale: Scale, data: str) -> dict[str, list[Run]]:
    """The networks to be measured, by label: with ``--set net=…`` the confirmed ones, else those of the figures."""
    blocks = confirmation.list_blocks(scale) if "net" in scale.changes else []
    block = next((block for block in blocks if block.data == data), None)
    if block is None:
        return {label: scale.list_runs(data, pool) for pool, label in POOLS.items()}
    block = block._replace(rates={**block.rates, **BESIDE[block.net, data]}, seeds=block.seeds[: scale.seeds])
    return confirmation.group_runs(scale, block)


def plan(scale: Scale) -> list[Run]:
    """The runs of all networks to be measured."""
    groups = [list_networks(scale, data) for data in scale.choose(DATA)]
    return [run for of_pools in groups for runs in of_pools.values() for run in runs]


class FigureNetwork:
    """The network of a run, and the test images as they are in the files; it sees them as in the run's evaluation."""

    def __init__(self, entry: FinishedRun, data_dir: Path | None) -> None:
        self.model, self.predictor = restore_run(entry.path)
        dataset = data.load(entry.run.data, data_dir)
        if isinstance(dataset, data.Folder):
            raise data.DataError(f"{entry.run.data}: wanted a data set in memory, got a folder of images")
        self.test, self.classes = dataset.test, dataset.classes

    def compute_error(self, change: Callable[..., Tensor], *arguments: Any) -> float:
        """Test error in percent after ``change(images, *arguments)`` of the uint8 pixels."""
        changed = torch.cat([change(images, *arguments) for images in self.test.images.split(EVAL_BATCH)])
        return evaluate(self.predictor, data.Split(changed, self.test.labels), self.classes).tally.errors.top1

    def compute_answers(self, change: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """The network's answer to every test image after ``change(images, *arguments)`` of the uint8 pixels."""
        batches = self.test.images.split(EVAL_BATCH)
        return torch.cat([self.predictor.compute_probabilities(change(x, *arguments)).argmax(1) for x in batches])

    def compute_features(self, layers: Sequence[str], index: Tensor) -> dict[str, Tensor]:
        """What comes out of each of these layers for the test images at ``index``, flat: ``[images, features]``."""
        outputs: dict[str, list[Tensor]] = {name: [] for name in layers}
        with ExitStack() as stack:
            for name in layers:
                hook = self.model.get_submodule(name).register_forward_hook(
                    lambda _layer, _inputs, output, name=name: outputs[name].append(output.flatten(1).float())
                )
                stack.callback(hook.remove)
            for images in self.test.images[index].split(EVAL_BATCH):
                self.predictor.compute_probabilities(images)
        return {name: torch.cat(parts) for name, parts in outputs.items()}
