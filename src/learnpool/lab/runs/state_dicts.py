"""A network of the user's filled from a file with a state_dict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .run import RunError
from .user_networks import import_function

NESTED = ("state_dict", "model_state_dict", "model")  # where training scripts put the state_dict beside other things


def load_from_state_dict(path: Path, model: str | None, caller: str) -> nn.Module:
    """The network that ``model`` makes, with the parameters of a file; ``caller`` begins the message of an error."""
    if not path.exists():
        raise ValueError(f"{caller}: no such file: {path}")
    if model is None:
        raise ValueError(f"{caller}: --model package.module:function must say which network the checkpoint is of")
    net, state = make_network(model, caller), read_state_dict(path, caller)
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise ValueError(f"{caller}: {path} does not fit the network of {model}: {reason}") from None
    return net


def make_network(name: str, caller: str) -> nn.Module:
    """What the user's ``package.module:function`` returns."""
    if not re.fullmatch(r"[\w.]+:\w+", name):
        raise ValueError(f"{caller}: --model must be package.module:function, got {name!r}")
    try:
        net = import_function(name)()
    except RunError as error:
        raise ValueError(f"{caller}: --model {name}: {str(error).removeprefix('net: ')}") from None
    except (Exception, SystemExit) as error:  # whatever the user's own code raises is theirs to read
        raise ValueError(f"{caller}: --model {name}: {type(error).__name__}: {error}") from None
    if not isinstance(net, nn.Module):
        raise ValueError(f"{caller}: --model {name} must return a module, got {type(net).__name__}")
    return net


def read_state_dict(path: Path, caller: str) -> Mapping[str, Tensor]:
    """A state_dict from a .safetensors file or a PyTorch file that holds nothing but tensors."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise a dozen kinds
        reason = (str(error) or type(error).__name__).splitlines()[0]  # torch.load may raise a bare EOFError
        raise ValueError(f"{caller}: {path} cannot be read as a state_dict: {reason}") from None
    for key in NESTED:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{caller}: {path} holds no state_dict but a {type(state).__name__}")
    return state


def count_input_channels(net: nn.Module) -> int:
    """How many channels the first convolution of a network takes; 3 if there is none."""
    return next((m.in_channels for m in net.modules() if isinstance(m, nn.Conv2d)), 3)
