"""What all tables of the zoo are made with: runs of a network, and comparisons of what they give."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def flatten(out: Any) -> list[Tensor]:
    """All tensors of an output, whatever they are wrapped in."""
    if isinstance(out, Tensor):
        return [out]
    parts = out.values() if isinstance(out, dict) else out if isinstance(out, (list, tuple)) else []
    return [tensor for part in parts for tensor in flatten(part)]


def run(net: nn.Module, x: Tensor, train: bool) -> list[Tensor]:
    """Outputs from a seed; the statistics that training changes, and the mode, are put back."""
    mode, values = net.training, [buffer.clone() for buffer in net.buffers()]
    torch.manual_seed(1)
    with torch.no_grad():
        out = flatten(net.train(train)(x))
        for buffer, value in zip(net.buffers(), values, strict=True):
            buffer.copy_(value)
    net.train(mode)
    return out


def are_equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def measure(one: Tensor, other: Tensor) -> float:
    """The distance of two tensors, relative to the second."""
    return float((one - other).norm() / other.norm().clamp_min(1e-12))


def require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
