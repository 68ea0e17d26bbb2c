"""``torch.vmap`` of the operators: the new axis becomes images where parameters are shared, else channels.

Channels are independent of each other and may have parameters of their own, so a batch of parameters, or a gradient of
parameters for every member of a batch, is one call with more channels. Merging it into the images instead would sum
gradients that belong to different members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .rows import get_accumulation_dtype

Axes = Sequence[Any]  # the batch axis of each argument, or None
Call = Callable[..., Any]  # the operator on tensors alone


def pool_rule(info: Any, axes: Axes, x: Tensor, weight: Tensor, mix: Tensor, *rest: Any) -> Any:
    """``torch.library.register_vmap`` of ``learnpool::pool``."""

    def call(*tensors: Tensor) -> Any:
        return torch.ops.learnpool.pool(*tensors, *rest)

    return batch_pool(call, info.batch_size, len(rest[1]), axes, x, weight, mix)


def pool_backward_rule(info: Any, axes: Axes, grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, *rest: Any) -> Any:
    """``torch.library.register_vmap`` of ``learnpool::pool_backward``."""

    def call(*tensors: Tensor) -> Any:
        return torch.ops.learnpool.pool_backward(*tensors, *rest)

    return batch_pool_backward(call, info.batch_size, len(rest[1]), rest[-1], axes, grad, x, weight, mix)


def batch_pool(
    call: Call, size: int, dims: int, axes: Axes, x: Tensor, weight: Tensor, mix: Tensor
) -> tuple[Tensor, int]:
    """``size`` pools by one ``call(x, weight, mix)``; the output and its batch axis."""
    members = move_batch_first(x, axes[0], size)
    if axes[1] is None and axes[2] is None:
        return split_images(call(merge_images(members, dims), weight, mix), members, dims), 0
    channels = members.shape[-dims - 1]
    masks, mixes = _repeat(weight, axes[1], size, channels), _repeat(mix, axes[2], size, channels)
    return _split_channels(call(_merge_channels(members, dims), masks, mixes), size, dims)


def batch_pool_backward(
    call: Call,
    size: int,
    dims: int,
    output_mask: Sequence[bool],
    axes: Axes,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    mix: Tensor,
) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
    """``size`` backward passes by one ``call(grad, x, weight, mix)``; the gradients and their batch axes."""
    grads, members = move_batch_first(grad, axes[0], size), move_batch_first(x, axes[1], size)
    if axes[2] is None and axes[3] is None and not output_mask[1] and not output_mask[2]:
        dx, dw, dm = call(merge_images(grads, dims), merge_images(members, dims), weight, mix)
        return (split_images(dx, members, dims), dw, dm), (0, None, None)
    channels, dtype = members.shape[-dims - 1], get_accumulation_dtype(x.dtype)
    masks = _repeat(weight.to(dtype), axes[2], size, channels)
    mixes = _repeat(mix.to(dtype), axes[3], size, channels)
    dx, dw, dm = call(_merge_channels(grads, dims), _merge_channels(members, dims), masks, mixes)
    results = (
        _split_channels(dx, size, dims) if output_mask[0] else (dx, None),
        _reduce(dw, weight, axes[2], size) if output_mask[1] else (dw, None),
        _reduce(dm, mix, axes[3], size) if output_mask[2] else (dm, None),
    )
    return tuple(value for value, _ in results), tuple(axis for _, axis in results)


def move_batch_first(t: Tensor, axis: int | None, size: int) -> Tensor:
    """``[B, ...]``; a tensor without a batch axis is expanded to one."""
    return t.expand(size, *t.shape) if axis is None else t.movedim(axis, 0)


def merge_images(t: Tensor, dims: int) -> Tensor:
    """``[B, N, C, *size]`` or ``[B, C, *size]`` as images."""
    return t.flatten(0, 1) if t.dim() == dims + 3 else t


def split_images(t: Tensor, like: Tensor, dims: int) -> Tensor:
    """Images as ``[B, N, ...]`` again, if ``like`` had an N."""
    return t.unflatten(0, like.shape[:2]) if like.dim() == dims + 3 else t


def _merge_channels(t: Tensor, dims: int) -> Tensor:
    """``[B, N, C, *size]`` (or without N) -> ``[N, B C, *size]``."""
    return t.movedim(0, -dims - 2).flatten(-dims - 2, -dims - 1)


def _split_channels(t: Tensor, size: int, dims: int) -> tuple[Tensor, int]:
    split = t.unflatten(-dims - 1, (size, t.shape[-dims - 1] // size))
    return split, split.dim() - dims - 2


def _repeat(p: Tensor, axis: int | None, size: int, channels: int) -> Tensor:
    """A parameter ``[rows, C|1, ...]`` for every channel of every member, ``[rows, B C, ...]``."""
    members = move_batch_first(p, axis, size).movedim(0, 1)  # [rows, B, C|1, ...]
    return members.expand(-1, -1, channels, *members.shape[3:]).flatten(1, 2)


def _reduce(grad: Tensor, p: Tensor, axis: int | None, size: int) -> tuple[Tensor, int]:
    """Undo ``_repeat``: a member's channels are summed where they shared the parameter."""
    channels = p.shape[1] if axis is None else p.movedim(axis, 0).shape[2]
    members = grad.unflatten(1, (size, grad.shape[1] // size))
    return (members.sum(2, keepdim=True) if channels == 1 else members).to(p.dtype), 1
