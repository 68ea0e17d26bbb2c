"""Who shares a parameter: the paper's options (a) to (e), as the shape of a parameter and nothing else.

================== ====================================== ==================
(a) net            one set for several layers (``tie``)   ``[1, 1, 1]``
(b) layer          one set                                ``[1, 1, 1]``
(c) region         one per output position                ``[1, OH, OW]``
(d) channel        one per channel                        ``[C, 1, 1]``
(e) region_channel one per output position and channel    ``[C, OH, OW]``
================== ====================================== ==================
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHARES = ("layer", "region", "channel", "region_channel", "net")
REGIONAL = ("region", "region_channel")


def check_share(name: str, share: object) -> str:
    """``share`` itself if it is one of the five."""
    if not isinstance(share, str) or share not in SHARES:
        raise ValueError(f"{name}: share must be one of {', '.join(SHARES)}, got {share!r}")
    return share


def varies_by_channel(share: str) -> bool:
    return share in ("channel", "region_channel")


def varies_by_region(share: str) -> bool:
    return share in REGIONAL


def get_extent(share: str, channels: int | None, grid: Sequence[int] | None, dims: int) -> tuple[int, ...] | None:
    """The shape ``[C|1, OH|1, OW|1]`` over which a parameter varies; None while a size it needs is unknown."""
    if (varies_by_channel(share) and channels is None) or (varies_by_region(share) and grid is None):
        return None
    first = channels if varies_by_channel(share) and channels is not None else 1
    rest = tuple(grid) if varies_by_region(share) and grid is not None else (1,) * dims
    return (first, *rest)


def get_grid(parameter: Tensor, dims: int) -> tuple[int, ...]:
    """The output grid a parameter ``[rows, C|1, *grid, ...]`` was made for."""
    return tuple(parameter.shape[2 : 2 + dims])


def warn_of_grid(layer: nn.Module, parameter: Tensor, grid: Sequence[int]) -> None:
    """Say once per layer that its parameters meet maps of another grid than theirs; compiled code does not say it."""
    if torch.compiler.is_compiling() or "_warned_of_grid" in layer.__dict__:
        return
    made_for = get_grid(parameter, len(grid))
    if made_for != tuple(grid):
        layer.__dict__["_warned_of_grid"] = True
        place = f" {layer.__dict__['_place']}" if "_place" in layer.__dict__ else ""  # in a converted network
        sizes = ["×".join(map(str, size)) for size in (made_for, grid)]
        change = f"parameters for a grid of {sizes[0]} are resampled to {sizes[1]}"
        warnings.warn(f"{type(layer).__name__}{place}: {change}", stacklevel=3)


def resample(parameter: Tensor, grid: Sequence[int]) -> Tensor:
    """``[rows, C|1, *old, taps...]`` -> ``[rows, C|1, *grid, taps...]``, linear in each axis, align_corners=False.

    An equal grid is returned as it is. Halves are resampled in float32.
    """
    dims = len(grid)
    # An exported program has to work for every size, so a symbolic size is not compared with a number, which would fix
    # it; resampling to an equal grid changes nothing. Under torch.compile the comparison is fine: it compiles again.
    known = all(isinstance(n, int) for n in grid) or not torch.compiler.is_exporting()
    if known and get_grid(parameter, dims) == tuple(grid):
        return parameter
    lead, taps = parameter.shape[:2], parameter.shape[2 + dims :]
    planes = parameter.movedim(tuple(range(2, 2 + dims)), tuple(range(-dims, 0)))  # [rows, C|1, taps..., *old]
    flat = planes.reshape(1, -1, *get_grid(parameter, dims))
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.float()
    mode = ("linear", "bilinear", "trilinear")[dims - 1]
    new = F.interpolate(flat, size=list(grid), mode=mode, align_corners=False).to(parameter.dtype)
    back = new.reshape(*lead, *taps, *grid).movedim(tuple(range(-dims, 0)), tuple(range(2, 2 + dims)))
    return back.contiguous()  # as the kernel needs it; inductor fails on other strides of unknown size
