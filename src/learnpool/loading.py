"""``learnpool.load``: the one door from the library to the lab, opened when it is called and not before."""

from __future__ import annotations

import os

from torch import nn


def load(run: str | os.PathLike[str]) -> nn.Module:
    """The trained model of a run directory, ready to predict; needs ``pip install "learnpool[lab]"``.

    >>> model = learnpool.load("runs/cifar10-gated-0-3fa94c01b2")
    """
    from .lab.runs.networks import load

    return load(run)
