"""One pass of an example through a network, to see its pools at work; the network stays as it is."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from ..observation import preserve_state
from ..ops.transforms import MODULE_CALL
from .activations import Activation, ActivationFinder, Place, is_intercepted
from .calls import SLICE, Call, has_offset, name_function, read_call
from .convolutions import Convolution, Original, is_same
from .evaluation import is_method
from .padding import Padding, read_padding
from .routing import RoutedForward, find_caller, locate_frame, route, unroute
from .torch_pools import Obstacle, TorchPool

_ROUTED = RoutedForward.__call__.__code__
_OUTSIDE = "called outside of its module's forward"
_CHECKPOINT = "inside torch.utils.checkpoint, which calls it again outside of forward"
_COMPARISONS = {"eq", "ne", "ge", "le", "gt", "lt", "isclose"}
_POWERS = {"square", "pow", "mul"}


@dataclass(eq=False)
class TracedCall:
    """One pool, or a call that one may take part in, computed during the example."""

    owner: nn.Module
    location: str
    function: str
    original: Original | None
    obstacle: Obstacle | None
    input: Tensor
    meets_minus_infinity: bool = False  # in its input
    output: Tensor | None = None
    outside_reason: str | None = None  # why a route through the owner's forward would not reach it
    padding: Padding | None = None  # by hand, with −inf
    other_purpose: str | None = None  # what it is for, if that is not to pool features
    activation: Activation | None = None  # behind a convolution

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.input.shape)


class _CallRecorder(TorchFunctionMode):
    """Records every call of the given functions that a pool may take part in, and changes nothing."""

    def __init__(self, model: nn.Module, functions: Collection[Any]) -> None:
        super().__init__()
        self.model, self.functions = model, functions
        self.calls: list[TracedCall] = []
        self.others: set[Place] = set()  # where such a function is called, but no pool has a place: at stride 1
        self.paddings: list[Padding] = []
        self.squares: list[tuple[Tensor, Tensor]] = []
        self.phases: list[Tensor] = []  # maps that are sliced with an offset
        self.activations = ActivationFinder(self._locate_activation)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        read = read_call(func, args, kwargs) if func in self.functions else None
        call = self._record(func, read) if read is not None else None
        if call is None and func in self.functions and func is not SLICE:
            frame = find_caller(sys._getframe(1))
            self.others.add((_find_owner(frame, self.model)[0], locate_frame(frame)))
        if func is SLICE and SLICE in self.functions and has_offset(args[1]):
            self.phases.append(args[0])
        out = func(*args, **kwargs)
        self.activations.follow(func, args, kwargs, out)
        if call is not None:
            call.output = out if isinstance(out, Tensor) else None
            if isinstance(call.original, Convolution) and call.output is not None:
                self.activations.begin(call, call.output)
        elif func is F.pad:
            padding = read_padding(out, *args, **kwargs)
            self.paddings += [] if padding is None else [padding]
        else:
            self._note_purpose(getattr(func, "__name__", "").strip("_"), args, out)
        return out

    def _record(self, func: Any, read: Call) -> TracedCall:
        x: Tensor = read.input
        frame = find_caller(sys._getframe(2))
        owner, outside = _find_owner(frame, self.model)
        call = TracedCall(owner, locate_frame(frame), name_function(func), read.original, read.obstacle, x)
        call.outside_reason = outside
        call.meets_minus_infinity = not x.is_meta and x.is_floating_point() and bool(torch.isneginf(x).any())
        call.padding = next((padding for padding in self.paddings if padding.out is x), None)
        self.calls.append(call)
        return call

    def _locate_activation(self, function: Any) -> tuple[Place, ...]:
        """The layer of the present activation, if it is one of torch's, and the line that calls it."""
        frame: Any = sys._getframe(3)
        inner = find_caller(frame)
        while frame is not inner:  # F.sigmoid calls Tensor.sigmoid
            in_functional = frame.f_globals.get("__name__") == F.__name__
            function = getattr(F, frame.f_code.co_name, function) if in_functional else function
            frame = frame.f_back
        outer = find_caller(inner, through_layers=True)
        owner, outside = _find_owner(outer, self.model)
        line = () if outside is not None or not is_intercepted(function) else ((owner, locate_frame(outer)),)
        return line if inner is outer else ((_find_owner(inner, self.model)[0], ""), *line)

    def _note_purpose(self, name: str, args: Any, out: Any) -> None:
        """Recognise a pool with another purpose: its output is compared with its input, or it averages squares."""
        if name in _COMPARISONS and len(args) > 1:
            for call in self.calls:
                if call.output is not None and _is_pair(args[:2], call.input, call.output):
                    call.other_purpose = "compared with its own input (non-maximum suppression)"
        elif name in _POWERS and isinstance(out, Tensor):
            base, power = args[0], args[1] if len(args) > 1 else 2
            if isinstance(base, Tensor) and (power is base or (isinstance(power, (int, float)) and power == 2)):
                self.squares.append((out, base))

    def mark_variances(self) -> None:
        """``avg(x²) − avg(x)²``: with anything but averages it may be negative."""
        averages = [call for call in self.calls if isinstance(call.original, TorchPool) and call.original.kind == "avg"]
        for call in averages:
            base = next((base for square, base in self.squares if square is call.input), None)
            for other in averages:
                if base is not None and other.input is base and is_same(call.original, other.original):
                    call.other_purpose = other.other_purpose = "part of a variance, avg(x²) − avg(x)²"


