"""Calls of the operators below autograd, as short as they can be.

Converting five lists from Python to C++ takes longer than a small pool. So the arguments of a pool that are no tensors
are registered with the compiled library once, and ordinary calls on the CPU pass a handle, to operators of their own:
``learnpool::_pool`` and ``learnpool::_pool_backward``. A handle means nothing in another process, so whatever records
or transforms a call sees ``learnpool::pool`` and its lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from . import cpu
from .transforms import is_watched
from .window import Window

_PLAIN = (Tensor, Parameter)
_MOST_TREES = 64  # of a window, that are kept


class PoolArguments(tuple[Any, ...]):
    """Program and window, in the order of ``learnpool::pool``'s schema; and whether mix is to be clamped to [0, 1]."""

    clamp: bool
    handle: int | None  # None: only the lists will do

    @classmethod
    def of(cls, program: tuple[int, ...], window: Window, clamp: bool) -> PoolArguments:
        """Those of this window; in its later calls the same object."""
        kept = window.pool_arguments
        found = kept.get((program, clamp))
        if found is None:
            found = cls((program, *window.arguments))
            found.clamp, found.handle = clamp, cpu.register(program, window, clamp)
            if len(kept) < _MOST_TREES:
                kept[program, clamp] = found
        return found


def call_below(operator: Any, *inputs: Any) -> Any:
    """The operator without its autograd kernel, which is Python and takes half the time of a small call."""
    with torch._C._AutoDispatchBelowAutograd():
        return operator._op(*inputs)  # as its __call__, which is Python too


def bind_below(operator: Any) -> Callable[..., Any]:
    """``call_below`` of one operator, as ``call(rest, *tensors)``."""
    return lambda rest, *tensors: call_below(operator, *tensors, *rest)


def call_pool(rest: PoolArguments, x: Tensor, weight: Tensor, mix: Tensor) -> Tensor:
    """``learnpool::pool`` below autograd."""
    handle = rest.handle
    if handle is not None and takes_handle(x, weight, mix):
        return cpu.pool_by_handle(x, weight, mix, handle)  # type: ignore[no-any-return]
    mix = mix.clamp(0, 1) if rest.clamp else mix
    return call_below(torch.ops.learnpool.pool, x, weight, mix, *rest)  # type: ignore[no-any-return]


def takes_handle(x: Tensor, weight: Tensor, mix: Tensor) -> bool:
    """Whether the library can be called by handle: with plain tensors on the CPU, and nobody watching."""
    plain = type(x) in _PLAIN and type(weight) in _PLAIN and type(mix) in _PLAIN
    return plain and x.is_cpu and not is_watched()
