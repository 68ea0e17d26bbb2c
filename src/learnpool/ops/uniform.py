"""Uniform random numbers by position: a pure function of seed and index, the same on every device, in every kernel.

A generator hands out numbers one after another, so what a thread gets would depend on the others. Here number ``o`` of
channel ``c`` of an image is a hash of ``(seed of the image, c, o)``, so threads need not agree on an order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

BITS = 0xFFFFFFFF


def draw_seed(images: int, device: torch.device) -> Tensor:
    """One seed for each image, by torch's generator: ``torch.manual_seed`` decides."""
    return torch.randint(2**63 - 1, (images,), device=device)


def draw_uniform(seed: Tensor, channels: int, size: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Numbers in [0, 1), multiples of 2^-24: ``[len(seed), channels, *size]``."""
    low, high = seed[:, None] & BITS, seed[:, None] >> 32 & BITS
    channel = torch.arange(channels, device=seed.device)
    low, high = _hash(2 * channel, low, high)[..., None], _hash(2 * channel + 1, low, high)[..., None]
    place = torch.arange(math.prod(size), device=seed.device)
    numbers = (_hash(place, low, high) >> 8).to(dtype) * 2.0**-24
    return numbers.reshape(len(seed), channels, *size)


def _hash(index: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """32 bits for each index under the key (low, high)."""
    return _mix(_mix((index + low) & BITS) ^ high)


def _mix(v: Tensor) -> Tensor:
    """A bijection of 32 bits that flips each bit of the result for about half of all changes of one bit of ``v``.

    "lowbias32" of C. Wellons' hash-prospector.
    """
    v = (v ^ v >> 16) * 0x7FEB352D & BITS
    v = (v ^ v >> 15) * 0x846CA68B & BITS
    return v ^ v >> 16
