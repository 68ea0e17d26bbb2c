"""Calls where pools may stand, found by reading a module's forward, and the methods and functions it calls."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .calls import (
    ADAPTIVE_FUNCTIONS,
    CONVOLUTIONS,
    FUNCTIONS,
    METHODS,
    POOL_FUNCTIONS,
    SLICE,
    Call,
    name_arguments,
    name_function,
    read_call,
)
from .convolutions import Original
from .evaluation import UNKNOWN, Evaluator, Scope, as_function, get_forward, iter_codes
from .routing import Position, find_position, format_location
from .torch_pools import Obstacle, TorchPool

_EVALUATOR = Evaluator()
_ARGUMENTS = (int, tuple, list, str, type(None))
_NAMES = {function.__name__ for function in POOL_FUNCTIONS}
_SUBSCRIPTS = ("BINARY_SUBSCR", "BINARY_OP")
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
    """A call in a forward that a pool may take part in: where and what it is, or why that is not known."""

    location: str
    function: str
    original: Original | None
    obstacle: Obstacle | None = None


def find_calls(module: nn.Module, functions: Collection[Any]) -> list[PoolCall]:
    """The calls of ``functions`` in a module's own forward, in the order of the source."""
    calls: dict[str, PoolCall] = {}
    scopes = collect_functions(module)
    for scope in scopes:
        calls.update((call.location, call) for call in _find_calls_in(scope, functions))
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


def _find_calls_in(scope: Scope, functions: Collection[Any]) -> Iterator[PoolCall]:
    function = scope.function
    tree, first = parse_function(function)
    if not first:
        names = {name for code in iter_codes(function.__code__) for name in code.co_names} & _NAMES
        for name in sorted(names):
            yield PoolCall(f"{function.__qualname__}:{name}", name, None, Obstacle.NO_SOURCE)
        return
    called = set()
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Subscript))]
    for node in sorted(nodes, key=lambda node: _find_end(node, first)):
        if isinstance(node, ast.Subscript):
            target, bound = SLICE if is_strided_slice(node) else UNKNOWN, dict[str, Any]()
        else:
            target, bound = resolve_target(node, _EVALUATOR.evaluate(node.func, scope))
        if not _is_one_of(target, functions):
            continue
        called.add(node.func if isinstance(node, ast.Call) else node)
        located = locate_call_node(node, function)
        call = _read_call(node, target, bound, scope) if located is not None else None
        if located is not None and call is not None:
            location, code = located
            place = PoolCall(location, name_function(target), call.original, call.obstacle)
            yield _add_obstacle(place, Obstacle.DEFERRED) if _is_deferred(code, function) else place
    for value in ast.walk(tree):
        if isinstance(value, (ast.Name, ast.Attribute)) and value not in called and isinstance(value.ctx, ast.Load):
            target, _ = unwrap_partial(_EVALUATOR.evaluate(value, scope))
            if _is_one_of(target, {*POOL_FUNCTIONS, *ADAPTIVE_FUNCTIONS}):
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


def resolve_target(node: ast.Call, value: Any) -> tuple[Any, dict[str, Any]]:
    """The torch function behind a call of ``value``, or of a tensor's method, and what a partial gave it by name."""
    target, bound = unwrap_partial(value)
    if target is UNKNOWN and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        target = METHODS[node.func.attr]
    return target, bound


def is_strided_slice(node: ast.Subscript) -> bool:
    """Whether something is sliced with steps along several axes: only tensors are."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    return any(isinstance(part, ast.Slice) and part.step is not None for part in parts)


def _read_call(node: Any, target: Any, bound: dict[str, Any], scope: Scope) -> Call | None:
    """A call as data; None if it is at no place for a pool, as far as its arguments tell."""
    if target is SLICE:
        return None if _takes_all_phases(scope.function) else read_call(SLICE, (None, _read_index(node, scope)), {})
    # By nature a pool, whose window may not be known; a mean may be of anything.
    unknown = Obstacle.ADAPTIVE_COMPUTED if target in ADAPTIVE_FUNCTIONS else Obstacle.COMPUTED
    otherwise = None if target in METHODS.values() else Call(None, obstacle=unknown)
    if any(isinstance(arg, ast.Starred) for arg in node.args) or any(word.arg is None for word in node.keywords):
        return otherwise
    is_method = target in METHODS.values() and _EVALUATOR.evaluate(node.func, scope) is UNKNOWN
    values = [_EVALUATOR.evaluate(arg, scope) for arg in node.args]
    args = (None, *(values if is_method else values[1:]))
    words = {word.arg: _EVALUATOR.evaluate(word.value, scope) for word in node.keywords if word.arg != "input"}
    arguments = name_arguments(target, args, {**bound, **{name: value for name, value in words.items() if name}})
    stride = arguments.get("stride", 1)
    if target in CONVOLUTIONS and isinstance(stride, (int, tuple)) and stride in (1, (1,) * CONVOLUTIONS[target]):
        return None
    numbers = {name: value for name, value in arguments.items() if name not in ("weight", "bias")}
    if not all(isinstance(value, _ARGUMENTS) and not _holds_unknown(value) for value in numbers.values()):
        return otherwise
    if target in CONVOLUTIONS and not isinstance(arguments.get("weight"), Tensor):
        return otherwise
    try:
        call = read_call(target, (), arguments)
        if call is not None and isinstance(call.original, TorchPool):
            call.original.window  # noqa: B018
    except (TypeError, ValueError):
        return Call(None, obstacle=Obstacle.ARGUMENTS)
    return call


def _read_index(node: ast.Subscript, scope: Scope) -> Any:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    return tuple(_EVALUATOR.evaluate(part, scope) for part in parts)


@functools.lru_cache(maxsize=1024)
def _takes_all_phases(function: FunctionType) -> bool:
    """Whether a function slices with a step and an offset too: space to depth, which loses nothing."""
    slices = (node for node in ast.walk(parse_function(function)[0]) if isinstance(node, ast.Slice))
    starts = (node.lower for node in slices if node.step is not None and node.lower is not None)
    return any(not (isinstance(start, ast.Constant) and start.value == 0) for start in starts)


def _holds_unknown(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and any(part is UNKNOWN for part in value)


def is_place(target: Any) -> bool:
    """Whether a value is a torch function that a pool may take part in."""
    return _is_one_of(target, FUNCTIONS)


def _is_one_of(target: Any, functions: Collection[Callable[..., Any]]) -> bool:
    try:
        return target in functions
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


def locate_call_node(node: ast.expr, function: FunctionType) -> tuple[str, CodeType] | None:
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
            if instruction.opname.startswith(("CALL", *_SUBSCRIPTS)):
                codes.setdefault(find_position(inner, instruction.offset), inner)
    return codes
