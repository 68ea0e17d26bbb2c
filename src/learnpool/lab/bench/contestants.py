"""What is timed on one shape: PyTorch's pools, ours, the same written by hand, and plain copies of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ... import functional, make_pool
from ...ops import reference
from ...ops.window import Window, format_size
from ...parameters import TreeParameters
from .by_hand import BY_HAND, FORMULAS, write_by_hand
from .options import DTYPES, PoolBenchmark

MODES = BOTH, FORWARD = ("forward + backward", "forward")
COPIES = ("copy", "clone")
COMPILED = f"gated{BY_HAND}, compiled"
REFERENCE = ", reference"  # behind a pool's name
FLOAT32 = ", float32"  # behind a pool's name: what it takes in float32, where another dtype is measured

Call = Callable[[], object]


class ReferenceFunction(torch.autograd.Function):
    """The reference in plain tensor operations, tap by tap: what a device without a kernel runs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], window: Window) -> Tensor:
        ctx.save_for_backward(x, weight, mix)
        ctx.how = program, window
        return reference.forward(x, weight, mix, program, window)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x, weight, mix), (program, window) = ctx.saved_tensors, ctx.how
        return *reference.backward(grad, x, weight, mix, program, window, ctx.needs_input_grad[:3]), None, None


class ReferenceLayer(nn.Module):
    """A learned layer's function without its kernel."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        layer, window = self.layer, self.layer.window
        weight, mix = layer.weight, layer.proportions()
        if weight is None:
            weight = functional.make_empty_parameter(x, layer.dims, window.kernel)
        if mix is None:
            mix = functional.make_empty_parameter(x, layer.dims, ())
        apply: Any = ReferenceFunction.apply
        y: Tensor = apply(x, weight, mix, layer.tree.fit(window.kernel), window)
        return y


@dataclass(frozen=True)
class Contestant:
    """A call for each mode; ``kept``: bytes saved for backward beside x and parameters, as a multiple of x's bytes."""

    name: str
    calls: dict[str, Call]
    kept: float | None = None


def build_contestants(benchmark: PoolBenchmark, shape: tuple[int, ...]) -> list[Contestant]:
    """Everything that takes turns on one shape; each has been called once, so that no timing includes setup."""
    window, dtype, dims = benchmark.make_window(shape), DTYPES[benchmark.dtype], len(shape) - 2
    kernel, stride, padding, dilation = benchmark.window
    x = make_input(benchmark, shape)
    options: Any = {"dims": dims, "dilation": dilation, "ceil_mode": benchmark.ceil_mode, "dtype": dtype}
    options |= {"channels": shape[1], "grid": window.output_size(shape[2:])}
    torch_pools = ("max", "avg") if dilation == 1 else ("max",)  # PyTorch's average has no dilation
    layers: dict[str, nn.Module] = {
        name: make_pool(name, kernel, stride, padding, **options)
        for name in dict.fromkeys((*torch_pools, *benchmark.pools))
    }
    if benchmark.reference:
        ours = [(name, layer) for name, layer in layers.items() if isinstance(layer, TreeParameters)]
        layers |= {name + REFERENCE: ReferenceLayer(layer) for name, layer in ours}
    if dilation == 1:
        for name in dict.fromkeys(("gated", *benchmark.pools)):
            if name == "gated" or (name in FORMULAS and not benchmark.ceil_mode):
                layers[name + BY_HAND] = write_by_hand(name, window, dtype)
        if benchmark.compiled:
            torch.compiler.reset()  # after a handful of shapes it would silently fall back to eager
            layers[COMPILED] = torch.compile(write_by_hand("gated", window, dtype), dynamic=False)  # type: ignore[assignment]
    contestants = []
    for name, layer in layers.items():
        try:
            contestants.append(make_contestant(name, layer.to(benchmark.device), x.detach().requires_grad_()))
        except NotImplementedError:  # PyTorch's average in 3d has no halves
            if name not in ("avg", COMPILED) and not name.endswith(BY_HAND):
                raise
    if dtype != torch.float32:
        floats = x.float().requires_grad_()
        for name in benchmark.pools:
            layer = make_pool(name, kernel, stride, padding, **options | {"dtype": torch.float32})
            contestants.append(make_contestant(name + FLOAT32, layer.to(benchmark.device), floats))
    target = torch.empty_like(x)
    for name, once in zip(COPIES, (lambda: target.copy_(x), x.clone), strict=True):
        contestants.append(Contestant(name, {BOTH: call_twice(once), FORWARD: once}))
    return contestants


def make_input(benchmark: PoolBenchmark, shape: tuple[int, ...]) -> Tensor:
    """Noise of a shape, in the benchmark's dtype and memory layout."""
    try:
        x = torch.randn(shape, dtype=DTYPES[benchmark.dtype], device=benchmark.device)
    except (RuntimeError, OverflowError):
        raise OSError(f"not enough memory for the shape {format_size(shape)}") from None
    if benchmark.layout == "channels_last":
        x = x.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    return x


def make_contestant(name: str, layer: nn.Module, x: Tensor) -> Contestant:
    """A layer on ``x``, called once in each mode."""
    saved_bytes: dict[int, int] = {}

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        saved_bytes[storage.data_ptr()] = storage.nbytes()
        return saved

    def both() -> object:
        return torch.autograd.grad(layer(x), inputs, grad)

    def forward() -> object:
        with torch.no_grad():
            return layer(x)

    inputs = [x, *layer.parameters()]
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            y = layer(x)
        grad = torch.randn_like(y)
        both()
        forward()
    except RuntimeError as error:
        if name != COMPILED or isinstance(error, NotImplementedError):
            raise
        raise OSError(f"torch.compile fails here: {str(error).strip().splitlines()[0]}") from None
    own = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    extra = sum(size for place, size in saved_bytes.items() if place not in own)
    return Contestant(name, {BOTH: both, FORWARD: forward}, extra / (x.numel() * x.element_size()))


def call_twice(call: Call) -> Call:
    """Call twice: a pool reads x in forward and again in backward, so its limit there is two copies."""
    return lambda: (call(), call())
