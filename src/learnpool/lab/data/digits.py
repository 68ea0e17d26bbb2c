"""The digits of scikit-learn: a data set without files."""

from __future__ import annotations

import torch

from .source import DIGIT_CLASSES
from .split import Dataset, Split


def read_digits() -> Dataset:
    """1,797 digits of 8×8 pixels, 17 grey levels stretched to 255; 3 of 10 are for the test."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = torch.from_numpy(data.images * 255 / 16).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(data.target).long()
    train, test = train_test_split(range(len(labels)), test_size=0.3, stratify=data.target, random_state=0)
    both = Split(images, labels)
    return Dataset("digits", both.take(torch.tensor(train)), both.take(torch.tensor(test)), DIGIT_CLASSES)
