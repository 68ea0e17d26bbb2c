"""The value of an expression in a forward, as far as its source tells: nobody's code is run."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from .routing import RoutedForward

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN"})()
_SIMPLE = (bool, int, float, str, tuple, list, dict, range, type(None))
_CALLABLE = (type, functools.partial, BuiltinFunctionType)
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


@dataclass
class Scope:
    """The context of an expression: its function, the method's receiver, and the module whose forward it belongs to."""

    function: FunctionType
    module: nn.Module
    receiver: Any = None  # the value of the first argument of a method
    names: dict[str, Any] = field(default_factory=dict)  # local names with known values

    def __post_init__(self) -> None:
        if self.receiver is None and is_method(self.function.__code__, self.module):
            self.receiver = self.module

    def copy(self) -> Scope:
        return replace(self, names={**self.names})


def get_forward(module: nn.Module) -> Scope | None:
    """The function behind a module's forward: undecorated, the module's own if it was patched, never our router."""
    own = module.__dict__.get("forward")
    own = own.inner if isinstance(own, RoutedForward) else own
    function = as_function(own) or as_function(type(module).forward)
    if function is None:
        return None
    bound = type(own) is not FunctionType  # a function patched in is called without its module
    return Scope(function, module, module if bound else None)


def as_function(value: Any) -> FunctionType | None:
    """The undecorated Python function a value is, if it is one."""
    for _ in range(100):
        kind = type(value)  # not isinstance: it asks lazy objects for their class
        if issubclass(kind, MethodType):
            value = value.__func__
        elif issubclass(kind, (staticmethod, classmethod)) or (
            issubclass(kind, (FunctionType, functools.partial)) and "__wrapped__" in value.__dict__
        ):
            value = value.__wrapped__
        else:
            return value if issubclass(kind, FunctionType) else None
    return None


def is_method(code: CodeType, module: nn.Module) -> bool:
    """Whether this is the code of a method of a module: of its class, or patched into the module itself."""
    functions = [as_function(cls.__dict__.get(code.co_name)) for cls in type(module).__mro__]
    patches = (value for value in module.__dict__.values() if type(value) is MethodType and value.__self__ is module)
    functions += map(as_function, patches)
    return any(function is not None and function.__code__ is code for function in functions)


def iter_codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the lambdas, comprehensions and functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from iter_codes(constant)


def read_attribute(base: Any, name: str) -> Any:
    """``base.name`` without running a property or ``__getattr__`` of a module; never raises."""
    return _replace_unreadable(_read_attribute(base, name))


def _replace_unreadable(value: Any) -> Any:
    """UNKNOWN instead of a lazy object that raises on any access."""
    try:
        isinstance(value, nn.Module)
    except Exception:
        return UNKNOWN
    return value


def _read_attribute(base: Any, name: str) -> Any:
    try:
        kind = type(base)
        if issubclass(kind, (ModuleType, type)):
            return getattr(base, name, UNKNOWN)
        if name == "training":
            return UNKNOWN  # it changes
        if issubclass(kind, nn.Module):
            for namespace in (base.__dict__, base._modules, base._buffers, base._parameters):
                if name in namespace:
                    return namespace[name]
        elif name in getattr(base, "__dict__", {}):
            return base.__dict__[name]
        elif issubclass(kind, dict) and name in ("values", "items", "keys", "get"):
            return getattr(base, name)
        attribute = inspect.getattr_static(kind, name, UNKNOWN)
    except Exception:
        return UNKNOWN
    if isinstance(attribute, FunctionType):
        return MethodType(attribute, base)
    if isinstance(attribute, (staticmethod, classmethod)):
        return attribute.__func__
    return attribute if isinstance(attribute, (*_SIMPLE, *_CALLABLE, nn.Module)) else UNKNOWN


