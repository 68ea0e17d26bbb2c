"""Functional pool calls found by reading a module's forward, and the methods and functions it calls."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from torch import nn
from torch.nn import functional as F

from .evaluation import UNKNOWN, Evaluator, Scope, as_function, get_forward, iter_codes
from .routing import Position, find_position, format_location
from .torch_pools import OTHER_FUNCTIONS, POOL_FUNCTIONS, Obstacle, TorchPool, read_call

_EVALUATOR = Evaluator()
_ARGUMENTS = (int, tuple, list, type(None))
_NAMES = {function.__name__ for function in POOL_FUNCTIONS}
_ITERATORS = {"_modules", "children", "named_children"}
_MOST_FUNCTIONS = 500  # of one forward; far more than anyone writes
_DEFERRED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PARALLEL = {
    "threading.Thread", "threading.Timer", "concurrent.futures._base.Executor", "multiprocessing.pool.Pool",
    "concurrent.futures.thread.ThreadPoolExecutor", "concurrent.futures.process.ProcessPoolExecutor",
    "multiprocessing.pool.ThreadPool", "asyncio.threads.to_thread", "joblib.parallel.Parallel",
}  # fmt: skip


@dataclass(frozen=True)
class PoolCall:
    """A call of a pool in a forward: where it is and what it computes, or why that is not known."""

    location: str
    function: str
    torch_pool: TorchPool | None
    obstacle: Obstacle | None = None


def find_calls(module: nn.Module) -> list[PoolCall]:
    """The pool calls of a module's own forward, in the order of the source."""
    calls: dict[str, PoolCall] = {}
    scopes = collect_functions(module)
    for scope in scopes:
        calls.update((call.location, call) for call in _find_calls_in(scope))
    if calls and any(_starts_threads(scope) for scope in scopes):
        return [_add_obstacle(call, Obstacle.THREADS) for call in calls.values()]
    return list(calls.values())


def iterates_submodules(module: nn.Module) -> bool:
    """Whether a forward walks over its submodules, so that one more would change what it computes."""
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        return True
    codes = (code for scope in collect_functions(module) for code in iter_codes(scope.function.__code__))
    return any(_ITERATORS & {*code.co_names} for code in codes)


def pads_by_hand(module: nn.Module) -> bool:
    """Whether a forward, or a layer in it, calls ``F.pad``."""
    for part in module.modules():
        if isinstance(part, nn.modules.padding._ConstantPadNd):
            return True
        if type(part).__module__.startswith("torch.nn."):
            continue
        if any(value is F.pad for scope in collect_functions(part) for value in _iter_values(scope)):
            return True
    return False


def collect_functions(module: nn.Module) -> list[Scope]:
    """A module's forward and all it calls that is neither torch's nor another module's, each once."""
    forward = get_forward(module)
    scopes = [] if forward is None else [forward]
    seen = {scope.function for scope in scopes}
    for scope in scopes:  # grows during the loop
        # Also a function that is only named: it may be called by map() or checkpoint().
        for value in _iter_values(scope):
            used = as_function(value)
            if (
                used is None
                or used in seen
                or len(scopes) >= _MOST_FUNCTIONS
                or not _should_follow(value, used, module)
            ):
                continue
            seen.add(used)
            scopes.append(Scope(used, module, value.__self__ if type(value) is MethodType else None))
    return scopes


def _should_follow(value: Any, function: FunctionType, module: nn.Module) -> bool:
    if type(value) is MethodType and isinstance(value.__self__, nn.Module) and value.__self__ is not module:
        return False  # another module's method is found when that module is read
    name = function.__module__ or ""
    if name == "torch.nn.modules.pooling":  # super().forward of a pool
        return True
    return name.split(".")[0] not in {"torch", *sys.stdlib_module_names}


def _iter_values(scope: Scope) -> Iterator[Any]:
    """What the names and attributes in a function stand for."""
    for node in ast.walk(parse_function(scope.function)[0]):
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield _EVALUATOR.evaluate(node, scope)


def _starts_threads(scope: Scope) -> bool:
    for value in _iter_values(scope):
        cls = type(value)  # not isinstance: it asks lazy objects for their class
        kinds = value.__mro__ if issubclass(cls, type) else (value,) if cls is FunctionType else cls.__mro__
        if any(f"{kind.__module__}.{kind.__qualname__}" in _PARALLEL for kind in kinds):
            return True
    return False


def _find_calls_in(scope: Scope) -> Iterator[PoolCall]:
    function = scope.function
    tree, first = parse_function(function)
    if not first:
        names = {name for code in iter_codes(function.__code__) for name in code.co_names} & _NAMES
        for name in sorted(names):
            yield PoolCall(f"{function.__qualname__}:{name}", name, None, Obstacle.NO_SOURCE)
        return
    called = set()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda node: _find_end(node, first)):
        target, bound = unwrap_partial(_EVALUATOR.evaluate(node.func, scope))
        if not is_pool(target):
            continue
        called.add(node.func)
        located = locate_call_node(node, function)
        if located is not None:
            location, code = located
            call = PoolCall(location, target.__name__, *_read_window(node, target, bound, scope))
            yield _add_obstacle(call, Obstacle.DEFERRED) if _is_deferred(code, function) else call
    for value in ast.walk(tree):
        if isinstance(value, (ast.Name, ast.Attribute)) and value not in called and isinstance(value.ctx, ast.Load):
            target, _ = unwrap_partial(_EVALUATOR.evaluate(value, scope))
            if is_pool(target):
                at = _format(function, function.__code__, _find_end(value, first))
                yield PoolCall(at, target.__name__, None, Obstacle.PASSED_ON)


