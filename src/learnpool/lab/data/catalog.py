"""Every official data set, one line each."""

from __future__ import annotations

from .cifar import CIFAR10, CIFAR100
from .mnist import FASHION_MNIST, MNIST
from .source import Source
from .svhn import SVHN

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        MNIST,
        FASHION_MNIST,
        CIFAR10,
        CIFAR100,
        SVHN,
    )
}
NAMES = ("digits", *SOURCES)  # digits come with scikit-learn and have no files
