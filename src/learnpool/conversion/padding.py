"""Padding by hand with −inf before a max pool (TensorFlow's "same"): a pool that averages sees the border instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .torch_pools import TorchPool

_LOW = -1e4  # no activation; the smallest float16 is −65504


@dataclass
class Padding:
    """A map padded by hand with −inf, or a very low number: harmless to a maximum, but not to an average."""

    out: Tensor
    input: Tensor
    pad: tuple[int, ...]

    def replicate(self, torch_pool: TorchPool) -> Tensor:
        """The map padded with its border instead: every window has the same maximum, and an average is finite."""
        if not self.can_replicate(torch_pool):
            return self.out
        pad = (*self.pad, *(0,) * (2 * torch_pool.dims - len(self.pad)))
        return F.pad(self.input, pad, mode="replicate")

    def can_replicate(self, torch_pool: TorchPool) -> bool:
        """Whether the border can take the padding's place."""
        return len(self.pad) <= 2 * torch_pool.dims and min(self.pad) >= 0 and _border_keeps_maximum(torch_pool)


def read_padding(
    out: Tensor, input: Tensor, pad: Any, mode: str = "constant", value: float | None = None
) -> Padding | None:
    """``F.pad``'s arguments, if it pads with −inf or nearly so."""
    low = mode == "constant" and isinstance(value, (int, float)) and value < _LOW
    return Padding(out, input, tuple(pad)) if low else None


def replace_low_border(x: Tensor, torch_pool: TorchPool) -> Tensor:
    """What ``Padding.replicate`` gives, from the padded map alone: rows and columns of −inf become their neighbours."""
    if not _border_keeps_maximum(torch_pool):
        return x
    low = x < _LOW
    for dim in range(-torch_pool.dims, 0):
        others = [other for other in range(x.dim()) if other != dim + x.dim()]
        inside = (~low.amin(others)).int()  # [n]
        first, last = inside.argmax(), inside.shape[0] - 1 - inside.flip(0).argmax()
        places = torch.arange(inside.shape[0], device=x.device)
        x = x.index_select(dim, torch.minimum(torch.maximum(places, first), last))
    return x


def _border_keeps_maximum(torch_pool: TorchPool) -> bool:
    """Whether every window with a padded cell has the border cell beside it: then their maximum is the border's."""
    return torch_pool.kind == "max" and set(torch_pool.window.dilation) == {1}
