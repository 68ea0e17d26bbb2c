"""The order in which pools run, read from the source of forward: modules and functional calls alike."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from .evaluation import UNKNOWN, Scope, as_function, call_safely, get_forward, read_attribute
from .interpreter import Closure, Interpreter
from .source import is_place, is_strided_slice, locate_call_node, parse_function, resolve_target

Key = tuple[int, str]  # id of a module, and where its forward calls a pool; "" for a module that is a pool
_MOST_STEPS, _MOST_DEPTH = 200_000, 60
_PURE_FUNCTIONS = (
    len, range, enumerate, zip, reversed, list, tuple, min, max, int, str, bool, sorted, iter, dict, isinstance,
)  # fmt: skip
_CONTAINER_METHODS = {"children", "named_children", "modules", "values", "items", "keys", "get"}
_FALSE_IN_EAGER_MODE = {
    "is_scripting", "is_tracing", "is_compiling", "is_exporting", "is_dynamo_compiling", "is_in_onnx_export",
}  # fmt: skip


@dataclass(frozen=True)
class PoolUse:
    """One use of a pool in a forward pass."""

    key: Key
    certain: bool  # whatever the input is


@dataclass
class Order:
    """The pools of a network in the order they run in, and whether every call was followed."""

    uses: list[PoolUse] = field(default_factory=list)
    complete: bool = True


def read_order(model: nn.Module, keys: Iterable[Key], training: bool = False) -> Order:
    """The order in which the pools ``keys`` of a network run, as far as its source tells; in either mode, or in
    training.
    """
    walker = _Walker(model, set(keys), training)
    try:
        walker.enter(model, (), {})
    except Exception:  # too long, too deep, or an object that raises when inspected
        walker.order.complete = False
    return walker.order


class _Walker(Interpreter):
    """Enters modules, methods and functions where they are called, and notes the pools."""

    def __init__(self, model: nn.Module, keys: set[Key], training: bool) -> None:
        self.keys, self.training = keys, training
        self.order = Order()
        self.count = 0
        self.active: list[tuple[Any, int]] = []
        owners = {owner for owner, _ in keys}
        self.relevant = {id(m) for m in model.modules() if any(id(inner) in owners for inner in m.modules())}

    def evaluate(self, node: ast.AST | None, scope: Scope) -> Any:
        self.count += 1
        if self.count > _MOST_STEPS:
            raise RecursionError("too long to follow")
        return super().evaluate(node, scope)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return True if self.training and node.attr == "training" else super()._attribute(node, scope)

    def add_use(self, key: Key) -> None:
        if key in self.keys:
            self.order.uses.append(PoolUse(key, self.conditions == 0))

    def enter(self, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Run a module's forward."""
        forward = get_forward(module)
        if forward is not None and forward.function in (nn.Sequential.forward, nn.Module.forward):
            # The latter is that of a list, which has an order of its own.
            for child in module._modules.values():  # children() leaves out a module's second time
                if child is not None:
                    self.enter(child, (), {})
        elif (id(module), "") in self.keys:
            self.add_use((id(module), ""))
        elif id(module) in self.relevant:
            if forward is None or isinstance(module, torch.jit.ScriptModule):
                self.order.complete = False
            else:
                self.follow(forward, args if forward.receiver is None else (module, *args), kwargs)

    def follow(self, scope: Scope, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a function; its result, if that is known."""
        tree, first = parse_function(scope.function)
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        node = next((node for node in ast.walk(tree) if isinstance(node, kinds)), None)
        frame = (scope.function, id(scope.receiver))
        if not first or node is None or len(self.active) > _MOST_DEPTH:
            self.order.complete = False
            return UNKNOWN
        if frame in self.active:
            return UNKNOWN
        self.active.append(frame)
        try:
            return self.run(node, scope, args, kwargs)
        finally:
            self.active.pop()

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        target = self.evaluate(node.func, scope)
        args = [self.evaluate(arg.value if isinstance(arg, ast.Starred) else arg, scope) for arg in node.args]
        words = {word.arg: self.evaluate(word.value, scope) for word in node.keywords}
        kwargs = {name: value for name, value in words.items() if name is not None}
        if None in words or any(isinstance(arg, ast.Starred) for arg in node.args):
            self.order.complete = False  # which argument is which is not known
        if is_place(resolve_target(node, target)[0]):
            self.add_located_use(node, scope)
        elif isinstance(target, nn.Module):
            self.enter(target, args, kwargs)
        elif type(target) is Closure:
            return self.run_closure(target, args, kwargs) if len(self.active) < _MOST_DEPTH else UNKNOWN
        elif target is UNKNOWN:
            self.call_unknown(node.func, [*args, *words.values()])
        else:
            return self.call_known(target, args, kwargs, scope)
        return UNKNOWN

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        value = super()._subscript(node, scope)
        if is_strided_slice(node):
            self.add_located_use(node, scope)
        return value

    def add_located_use(self, node: ast.expr, scope: Scope) -> None:
        located = locate_call_node(node, scope.function)
        self.add_use((id(scope.module), "" if located is None else located[0]))

    def call_known(self, target: Any, args: list[Any], kwargs: dict[str, Any], scope: Scope) -> Any:
        function = as_function(target)
        home = "" if function is None else function.__module__ or ""
        if target is getattr or target is hasattr:
            attribute = read_attribute(*args[:2]) if len(args) > 1 and isinstance(args[1], str) else UNKNOWN
            return True if target is hasattr and attribute is not UNKNOWN else attribute
        if any(target is pure for pure in _PURE_FUNCTIONS) or _is_container_method(target, home):
            return UNKNOWN if any(arg is UNKNOWN for arg in args) else call_safely(target, *args, **kwargs)
        if isinstance(target, MethodType) and function in (nn.Sequential.forward, nn.Module.__call__):
            owner: Any = target.__self__
            parts = owner._modules.values() if function is nn.Sequential.forward else (owner,)
            for part in (part for part in parts if part is not None):
                self.enter(part, args, kwargs)
            return UNKNOWN
        if function is None or (home.split(".")[0] == "torch" and home != "torch.nn.modules.pooling"):
            self.call_arguments([*args, *kwargs.values()])  # checkpoint(self.block, x), map(self.block, xs)
            return False if getattr(target, "__name__", "") in _FALSE_IN_EAGER_MODE else UNKNOWN
        if not isinstance(target, MethodType):
            return self.follow(Scope(function, scope.module), args, kwargs)
        this = target.__self__
        module = this if isinstance(this, nn.Module) else scope.module
        return self.follow(Scope(function, module, this), (this, *args), kwargs)

    def call_unknown(self, node: ast.expr, values: list[Any]) -> None:
        """Follow a call of something unknown: a tensor's method, or what may be a module."""
        if isinstance(node, ast.Attribute) and any(hasattr(cls, node.attr) for cls in (torch.Tensor, list, dict, str)):
            return
        self.order.complete = False
        self.call_arguments(values)

    def call_arguments(self, values: Iterable[Any]) -> None:
        """Follow the modules and functions given to a function that is not read: presumably it calls them."""
        for value in values:
            if isinstance(value, nn.Module):
                self.enter(value, (), {})
            elif type(value) is Closure:
                self.run_closure(value, (), {})
            elif type(value) is MethodType and isinstance(value.__self__, nn.Module):
                function = as_function(value)
                if function is not None and id(value.__self__) in self.relevant:
                    self.follow(Scope(function, value.__self__, value.__self__), (value.__self__,), {})
            elif isinstance(value, (tuple, list)):
                self.call_arguments(value)
            elif type(value) in (FunctionType, partial):
                self.order.complete = False


def _is_container_method(target: Any, home: str) -> bool:
    """Whether this lists the contents of a dict, or of one of torch's modules."""
    if not isinstance(target, (MethodType, BuiltinFunctionType)) or target.__name__ not in _CONTAINER_METHODS:
        return False
    return isinstance(target.__self__, dict) or home.startswith("torch.nn.modules.")
