"""Functional pool calls found by reading a module's forward, and the methods and functions it calls."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from .routing import Position, find_position, format_location
from .torch_pools import OTHER_FUNCTIONS, POOL_FUNCTIONS, TorchPool, read_call

VALUE = "passed on as a value: example= shows where it is called"
NO_SOURCE = "its source is not there to read: give example="
_UNKNOWN = object()
_PLAIN_VALUES = (int, tuple, list, type(None))
_NAMES = {function.__name__ for function in POOL_FUNCTIONS}
_ITERATORS = {"_modules", "children", "named_children"}


@dataclass(frozen=True)
class PoolCall:
    """A call of a pool in a forward: where it stands and what it computes, or why that is not known."""

    location: str
    function: str
    torch_pool: TorchPool | None
    why: str | None = None


def find_calls(module: nn.Module) -> list[PoolCall]:
    """The pool calls of a module's own forward, in the order of the source."""
    found: dict[str, PoolCall] = {}
    for function in collect_functions(module):
        found.update((site.location, site) for site in _find_calls_in(function, module))
    return list(found.values())


def iterates_submodules(module: nn.Module) -> bool:
    """Whether a forward walks over its submodules, so that one more would change what it computes."""
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        return True
    return any(
        _ITERATORS & {*code.co_names}
        for function in collect_functions(module)
        for code in _iter_codes(function.__code__)
    )


def collect_functions(module: nn.Module) -> list[FunctionType]:
    """A module's forward and all it calls that is neither torch's nor another module's, each once."""
    forward = _as_function(module.__dict__.get("forward")) or _as_function(type(module).forward)
    found: list[FunctionType] = [] if forward is None else [forward]
    for function in found:  # grows while it is read
        for node in ast.walk(_parse(function)[0]):
            # Also a function that is only named: it may be called by map() or checkpoint().
            used = (
                _as_function(_evaluate(node, function, module)) if isinstance(node, (ast.Name, ast.Attribute)) else None
            )
            if used is not None and used not in found and not (used.__module__ or "").startswith("torch."):
                found.append(used)
    return found


def _find_calls_in(function: FunctionType, module: nn.Module) -> Iterator[PoolCall]:
    tree, first = _parse(function)
    if not first:
        names = {name for code in _iter_codes(function.__code__) for name in code.co_names} & _NAMES
        yield from (PoolCall(f"{function.__qualname__}:{name}", name, None, NO_SOURCE) for name in sorted(names))
        return
    places = _locate_calls(function.__code__)
    called = set()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda node: _end_of(node, first)):
        target, bound = _unwrap_partial(_evaluate(node.func, function, module))
        if not _is_pool(target):
            continue
        called.add(node.func)
        code = places.get(_end_of(node, first))
        if code is not None:
            at = format_location(function.__globals__.get("__name__", ""), code, _end_of(node, first))
            yield PoolCall(at, target.__name__, *_read_window(node, target, bound, function, module))
    for name in ast.walk(tree):
        if isinstance(name, (ast.Name, ast.Attribute)) and name not in called and isinstance(name.ctx, ast.Load):
            target, _ = _unwrap_partial(_evaluate(name, function, module))
            if _is_pool(target):
                at = format_location(function.__globals__.get("__name__", ""), function.__code__, _end_of(name, first))
                yield PoolCall(at, target.__name__, None, VALUE)


def _unwrap_partial(target: Any) -> tuple[Any, dict[str, Any]]:
    """A function, and what a ``functools.partial`` gave it by name."""
    if isinstance(target, functools.partial) and not target.args:
        return target.func, target.keywords
    return target, {}


def _read_window(
    node: ast.Call, target: Any, bound: dict[str, Any], function: FunctionType, module: nn.Module
) -> tuple[TorchPool | None, str | None]:
    if target in OTHER_FUNCTIONS:
        return None, OTHER_FUNCTIONS[target]
    unknown = None, "its window is worked out in forward: give example="
    if any(isinstance(arg, ast.Starred) for arg in node.args) or any(word.arg is None for word in node.keywords):
        return unknown
    args = tuple(None if i == 0 else _evaluate(arg, function, module) for i, arg in enumerate(node.args))
    words = {word.arg: _evaluate(word.value, function, module) for word in node.keywords if word.arg != "input"}
    kwargs = {**bound, **{word: value for word, value in words.items() if word is not None}}
    if any(value is _UNKNOWN or not isinstance(value, _PLAIN_VALUES) for value in (*args, *kwargs.values())):
        return unknown
    try:
        torch_pool = read_call(target, args, kwargs)[1]
        torch_pool.window  # noqa: B018
    except (TypeError, ValueError):
        return None, "its arguments are not those of a pool"
    return torch_pool, None


