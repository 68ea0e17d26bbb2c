"""How large the maps of the larger networks are, and their pools of known sizes."""

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


def compute_map_sizes(net: str, size: int, stages: Sequence[Sequence[Step]]) -> list[int]:
    """The size of the maps behind the pool of every stage; a stage is what its other layers do to the size."""
    sizes, edge = list[int](), size
    for steps in stages:
        for kernel, stride, padding in steps:
            (edge,) = Window.of(net, 1, kernel, stride, padding).output_size((edge,))
        (edge,) = Window.of(net, 1, POOL, 2, 0, ceil_mode=True).output_size((edge,))
        if edge < 1:
            raise ValueError(f"{net}: size must be larger for {len(stages)} pools, got {size}")
        sizes.append(edge)
    return sizes


def make_pools(names: str, channels: Sequence[int], sizes: Sequence[int], start: str) -> list[nn.Module]:
    """3×3 pools of stride 2 by name, for so many channels and outputs of these sizes; those ``:net`` share one set."""
    layers: list[nn.Module] = []
    for index, (c, size) in enumerate(zip(channels, sizes, strict=True)):
        options: dict[str, Any] = {"ceil_mode": True, "channels": c, "grid": (size, size), "start": start}
        layers.append(parse(names).part(index).make_layer(POOL, 2, **options))
    tied = [layer for layer in layers if isinstance(layer, TreeParameters) and layer.share == "net"]
    if tied:
        tie(tied)
    return layers
