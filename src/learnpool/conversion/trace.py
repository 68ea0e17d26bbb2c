"""One pass of an example through a network, to see its pools at work; the network stays as it is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from ..observation import preserve_state
from . import source
from .routing import find_caller, locate_frame
from .torch_pools import OTHER_FUNCTIONS, POOL_FUNCTIONS, TorchPool, read_call

_CALL = nn.Module._call_impl.__code__
_OUTSIDE = "called outside of its module's forward"


@dataclass
class TracedCall:
    """One pool computed during the example."""

    owner: nn.Module
    location: str
    function: str
    torch_pool: TorchPool | None
    left: str | None
    shape: tuple[int, ...]
    infinite: bool
    outside: str | None  # why a route through the owner's forward would not reach it


class _CallRecorder(TorchFunctionMode):
    """Notes every pool call, and changes nothing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.calls: list[TracedCall] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in POOL_FUNCTIONS or func in OTHER_FUNCTIONS:
            self._record(func, args, kwargs)
        return func(*args, **kwargs)

    def _record(self, func: Any, args: Any, kwargs: Any) -> None:
        x, torch_pool = (
            read_call(func, args, kwargs)
            if func in POOL_FUNCTIONS
            else (args[0] if args else kwargs.get("input"), None)
        )
        frame = find_caller(sys._getframe(2))
        owner, outside = _find_owner(frame, self.model)
        infinite = not x.is_meta and x.is_floating_point() and bool(torch.isneginf(x).any())
        left, shape = OTHER_FUNCTIONS.get(func), tuple(x.shape)
        self.calls.append(
            TracedCall(owner, locate_frame(frame), func.__name__, torch_pool, left, shape, infinite, outside)
        )


def _find_owner(frame: FrameType | None, model: nn.Module) -> tuple[nn.Module, str | None]:
    """The module whose method makes the call, and why a route through its forward would not reach it."""
    owner, outside = None, None
    codes = set()
    while frame is not None:
        code = frame.f_code
        codes.add(code)
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            outside = "inside torch.utils.checkpoint, which calls it again outside of forward"
        this = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(this, nn.Module):
            if owner is None and (code is _CALL or source.is_method(code, this)):
                owner = this
            if this is owner and (code is _CALL or code.co_name == "forward"):
                return owner, outside if getattr(type(owner).forward, "__code__", None) in codes else _OUTSIDE
        frame = frame.f_back
    return owner or model, _OUTSIDE


def trace_calls(model: nn.Module, example: Any) -> list[TracedCall]:
    """The pools that one pass in eval() without gradients computes; model and random numbers stay as they are."""
    args, kwargs = (), {}
    if isinstance(example, dict):
        kwargs = example
    else:
        args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    if any(is_lazy(p) for p in model.parameters()):
        raise ValueError("convert: the example would give lazy layers their sizes; run the network once before")
    recorder = _CallRecorder(model)
    with preserve_state(model), recorder:
        try:
            model(*args, **kwargs)
        except Exception as error:
            shapes = [list(x.shape) if isinstance(x, Tensor) else x for x in (*args, *kwargs.values())]
            came = ", ".join(map(str, shapes))
            raise ValueError(
                f"convert: the model does not take the example {came}: {type(error).__name__}: {error}"
            ) from error
    return recorder.calls
