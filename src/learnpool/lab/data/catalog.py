"""Every official data set, one line each."""

from __future__ import annotations

from .cifar import CIFAR10, CIFAR100
from .imagenet import FOLDERS
from .mnist import FASHION_MNIST, MNIST
from .source import Source
from .svhn import SVHN

SOURCES: dict[str, Source] = {source.name: source for source in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100, SVHN)}
IN_MEMORY = ("digits", *SOURCES)  # digits come with scikit-learn and have no files
NAMES = (*IN_MEMORY, *FOLDERS)


def is_streamed(name: str) -> bool:
    """Whether a data set is image files, decoded and cropped when a batch needs them: ImageNet, or any folder."""
    return name not in IN_MEMORY
