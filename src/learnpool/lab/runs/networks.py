"""The network of a run, its groups of parameters, and a trained one from its directory."""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ... import parameter_groups
from ...nets.dsn import DSN, TABLES, Table, dsn
from . import checkpoint
from .run import Run, RunError, parse_run


def make_table(run: Run, image: Sequence[int], classes: int) -> Table:
    """The network's table for a run's images, ``[channels, height, width]``."""
    channels, height, width = image
    return TABLES.get(run.data, Table((height, width), channels, classes))


def build(run: Run, table: Table, seed: int) -> nn.Module:
    """The untrained network; the pools change no other start value."""
    make = (
        None if run.net == "dsn" else import_function(run.net)
    )  # before the seed: a module may draw when it is imported
    torch.manual_seed(seed)
    if make is not None:
        return _build_user_network(run, table, make)
    options: dict[str, Any] = {"width": run.width, "extra_convs": run.extra_convs, "supervise": run.head_steps > 0}
    try:
        return dsn(table, run.pool, **options, dropout=run.dropout, init=run.init, start=run.start)
    except (ValueError, RuntimeError) as error:  # two pools that cannot be tied, an image too small, too many channels
        raise RunError(str(error).partition("\n")[0]) from None


def _build_user_network(run: Run, table: Table, make: Any) -> nn.Module:
    """What ``package.module:function`` returns; where it does not ask for a pool, with its max pools converted."""
    model, chose = _call_with_known_arguments(run, table, make)
    if not isinstance(model, nn.Module):
        raise RunError(f"net: {run.net} must return a torch.nn.Module, got {type(model).__name__}")
    example = torch.zeros(1, table.channels, *table.image)
    with torch.no_grad():  # gives sizes to whatever waits for a first input
        _try_forward(run, model.eval(), example, table)
    with torch.random.fork_rng([]), torch.inference_mode(False), torch.enable_grad():  # a copy: a batch may change it
        votes = _try_forward(run, copy.deepcopy(model).train(), example.repeat(2, 1, 1, 1), table)
    if not votes.requires_grad:
        raise RunError(f"net: {run.net} has nothing to learn: its output does not depend on parameters with gradients")
    if not chose and run.pool != "max":
        from ...conversion.swap import convert

        try:
            convert(model, run.pool, start=run.start, example=example)
        except ValueError as error:
            hint = "a function that takes `pool` may place them itself"
            raise RunError(f"net: {run.net} cannot get {run.pool} pools; {hint}; {error}") from None
    return model.train()


def _try_forward(run: Run, model: nn.Module, images: torch.Tensor, table: Table) -> torch.Tensor:
    """What a user's network says to some images; RunError if it is not a vote for each class."""
    when = " in training" if model.training else ""
    with _user_code(f"net: {run.net} fails{when} on an input of {list(images.shape)}"):
        votes = model(images)
    if not isinstance(votes, torch.Tensor) or votes.shape != (len(images), table.classes):
        came = list(votes.shape) if isinstance(votes, torch.Tensor) else type(votes).__name__
        some = "one image" if len(images) == 1 else f"{len(images)} images"
        raise RunError(f"net: {run.net} must give [N, {table.classes}]{when}, got {came} for {some}")
    return votes


@contextmanager
def _user_code(doing: str) -> Iterator[None]:
    """Code of the user's runs inside: whatever it raises is one line of theirs, what it prints is no result of ours."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise RunError(f"{doing}: {type(error).__name__}: {str(error).partition(chr(10))[0]}") from None


def _call_with_known_arguments(run: Run, table: Table, make: Any) -> tuple[Any, bool]:
    """What the user's function returns, called with those words it asks for, and whether it asks for the pool."""
    offered = {"pool": run.pool, "classes": table.classes, "channels": table.channels, "size": table.image}
    offered |= {"num_classes": table.classes, "in_chans": table.channels}  # as torchvision and timm have it
    with _user_code(f"net: {run.net} does not tell its arguments"):
        wanted = inspect.signature(make).parameters
    given = {name: value for name, value in offered.items() if name in wanted}
    if any(p.kind is p.VAR_KEYWORD for p in wanted.values()) and not {"classes", "num_classes"} & set(given):
        given["num_classes"] = table.classes  # torchvision's functions pass it on
    for name, p in wanted.items():
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in given:
            raise RunError(f"net: {run.net} wants {name!r}; a network may ask for {', '.join(offered)}")
    with _user_code(f"net: {run.net} fails"):
        return make(**given), "pool" in given


def import_function(name: str) -> Any:
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as python -m has it
    with _user_code(f"net: cannot import {module}"):
        found = getattr(importlib.import_module(module), function, None)
    if isinstance(found, nn.Module):
        raise RunError(f"net: {name} is a network; wanted a function that makes one, for every run its own")
    if not callable(found):
        raise RunError(f"net: {module} has no function {function}")
    return found


def hash_source(run: Run) -> str:
    """A hash of the file that a network of the user's comes from, comments aside; nothing for ours."""
    if run.net == "dsn":
        return ""
    try:
        code = ast.parse(inspect.getsource(sys.modules[inspect.unwrap(import_function(run.net)).__module__]))
    except (OSError, TypeError, KeyError):  # typed at a prompt, or compiled
        return ""
    return hashlib.sha256(ast.dump(code).encode()).hexdigest()


def make_parameter_groups(run: Run, model: nn.Module) -> list[dict[str, Any]]:
    """Groups for an optimizer; ``factor`` is a multiple of the common rate."""
    pool_decay = run.decay if run.pool_decay else 0.0
    if run.factors == "dsn" and isinstance(model, DSN):
        made = model.parameter_groups(run.decay, pool_decay)
    else:
        others, pools = (group["params"] for group in parameter_groups(model))
        made = [
            {"name": "weights", "params": [p for p in others if p.dim() > 1], "weight_decay": run.decay},
            {"name": "biases", "params": [p for p in others if p.dim() <= 1], "weight_decay": 0.0},
            {"name": "pools", "params": pools, "weight_decay": pool_decay},
        ]
    for group in made:
        group["factor"] = group.get("factor", 1.0) * (run.pool_rate if group["name"] == "pools" else 1.0)
    return [group for group in made if group["params"]]


def load(directory: str | os.PathLike[str]) -> nn.Module:
    """The model of a run directory as it was after its last whole epoch, ready to predict.

    >>> model = learnpool.load("runs/cifar10-gated-0-3fa94c01b2")
    """
    run, tensors, state = read_run(Path(directory))
    with torch.random.fork_rng():
        model = build(run, make_table(run, state["image"], len(state["classes"])), run.seed)
    if isinstance(model, DSN):  # heads are for training only
        model.remove_heads()
        tensors = {name: value for name, value in tensors.items() if not name.startswith("model.heads.")}
    checkpoint.restore(tensors, model)
    return model.eval()


def read_run(path: Path) -> tuple[Run, dict[str, torch.Tensor], dict[str, Any]]:
    """The run in a directory, with the tensors and the state of its last checkpoint."""
    try:
        run = parse_run((path / "run.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"load: {path} is no run directory: it has no run.json") from None
    found = checkpoint.load(path)
    if found is None:
        raise FileNotFoundError(f"load: {path} has no checkpoint yet")
    return run, *found
