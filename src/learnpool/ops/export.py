"""For tools that do not know the operators: what they decompose into, and how many multiplications they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ..tree import decode
from . import stochastic
from .autograd import plain, plain_backward


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Every operator of learnpool in terms of PyTorch's, for ``ExportedProgram.run_decompositions`` and ``make_fx``.

    The gradients, and stochastic pooling in training, are the reference's loops, which write in place: ``make_fx``
    takes them, an ExportedProgram does not.

    >>> program = torch.export.export(GatedPool2d(3, 2), (torch.randn(1, 3, 9, 9),))
    >>> plain = program.run_decompositions(decompositions())
    >>> any("learnpool" in str(node.target) for node in plain.graph.nodes)
    False
    """
    operators = torch.ops.learnpool
    return {
        operators.pool.default: plain,
        operators.pool_backward.default: plain_backward,
        operators.stochastic_pool.default: _stochastic,
        operators.stochastic_pool_backward.default: _stochastic_backward,
    }


def _stochastic(x: Tensor, sample: Tensor | None, *numbers: Any) -> Tensor:
    window = stochastic.window_of(numbers)
    return stochastic.expected(x, window) if sample is None else stochastic.forward(x, sample, window)


def _stochastic_backward(grad: Tensor, x: Tensor, sample: Tensor | None, *numbers: Any) -> Tensor:
    return stochastic.backward(grad, x, sample, stochastic.window_of(numbers))


# Like PyTorch's own formulas, these count multiplications of inner products, two operations each, and nothing else.
@register_flop_formula(torch.ops.learnpool.pool)
def _flops(x: Any, weight: Any, mix: Any, program: Any, *numbers: Any, out_shape: Any = None, **_: Any) -> Any:
    return 2 * decode(tuple(program)).weights * math.prod(out_shape) * math.prod(numbers[0])


@register_flop_formula(torch.ops.learnpool.pool_backward)
def _flops_backward(
    grad: Any, x: Any, weight: Any, mix: Any, program: Any, *rest: Any, out_shape: Any = None, **_: Any
) -> Any:
    """The responses again, and as much for each gradient an inner product has a part in."""
    kernel, mask = rest[0], rest[-1]
    return 2 * decode(tuple(program)).weights * math.prod(grad) * math.prod(kernel) * (1 + sum(mask[:2]))
