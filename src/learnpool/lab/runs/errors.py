"""Errors of classifiers: the label is not the first answer, or not among the first five."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...formatting import format_count, format_number

TOP = 5
MIN_STANDARD_ERRORS = 3  # an error has to be below chance by so many to be called better than guessing


class Errors(NamedTuple):
    """Percent of images; ``top5`` is None where there are no more than five classes."""

    top1: float
    top5: float | None


def count_errors(votes: Tensor, labels: Tensor) -> tuple[int, int]:
    """How many labels do not have the highest vote, and how many are not among the five highest."""
    wrong = int((votes.argmax(1) != labels).sum())
    return wrong, int(find_missed(votes, labels).sum())


def find_missed(votes: Tensor, labels: Tensor) -> Tensor:
    """Whether each label is not among the five highest votes; false where there are no more classes than that."""
    if votes.shape[1] <= TOP:
        return torch.zeros_like(labels, dtype=torch.bool)
    return (votes.topk(TOP).indices != labels[:, None]).all(1)


def make_errors(wrong: float, wrong5: float, seen: float, classes: int) -> Errors:
    """Counts as percent."""
    return Errors(100 * wrong / seen, 100 * wrong5 / seen if classes > TOP else None)


def is_chance(error: float, chance: float, test_images: int) -> bool:
    """Whether an error is not clearly below chance, both in %: within three standard errors of the test set."""
    return error > chance - MIN_STANDARD_ERRORS * math.sqrt(chance * (100 - chance) / test_images)


def describe_chance(error: float, chance: float, test_images: int) -> str:
    """What is said of a network whose error ``is_chance``."""
    few = f", which {format_count(test_images, 'test image')} cannot tell apart" if error < chance else ""
    guessing = f"guessing has {format_number(chance)} %{few}"
    return f"the network has {format_number(error)} % test error, and {guessing}. Train longer, or at another rate."


@dataclass(frozen=True)
class ClassErrors:
    """One class: its images, its errors, and what it was taken for most often where it was not recognised."""

    name: str
    images: int
    errors: Errors
    mistaken_for: str | None
    times: int


class Tally:
    """Right and wrong answers of each class, added up batch by batch."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes = classes
        self.confusion = torch.zeros(len(classes), len(classes), dtype=torch.int64)  # [label, answer]
        self.wrong5 = torch.zeros(len(classes), dtype=torch.int64)

    def add(self, probabilities: Tensor, labels: Tensor) -> None:
        """Count the answers to some images."""
        count = len(self.classes)
        places = labels * count + probabilities.argmax(1)
        self.confusion += places.bincount(minlength=count * count).view(count, count)
        self.wrong5 += labels[find_missed(probabilities, labels)].bincount(minlength=count)

    @property
    def images(self) -> int:
        return int(self.confusion.sum())

    @property
    def errors(self) -> Errors:
        """Of all images."""
        right = int(self.confusion.diagonal().sum())
        return make_errors(self.images - right, int(self.wrong5.sum()), self.images, len(self.classes))

    def list_classes(self) -> list[ClassErrors]:
        """The classes that have images, the worst first."""
        rows = []
        for label, name in enumerate(self.classes):
            answers = self.confusion[label].clone()
            seen, right = int(answers.sum()), int(answers[label])
            if not seen:
                continue
            answers[label] = 0
            times = int(answers.max())
            other = self.classes[int(answers.argmax())] if times else None
            errors = make_errors(seen - right, int(self.wrong5[label]), seen, len(self.classes))
            rows.append(ClassErrors(name, seen, errors, other, times))
        return sorted(rows, key=lambda row: -row.errors.top1)
