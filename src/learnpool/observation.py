"""Observe a running network without side effects: modes, statistics, random numbers and gradients are restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .ops.transforms import is_compiled_module


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients and compilers; afterwards modes, buffers and random numbers are restored."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(module, name, buffer) for module, _ in modes for name, buffer in module._buffers.items()]
    values = [None if buffer is None or buffer.is_meta else buffer.detach().clone() for _, _, buffer in buffers]
    with ExitStack() as stack:
        for kind, indices in find_accelerators(model).items():
            stack.enter_context(torch.random.fork_rng(indices, device_type=kind))
        stack.enter_context(torch.random.fork_rng([]))
        stack.enter_context(torch.no_grad())
        if is_compiled(model):  # compiled code does not see hooks added later
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            for module, _ in modes:  # not eval(), which a module may override
                module.training = False
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            for (module, name, buffer), value in zip(buffers, values, strict=True):
                module._buffers[name] = buffer
                if buffer is not None and value is not None and not torch.equal(buffer, value):
                    if buffer.shape != value.shape:  # an observer of quantisation resizes its own
                        buffer.resize_(value.shape)
                    buffer.copy_(value)


def run_batch(name: str, model: nn.Module, batch: Any) -> Any:
    """The network's output on a batch, which is moved to its device; errors begin with ``name``."""
    args, kwargs = read_arguments(name, batch)
    device = next((t.device for t in iter_tensors(model)), torch.device("cpu"))
    options = {key: value.to(device) if isinstance(value, Tensor) else value for key, value in kwargs.items()}
    return model(*(value.to(device) for value in args), **options)


def read_arguments(name: str, batch: Any) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """What a batch gives a network: a tensor itself, the first of ``(images, labels)``, a mapping as keywords."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    first = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    if not isinstance(first, Tensor):
        raise TypeError(f"{name}: a batch must be a tensor, (images, labels) or a mapping, got {type(batch).__name__}")
    return (first,), {}


def get_images(name: str, batch: Any) -> Tensor:
    """The first tensor of a batch."""
    args, kwargs = read_arguments(name, batch)
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.dim():
            return value
    raise TypeError(f"{name}: a batch must hold a tensor, got {sorted(kwargs)}")


def iter_tensors(model: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers."""
    return chain(model.parameters(), model.buffers())


def find_accelerators(model: nn.Module) -> dict[str, list[int]]:
    """The devices beside the CPU that hold a part of the network, by their kind."""
    devices: dict[str, set[int]] = {}
    for tensor in iter_tensors(model):
        if tensor.device.type not in ("cpu", "meta"):
            devices.setdefault(tensor.device.type, set()).add(tensor.device.index or 0)
    return {kind: sorted(indices) for kind, indices in devices.items()}


def is_compiled(model: nn.Module) -> bool:
    """Whether any part of the network is compiled by torch.compile."""
    return any(map(is_compiled_module, model.modules()))
