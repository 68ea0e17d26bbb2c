"""What all networks here share: scaled channels, sizes of maps, and pools of known sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from ..names import parse
from ..ops.window import Window
from ..parameters import TreeParameters, tie

Step = tuple[int, int, int]  # kernel, stride and padding of a layer that changes the size of maps
POOL = 3  # of stride 2, in ceil mode


def scale_channels(net: str, channels: int, width: float, groups: int = 1) -> int:
    """So many of the channels, at least one for each group, and a multiple of ``groups``."""
    if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0 < width < math.inf:
        raise ValueError(f"{net}: width must be a number above 0, got {width!r}")
    return max(1, round(width * channels / groups)) * groups


def compute_map_sizes(net: str, size: int, stages: Sequence[Sequence[Step]]) -> list[tuple[int, int]]:
    """The size of the maps behind the pool of every stage; a stage is what its other layers do to the size."""
    sizes, edge = list[tuple[int, int]](), size
    for steps in stages:
        for kernel, stride, padding in steps:
            (edge,) = Window.of(net, 1, kernel, stride, padding).output_size((edge,))
        (edge,) = Window.of(net, 1, POOL, 2, 0, ceil_mode=True).output_size((edge,))
        if edge < 1:
            raise ValueError(f"{net}: size must be larger for {len(stages)} pools, got {size}")
        sizes.append((edge, edge))
    return sizes


def halve_sizes(net: str, size: tuple[int, int], kernel: int, padding: int = 0) -> list[tuple[int, int]]:
    """The sizes of the maps behind each of three pools of stride 2, with nothing between them that changes a size."""
    window, sizes = Window.of(net, 2, kernel, 2, padding), [size]
    for _ in range(3):
        height, width = window.output_size(sizes[-1])
        if min(height, width) < 1:
            raise ValueError(f"{net}: size must be larger for 3 pools, got {size[0]}×{size[1]}")
        sizes.append((height, width))
    return sizes[1:]


def make_pools(
    names: str,
    channels: Sequence[int],
    sizes: Sequence[tuple[int, int]],
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
