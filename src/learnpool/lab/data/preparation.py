"""Per-pixel mean, global contrast, ZCA whitening, local contrast: fitted on the training images alone."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from . import cache
from .split import DataError, Split

SCALE = 55.0 / math.sqrt(3 * 32 * 32)  # times √pixels: CIFAR's 55, and a variance near one for any size
SMALLEST = 1e-8  # an image of less contrast is centred only
BIAS = 0.1  # on the diagonal of the covariance that ZCA takes the root of
LCN_SIZE, LCN_SIGMA, LCN_SMALLEST = 7, 2.0, 1e-4
LARGEST = 4_096  # pixels and channels of an image that ZCA takes: its matrix has the square of it
COSTLY = ("gcn-zca", "gcn-lcn")  # worth a place on disk
CHUNK = 2_000  # images at a time


@dataclass(frozen=True, eq=False)
class Preparation:
    """What maps uint8 [N, C, H, W] to float32 of the same shape; ``fitted`` is all it has to remember."""

    kind: str
    fitted: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, x: Tensor) -> Tensor:
        return FORMULAS[self.kind](x, **self.fitted)


def prepare(kind: str, train: Split, *others: Split, cache_dir: Path | None = None) -> tuple[Tensor, ...]:
    """The images of every split as float32, prepared by what was fitted on ``train``; costly ones are kept on disk."""
    return apply(fit(kind, train.images, cache_dir), train, *others, cache_dir=cache_dir)


def apply(fitted: Preparation, train: Split, *others: Split, cache_dir: Path | None = None) -> tuple[Tensor, ...]:
    """The images of every split as float32; ``fitted`` is what was fitted on ``train``."""
    splits, kind = (train, *others), fitted.kind
    if kind not in COSTLY:
        return tuple(_whole(fitted, split.images) for split in splits)
    folder, recipe = cache_dir or cache.cache_directory(), _recipe(kind, train.images)
    names = [f"{kind}-{cache.key(recipe, split.images)[:32]}.npy" for split in splits]
    return tuple(_kept(folder / name, fitted, split.images) for name, split in zip(names, splits, strict=True))


def _recipe(kind: str, images: Tensor) -> str:
    """A name for all that decides a costly preparation."""
    fitted_on = images if kind == "gcn-zca" else None
    code = inspect.getsource(sys.modules[__name__])  # what another version computed is of no use
    return cache.key(code, kind, SCALE, SMALLEST, BIAS, LCN_SIZE, LCN_SIGMA, LCN_SMALLEST, fitted_on)


def _kept(path: Path, fitted: Preparation, images: Tensor) -> Tensor:
    """What lies at ``path``, put there first if it is missing; in memory alone if the disk refuses."""
    shape = tuple(images.shape)
    found = cache.read(path, shape)
    if found is None:
        found = cache.write(path, shape, map(fitted, images.split(CHUNK)))
    return _whole(fitted, images) if found is None else found


def fit(kind: str, images: Tensor | Iterable[Tensor], cache_dir: Path | None = None) -> Preparation:
    """What maps uint8 [N, C, H, W] to float32 of the same shape, fitted on one tensor or on batches."""
    if kind not in FORMULAS:
        raise DataError(f"prepare: unknown preparation {kind!r}; known: {', '.join(KINDS)}")
    if kind == "mean":
        return Preparation(kind, {"mean": _mean(pixels, images.split(CHUNK) if isinstance(images, Tensor) else images)})
    if kind == "gcn-zca":
        if not isinstance(images, Tensor):
            raise DataError("prepare: gcn-zca needs a data set in memory, got a folder of images")
        mean, matrix = _zca(images, cache_dir or cache.cache_directory())
        return Preparation(kind, {"mean": mean, "matrix": matrix})
    return Preparation(kind)


def pixels(x: Tensor) -> Tensor:
    """x / 255."""
    return x.float() / 255


def gcn(x: Tensor, scale: float | None = None) -> Tensor:
    """scale (x − mean x) / ‖x − mean x‖, each image by itself; the scale is 55 for 3×32×32 pixels."""
    scale = SCALE * math.sqrt(x[0].numel()) if scale is None else scale
    mean = x.mean((1, 2, 3), keepdim=True, dtype=torch.float64)  # exact: rounding must not become contrast
    x = x.float() - mean.float()
    norm = x.square().sum((1, 2, 3), keepdim=True).sqrt() / scale
    return x / norm.where(norm >= SMALLEST, 1.0)


def lcn(x: Tensor) -> Tensor:
    """(x − g∗x) / max(r, mean r, 1e-4) with r = √(g∗x²), g a 7×7 Gaussian: each channel of each image by itself."""
    root = _blurred(x.square()).sqrt()
    return (x - _blurred(x)) / root.maximum(root.mean((2, 3), keepdim=True)).clamp_min(LCN_SMALLEST)


def _blurred(x: Tensor) -> Tensor:
    """g∗x, with zeros around the image. A Gaussian is a product of two, so this is two products with band matrices."""
    rows, columns = (_band(size, x.dtype) for size in x.shape[2:])
    return rows @ (x @ columns)


def _band(size: int, dtype: torch.dtype) -> Tensor:
    """[size, size]: row i holds the seven weights of the Gaussian around column i."""
    place = torch.arange(size, dtype=torch.float64)
    offset = place - place[:, None]
    half = LCN_SIZE // 2
    bell = (-torch.arange(-half, half + 1, dtype=torch.float64).square() / (2 * LCN_SIGMA**2)).exp()
    weights = (-offset.square() / (2 * LCN_SIGMA**2)).exp() / bell.sum()
    return weights.where(offset.abs() <= half, 0.0).to(dtype)


def zca(x: Tensor, mean: Tensor, matrix: Tensor) -> Tensor:
    """(z − m) V (Λ + 0.1)^−½ Vᵀ of the contrast-normalised z = gcn(x), with V Λ Vᵀ its covariance."""
    return ((gcn(x).flatten(1) - mean) @ matrix).view(x.shape)


def _zca(images: Tensor, folder: Path) -> tuple[Tensor, Tensor]:
    """ZCA's mean and matrix, from the disk if they are there."""
    size = images[0].numel()
    if size > LARGEST:
        raise DataError(f"prepare: gcn-zca takes images of at most {LARGEST:,} values, got {size:,}")
    path, shape = folder / f"gcn-zca-{_recipe('gcn-zca', images)[:32]}.npy", (size + 1, size)
    if (rows := cache.read(path, shape)) is not None:
        return rows[0], rows[1:]
    mean = _mean(gcn, images.split(CHUNK)).flatten()
    covariance = torch.zeros(size, size)
    for chunk in images.split(CHUNK):
        centred = gcn(chunk).flatten(1) - mean
        covariance.addmm_(centred.T, centred)
    values, vectors = torch.linalg.eigh((covariance / len(images)).double() + BIAS * torch.eye(size))
    matrix = ((vectors * values.rsqrt()) @ vectors.T).float()
    cache.write(path, shape, (mean, matrix))
    return mean, matrix


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "none": pixels,
    "mean": lambda x, mean: pixels(x) - mean,
    "gcn": gcn,
    "gcn-zca": zca,
    "gcn-lcn": lambda x: lcn(gcn(x, 1.0)),
}
KINDS = tuple(FORMULAS)


def _mean(apply: Callable[[Tensor], Tensor], batches: Iterable[Tensor]) -> Tensor:
    """[C, H, W]: the mean image; sums of batches are added in double precision."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        total = total + apply(batch).sum(0).double()
        count += len(batch)
    return (total / count).float()


def _whole(apply: Preparation, images: Tensor) -> Tensor:
    """``apply`` chunk by chunk, so that nothing but the result is as large as the result."""
    out = torch.empty(images.shape, dtype=torch.float32)
    for source, target in zip(images.split(CHUNK), out.split(CHUNK), strict=True):
        target.copy_(apply(source))
    return out
