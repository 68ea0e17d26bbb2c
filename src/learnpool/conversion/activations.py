"""The activation behind a strided convolution, where ``after="activation"`` puts its pool.

A convolution followed by a linear filter is only a larger convolution; behind the norm and the activation a filter is
more than that. The example shows the way: the convolution's output goes to at most one norm, and that to one
activation, and nowhere else.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import get_overridable_functions

_NAMES = (
    "relu", "relu6", "silu", "gelu", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu", "selu", "celu",
    "mish", "prelu", "softplus", "sigmoid", "tanh",
)  # fmt: skip
_HOMES = (F, torch, Tensor)
ACTIVATIONS: set[Any] = {
    getattr(home, name) for word in _NAMES for name in (word, f"{word}_") for home in _HOMES if hasattr(home, name)
}
_NORMS = {F.batch_norm: True, F.instance_norm: False, F.group_norm: False}  # whether cells are alike to it in eval()
_SAME = {F.dropout, F.dropout2d, torch.dropout}  # in eval()


Place = tuple[nn.Module, str]  # an owner, and the location in its forward; "" if that computes nothing else


@functools.cache
def _list_intercepted() -> frozenset[Any]:
    return frozenset(itertools.chain.from_iterable(get_overridable_functions().values()))


def is_intercepted(function: Any) -> bool:
    """Whether a call can be routed under torch.compile too: Dynamo hides F.hardswish and torch.relu_ from modes."""
    return function in _list_intercepted()


@dataclass(eq=False)
class Activation:
    """Where a convolution's activation is computed."""

    owner: nn.Module
    location: str
    is_exact: bool  # whether all on the way treats every cell alike, so that a stride may as well come behind it
    function: str  # its name


@dataclass(eq=False)
class _Chain:
    """What became of a convolution's output so far."""

    call: Any
    is_exact: bool = True
    places: tuple[Place, ...] = ()  # where its activation may be routed
    function: str = ""  # its activation's name
    is_broken: bool = False  # something else reads it too


class ActivationFinder:
    """Follows outputs of convolutions through an example, function by function."""

    def __init__(self, locate: Callable[[Any], tuple[Place, ...]]) -> None:
        self.locate = locate  # the present call of a function: as a layer's, and by the line that makes it
        self.ends: list[tuple[Tensor, _Chain]] = []  # tensors that are the end of a chain,
        self.passed: list[tuple[Tensor, _Chain]] = []  # and those in the middle of one
        self.chains: list[_Chain] = []
        self.uses: Counter[tuple[int, str]] = Counter()

    def begin(self, call: Any, out: Tensor) -> None:
        chain = _Chain(call)
        self.chains.append(chain)
        self.ends.append((out, chain))

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """One function of the example, after it has run."""
        places = self.locate(func) if func in ACTIVATIONS else ()
        self.uses.update((id(owner), location) for owner, location in places)
        if not isinstance(out, Tensor):
            return  # a size, a flag
        read = [*args, *kwargs.values()]
        read += [part for value in read if isinstance(value, (tuple, list)) for part in value]
        for _, chain in [pair for pair in self.passed if any(pair[0] is value for value in read)]:
            chain.is_broken = True
        for pair in [pair for pair in self.ends if any(pair[0] is value for value in read)]:
            x, chain = pair
            self.ends = [other for other in self.ends if other is not pair]
            if out is not x:
                self.passed.append(pair)
            if func in _SAME or func in _NORMS:
                chain.is_exact = chain.is_exact and _NORMS.get(func, True)
                self.ends.append((out, chain))
            elif places:
                chain.places, chain.function = places, func.__name__.strip("_")
            else:
                chain.is_broken = True

    def finish(self) -> None:
        """Give every call its activation, at a place that nothing else in the example passes."""
        for chain in self.chains:
            alone = [(owner, at) for owner, at in chain.places if self.uses[id(owner), at] == 1]
            if alone and not chain.is_broken:
                chain.call.activation = Activation(*alone[0], chain.is_exact, chain.function)
