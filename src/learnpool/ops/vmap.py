"""``torch.vmap`` of the operators: the new axis becomes images where parameters are shared, else channels.

Channels are independent of each other and may have parameters of their own, so a batch of parameters, or a gradient of
parameters for every member of a batch, is one call with more channels. Folding it into the images instead would add up
what has to stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .operator import LIBRARY
from .reference import accumulation_dtype

At = Sequence[Any]  # the batch axis of each argument, or None
Call = Callable[..., Any]  # the operator on tensors alone


def pool(call: Call, size: int, dims: int, at: At, x: Tensor, weight: Tensor, mix: Tensor) -> tuple[Tensor, int]:
    """``size`` pools by one ``call(x, weight, mix)``; the output and its batch axis."""
    one = lead(x, at[0], size)
    if at[1] is None and at[2] is None:
        return apart(call(images(one, dims), weight, mix), one, dims), 0
    channels = one.shape[-dims - 1]
    masks, mixes = _spread(weight, at[1], size, channels), _spread(mix, at[2], size, channels)
    return _from_channels(call(_channels(one, dims), masks, mixes), size, dims)


def backward(
    call: Call, size: int, dims: int, mask: Sequence[bool], at: At, grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor
) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
    """``size`` backward passes by one ``call(grad, x, weight, mix)``; the gradients and their batch axes."""
    delta, one = lead(grad, at[0], size), lead(x, at[1], size)
    if at[2] is None and at[3] is None and not mask[1] and not mask[2]:
        dx, dw, dm = call(images(delta, dims), images(one, dims), weight, mix)
        return (apart(dx, one, dims), dw, dm), (0, None, None)
    channels, kind = one.shape[-dims - 1], accumulation_dtype(x.dtype)
    masks, mixes = (_spread(p.to(kind), b, size, channels) for p, b in ((weight, at[2]), (mix, at[3])))
    dx, dw, dm = call(_channels(delta, dims), _channels(one, dims), masks, mixes)
    gradients = (
        _from_channels(dx, size, dims) if mask[0] else (dx, None),
        _collect(dw, weight, at[2], size) if mask[1] else (dw, None),
        _collect(dm, mix, at[3], size) if mask[2] else (dm, None),
    )
    return tuple(g for g, _ in gradients), tuple(b for _, b in gradients)


def lead(t: Tensor, at: int | None, size: int) -> Tensor:
    """The batch axis first, made where there is none."""
    return t.expand(size, *t.shape) if at is None else t.movedim(at, 0)


def images(t: Tensor, dims: int) -> Tensor:
    """``[B, N, C, *size]`` or ``[B, C, *size]`` as images."""
    return t.flatten(0, 1) if t.dim() == dims + 3 else t


def apart(t: Tensor, like: Tensor, dims: int) -> Tensor:
    """Images as ``[B, N, ...]`` again, if ``like`` had an N."""
    return t.unflatten(0, like.shape[:2]) if like.dim() == dims + 3 else t


def _channels(t: Tensor, dims: int) -> Tensor:
    """``[B, N, C, *size]`` (or without N) -> ``[N, B C, *size]``."""
    return t.movedim(0, -dims - 2).flatten(-dims - 2, -dims - 1)


def _from_channels(t: Tensor, size: int, dims: int) -> tuple[Tensor, int]:
    split = t.unflatten(-dims - 1, (size, t.shape[-dims - 1] // size))
    return split, split.dim() - dims - 2


def _spread(p: Tensor, at: int | None, size: int, channels: int) -> Tensor:
    """A parameter ``[rows, C|1, ...]`` for every channel of every member, ``[rows, B C, ...]``."""
    each = lead(p, at, size).movedim(0, 1)  # [rows, B, C|1, ...]
    return each.expand(-1, -1, channels, *each.shape[3:]).flatten(1, 2)


def _collect(gradient: Tensor, p: Tensor, at: int | None, size: int) -> tuple[Tensor, int]:
    """Undo ``_spread``: a member's channels are added up where they shared the parameter."""
    own = p.shape[1] if at is None else p.movedim(at, 0).shape[2]
    each = gradient.unflatten(1, (size, gradient.shape[1] // size))
    return (each.sum(2, keepdim=True) if own == 1 else each).to(p.dtype), 1


def _pool(info: Any, at: At, x: Tensor, weight: Tensor, mix: Tensor, *rest: Any) -> Any:
    def call(*tensors: Tensor) -> Any:
        return torch.ops.learnpool.pool(*tensors, *rest)

    return pool(call, info.batch_size, len(rest[1]), at, x, weight, mix)


def _pool_backward(info: Any, at: At, grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, *rest: Any) -> Any:
    def call(*tensors: Tensor) -> Any:
        return torch.ops.learnpool.pool_backward(*tensors, *rest)

    return backward(call, info.batch_size, len(rest[1]), rest[-1], at, grad, x, weight, mix)


for _name, _rule in (("pool", _pool), ("pool_backward", _pool_backward)):
    torch.library.register_vmap(f"learnpool::{_name}", _rule, lib=LIBRARY)