def _is_deferred(code: CodeType, function: FunctionType) -> bool:
    """Whether a call may run after its forward has returned; a generator expression is used up at once."""
    own = code.co_flags & _DEFERRED and code.co_name != "<genexpr>"
    return bool(own or function.__code__.co_flags & _DEFERRED)


def _add_obstacle(call: PoolCall, obstacle: Obstacle) -> PoolCall:
    by_nature = call.obstacle is not None and call.obstacle.by_nature
    return call if by_nature else PoolCall(call.location, call.function, None, obstacle)


def unwrap_partial(target: Any) -> tuple[Any, dict[str, Any]]:
    """A function, and what a ``functools.partial`` gave it by name."""
    if type(target) is functools.partial and not target.args:
        return target.func, target.keywords
    return target, {}


def _read_window(
    node: ast.Call, target: Any, bound: dict[str, Any], scope: Scope
) -> tuple[TorchPool | None, Obstacle | None]:
    if target in OTHER_FUNCTIONS:
        return None, OTHER_FUNCTIONS[target]
    if any(isinstance(arg, ast.Starred) for arg in node.args) or any(word.arg is None for word in node.keywords):
        return None, Obstacle.COMPUTED
    args = tuple(None if i == 0 else _EVALUATOR.evaluate(arg, scope) for i, arg in enumerate(node.args))
    words = {word.arg: _EVALUATOR.evaluate(word.value, scope) for word in node.keywords if word.arg != "input"}
    kwargs = {**bound, **{word: value for word, value in words.items() if word is not None}}
    if not all(isinstance(value, _ARGUMENTS) and not _holds_unknown(value) for value in (*args, *kwargs.values())):
        return None, Obstacle.COMPUTED
    try:
        torch_pool = read_call(target, args, kwargs)[1]
        torch_pool.window  # noqa: B018
    except (TypeError, ValueError):
        return None, Obstacle.ARGUMENTS
    return torch_pool, None


def _holds_unknown(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and any(part is UNKNOWN for part in value)


def is_pool(target: Any) -> bool:
    """Whether a value is one of PyTorch's pool functions."""
    try:
        return target in POOL_FUNCTIONS or target in OTHER_FUNCTIONS
    except Exception:  # not hashable, or lazy
        return False


@functools.lru_cache(maxsize=1024)
def parse_function(function: FunctionType) -> tuple[ast.Module, int]:
    """A function's source as a tree, and its first line in its file; an empty tree where there is no source."""
    try:
        lines, first = inspect.getsourcelines(function)
        text = "".join(lines)
        indent = len(text) - len(text.lstrip())
        # Columns stay those of the file.
        tree = ast.parse("if True:\n" + text) if indent else ast.parse(text)
        first = first - 1 if indent else first
        return (_find_lambda(tree, first, function) if function.__name__ == "<lambda>" else tree), first
    except (OSError, TypeError, SyntaxError, IndentationError):
        return ast.Module([], []), 0


def _find_lambda(tree: ast.Module, first: int, function: FunctionType) -> ast.Module:
    """The lambda alone; its source is all of the lines it stands on."""
    code = function.__code__
    ends = {find_position(code, offset) for offset in range(0, len(code.co_code), 2)}
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and _find_end(node.body, first) in ends]
    return ast.Module([ast.Expr(node) for node in lambdas[:1]], [])


def locate_call_node(node: ast.Call, function: FunctionType) -> tuple[str, CodeType] | None:
    """Where a call stands, as the router will see it, and the code it is in; None if it is in another function."""
    end = _find_end(node, parse_function(function)[1])
    code = _locate_calls(function.__code__).get(end)
    return None if code is None else (_format(function, code, end), code)


def _format(function: FunctionType, code: CodeType, end: Position) -> str:
    return format_location(function.__globals__.get("__name__", ""), code, end)


def _find_end(node: Any, first: int) -> Position:
    if sys.version_info < (3, 11):
        return node.lineno + first - 1, 0
    return node.end_lineno + first - 1, node.end_col_offset


@functools.lru_cache(maxsize=1024)
def _locate_calls(code: CodeType) -> dict[Position, CodeType]:
    """Where calls end, and in which code (a function's own, or that of a lambda or comprehension in it)."""
    codes: dict[Position, CodeType] = {}
    for inner in iter_codes(code):
        for instruction in dis.get_instructions(inner):
            if instruction.opname.startswith("CALL"):
                codes.setdefault(find_position(inner, instruction.offset), inner)
    return codes