def _is_pair(pair: Any, one: Tensor, other: Tensor) -> bool:
    """Whether two values are these two tensors, or views of all of them."""

    def same(a: Any, b: Tensor) -> bool:
        return a is b or (
            isinstance(a, Tensor) and a.shape == b.shape and not b.is_meta and a.data_ptr() == b.data_ptr()
        )

    first, second = pair
    return (same(first, one) and same(second, other)) or (same(first, other) and same(second, one))


def _find_owner(frame: FrameType | None, model: nn.Module) -> tuple[nn.Module, str | None]:
    """The module whose method makes the call, and why a route through its forward would not reach it."""
    owner, outside = None, None
    while frame is not None:
        code = frame.f_code
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            outside = _CHECKPOINT
        this = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if code is _ROUTED:
            this = frame.f_locals["self"].owner
            if owner is None or owner is this:
                return this, outside
        elif owner is None and isinstance(this, nn.Module) and (code is MODULE_CALL or is_method(code, this)):
            owner = this
        frame = frame.f_back
    return owner or model, _OUTSIDE


@contextmanager
def _follow_forwards(model: nn.Module) -> Iterator[None]:
    """Inside, every forward runs as it will when its calls are routed, to see which calls that reaches."""
    owners = [m for m in model.modules() if "_routed" not in m.__dict__ and not isinstance(m, torch.jit.ScriptModule)]
    try:
        for owner in owners:
            route(owner, {})
        yield
    finally:
        for owner in owners:
            unroute(owner, set())


def _read_shape(value: Any) -> Any:
    """A tensor's shape, also in lists; anything else as it is."""
    if isinstance(value, (list, tuple)):
        return [_read_shape(part) for part in value]
    return list(value.shape) if isinstance(value, Tensor) else value


def trace_calls(model: nn.Module, example: Any, functions: Collection[Any]) -> tuple[list[TracedCall], set[Place]]:
    """The places for pools in one pass in eval() without gradients, and where such functions are called at none;
    model and random numbers stay as they are.
    """
    args, kwargs = (), {}
    if isinstance(example, dict):
        kwargs = example
    else:
        args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    if any(is_lazy(p) for p in model.parameters()):
        raise ValueError("convert: the example would give lazy layers their sizes; run the network once before")
    recorder = _CallRecorder(model, functions)
    with preserve_state(model), _follow_forwards(model), recorder:
        try:
            model(*args, **kwargs)
        except Exception as error:
            actual = ", ".join(str(_read_shape(x)) for x in (*args, *kwargs.values()))
            why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise ValueError(f"convert: the model does not take the example {actual}: {why}") from error
    recorder.mark_variances()
    recorder.activations.finish()
    calls = [call for call in recorder.calls if not any(call.input is x for x in recorder.phases)]
    return calls, recorder.others
