"""For ``learnpool doctor``: what only a GPU can show about its kernels. A check returns what went wrong, or ""."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .. import GatedPool2d
from ..ops import reference, triton
from ..ops.transforms import delay_stream


def _make_case(device: torch.device) -> tuple[GatedPool2d, Tensor, Tensor]:
    layer = GatedPool2d(3, 2, 1).to(device)
    x = torch.randn(4, 16, 33, 35, device=device)
    return layer, x, _compute_expected(layer, x)


def _compute_expected(layer: GatedPool2d, x: Tensor) -> Tensor:
    assert layer.weight is not None
    none = x.new_empty((0, 1, 1, 1))
    return reference.forward(x, layer.weight.detach(), none, layer.tree.program, layer.window)


def _describe_difference(y: Tensor, expected: Tensor) -> str:
    return "" if torch.allclose(y, expected, rtol=1e-4, atol=1e-4) else "differs from the reference"


def check_stream(device: torch.device) -> str:
    """Kernels run on the current stream: behind slow work queued there, not before it."""
    layer, x, expected = _make_case(device)
    triton.warm_up(layer, x)
    late = torch.zeros_like(x)
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.no_grad(), torch.cuda.stream(stream):
        delay_stream(100_000_000)
        late.copy_(x)
        y = layer(late)
    stream.synchronize()
    return _describe_difference(y, expected)


def check_graph(device: torch.device) -> str:
    """A training step can be captured after ``warm_up``, and replays on new data."""
    layer, x, _ = _make_case(device)
    triton.warm_up(layer, x)
    static = x.clone().requires_grad_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(static)
        grads = torch.autograd.grad(y, [static, *layer.parameters()], torch.ones_like(y))
    with torch.no_grad():
        static.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize(device)
    fresh = static.detach().clone().requires_grad_()
    z = layer(fresh)
    wanted = torch.autograd.grad(z, [fresh, *layer.parameters()], torch.ones_like(z))
    return _describe_difference(y, _compute_expected(layer, fresh)) or "".join(map(_describe_difference, grads, wanted))


def check_second_device(device: torch.device) -> str:
    """Tensors of a device that is not the current one."""
    if torch.cuda.device_count() < 2:
        return "not checked: one device"
    other = torch.device("cuda", (torch.cuda.current_device() + 1) % torch.cuda.device_count())
    layer, x, expected = _make_case(other)
    with torch.no_grad():
        return _describe_difference(layer(x), expected)


def check_misaligned(device: torch.device) -> str:
    """Storage offsets that are no multiple of 16 bytes."""
    layer, x, expected = _make_case(device)
    flat = torch.empty(x.numel() + 1, device=device)
    moved = flat[1:].view_as(x).copy_(x)
    with torch.no_grad():
        return _describe_difference(layer(x), expected) or _describe_difference(layer(moved), expected)


def check_large_offsets(device: torch.device) -> str:
    """An input of more than 2³¹ cells."""
    cells = 2**31 + 2**20
    if torch.cuda.mem_get_info(device)[0] < 8 * cells:
        return "not checked: needs 16 GiB of free memory"
    layer = GatedPool2d(3, 2, 1).to(device)
    x = torch.zeros(cells // 4096, 1, 64, 64, device=device, dtype=torch.float16)
    x[-1] = torch.randn(1, 64, 64, device=device)
    with torch.no_grad():
        return _describe_difference(layer(x)[-1:].float(), _compute_expected(layer, x[-1:]).float())


def check_determinism(device: torch.device) -> str:
    """The same bits every time."""
    layer, x, _ = _make_case(device)
    x.requires_grad_()
    inputs = [x, *layer.parameters()]
    first, second = (torch.autograd.grad(layer(x).sin().sum(), inputs) for _ in range(2))
    return "" if all(map(torch.equal, first, second)) else "bits differ from call to call"


CHECKS: dict[str, Callable[[torch.device], str]] = {
    "current stream": check_stream,
    "CUDA graph": check_graph,
    "second device": check_second_device,
    "misaligned storage": check_misaligned,
    "more than 2³¹ cells": check_large_offsets,
    "same bits": check_determinism,
}