def is_method(code: CodeType, module: nn.Module) -> bool:
    """Whether this is the code of a method of a module's class, as far as classes tell."""
    found = (_as_function(cls.__dict__.get(code.co_name)) for cls in type(module).__mro__)
    return any(function is not None and function.__code__ is code for function in found)


def _is_pool(target: Any) -> bool:
    try:
        return target in POOL_FUNCTIONS or target in OTHER_FUNCTIONS
    except TypeError:  # not hashable
        return False


def _as_function(value: Any) -> FunctionType | None:
    value = getattr(value, "__func__", value)
    return inspect.unwrap(value) if isinstance(value, FunctionType) else None


@functools.lru_cache(maxsize=1024)
def _parse(function: FunctionType) -> tuple[ast.AST, int]:
    """A function's source as a tree, and its first line in its file; an empty tree where there is no source."""
    try:
        lines, first = inspect.getsourcelines(function)
        text = "".join(lines)
        indent = len(text) - len(text.lstrip())
        # Columns stay those of the file.
        tree = ast.parse("if True:\n" + text) if indent else ast.parse(text)
        return tree, first - 1 if indent else first
    except (OSError, TypeError, SyntaxError, IndentationError):
        return ast.Module([], []), 0


def _end_of(node: Any, first: int) -> Position:
    if sys.version_info < (3, 11):
        return node.lineno + first - 1, 0
    return node.end_lineno + first - 1, node.end_col_offset


def _iter_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iter_codes(constant)


def _locate_calls(code: CodeType) -> dict[Position, CodeType]:
    """Where calls end, and in which code (a function's own, or that of a lambda or comprehension in it)."""
    found: dict[Position, CodeType] = {}
    for inner in _iter_codes(code):
        for instruction in dis.get_instructions(inner):
            if instruction.opname.startswith("CALL"):
                found.setdefault(find_position(inner, instruction.offset), inner)
    return found


def _evaluate(node: ast.AST, function: FunctionType, module: nn.Module) -> Any:
    """What an expression is before forward runs, if nothing has to be called to know it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        values = tuple(_evaluate(part, function, module) for part in node.elts)
        return _UNKNOWN if _UNKNOWN in values else values
    if isinstance(node, ast.Name):
        return _evaluate_name(node.id, function, module)
    if not isinstance(node, ast.Attribute):
        return _UNKNOWN
    if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "super":
        return _find_inherited(node.attr, function, module)
    base = _evaluate(node.value, function, module)
    if isinstance(base, (ModuleType, type)):
        return getattr(base, node.attr, _UNKNOWN)
    if not isinstance(base, nn.Module):
        return _UNKNOWN
    for held in (base.__dict__, base._modules, base._buffers, base._parameters):
        if node.attr in held:
            return held[node.attr]
    found = inspect.getattr_static(type(base), node.attr, _UNKNOWN)
    if isinstance(found, FunctionType) and base is not module:
        return _UNKNOWN  # another module's method: that module's business
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def _evaluate_name(name: str, function: FunctionType, module: nn.Module) -> Any:
    code = function.__code__
    if code.co_argcount and name == code.co_varnames[0] and is_method(code, module):
        return module
    if any(name in (*inner.co_varnames, *inner.co_cellvars) for inner in _iter_codes(code)):
        return _UNKNOWN
    if name in code.co_freevars and function.__closure__:
        try:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError:
            return _UNKNOWN
    return function.__globals__.get(name, getattr(builtins, name, _UNKNOWN))


def _find_inherited(name: str, function: FunctionType, module: nn.Module) -> Any:
    """``super().name`` as written in a method of ``module``."""
    order = type(module).__mro__
    own = next(
        (i for i, cls in enumerate(order) if _as_function(cls.__dict__.get(function.__name__)) is function), len(order)
    )
    found = next((cls.__dict__[name] for cls in order[own + 1 :] if name in cls.__dict__), _UNKNOWN)
    return found.__func__ if isinstance(found, (staticmethod, classmethod, MethodType)) else found
