"""Pad, crop, mirror: a whole batch at once, by indexing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Augment:
    """Pad by ``pad`` zeros, crop at a random place, mirror every second image on average.

    All randomness is in ``draw``: one generator's state resumes it bit for bit, and when several
    processes share a batch, each takes its rows of one draw for the whole batch.
    """

    pad: int = 4
    mirror: bool = True

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """[count, 3]: top, left, and whether to mirror."""
        corner = torch.randint(2 * self.pad + 1, (count, 2), generator=generator)
        side = torch.randint(2, (count, 1), generator=generator)
        return torch.cat([corner, side if self.mirror else torch.zeros_like(side)], 1)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """``images`` [N, C, H, W] cropped and mirrored by ``draws``, which ``draw`` returned."""
        height, width = images.shape[2:]
        padded = F.pad(images, [self.pad] * 4)
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # [N, C, 2p+1, 2p+1, H, W], a view
        top, left, side = draws.unbind(1)
        crops = windows[torch.arange(len(images)), :, top, left]
        mirror = side.nonzero()[:, 0]
        crops[mirror] = crops[mirror].flip(-1)
        return crops
