"""Pools as one writes them without a kernel, in PyTorch's operations: what ours are timed against."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import make_pool
from ...leaves import make_binomial
from ...ops.window import Window

BY_HAND = " by hand"  # behind a pool's name


def write_by_hand(name: str, window: Window, dtype: torch.dtype) -> nn.Module:
    """The pool ``name``, one of ``gated`` and ``FORMULAS``, over a window."""
    return HandWrittenGate(window, dtype) if name == "gated" else HandWrittenPool(name, window, dtype)


class HandWrittenGate(nn.Module):
    """The gated pool one writes without a kernel: max, average, depthwise convolution and sigmoid."""

    def __init__(self, window: Window, dtype: torch.dtype) -> None:
        super().__init__()
        self.window = window
        where: Any = {"dims": window.dims, "ceil_mode": window.ceil_mode}
        self.max = make_pool("max", window.kernel, window.stride, window.padding, **where)
        self.avg = make_pool("avg", window.kernel, window.stride, window.padding, **where)
        self.mask = nn.Parameter(torch.empty(window.kernel, dtype=dtype).normal_(0, 0.5))
        self.convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[window.dims - 1]

    def forward(self, x: Tensor) -> Tensor:
        window, channels = self.window, x.shape[1]
        largest, mean = self.max(x), self.avg(x)
        if window.ceil_mode:  # a convolution has no such mode: pad what the last windows hang over
            axes = zip(mean.shape[2:], x.shape[2:], window.kernel, window.stride, window.padding, strict=True)
            over = [max(0, (out - 1) * s + k - n - 2 * p) for out, n, k, s, p in axes]
            x = F.pad(x, [side for extra in reversed(over) for side in (0, extra)])
        mask = self.mask.expand(channels, 1, *window.kernel)
        s: Tensor = torch.sigmoid(self.convolve(x, mask, None, window.stride, window.padding, groups=channels))
        blend: Tensor = s * largest + (1 - s) * mean
        return blend


class HandWrittenPool(nn.Module):
    """A formula with one learned number, or one for each tap."""

    def __init__(self, name: str, window: Window, dtype: torch.dtype) -> None:
        super().__init__()
        self.window = window
        self.formula, number = FORMULAS[name]
        taps = math.prod(window.kernel)
        start = torch.full((taps,), 1 / taps) if name == "rank" else torch.tensor(number)
        self.number = nn.Parameter(start.to(dtype)) if name != "blur" else None
        self.register_buffer("filter", torch.tensor(make_binomial(window.kernel), dtype=dtype).reshape(window.kernel))

    def forward(self, x: Tensor) -> Tensor:
        return self.formula(self, x)

    def average(self, x: Tensor) -> Tensor:
        """The mean over existing cells."""
        window, pool = self.window, (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[self.window.dims - 1]
        means: Tensor = pool(x, window.kernel, window.stride, window.padding, count_include_pad=False)
        return means


def _soft(pool: Any, x: Tensor) -> Tensor:
    e = (pool.number * x).exp()
    soft: Tensor = pool.average(x * e) / pool.average(e)
    return soft


def _log_sum_exp(pool: Any, x: Tensor) -> Tensor:
    lse: Tensor = pool.average((pool.number * x).exp()).log() / pool.number
    return lse


def _power(pool: Any, x: Tensor) -> Tensor:
    mean: Tensor = pool.average(x.clamp(min=1e-6).pow(pool.number)).pow(1 / pool.number)
    return mean


def _rank(pool: Any, x: Tensor) -> Tensor:
    """With zeros outside; 2d alone, as ``F.unfold`` is."""
    window = pool.window
    cells = F.unfold(x, window.kernel, window.dilation, window.padding, window.stride)  # [N, C K, OH OW]
    ordered = cells.unflatten(1, (x.shape[1], -1)).sort(2, descending=True).values
    ranked: Tensor = (pool.number[:, None] * ordered).sum(2).unflatten(-1, window.output_size(x.shape[2:]))
    return ranked


def _blur(pool: Any, x: Tensor) -> Tensor:
    """With zeros outside."""
    window, channels = pool.window, x.shape[1]
    convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[window.dims - 1]
    filters = pool.filter.expand(channels, 1, *window.kernel)
    blurred: Tensor = convolve(x, filters, None, window.stride, window.padding, groups=channels)
    return blurred


# the formula of a pool and where its number begins
FORMULAS: dict[str, tuple[Callable[[Any, Tensor], Tensor], float]] = {
    "soft": (_soft, 1.0),
    "lse": (_log_sum_exp, 1.0),
    "gem": (_power, 3.0),
    "rank": (_rank, 0.0),
    "blur": (_blur, 0.0),
}
