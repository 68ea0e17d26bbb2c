"""Functional calls: while a module's forward runs, the pool calls at known locations go to submodules of it.

A call is known by its position in the source of its function, so it means the same in train() and eval(), in loops and
in a fresh process. The module keeps its class: its ``forward`` is shadowed by a ``RoutedForward`` in its ``__dict__``,
a plain object that copies and pickles with it and that Dynamo traces.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
from collections.abc import Callable
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..ops.operator import FLOATS
from ..ops.transforms import INTERNAL_MODULES, get_traced_frame, mark_constant
from .activations import ACTIVATIONS
from .calls import FUNCTIONS, Call, name_arguments, read_call
from .convolutions import BEFORE, BEHIND, Convolution
from .padding import Padding, read_padding, replace_low_border
from .torch_pools import GlobalPool, TorchPool

Position = tuple[int, int]
Route = tuple[Any, ...]  # where ("" is anywhere in the forward), and what is called, with the window's numbers
ACTIVATION, ELSEWHERE = "activation", "-"
_INTERNAL_MODULES = {*INTERNAL_MODULES, __name__}  # between a call and what intercepts it


class RoutedForward:
    """``forward`` of one module, with some of its calls computed by, or together with, its submodules."""

    def __init__(self, owner: nn.Module, table: dict[Route, str], pads: bool = False) -> None:
        self.owner, self.table, self.pads = owner, table, pads
        self.inner: Callable[..., Any] | None = owner.__dict__.get("forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with CallRouter(self.owner, self.table, self.pads):
            if self.inner is not None:
                out = self.inner(*args, **kwargs)
            else:
                out = type(self.owner).forward(self.owner, *args, **kwargs)
        if isinstance(out, (GeneratorType, CoroutineType, AsyncGeneratorType)) and self.table:
            raise RuntimeError(
                f"convert: {type(self.owner).__name__}.forward returns a {type(out).__name__}, which calls its pools "
                "after forward; return its results, or leave its pools (skip=)"
            )
        behind = self.table.get(("", ACTIVATION))  # a layer that computes nothing else
        return out if behind is None else getattr(self.owner, behind)(out)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.inner or functools.partial(type(self.owner).forward, self.owner))

    @property
    def __code__(self) -> CodeType:  # torch.export names its guards after it
        return getattr(self.inner, "__code__", type(self.owner).forward.__code__)

    def replicate(self) -> Any:
        """A replica for ``nn.DataParallel``, whose forward must run on the replica's own submodules."""
        replica: Any = type(self.owner)._replicate_for_data_parallel(self.owner)
        del replica.__dict__["forward"]
        replica.__dict__["forward"] = RoutedForward(replica, self.table, self.pads)
        return replica


class CallRouter(TorchFunctionMode):
    """Sees every torch function of a forward; answers the calls of its table."""

    def __init__(self, owner: nn.Module, table: dict[Route, str], pads: bool) -> None:
        super().__init__()
        self.owner, self.table, self.pads = owner, table, pads
        self.has_locations = any(route[0] for route in table)
        self.has_activations = any(route[0] and route[1] == ACTIVATION for route in table)
        self.padding: Padding | None = None  # the last one with −inf

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = read_call(func, args, kwargs) if func in FUNCTIONS else None
        if call is not None and call.original is not None and _may_be_pooled(call.input):
            for where in (BEHIND, BEFORE) if isinstance(call.original, Convolution) else ("",):
                attribute = self._find(call, where)
                if attribute is not None:
                    return self._answer(func, args, kwargs, call, where, attribute)
        out = func(*args, **kwargs)
        if self.has_activations and func in ACTIVATIONS:
            attribute = self.table.get((locate_call(True), ACTIVATION))
            if attribute is not None:
                _refuse_checkpoint()
                return getattr(self.owner, attribute)(out)
        if func is F.pad:
            self.padding = read_padding(out, *args, **kwargs) or self.padding
        return out

    def _find(self, call: Call, where: str) -> str | None:
        """The submodule that takes part in a call; begins with ``ELSEWHERE`` if that stands behind an activation."""
        assert call.original is not None
        key = (where, *call.original.key) if where else call.original.key
        attribute = self.table.get(("", *key))
        if attribute is None and self.has_locations:
            location = locate_call()
            attribute = self.table.get((location, *key))
            if attribute is None and isinstance(call.original, TorchPool):
                pool, dims = call.original, call.original.dims
                attribute = self.table.get((location, *GlobalPool(pool.kind, dims, window_pool=pool).key))
                return attribute if attribute is not None and pool.covers(call.input.shape[-dims:]) else None
        return attribute

    def _answer(self, func: Any, args: Any, kwargs: Any, call: Call, where: str, attribute: str) -> Any:
        _refuse_checkpoint()
        x, original = call.input, call.original
        if isinstance(original, TorchPool):
            if self.pads and torch.compiler.is_dynamo_compiling():
                x = replace_low_border(x, original)
            elif self.padding is not None and x is self.padding.out:
                x = self.padding.replicate(original)
            return getattr(self.owner, attribute)(x)
        arguments = name_arguments(func, args, kwargs) if where else {}
        pool = None if attribute.startswith(ELSEWHERE) else getattr(self.owner, attribute)
        return call.run(pool, func, arguments, where)


