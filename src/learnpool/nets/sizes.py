"""What networks here share: scaled channels, sizes of maps, pools of known sizes, and start values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from ..names import parse
from ..ops.window import Window, format_size
from ..parameters import TreeParameters, tie

POOL = 3  # kernel of a pool, unless a network says otherwise
INITS = ("caffe", "kaiming")


def scale_channels(net: str, channels: int, width: float, groups: int = 1) -> int:
    """So many of the channels, at least one for each group, and a multiple of ``groups``."""
    if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0 < width < math.inf:
        raise ValueError(f"{net}: width must be a number above 0, got {width!r}")
    return max(1, round(width * channels / groups)) * groups


def compute_map_sizes(
    net: str, size: int | tuple[int, int], pools: int, pool: Window, first: Window | None = None
) -> list[tuple[int, ...]]:
    """The size of the maps behind each of the pools; of the other layers at most ``first`` changes a size."""
    maps: tuple[int, ...] = (size, size) if isinstance(size, int) else size
    maps, sizes = maps if first is None else first.output_size(maps), list[tuple[int, ...]]()
    for _ in range(pools):
        sizes.append(maps := pool.output_size(maps))
        if min(maps) < 1:
            got = size if isinstance(size, int) else format_size(size)
            raise ValueError(f"{net}: size must be larger for {pools} pools, got {got}")
    return sizes


def make_pools(
    names: str,
    channels: Sequence[int],
    sizes: Sequence[tuple[int, ...]],
    start: str,
    kernels: Sequence[int] | None = None,
    padding: int = 0,
    ceil_mode: bool = True,
) -> list[nn.Module]:
    """Pools of stride 2 by name, for so many channels and outputs of these sizes; ``:net`` pools share parameters.

    They are 3×3 unless ``kernels`` says otherwise.
    """
    layers: list[nn.Module] = []
    for index, (kernel, c, size) in enumerate(zip(kernels or [POOL] * len(sizes), channels, sizes, strict=True)):
        options: dict[str, Any] = {"ceil_mode": ceil_mode, "channels": c, "grid": size, "start": start}
        layers.append(parse(names).part(index).make_layer(kernel, 2, padding, **options))
    tied = [layer for layer in layers if isinstance(layer, TreeParameters) and layer.share == "net"]
    if tied:
        tie(tied)
    return layers


def initialize_by_kaiming(name: str, net: nn.Module, init: str) -> bool:
    """Kaiming's start values for ReLU, and biases 0, if ``init`` asks for them; False if it asks for Caffe's."""
    if init not in INITS:
        raise ValueError(f"{name}: init must be one of {', '.join(INITS)}, got {init!r}")
    for layer in net.modules() if init == "kaiming" else ():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return init == "kaiming"
