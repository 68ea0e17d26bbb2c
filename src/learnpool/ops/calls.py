"""Calls of the operators below autograd, as short as they can be.

Converting five lists from Python to C++ takes longer than a small pool. So the compiled library learns the arguments of
a pool that are no tensors once, and ordinary calls on the CPU pass their number, to operators of their own:
``learnpool::_pool`` and ``learnpool::_pool_backward``. Numbers mean nothing in another process, so whatever records or
transforms a call sees ``learnpool::pool`` and its lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from . import cpu
from .window import Window

_PLAIN = (Tensor, Parameter)
if cpu.CPU.live:
    pool_by_number, pool_backward_by_number = torch.ops.learnpool._pool._op, torch.ops.learnpool._pool_backward._op


class PoolArguments(tuple[Any, ...]):
    """Program and window, in the order of ``learnpool::pool``'s schema; and whether mix is to be clamped to [0, 1]."""

    clamp: bool
    number: int | None  # None: the library knows of none

    @classmethod
    def of(cls, program: tuple[int, ...], window: Window, clamp: bool) -> PoolArguments:
        """The same object for the same arguments."""
        found = window.known.get((program, clamp))
        if found is None:
            found = cls((program, *window.arguments))
            found.clamp, found.number = clamp, cpu.number_arguments(program, window, clamp)
            window.known[program, clamp] = found
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
    number = rest.number
    if number is not None and is_plain(x, weight, mix):
        return pool_by_number(x, weight, mix, number)  # type: ignore[no-any-return]
    mix = mix.clamp(0, 1) if rest.clamp else mix
    return call_below(torch.ops.learnpool.pool, x, weight, mix, *rest)  # type: ignore[no-any-return]


def is_plain(x: Tensor, weight: Tensor, mix: Tensor) -> bool:
    """Whether the library can be called by number: plain tensors on the CPU, and no mode or transform between."""
    return (
        x.is_cpu
        and type(x) in _PLAIN
        and type(weight) in _PLAIN
        and type(mix) in _PLAIN
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
    )