def _may_be_pooled(x: Any) -> bool:
    """Not a slice of a mask; in ``torch.fx.symbolic_trace`` there is no tensor to ask."""
    return not isinstance(x, torch.Tensor) or x.dtype in FLOATS


def route(owner: nn.Module, table: dict[Route, str], pads: bool = False) -> None:
    """Send the calls of ``owner``'s forward that are in ``table`` to the submodules it names; add to what is routed.

    ``pads`` says that the forward may pad by hand; it matters under a compiler, which hides ``F.pad`` from us.
    """
    forward = owner.__dict__.get("_routed")
    if forward is None:
        forward = RoutedForward(owner, {})
        owner.__dict__["_routed"] = owner.__dict__["forward"] = forward
        owner.__dict__["_replicate_for_data_parallel"] = forward.replicate
    forward.table, forward.pads = {**forward.table, **table}, forward.pads or pads


def unroute(owner: nn.Module, attributes: set[str]) -> None:
    """Compute the calls that went to these submodules in place again."""
    forward: RoutedForward | None = owner.__dict__.get("_routed")
    if forward is None:
        return
    inner = forward.inner
    forward.table = {key: name for key, name in forward.table.items() if name not in attributes}
    if not forward.table and owner.__dict__.get("forward") is forward:
        del owner.__dict__["forward"], owner.__dict__["_routed"], owner.__dict__["_replicate_for_data_parallel"]
        if inner is not None:
            owner.__dict__["forward"] = inner


def get_routes(owner: nn.Module) -> dict[str, Route]:
    """The submodules that compute functional calls of a module, and the location and window of each call."""
    forward = owner.__dict__.get("_routed")
    return {} if forward is None else {name: key for key, name in forward.table.items()}


def locate_call(through_layers: bool = False) -> str:
    """The location of the call that is intercepted, as ``module:function:line:column`` (of the call's end)."""
    if torch.compiler.is_dynamo_compiling():
        return str(_locate_traced_call(through_layers))
    return locate_frame(find_caller(sys._getframe(1), through_layers))


def _is_internal(module: str, through_layers: bool) -> bool:
    return module in _INTERNAL_MODULES or (through_layers and module.startswith("torch."))


def locate_frame(frame: FrameType) -> str:
    """The location of the call that a frame is executing."""
    return format_location(
        frame.f_globals.get("__name__", ""), frame.f_code, find_position(frame.f_code, frame.f_lasti)
    )


def find_caller(frame: FrameType | None, through_layers: bool = False) -> FrameType:
    """The frame that wrote the call: the first one outside of torch's functional layer and of this file.

    ``through_layers``: and outside of all of torch, so ``self.relu(x)``, not what ``nn.ReLU`` does.
    """
    while frame is not None and _is_internal(frame.f_globals.get("__name__", ""), through_layers):
        frame = frame.f_back
    assert frame is not None
    return frame


def format_location(module: str, code: CodeType, at: Position) -> str:
    name = getattr(code, "co_qualname", f"{code.co_name}@{code.co_firstlineno}")
    return f"{module}:{name}:{at[0] - code.co_firstlineno}:{at[1]}"


def find_position(code: CodeType, offset: int) -> Position:
    """Line and column where the call at a bytecode offset ends; before Python 3.11 only its first line is known."""
    return _list_positions(code)[offset // 2]


@functools.lru_cache(maxsize=256)
def _list_positions(code: CodeType) -> list[Position]:
    if sys.version_info < (3, 11):
        starts = dict(dis.findlinestarts(code))
        lines = itertools.accumulate(range(0, len(code.co_code), 2), lambda line, at: starts.get(at, line), initial=0)
        return [(line, 0) for line in lines][1:]
    return [(end or 0, column or 0) for _, end, _, column in code.co_positions()]


@mark_constant
def _locate_traced_call(through_layers: bool) -> str:
    """``locate_call`` while Dynamo traces: there are no frames, so the position comes from Dynamo's own state."""
    reader = get_traced_frame()
    while _is_internal(reader.f_globals.get("__name__", ""), through_layers):
        reader = reader.parent
    at, line = reader.current_instruction.positions, reader.lineno
    end = (at.end_lineno, at.end_col_offset) if at is not None and sys.version_info >= (3, 11) else (line, 0)
    return format_location(reader.f_globals.get("__name__", ""), reader.f_code, end)


def _refuse_checkpoint() -> None:
    """Raise if a part of a forward is checkpointed: recomputed outside of forward, its pools would be the old ones."""
    if torch.compiler.is_dynamo_compiling():
        return  # a graph recomputes what it holds
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not RoutedForward.__call__.__code__:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            raise RuntimeError(
                "convert: a pool is called inside torch.utils.checkpoint, which calls it again outside of forward; "
                "checkpoint the whole module, or leave its pools (skip=)"
            )
        frame = frame.f_back
