"""Checkpoints: tensors in safetensors, the rest in JSON, whole or not at all, and checked when loaded.

``last.json`` names the file with the tensors and its SHA-256. Replacing ``last.json`` is the one step that counts: a
kill before it leaves the previous checkpoint, a kill after it leaves the new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor, nn

from .. import files
from . import records
from .run import RunError

LAST = "last.json"
PREPARATION = "preparation.safetensors"


class CheckpointError(RunError):
    """A checkpoint is not what was written; the message names the file."""


def save(directory: Path, epoch: int, tensors: Mapping[str, Tensor], state: dict[str, Any]) -> None:
    """Make this the last checkpoint of a directory."""
    name = f"last-{epoch}.{state['step']}.safetensors" if state.get("step") else f"last-{epoch}.safetensors"
    content = pack_tensors({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
    files.write_bytes(directory / name, content)
    record = {"epoch": epoch, "tensors": name, "sha256": hashlib.sha256(content).hexdigest(), **state}
    records.write_record(directory / LAST, record)
    for old in directory.glob("last-*.safetensors*"):
        if old.name != name:
            old.unlink()


def read_record(directory: Path) -> dict[str, Any] | None:
    """What ``last.json`` says, None if there is none; CheckpointError if it was damaged."""
    path = directory / LAST
    try:
        state = records.read_record(path)
        records.Checkpoint.model_validate(state)
    except FileNotFoundError:
        return None
    except ValueError:
        raise _make_damage_error(path, "damaged") from None
    return state


def load(directory: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and state of the last checkpoint, None if there is none; CheckpointError if it was damaged."""
    state = read_record(directory)
    if state is None:
        return None
    path, digest = directory / state["tensors"], state["sha256"]
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _make_damage_error(path, "missing") from None
    computed = hashlib.sha256(content).hexdigest()
    if computed != digest:
        raise _make_damage_error(path, f"damaged (wanted SHA-256 {digest[:12]}…, got {computed[:12]}…)")
    return _parse(path, content), state


def _parse(path: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors in a file; CheckpointError if they are damaged."""
    try:
        return parse_tensors(content)
    except SafetensorError as error:
        raise _make_damage_error(path, f"damaged ({error})") from None


def _make_damage_error(path: Path, state: str) -> CheckpointError:
    """The error for a file that cannot be used, with the one remedy that is right for a run in any state."""
    return CheckpointError(f"checkpoint: {path} is {state}; remove {path.parent} to train this run again")


def save_preparation(directory: Path, fitted: Mapping[str, Tensor]) -> str:
    """Save the tensors of a preparation of images, once for all checkpoints of a directory; return their SHA-256."""
    if not fitted:
        return ""
    path = directory / PREPARATION
    if not path.exists():
        files.write_bytes(path, pack_tensors({key: value.contiguous() for key, value in fitted.items()}))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_preparation(directory: Path, digest: str = "") -> dict[str, Tensor]:
    """What ``save_preparation`` kept, whose SHA-256 is ``digest`` where that is known."""
    path = directory / PREPARATION
    if not path.exists():
        return {}
    content = path.read_bytes()
    if digest and hashlib.sha256(content).hexdigest() != digest:
        raise _make_damage_error(path, "damaged")
    return _parse(path, content)


def collect_tensors(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Tensor]:
    """``model.*`` and, by the same names, ``momentum.*``; a tensor with several names is there once."""
    tensors: dict[str, Tensor] = {}
    for name, first in _find_first_names(model).items():
        if name == first:
            tensors[f"model.{name}"] = model.state_dict()[name]
    if optimizer is not None:
        for name, parameter in model.named_parameters():
            buffer = optimizer.state[parameter].get("momentum_buffer") if parameter in optimizer.state else None
            if buffer is not None:
                tensors[f"momentum.{name}"] = buffer
    return tensors


def matches_model(tensors: Mapping[str, Tensor], model: nn.Module) -> bool:
    """Whether a checkpoint's tensors are those of a model, by name and shape."""
    saved = {name.removeprefix("model."): list(t.shape) for name, t in tensors.items() if name.startswith("model.")}
    own = model.state_dict()
    return saved == {first: list(own[first].shape) for first in _find_first_names(model).values()}


def restore(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Fill a model and its optimizer; ties are those of the model."""
    names = _find_first_names(model)
    saved = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    own_names = set(names.values())
    if saved.keys() != own_names:
        odd = sorted(saved.keys() ^ own_names)[0]
        raise CheckpointError(f"checkpoint: {odd!r} is only in the {'checkpoint' if odd in saved else 'network'}")
    for name, own in model.state_dict().items():
        if saved[names[name]].shape != own.shape:
            saved_shape, own_shape = list(saved[names[name]].shape), list(own.shape)
            raise CheckpointError(
                f"checkpoint: {name!r} has shape {saved_shape} in the checkpoint and {own_shape} in the network"
            )
    model.load_state_dict({name: saved[first] for name, first in names.items()})
    if optimizer is None:
        return
    for name, parameter in model.named_parameters():
        if (buffer := tensors.get(f"momentum.{name}")) is not None:
            optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer).detach()


def _find_first_names(model: nn.Module) -> dict[str, str]:
    """Every name in the state_dict, with the first name of the same tensor."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(value), name) for name, value in model.state_dict(keep_vars=True).items()}
