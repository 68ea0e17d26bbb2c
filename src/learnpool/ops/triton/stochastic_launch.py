"""``learnpool::stochastic_pool`` and ``learnpool::stochastic_pool_backward`` by Triton.

Backward in training finds the picked taps anew, from x and the seeds, and gathers as a max pool does. In evaluation it
is the reference: nobody trains through the expected cell.
"""

from typing import Any

import torch
from torch import Tensor

from ...tree import Max
from .. import stochastic
from ..operator import check_gradient
from ..window import Window, empty_output
from . import picks, tiles
from .calls import Call, Launch, describe_call, describe_tile, find_strides, is_far
from .launch import plan_gather

PROGRAM = Max().program  # what the picked cell receives is what a maximum receives


def pool(x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::stochastic_pool``."""
    window = Window.from_arguments(*arguments)
    y = empty_output(stochastic.check(stochastic.POOL, x, seed, window), x, window.dims)
    if y.numel():
        with torch.cuda.device_of(x):
            plan_forward(x, seed, y, window).run()
    return y


def plan_forward(x: Tensor, seed: Tensor | None, y: Tensor, window: Window) -> Launch:
    """The launch that writes ``y``."""
    call = describe_call(stochastic.POOL, x, y.shape, PROGRAM, window)
    return plan_picks(call, x, seed, y, "y")


def plan_picks(call: Call, x: Tensor, seed: Tensor | None, out: Tensor, writes: str) -> Launch:
    """The launch that writes the picked or expected cells to ``out``, or the numbers of the picked taps."""
    tile = tiles.choose_forward(call.tiled, call.window)
    arguments = {"seed": x if seed is None else seed, "taps": out, "RANDOM": seed is not None, "WRITES": writes}
    arguments |= call.constants | call.describe_tensors(x=x, y=out) | describe_tile(tile)
    return Launch.make(picks.pick, tiles.count_tiles(call.shape.images, call.shape.outputs, tile), arguments)


def pool_backward(grad: Tensor, x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::stochastic_pool_backward``."""
    if seed is None:
        return stochastic.pool_backward(grad, x, seed, *arguments)
    window = Window.from_arguments(*arguments)
    check_gradient(stochastic.POOL_BACKWARD, grad, x, stochastic.check(stochastic.POOL_BACKWARD, x, seed, window))
    dx = empty_output(x.shape, x, window.dims)
    if not grad.numel():
        return dx.zero_()
    with torch.cuda.device_of(x):
        for launch in plan_backward(grad, x, seed, dx, window):
            launch.run()
    return dx


def plan_backward(grad: Tensor, x: Tensor, seed: Tensor, dx: Tensor, window: Window) -> list[Launch]:
    """Find the picked taps, then gather: both go through memory, so any window will do."""
    call = describe_call(stochastic.POOL_BACKWARD, x, grad.shape, PROGRAM, window)
    like = empty_output(grad.shape, x, window.dims)
    sent = torch.empty((2, grad.numel()), dtype=call.dtype, device=x.device)  # what a maximum sends: gradient and tap
    grads, taps = (row.as_strided(like.shape, like.stride()) for row in sent)
    grads.copy_(grad)
    common = (
        call.constants
        | call.describe_tensors(x=x, dx=dx)
        | {
            "sent": sent,
            "rows": grad.numel(),
            "weight": x,  # of which nothing is read
            "sent_stride": call.pass_numbers(find_strides(like, window.dims)),
            "weight_stride": call.pass_numbers((0,) * 5),
            "WIDE": is_far(x, sent, dx),
        }
    )
    return [plan_picks(call, x, seed, taps, "taps"), plan_gather(call, common)]
