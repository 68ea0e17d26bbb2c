"""The operator ``learnpool::pool``: geometry, equations, kernels, and everything PyTorch has to know about it."""

import torch

OLDEST = (2, 10)  # the oldest torch that ``make test-torch`` was run with


def check_torch(version: str) -> None:
    """ImportError for a torch that is too old."""
    if tuple(int(number) for number in version.split(".")[:2]) < OLDEST:
        raise ImportError(f"learnpool needs torch {'.'.join(map(str, OLDEST))} or later, got torch {version}")


check_torch(torch.__version__)

from . import registration  # noqa: E402, F401  (importing it registers the operators)
