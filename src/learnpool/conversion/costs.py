"""What a pool costs where it is put: multiply-adds of convolutions and of inner products, of one image."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from ..formatting import format_large
from ..ops.window import format_size
from ..parameters import TreeParameters
from .convolutions import BEFORE, BEHIND, Convolution
from .report import name_pool
from .sites import PoolSite


def count_multiply_adds(site: PoolSite, new: nn.Module, where: str | None = None) -> tuple[int | None, int | None]:
    """Before and after, in one pass of the example, with the pool where it is or elsewhere; None without an example."""
    where = where or site.where
    if not site.calls:
        return None, None
    before = after = 0
    for original, shape in site.calls:
        dims = 0 if original is None else original.dims
        parts = shape[0] // site.batch if len(shape) == dims + 2 and shape[0] % site.batch == 0 else 1  # heads, frames
        if isinstance(original, Convolution):
            whole = original.unstride(shape[-dims:])
            strided = original.count_multiply_adds([-(-n // s) for n, s in zip(whole, original.stride, strict=True)])
            before += parts * strided
            after += parts * (original.count_multiply_adds(whole) if where == BEHIND else strided)
        after += parts * _count_inner_products(new, site.get_pool_input(original, shape, where))
    return before, after


def _count_inner_products(new: nn.Module, shape: tuple[int, ...]) -> int:
    """Of a pool's masks and filters with its regions."""
    window: Any = getattr(new, "window", None)
    if not isinstance(new, TreeParameters) or new.weight is None or window is None:
        return 0
    rows, channels = new.weight.shape[0], shape[-new.dims - 1]
    return int(rows * channels * math.prod(window.kernel) * math.prod(window.output_size(shape[-new.dims :])))


def describe_new(site: PoolSite, new: nn.Module) -> str:
    """``gated``; at a convolution ``then filter 3×3``, ``filter 3×3 first`` or ``filter 3×3 behind the relu``."""
    if not isinstance(site.original, Convolution):
        return name_pool(new)
    window: Any = getattr(new, "window", None)
    name = name_pool(new) + ("" if window is None else f" {format_size(window.kernel)}")
    if site.pool_owner is not None and site.activation is not None:
        owner, function = site.pool_owner_name, site.activation.function
        if site.activation.location:
            return f"{name} behind the {function} in {owner}" if owner else f"{name} behind the {function}"
        return f"{name} behind {owner}"
    return f"{name} first" if site.where == BEFORE else f"then {name}"


def describe_other_place(site: PoolSite, new: nn.Module) -> str:
    """What the pool of a strided convolution would cost before it, or behind it; without an example, by how much."""
    original = site.original
    if not isinstance(original, Convolution) or original.kind != "strided":
        return ""
    first = site.where == BEFORE
    _, cost = count_multiply_adds(site, new, BEHIND if first else BEFORE)
    if cost is None:
        much = f"{math.prod(original.stride)} times the convolution's multiply-adds"
        return "" if first else much + ("; first= avoids that" if original.keeps_size else "")
    if not original.keeps_size:
        return ""
    return f"{'without' if first else 'with'} first= {format_large(cost)}"
