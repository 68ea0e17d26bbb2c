"""``predict``: image files, PIL images, arrays or tensors in, class names and probabilities out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...formatting import format_percent, format_table
from ...ops.transforms import is_wrapped
from .. import data
from .batches import EVAL_BATCH
from .pixels import read_images
from .run import Run

RUNNERS_UP = 2  # classes printed beside the most probable one
LOOKS = 10  # inputs that are looked at for raw pixels
RAW = 16  # a prepared image without negative values has none above this


@dataclass(frozen=True)
class Prediction:
    """The probability of every class for one image, the most probable first."""

    probabilities: dict[str, float]

    @property
    def label(self) -> str:
        """The most probable class."""
        return next(iter(self.probabilities))

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    def __str__(self) -> str:
        return format_table([self.cells()], right=(1,))

    def cells(self) -> list[str]:
        """A line of a table: the class, its probability, and the next ones."""
        others = list(self.probabilities.items())[1 : 1 + RUNNERS_UP]
        return [
            self.label,
            format_percent(self.probability, 1),
            ", ".join(f"{name} {format_percent(probability, 1)}" for name, probability in others),
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Sequence[Prediction]):
    """The predictions for several images; ``probabilities`` [N, classes] are in the order of ``classes``."""

    classes: tuple[str, ...]
    probabilities: Tensor

    @property
    def labels(self) -> list[str]:
        """The most probable class of every image."""
        return [self.classes[index] for index in self.probabilities.argmax(1)]

    def __len__(self) -> int:
        return len(self.probabilities)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Predictions(self.classes, self.probabilities[index])
        values, order = self.probabilities[index].sort(descending=True, stable=True)
        return Prediction({self.classes[k]: value for k, value in zip(order, values.tolist(), strict=True)})

    def __iter__(self) -> Iterator[Prediction]:
        return (self[index] for index in range(len(self)))

    def __str__(self) -> str:
        return format_table([one.cells() for one in self], right=(1,)) if len(self) else "no images"

    __repr__ = __str__


class Predictor:
    """``predict(images)`` of a trained network.

    Takes an image or many: paths, PIL images, arrays and tensors of 8 bits or of floats from 0 to 1, with channels
    first or last.
    """

    def __init__(
        self,
        model: nn.Module,
        run: Run,
        image: tuple[int, ...],
        classes: tuple[str, ...],
        preparation: data.Preparation,
    ) -> None:
        self.model, self.run, self.image, self.classes, self.preparation = model, run, image, classes, preparation

    def __call__(self, images: Any) -> Prediction | Predictions:
        """Class names and probabilities: a ``Prediction`` of one image, ``Predictions`` of many.

        Probabilities are the softmax of the network's votes; after training with the hinge loss they order the classes,
        and are no more than that.
        """
        pixels, single = read_images(images, self.image, self.crop)
        parts = [self.compute_probabilities(some) for some in pixels.split(EVAL_BATCH)]
        predictions = Predictions(self.classes, torch.cat(parts))
        return predictions[0] if single else predictions

    @property
    def crop(self) -> data.Crop | None:
        """How images are cropped; None if they are scaled as a whole."""
        return self.run.crop if data.is_streamed(self.run.data) else None

    def prepare(self, images: Any) -> Tensor:
        """``[N, channels, height, width]``, as the run prepared its own images: what the network itself takes."""
        pixels, _ = read_images(images, self.image, self.crop)
        return self._prepare(pixels)

    def _prepare(self, pixels: Tensor) -> Tensor:
        try:
            return self.preparation(pixels)
        except (TypeError, RuntimeError):
            kind = self.preparation.kind
            raise ValueError(f"predict: the run does not have what its preparation {kind} was fitted to") from None

    def compute_probabilities(self, pixels: Tensor) -> Tensor:
        """``[N, classes]`` for uint8 pixels of the network's size, in layout and precision of the run's evaluation."""
        parameter = next(self.model.parameters())
        prepared = self._prepare(pixels).to(parameter.device, memory_format=self.run.memory_format)
        bfloat16 = self.run.precision == "bfloat16"
        training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode(), torch.autocast(parameter.device.type, torch.bfloat16, bfloat16):
                votes: Tensor = self.model(prepared)
        finally:
            self.model.train(training)
        return votes.float().softmax(1).cpu()


class RawInputWarning:
    """A forward pre-hook: warns once if the input looks like raw pixels. Only the first inputs are looked at."""

    def __init__(self) -> None:
        self.looks = LOOKS

    def __call__(self, model: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0] if inputs else None
        if not self.looks or model.training or torch.compiler.is_compiling() or type(x) is not Tensor:
            return
        if x.is_meta or not x.numel() or is_wrapped(x):
            return
        self.looks -= 1
        if x.dtype == torch.uint8 or (x.is_floating_point() and float(x.min()) >= 0 and float(x.max()) > RAW):
            self.looks = 0
            warnings.warn(
                "this network was trained on prepared images and its input looks like raw pixels from 0 to 255; "
                "use model.predict(images), or model(model.prepare(images))",
                stacklevel=2,
            )
