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


def count_multiply_adds(site: PoolSite, new: nn.Module) -> tuple[int | None, int | None]:
    """Before and after, in one pass of the example; None without one."""
    if not site.calls:
        return None, None
    before = after = 0
    for original, shape in site.calls:
        dims = 0 if original is None else original.dims
        if isinstance(original, Convolution):
            whole = original.unstride(shape[-dims:])
            strided = original.count_multiply_adds([-(-n // s) for n, s in zip(whole, original.stride, strict=True)])
            before += strided
            after += original.count_multiply_adds(whole) if site.where == BEHIND else strided
    return before, after + sum(_count_inner_products(new, shape) for shape in _list_pool_inputs(site))


def _list_pool_inputs(site: PoolSite) -> list[tuple[int, ...]]:
    return [site.get_pool_input(original, shape) for original, shape in site.calls]


def _count_inner_products(new: nn.Module, shape: tuple[int, ...]) -> int:
    """Of a pool's masks and filters with its regions."""
    window: Any = getattr(new, "window", None)
    if not isinstance(new, TreeParameters) or new.weight is None or window is None:
        return 0
    rows, channels = new.weight.shape[0], shape[-new.dims - 1]
    return int(rows * channels * math.prod(window.kernel) * math.prod(window.output_size(shape[-new.dims :])))


def describe_new(site: PoolSite, new: nn.Module) -> str:
    """``gated``; at a convolution ``then filter 3×3``, or ``filter 3×3 first``."""
    if not isinstance(site.original, Convolution):
        return name_pool(new)
    window: Any = getattr(new, "window", None)
    name = name_pool(new) + ("" if window is None else f" {format_size(window.kernel)}")
    if site.pool_owner is not None:
        return f"{name} behind {site.pool_owner_name or 'its activation'}"
    return f"{name} first" if site.where == BEFORE else f"then {name}"


def describe_first(site: PoolSite, costs: tuple[int | None, int | None]) -> str:
    """What the other place of a pool would cost, where there is one."""
    original = site.original
    if not isinstance(original, Convolution) or original.kind != "strided" or site.where == BEFORE:
        return ""
    factor = math.prod(original.stride)
    if not original.keeps_size:
        return "" if costs[0] is not None else f"{factor} times the multiply-adds"
    kept = "" if costs[0] is None else f" keep {format_large(costs[0])}"
    return f"first= would{kept}" if kept else f"{factor} times the multiply-adds; first= keeps them"
