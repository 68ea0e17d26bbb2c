"""Strided convolutions and slices as data: a map made smaller without a pool.

Output i of a convolution of stride s is output s·i of the same convolution at stride 1, whatever its padding, kernel
and dilation: it is that convolution with a pool of one cell and stride s behind it. A slice ``x[:, :, ::s, ::s]`` is
such a pool too. A pool of 2q + 1 cells, padding q and stride s has the same output size and those cells in the
middle of its windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..ops.window import format_size
from .torch_pools import GlobalPool, TorchPool

BEHIND, BEFORE = "behind", "before"  # where a pool stands, seen from its convolution
_NAMES = ("Conv1d", "Conv2d", "Conv3d")


@dataclass(frozen=True)
class Slice:
    """``x[:, :, ::s, ::s]`` or ``F.max_pool2d(x, 1, s)``: every s-th cell of a map."""

    stride: tuple[int, ...]

    refusal = None

    @property
    def kind(self) -> str:
        return "shortcut"

    @property
    def dims(self) -> int:
        return len(self.stride)

    @property
    def key(self) -> tuple[Any, ...]:
        return ("slice", *self.stride)

    @property
    def label(self) -> str:
        return f"stride {_format(self.stride)}"

    @property
    def pool(self) -> TorchPool:
        """Every s-th cell, as a pool: the maximum of one cell."""
        return TorchPool("max", self.dims, 1, self.stride)

    @property
    def new_geometry(self) -> dict[str, Any]:
        """The window of a learned pool that gives the same size: 3×3 with padding 1 where the stride is 2."""
        q = tuple(s // 2 for s in self.stride)
        return {"kernel_size": tuple(2 * n + 1 for n in q), "stride": self.stride, "padding": q}

    def build_module(self) -> nn.Module:
        return self.pool.build_module()


@dataclass(frozen=True)
class Convolution(Slice):
    """A convolution with a stride: ``strided``, or of one tap, which is a ``shortcut``."""

    kernel: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    in_channels: int = 0
    out_channels: int = 0
    groups: int = 1
    pads_itself: bool = False  # with zeros, inside of the convolution

    @property
    def kind(self) -> str:
        return "shortcut" if set(self.kernel) == {1} else "strided"

    @property
    def key(self) -> tuple[Any, ...]:
        return ("convolution", *self.stride)

    @property
    def label(self) -> str:
        words = [format_size(self.kernel), f"stride {_format(self.stride)}"]
        words += [f"padding {_format(self.padding)}"] if any(self.padding) else []
        words += [f"dilation {_format(self.dilation)}"] if set(self.dilation) != {1} else []
        return ", ".join([*words, *([f"{self.groups} groups"] if self.groups > 1 else [])])

    @property
    def keeps_size(self) -> bool:
        """Whether its output at stride 1 has its input's size, so that the pool may as well come first."""
        sides = zip(self.kernel, self.padding, self.dilation, strict=True)
        return all(d * (k - 1) == 2 * p for k, p, d in sides) and (self.pads_itself or not any(self.padding))

    def unstride(self, size: Sequence[int]) -> tuple[int, ...]:
        """The output's size at stride 1."""
        sides = zip(size, self.kernel, self.padding, self.dilation, strict=True)
        return tuple(n + 2 * p - d * (k - 1) for n, k, p, d in sides)

    def build_layer(self) -> nn.Module:
        """A layer of these sizes, without weights."""
        cls: Any = getattr(nn, f"Conv{self.dims}d")
        sizes = self.in_channels, self.out_channels, self.kernel, self.stride, self.padding, self.dilation
        return cls(*sizes, self.groups, bias=False, device="meta")  # type: ignore[no-any-return]

    def count_multiply_adds(self, outputs: Sequence[int]) -> int:
        """Of one image, for an output of this size."""
        return math.prod(outputs) * self.out_channels * (self.in_channels // self.groups) * math.prod(self.kernel)


Original = TorchPool | GlobalPool | Slice


def is_same(one: Original | None, other: Original | None) -> bool:
    """Whether two calls compute the same, however their arguments are written."""
    return one is other if one is None or other is None else one.key == other.key


def simplify(pool: TorchPool) -> TorchPool | Slice:
    """A max pool of one cell with a stride as the slice that it is; another pool as it is."""
    if pool.kind != "max" or pool.return_indices:
        return pool
    window = pool.window
    return Slice(window.stride) if max(window.kernel) == 1 and max(window.stride) > 1 else pool


def read_convolution(module: Any) -> Convolution | None:
    """A convolution with a stride as data, scripted or not; None for another module."""
    is_scripted = isinstance(module, torch.jit.ScriptModule) and module.original_name in _NAMES
    is_own = isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    if not (is_own or is_scripted) or set(getattr(module, "stride", (1,))) == {1}:
        return None
    padding = (0,) * len(module.stride) if isinstance(module.padding, str) else module.padding  # "valid"
    numbers = tuple(module.stride), tuple(module.kernel_size), tuple(padding), tuple(module.dilation)
    stride, kernel, padding, dilation = numbers
    channels = module.in_channels, module.out_channels, module.groups
    return Convolution(stride, kernel, padding, dilation, *channels, module.padding_mode == "zeros")


def _format(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else format_size(numbers)
