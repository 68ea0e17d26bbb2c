"""A user's network, ``package.module:function``: called with the arguments it asks for, tried, and given its pools."""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch
from torch import nn

from ...nets.dsn import STRIDED, Table
from ...parameters import TreeParameters
from ...parsing import suggest
from .run import OWN_NETS, Run, RunError

MODELS = {"timm": "timm.models", "torchvision": "torchvision.models"}  # timm:resnet18 is timm.models:resnet18


def build_user_network(run: Run, table: Table, make: Any) -> nn.Module:
    """What ``package.module:function`` returns; where it does not ask for a pool, with its max pools converted."""
    model, takes_pool = _call_with_known_arguments(run, table, make)
    if not isinstance(model, nn.Module):
        raise RunError(f"net: {run.net} must return a torch.nn.Module, got {type(model).__name__}")
    example = torch.zeros(1, table.channels, *table.image)
    with torch.no_grad():  # gives sizes to whatever waits for a first input
        _try_forward(run, model.eval(), example, table)
    with torch.random.fork_rng([]), torch.inference_mode(False), torch.enable_grad():  # a copy: a batch may change it
        votes = _try_forward(run, copy.deepcopy(model).train(), example.repeat(2, 1, 1, 1), table)
    if not votes.requires_grad:
        raise RunError(f"net: {run.net} has nothing to learn: its output does not depend on parameters with gradients")
    if takes_pool and run.replace != "max":
        raise RunError(f"replace: {run.net} takes `pool` and places its pools itself")
    if not takes_pool:
        try:
            convert_places(run, model, example)
        except ValueError as error:
            hint = "a function that takes `pool` may place them itself"
            raise RunError(f"net: {run.net} cannot get {run.pool} pools; {hint}; {error}") from None
    return model.train()


def convert_places(run: Run, model: nn.Module, example: torch.Tensor) -> None:
    """Put a run's pools into a network; ``max``, or ``conv`` where other places get pools, leaves it as it is."""
    if run.pool == ("max" if run.replace == "max" else STRIDED):
        return
    from ...conversion.swap import convert

    kinds = run.replace.split(",")
    only_pools = {*kinds} <= {"max", "avg"}
    report = convert(model, run.pool, replace=kinds, start=run.start if only_pools else None, example=example)
    for kind in kinds:
        if not any(row.kind == kind for row in report.replaced):
            reasons = "; ".join({row.reason: None for row in report.rows if row.kind == kind})
            raise ValueError(f"replace: no {kind} place gets {run.pool} pools: {reasons or 'there is none'}")
    for pool in (model.get_submodule(row.name) for row in report.replaced if row.kind in ("max", "avg")):
        if not only_pools and isinstance(pool, TreeParameters):  # the other kinds begin as what was there
            pool.start = run.start
            pool.reset_parameters()


def _try_forward(run: Run, model: nn.Module, images: torch.Tensor, table: Table) -> torch.Tensor:
    """The network's output on some images; RunError unless it is one score per class."""
    when = " in training" if model.training else ""
    with _report_user_errors(f"net: {run.net} fails{when} on an input of {list(images.shape)}"):
        votes = model(images)
    if not isinstance(votes, torch.Tensor) or votes.shape != (len(images), table.classes):
        actual = list(votes.shape) if isinstance(votes, torch.Tensor) else type(votes).__name__
        some = "one image" if len(images) == 1 else f"{len(images)} images"
        raise RunError(f"net: {run.net} must give [N, {table.classes}]{when}, got {actual} for {some}")
    return votes


@contextmanager
def _report_user_errors(action: str) -> Iterator[None]:
    """Turn exceptions of the user's code into one-line RunErrors, and send what it prints to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise RunError(f"{action}: {type(error).__name__}: {str(error).partition(chr(10))[0]}") from None


def _call_with_known_arguments(run: Run, table: Table, make: Any) -> tuple[Any, bool]:
    """Call the user's function with the arguments it accepts; return its result and whether it takes ``pool``."""
    known = {"pool": run.pool, "classes": table.classes, "channels": table.channels, "size": table.image}
    known |= {"num_classes": table.classes, "in_chans": table.channels}  # as torchvision and timm have it
    with _report_user_errors(f"net: {run.net} does not tell its arguments"):
        parameters = inspect.signature(make).parameters
    arguments = {name: value for name, value in known.items() if name in parameters}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) and not {"classes", "num_classes"} & set(arguments):
        arguments["num_classes"] = table.classes  # torchvision's and timm's functions pass it on
        if run.net.partition(":")[0].partition(".")[0] == "timm":
            arguments["in_chans"] = table.channels
    for name, p in parameters.items():
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in arguments:
            raise RunError(f"net: {run.net} wants {name!r}; a network may ask for {', '.join(known)}")
    with _report_user_errors(f"net: {run.net} fails"):
        return make(**arguments), "pool" in arguments


def import_function(name: str) -> Any:
    """Import the ``package.module:function`` the user named; the working directory is searched too."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as python -m has it
    return _get_function(name)


def import_installed(name: str, caller: str) -> Any:
    """The function that a run's description names, of an installed package or of what this process has imported.

    A run directory is data: nothing of the working directory is run because a file names it, and no function of
    Python's own library is called.
    """
    module = name.partition(":")[0]
    package = module.partition(".")[0]
    cwd, path = os.path.realpath(os.getcwd()), sys.path
    sys.path = [entry for entry in path if os.path.realpath(entry or ".") != cwd]
    try:
        known = module in sys.modules or importlib.util.find_spec(package) is not None
        if known and package not in sys.stdlib_module_names:
            return _get_function(name)
    finally:
        sys.path = path
    ways = f'model="{name}" (or --model {name}) takes it from the working directory, model= takes a function too'
    raise RunError(f"{caller}: the network {name} is not in an installed package; {ways}")


def _get_function(name: str) -> Any:
    module, _, function = name.partition(":")
    if module in MODELS and module not in sys.modules and importlib.util.find_spec(module) is None:
        raise RunError(f"net: {name} needs {module}: pip install {module}")
    with _report_user_errors(f"net: cannot import {module}"):
        namespace = importlib.import_module(MODELS.get(module, module))
        value = getattr(namespace, function, None)
    if isinstance(value, nn.Module):
        raise RunError(f"net: {name} is a network; wanted a function that makes one, for every run its own")
    if not callable(value):
        known = [word for word in dir(namespace) if word[:1] != "_" and callable(getattr(namespace, word, None))]
        raise RunError(f"net: {module} has no function {function}{suggest(function, known)}")
    return value


def hash_source(run: Run) -> str:
    """A hash of the source file of a user's network, without comments; empty for our own networks."""
    if run.net in OWN_NETS:
        return ""
    try:
        code = ast.parse(inspect.getsource(sys.modules[inspect.unwrap(import_function(run.net)).__module__]))
    except (OSError, TypeError, KeyError):  # typed at a prompt, or compiled
        return ""
    return hashlib.sha256(ast.dump(code).encode()).hexdigest()
