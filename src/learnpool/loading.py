"""``learnpool.load``: the library's one way into the lab, imported when it is called and not before."""

from __future__ import annotations

import os
from collections.abc import Callable

from torch import nn

from .formatting import format_pip_install


def load(run: str | os.PathLike[str], model: str | nn.Module | Callable[..., nn.Module] | None = None) -> nn.Module:
    """The trained network of a run directory, ready to predict; needs the extra ``lab``.

    ``model.predict(images)`` takes images as you have them (files, PIL images, arrays, tensors; one or many) and gives
    class names and probabilities; ``model.prepare(images)`` is what the network itself is called with, and
    ``model.classes`` are the names.

    ``model=`` is for a run of your own network: the function that makes it, or its name ``"package.module:function"``.

    >>> model = learnpool.load("runs/cifar10-gated-0-3fa94c01b2")
    >>> print(model.predict("cat.png"))
    """
    try:
        from .lab.runs.trained import load
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("learnpool"):
            raise
        raise ModuleNotFoundError(f"load needs the extra lab: {format_pip_install('lab')}", name=error.name) from None

    return load(run, model)
