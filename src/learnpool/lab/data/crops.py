"""Which part of an image a network sees: a crop in the middle or at random, of random size, or ten of them.

An image is scaled so that its shorter side has ``resize`` pixels, and a square of ``size`` pixels is cut out. Only that
square is ever computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

MARGIN = 8 / 7  # an image is scaled to this multiple of the crop if nothing else is said: 256 for 224
ASPECTS = (3 / 4, 4 / 3)  # of a crop of random size, as is usual
Place = tuple[float, ...]
CENTER: Place = (0.5, 0.5, 0.0)
# Top left, top right, bottom left, bottom right and middle of the central square, then the same mirrored.
TEN_VIEWS: tuple[Place, ...] = tuple(
    (top, left, mirror) for mirror in (0.0, 1.0) for top, left in ((0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5))
)
VIEWS: dict[int, tuple[Place, ...]] = {1: (CENTER,), 10: TEN_VIEWS}
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Crop:
    """Squares of ``size`` pixels, of images whose shorter side has ``resize``: 8/7 ``size`` if not given.

    With ``min_area`` a random crop has that part of the image's area or more, at an aspect of 3/4 to 4/3.
    """

    size: int
    resize: int | None = None
    min_area: float | None = None

    @property
    def short(self) -> int:
        """The shorter side of the scaled image."""
        return round(self.size * MARGIN) if self.resize is None else self.resize

    @property
    def draws(self) -> int:
        """Random numbers that ``take`` needs for an image: top, left, mirror, and for a random size area and aspect."""
        return 3 if self.min_area is None else 5

    def find_box(self, place: Place, image: tuple[int, int]) -> Box:
        """The crop at ``place`` in an image of this width and height, in its own pixels.

        ``place`` is numbers in [0, 1]: from top and from left, the mirror, and perhaps area and aspect.
        """
        if len(place) == 5 and self.min_area is not None:
            return find_random_box(place, image, self.min_area)
        width, height = self._scale(image)
        left, top = round(place[1] * (width - self.size)), round(place[0] * (height - self.size))
        return self._unscale(left, top, image)

    def find_view(self, place: Place, image: tuple[int, int]) -> Box:
        """``find_box``, but in the central square of the scaled image, where AlexNet's ten crops are."""
        width, height = self._scale(image)
        rest = self.short - self.size
        left, top = (
            round((width - self.short) / 2 + place[1] * rest),
            round((height - self.short) / 2 + place[0] * rest),
        )
        return self._unscale(left, top, image)

    def _scale(self, image: tuple[int, int]) -> tuple[int, int]:
        scale = self.short / min(image)
        width, height = (max(self.short, round(scale * length)) for length in image)
        return width, height

    def _unscale(self, left: int, top: int, image: tuple[int, int]) -> Box:
        width, height = self._scale(image)
        right, bottom = left + self.size, top + self.size
        return left / width * image[0], top / height * image[1], right / width * image[0], bottom / height * image[1]

    def find_needed_size(self, place: Place, image: tuple[int, int]) -> int:
        """The shorter side at which an image of this width and height still has a pixel for each of the crop's."""
        if len(place) == 3:
            return self.short
        left, top, right, bottom = self.find_box(place, image)
        return math.ceil(min(image) * self.size / min(right - left, bottom - top))

    def cut(self, image: Image.Image, box: Box, mirror: bool) -> Tensor:
        """uint8 ``[3, size, size]`` of an image in RGB."""
        cells = np.asarray(image.resize((self.size, self.size), Image.Resampling.BILINEAR, box))
        if mirror:
            cells = cells[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(cells.transpose(2, 0, 1)))

    def take(self, image: Image.Image, place: Place = CENTER) -> Tensor:
        """The crop at ``place`` of an image in RGB, mirrored from one half on: uint8 ``[3, size, size]``."""
        return self.cut(image, self.find_box(place, image.size), place[2] >= 0.5)

    def take_views(self, image: Image.Image, views: int) -> Tensor:
        """One crop in the middle, or ten: uint8 ``[views, 3, size, size]``."""
        places = VIEWS[views]
        return torch.stack([self.cut(image, self.find_view(place, image.size), place[2] >= 0.5) for place in places])


def find_random_box(place: Place, image: tuple[int, int], min_area: float) -> Box:
    """A part of the image's area at a random aspect, as far as the image reaches."""
    top, left, _, area, aspect = place
    width, height = image
    area = (min_area + area * (1 - min_area)) * width * height
    low, high = map(math.log, ASPECTS)
    ratio = math.exp(low + aspect * (high - low))
    across, down = min(width, math.sqrt(area * ratio)), min(height, math.sqrt(area / ratio))
    x, y = left * (width - across), top * (height - down)
    return x, y, x + across, y + down
