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

GCN_SCALE = 55.0 / math.sqrt(3 * 32 * 32)  # times √pixels: CIFAR's 55, and a variance near one for any size
MIN_NORM = 1e-8  # an image of less contrast is centred only
ZCA_BIAS = 0.1  # on the diagonal of the covariance that ZCA takes the root of
LCN_SIZE, LCN_SIGMA, LCN_MIN = 7, 2.0, 1e-4
MAX_ZCA_VALUES = 4_096  # pixels and channels of an image that ZCA takes: its matrix has the square of it
SLOW_KINDS = ("gcn-zca", "gcn-lcn")  # cached on disk
CHUNK = 2_000  # images at a time


@dataclass(frozen=True, eq=False)
class Preparation:
    """What maps uint8 [N, C, H, W] to float32 of the same shape; ``tensors`` are all that was fitted."""

    kind: str
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, x: Tensor) -> Tensor:
        return FORMULAS[self.kind](x, **self.tensors)


def prepare(kind: str, train: Split, *others: Split, cache_dir: Path | None = None) -> tuple[Tensor, ...]:
    """The images of every split as float32, by a preparation fitted on ``train``; slow ones are cached on disk."""
    return apply(fit(kind, train.images, cache_dir), train, *others, cache_dir=cache_dir)


def apply(preparation: Preparation, train: Split, *others: Split, cache_dir: Path | None = None) -> tuple[Tensor, ...]:
    """The images of every split as float32; ``preparation`` was fitted on ``train``."""
    splits, kind = (train, *others), preparation.kind
    if kind not in SLOW_KINDS:
        return tuple(_apply_in_chunks(preparation, split.images) for split in splits)
    folder, recipe = cache_dir or cache.get_cache_directory(), _hash_recipe(kind, train.images)
    names = [f"{kind}-{cache.hash_parts(recipe, split.images)[:32]}.npy" for split in splits]
    return tuple(
        _read_or_compute(folder / name, preparation, split.images) for name, split in zip(names, splits, strict=True)
    )


def _hash_recipe(kind: str, images: Tensor) -> str:
    """A hash of all that decides a slow preparation."""
    fitted_on = images if kind == "gcn-zca" else None
    code = inspect.getsource(sys.modules[__name__])  # what another version computed is of no use
    return cache.hash_parts(code, kind, GCN_SCALE, MIN_NORM, ZCA_BIAS, LCN_SIZE, LCN_SIGMA, LCN_MIN, fitted_on)


def _read_or_compute(path: Path, preparation: Preparation, images: Tensor) -> Tensor:
    """The cached images at ``path``, computed and written first if missing; in memory alone if the disk refuses."""
    shape = tuple(images.shape)
    cells = cache.read(path, shape)
    if cells is None:
        cells = cache.write(path, shape, map(preparation, images.split(CHUNK)))
    return _apply_in_chunks(preparation, images) if cells is None else cells


def fit(kind: str, images: Tensor | Iterable[Tensor], cache_dir: Path | None = None) -> Preparation:
    """What maps uint8 [N, C, H, W] to float32 of the same shape, fitted on one tensor or on batches."""
    if kind not in FORMULAS:
        raise DataError(f"prepare: unknown preparation {kind!r}; known: {', '.join(KINDS)}")
    if kind == "mean":
        return Preparation(
            kind, {"mean": _compute_mean(scale_pixels, images.split(CHUNK) if isinstance(images, Tensor) else images)}
        )
    if kind == "gcn-zca":
        if not isinstance(images, Tensor):
            raise DataError("prepare: gcn-zca needs a data set in memory, got a folder of images")
        mean, matrix = _fit_zca(images, cache_dir or cache.get_cache_directory())
        return Preparation(kind, {"mean": mean, "matrix": matrix})
    return Preparation(kind)


def scale_pixels(x: Tensor) -> Tensor:
    """x / 255."""
    return x.float() / 255


def gcn(x: Tensor, scale: float | None = None) -> Tensor:
    """scale (x − mean x) / ‖x − mean x‖, each image by itself; the scale is 55 for 3×32×32 pixels."""
    scale = GCN_SCALE * math.sqrt(x[0].numel()) if scale is None else scale
    mean = x.mean((1, 2, 3), keepdim=True, dtype=torch.float64)  # exact: rounding must not become contrast
    x = x.float() - mean.float()
    norm = x.square().sum((1, 2, 3), keepdim=True).sqrt() / scale
    return x / norm.where(norm >= MIN_NORM, 1.0)


def lcn(x: Tensor) -> Tensor:
    """(x − g∗x) / max(r, mean r, 1e-4) with r = √(g∗x²), g a 7×7 Gaussian: each channel of each image by itself."""
    root = _blur(x.square()).sqrt()
    return (x - _blur(x)) / root.maximum(root.mean((2, 3), keepdim=True)).clamp_min(LCN_MIN)


def _blur(x: Tensor) -> Tensor:
    """g∗x, with zeros around the image. A Gaussian is a product of two, so this is two products with band matrices."""
    rows, columns = (_blur_matrix(size, x.dtype) for size in x.shape[2:])
    return rows @ (x @ columns)


def _blur_matrix(size: int, dtype: torch.dtype) -> Tensor:
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


def _fit_zca(images: Tensor, folder: Path) -> tuple[Tensor, Tensor]:
    """ZCA's mean and matrix, from the disk if they are there."""
    size = images[0].numel()
    if size > MAX_ZCA_VALUES:
        raise DataError(f"prepare: gcn-zca takes images of at most {MAX_ZCA_VALUES:,} values, got {size:,}")
    path, shape = folder / f"gcn-zca-{_hash_recipe('gcn-zca', images)[:32]}.npy", (size + 1, size)
    if (rows := cache.read(path, shape)) is not None:
        return rows[0], rows[1:]
    mean = _compute_mean(gcn, images.split(CHUNK)).flatten()
    covariance = torch.zeros(size, size)
    for chunk in images.split(CHUNK):
        centred = gcn(chunk).flatten(1) - mean
        covariance.addmm_(centred.T, centred)
    values, vectors = torch.linalg.eigh((covariance / len(images)).double() + ZCA_BIAS * torch.eye(size))
    matrix = ((vectors * values.rsqrt()) @ vectors.T).float()
    cache.write(path, shape, (mean, matrix))
    return mean, matrix


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "none": scale_pixels,
    "mean": lambda x, mean: scale_pixels(x) - mean,
    "gcn": gcn,
    "gcn-zca": zca,
    "gcn-lcn": lambda x: lcn(gcn(x, 1.0)),
}
KINDS = tuple(FORMULAS)


def _compute_mean(formula: Callable[[Tensor], Tensor], batches: Iterable[Tensor]) -> Tensor:
    """[C, H, W]: the mean image; sums of batches are added in double precision."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        total = total + formula(batch).sum(0).double()
        count += len(batch)
    return (total / count).float()


def _apply_in_chunks(preparation: Preparation, images: Tensor) -> Tensor:
    """``preparation`` chunk by chunk, so that nothing but the result is as large as the result."""
    out = torch.empty(images.shape, dtype=torch.float32)
    for source, target in zip(images.split(CHUNK), out.split(CHUNK), strict=True):
        target.copy_(preparation(source))
    return out
