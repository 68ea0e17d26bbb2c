"""A network of two million parameters that learns CIFAR-10 in a few epochs, after the speed record of Keller Jordan.

A first convolution decorrelates patches of 2×2 pixels and is not learned; then three blocks of convolution, 2×2 pool,
normalisation and GELU, and one more convolution each. Normalisations have a bias and no scale.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn

from ..ops.window import Window
from .resnet9 import Scale
from .sizes import compute_map_sizes, make_pools, scale_channels

CHANNELS = (64, 256, 256)
PATCH_EPS = 5e-4  # added to the variance of a patch's components: the least of them are noise
SCALE = 1 / 9  # of the votes


def fast(
    classes: int = 10,
    *,
    pools: str = "max",
    width: float = 1.0,
    size: tuple[int, int] = (32, 32),
    channels: int = 3,
    start: str = "spread",
) -> nn.Sequential:
    """The network for images of ``size``; ``pools`` are named as ``learnpool.parse`` reads them.

    ``width`` scales all channels but those of the image, its patches and the classes; ``start`` is the pools' own.

    >>> sum(p.numel() for p in fast(pools="gated").parameters() if p.requires_grad)
    1971364
    """
    c1, c2, c3 = (scale_channels("fast", c, width) for c in CHANNELS)
    patches = 8 * channels
    layers: dict[str, nn.Module] = {
        "whiten": nn.Conv2d(channels, patches, 2, bias=False),  # 32 -> 31
        "norm": make_norm(patches, PATCH_EPS),
        "gelu": nn.GELU(),
        "block1": make_block(patches, c1),  # 31 -> 15
        "block2": make_block(c1, c2),  # 15 -> 7
        "block3": make_block(c2, c3),  # 7 -> 3
        "last": nn.AdaptiveMaxPool2d(1),
        "flat": nn.Flatten(),
        "linear": nn.Linear(c3, classes, bias=False),
        "scale": Scale(SCALE),
    }
    net, blocks = nn.Sequential(OrderedDict(layers)), [layers[f"block{k}"] for k in (1, 2, 3)]
    layers["whiten"].weight = nn.Parameter(make_patch_filters(channels), requires_grad=False)
    # Pools last, so that they change nothing that the others draw.
    sizes = compute_map_sizes("fast", size, 3, Window.of("fast", 2, 2, 2), Window.of("fast", 2, 2, 1))
    learned = make_pools(pools, (c1, c2, c3), sizes, start, kernels=(2, 2, 2), ceil_mode=False)
    for block, pool in zip(blocks, learned, strict=True):
        block.pool = pool
    return net


def make_block(incoming: int, outgoing: int) -> nn.Sequential:
    """Convolution, pool, normalisation, GELU; convolution, normalisation, GELU."""
    layers: dict[str, nn.Module] = {
        "conv1": make_convolution(incoming, outgoing),
        "pool": nn.Identity(),
        "norm1": make_norm(outgoing),
        "gelu1": nn.GELU(),
        "conv2": make_convolution(outgoing, outgoing),
        "norm2": make_norm(outgoing),
        "gelu2": nn.GELU(),
    }
    return nn.Sequential(OrderedDict(layers))


def make_convolution(incoming: int, outgoing: int) -> nn.Conv2d:
    """A 3×3 convolution whose first outputs begin as copies of its inputs."""
    conv = nn.Conv2d(incoming, outgoing, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(conv.weight[:incoming])
    return conv


def make_norm(channels: int, eps: float = 1e-5) -> nn.BatchNorm2d:
    """Batch normalisation with a learned bias and no scale."""
    norm = nn.BatchNorm2d(channels, eps=eps)
    norm.weight.requires_grad_(False)
    return norm


def make_patch_filters(channels: int) -> Tensor:
    """``[8 channels, channels, 2, 2]``: cosine transform of a patch over colours, rows and columns, and its negative.

    Of natural images its components are nearly uncorrelated, so that a normalisation behind it whitens the patches.
    """
    colours, edges = make_cosines(channels), make_cosines(2)
    filters = torch.einsum("ac,bh,dw->abdchw", colours, edges, edges).flatten(0, 2)
    return torch.cat([filters, -filters])


def make_cosines(size: int) -> Tensor:
    """``[size, size]``: the orthonormal cosine transform (DCT-II); its rows have length 1."""
    place = torch.arange(size) + 0.5
    rows = (math.pi / size * torch.arange(size)[:, None] * place).cos()
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return unit
