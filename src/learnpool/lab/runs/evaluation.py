"""``evaluate``: the errors of a trained network on labelled images, of each class and of all, from one or ten views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import data, hardware
from .batches import EVAL_BATCH
from .errors import Tally
from .prediction import Predictor
from .run import make_run
from .state_dicts import load_from_state_dict
from .trained import Model, read_run, restore_run

CROPS = 320  # that go through the network at a time: 32 images of ten views


@dataclass(frozen=True)
class Evaluation:
    """The errors of a network on labelled images."""

    tally: Tally
    views: int
    skipped: list[str] = field(default_factory=list)  # images that do not decode

    def describe(self) -> str:
        """``41.40 % top-1 error, 18.70 % top-5 error on 50,000 images, ten views of each``."""
        top1, top5 = self.tally.errors
        second = "" if top5 is None else f", {top5:.2f} % top-5 error"
        views = "one view of each" if self.views == 1 else "ten views of each"
        return f"{top1:.2f} % top-1 error{second} on {self.tally.images:,} images, {views}"


class Standardization(data.Preparation):
    """(x / 255 − mean) / std of every channel: as the networks of torchvision and timm take their images."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        values = {"mean": torch.tensor(mean or [0.0]), "std": torch.tensor(std or [1.0])}
        super().__init__("standardization", {name: value[:, None, None] for name, value in values.items()})

    def __call__(self, x: Tensor) -> Tensor:
        """Float32 of the same shape."""
        return (x.float() / 255 - self.tensors["mean"]) / self.tensors["std"]


def load_network(
    checkpoint: Path,
    model: Model | None,
    classes: tuple[str, ...],
    size: int | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> Predictor:
    """The network of a run directory, or of a state_dict that ``model`` makes the network for.

    A run knows its preparation and classes. A state_dict does not: its images are cropped to ``size`` and standardized,
    and its classes are those of the data, ``classes``, in their order.
    """
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (0, 1, 3):
            raise ValueError(f"evaluate: --{name} must be 1 or 3 numbers, got {len(values)}")
    if checkpoint.is_dir():
        if size or mean or std:
            raise ValueError("evaluate: --size, --mean and --std are for a state_dict; a run has its own preparation")
        return restore_run(checkpoint, model)[1]
    network = load_from_state_dict(checkpoint, model if isinstance(model, str) else None, "evaluate").eval()
    if size is None:
        raise ValueError("evaluate: --size must say how large the images of a state_dict's network are")
    run = make_run({"data": "folder", "image_size": size})
    return Predictor(network, run, (3, size, size), classes, Standardization(mean, std))


def evaluate_checkpoint(
    checkpoint: Path,
    name: str,
    *,
    views: int = 1,
    model: Model | None = None,
    crop: tuple[int | None, Sequence[float], Sequence[float]] = (None, (), ()),
    data_dir: Path | None = None,
    threads: int | None = None,
    device: str | None = None,
    **options: Any,
) -> Evaluation:
    """``evaluate`` of a run directory or a state_dict on a data set or folder; ``crop`` is its size, mean and std."""
    target = hardware.find_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    own = checkpoint.is_dir() and is_same_folder(read_run(checkpoint)[0].data, name)
    test, classes = data.load_test(name, data_dir, whole=not own)
    predictor = load_network(checkpoint, model, classes, *crop)
    predictor.model.to(target)
    with hardware.use_threads(threads or torch.get_num_threads()):
        return evaluate(predictor, test, classes, views=views, **options)


def read_data_name(checkpoint: Path) -> str:
    """The data of a run; ValueError for a state_dict, which does not know it."""
    if checkpoint.is_dir():
        return read_run(checkpoint)[0].data
    if not checkpoint.exists():
        raise ValueError(f"evaluate: no such file or directory: {checkpoint}")
    raise ValueError(f"evaluate: wanted the data that {checkpoint} is judged by, since only a run knows its own")


def is_same_folder(one: str, other: str) -> bool:
    """Whether both are the same folder of images, whose training images must not judge a network trained on it."""
    return Path(one).is_dir() and Path(other).is_dir() and Path(one).samefile(other)


def evaluate(
    predictor: Predictor,
    test: data.Split | data.Files,
    classes: tuple[str, ...],
    *,
    views: int = 1,
    workers: int = 0,
    skip_broken: bool = False,
) -> Evaluation:
    """The errors of a network on labelled images; ``classes`` are those of the labels, known to it by name."""
    if views not in data.VIEWS:
        raise ValueError(f"evaluate: --views must be {' or '.join(map(str, data.VIEWS))}, got {views}")
    labels = translate_labels(test.labels, classes, predictor.classes)
    tally, skipped = Tally(predictor.classes), list[str]()
    numbers = torch.arange(len(test))
    for pixels, index in _iter_pixels(predictor, test, numbers, views, workers, skipped if skip_broken else None):
        probabilities = predictor.compute_probabilities(pixels.flatten(0, 1) if views > 1 else pixels)
        if probabilities.shape[1] != len(predictor.classes):
            wanted, actual = len(predictor.classes), probabilities.shape[1]
            raise ValueError(f"evaluate: the network has {actual} classes, the images {wanted}")
        tally.add(probabilities.unflatten(0, (-1, views)).mean(1), labels[index])
    if not tally.images:
        raise ValueError("evaluate: no image decodes")
    return Evaluation(tally, views, skipped)


def _iter_pixels(
    predictor: Predictor,
    test: data.Split | data.Files,
    numbers: Tensor,
    views: int,
    workers: int,
    skipped: list[str] | None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Raw pixels, and the places of their images in ``test``."""
    if isinstance(test, data.Split):
        if views > 1:
            raise ValueError("evaluate: --views 10 is for image files; this data set's images are used as a whole")
        for some in numbers.split(EVAL_BATCH):
            yield test.images[some], some
        return
    if predictor.crop is None:
        height, width = predictor.image[1:]
        raise ValueError(f"evaluate: the network takes images of {height}×{width} as a whole, not a folder's crops")
    places = data.Files(test.paths, numbers)  # the places stand for labels, so that skipped images do no harm
    batches = numbers.split(max(1, CROPS // views))
    yield from data.iter_batches(places, batches, predictor.crop, workers=workers, skipped=skipped, views=views)


def translate_labels(labels: Tensor, classes: Sequence[str], known: Sequence[str]) -> Tensor:
    """Labels that number ``classes`` as the network numbers the same names."""
    places = {name: place for place, name in enumerate(known)}
    if unknown := next((name for name in classes if name not in places), None):
        raise ValueError(f"evaluate: the network does not know the class {unknown}; it knows {len(known)} others")
    return torch.tensor([places[name] for name in classes])[labels]
