"""A trained network from its run's directory, with the preparation its images need."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import data
from . import checkpoint, networks
from . import directory as directories
from .prediction import Predictor, RawInputWarning
from .run import OWN_NETS, Run, RunError
from .user_networks import import_function, import_installed

Model = str | nn.Module | Callable[..., nn.Module]


def load(directory: str | os.PathLike[str], model: Model | None = None) -> nn.Module:
    """The network of a run directory as it was at its last checkpoint, ready to predict.

    It is the network itself, with three attributes more unless it has its own of that name: ``predict(images)``,
    ``prepare(images)`` and ``classes``.

    ``model`` is for a network of your own: the function that makes it, its name ``"package.module:function"``, or the
    network, which is then filled. Without it, the function is imported by the name the run has for it, though never
    from the working directory: a run directory is data.
    """
    network, predict = restore_run(Path(directory), model)
    for name, value in (("predict", predict), ("prepare", predict.prepare), ("classes", predict.classes)):
        if not hasattr(network, name):
            setattr(network, name, value)
    if predict.preparation.kind != "none":
        network.register_forward_pre_hook(RawInputWarning())
    return network


def restore_run(path: Path, model: Model | None = None) -> tuple[nn.Module, Predictor]:
    """The network of a run directory, and the predictor that prepares its images; see ``load``."""
    run, tensors, state = read_run(path)
    with torch.random.fork_rng():
        network = _build(path, run, tensors, state, model)
    if isinstance(network, networks.Supervised):  # heads are used in training only
        network.remove_heads()
        tensors = {name: value for name, value in tensors.items() if not name.startswith("model.heads.")}
    checkpoint.restore(tensors, network)
    preparation = data.Preparation(run.prepare, checkpoint.load_preparation(path, state.get("preparation", "")))
    predictor = Predictor(network, run, tuple(state["image"]), tuple(state["classes"]), preparation)
    return network.eval(), predictor


def _build(path: Path, run: Run, tensors: dict[str, Any], state: dict[str, Any], model: Model | None) -> nn.Module:
    """The network to be filled."""
    table = networks.make_table(run, state["image"], len(state["classes"]))
    if run.net in OWN_NETS:
        if model is not None:
            raise RunError(f"load: {path} is a run of our own network {run.net}; model= is for one of yours")
        return networks.build(run, table, run.seed)
    if isinstance(model, nn.Module):
        network = model
        if checkpoint.matches_model(tensors, network):  # its pools are converted already
            return network
        return networks.build(run, table, run.seed, lambda: network)
    make = model
    if make is None:
        make = import_installed(run.net, f"load: {path}")
    elif isinstance(make, str):
        make = import_function(make)
    return networks.build(run, table, run.seed, make)


def read_run(path: Path) -> tuple[Run, dict[str, torch.Tensor], dict[str, Any]]:
    """The run in a directory, with the tensors and the state of its last checkpoint."""
    try:
        run = directories.read_description(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"load: {path} is no run directory: it has no run.json") from None
    state = checkpoint.load(path)
    if state is None:
        raise FileNotFoundError(f"load: {path} has no checkpoint yet")
    if state[1].get("run", run.id) != run.id:
        raise RunError(f"load: {path / 'run.json'} is not the description this run was trained with")
    return run, *state