class Evaluator:
    """Values of expressions; a subclass may follow calls."""

    def evaluate(self, node: ast.AST | None, scope: Scope) -> Any:
        """The value of an expression, or UNKNOWN."""
        if node is None:
            return None
        method = getattr(self, f"_{type(node).__name__.lower()}", self._visit)
        return method(node, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> Any:
        """The default: evaluate the parts, return UNKNOWN."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.expr, ast.keyword, ast.comprehension)):
                self.evaluate(child, scope)
        return UNKNOWN

    def _constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def _tuple(self, node: ast.Tuple | ast.List, scope: Scope) -> Any:
        values = tuple(self.evaluate(part, scope) for part in node.elts)
        starred = any(isinstance(part, ast.Starred) for part in node.elts)
        return UNKNOWN if starred else values

    _list = _tuple

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        name, function = node.id, scope.function
        if name in scope.names:
            return scope.names[name]
        code = function.__code__
        if code.co_argcount and name == code.co_varnames[0] and scope.receiver is not None:
            return scope.receiver
        if any(name in (*inner.co_varnames, *inner.co_cellvars) for inner in iter_codes(code)):
            return UNKNOWN
        if name in code.co_freevars and function.__closure__:
            try:
                return function.__closure__[code.co_freevars.index(name)].cell_contents
            except ValueError:
                return UNKNOWN
        return _replace_unreadable(function.__globals__.get(name, getattr(builtins, name, UNKNOWN)))

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        base = node.value
        if isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super":
            return _find_inherited(node.attr, scope)
        return read_attribute(self.evaluate(base, scope), node.attr)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        base, key = self.evaluate(node.value, scope), self.evaluate(node.slice, scope)
        if isinstance(key, slice) and isinstance(base, (nn.Sequential, nn.ModuleList)):
            some = list(base)[key]  # base[key] would run its constructor
            return nn.Sequential(*some) if isinstance(base, nn.Sequential) else some
        readable = isinstance(base, (tuple, list, dict, str, range, nn.Sequential, nn.ModuleList, nn.ModuleDict))
        return call_safely(operator.getitem, base, key) if readable and _is_simple(key) else UNKNOWN

    def _slice(self, node: ast.Slice, scope: Scope) -> Any:
        parts = [self.evaluate(part, scope) for part in (node.lower, node.upper, node.step)]
        return UNKNOWN if any(part is UNKNOWN for part in parts) else slice(*parts)

    def _binop(self, node: ast.BinOp, scope: Scope) -> Any:
        values = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        function = _BINARY.get(type(node.op))
        return call_safely(function, *values) if function is not None and all(map(_is_simple, values)) else UNKNOWN

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.evaluate(node.operand, scope)
        if isinstance(node.op, ast.Not):
            truth = is_true(value)
            return UNKNOWN if truth is None else not truth
        return call_safely(operator.neg, value) if isinstance(node.op, ast.USub) and _is_simple(value) else UNKNOWN

    def _compare(self, node: ast.Compare, scope: Scope) -> Any:
        values = [self.evaluate(part, scope) for part in (node.left, *node.comparators)]
        if len(values) != 2 or any(value is UNKNOWN for value in values):
            return UNKNOWN
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return (values[0] is values[1]) == isinstance(node.ops[0], ast.Is)
        simple = all(map(_is_simple, values))
        return call_safely(_COMPARE[type(node.ops[0])], *values) if simple else UNKNOWN

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        parts = [
            self.evaluate(part.value if isinstance(part, ast.FormattedValue) else part, scope) for part in node.values
        ]
        return "".join(map(str, parts)) if all(isinstance(part, (str, int)) for part in parts) else UNKNOWN


def is_true(value: Any) -> bool | None:
    """Whether a known value counts as true; None if that is not known."""
    if isinstance(value, nn.Module) or callable(value):
        return True
    return bool(value) if _is_simple(value) else None


def _is_simple(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_simple, value))
    return type(value) in (*_SIMPLE, slice)


def call_safely(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a function without side effects, an iterator as a list; UNKNOWN if it raises."""
    try:
        result = function(*args, **kwargs)
        return list(result) if hasattr(type(result), "__next__") else result
    except Exception:
        return UNKNOWN


def _find_inherited(name: str, scope: Scope) -> Any:
    """``super().name`` as written in a method."""
    order = type(scope.receiver).__mro__
    own = (i for i, cls in enumerate(order) if as_function(cls.__dict__.get(scope.function.__name__)) is scope.function)
    place = next(own, len(order))
    attribute = next((cls.__dict__[name] for cls in order[place + 1 :] if name in cls.__dict__), UNKNOWN)
    if isinstance(attribute, (staticmethod, classmethod)):
        return attribute.__func__
    return MethodType(attribute, scope.receiver) if isinstance(attribute, FunctionType) else attribute
