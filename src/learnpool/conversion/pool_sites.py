"""The pools of a network: its modules, the functional calls of its forwards, and what an example shows of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..layers import WindowLayer
from ..ops.operator import FLOATS
from ..ops.window import format_size
from ..parameters import TreeParameters
from . import source
from .calls import CONVOLUTIONS, select_functions
from .convolutions import Convolution, Original, is_same, read_convolution, simplify
from .order import read_order
from .routing import get_routes
from .sites import PoolSite, choose_attribute
from .torch_pools import (
    OTHER_MODULES,
    POOL_MODULES,
    GlobalPool,
    Obstacle,
    TorchPool,
    find_pool_class,
    read_module,
)
from .trace import TracedCall, trace_calls

_INTERNAL = {*nn.Module().__dict__}
_MOST_TAPS = 1024  # of a window that is not global, as far as anyone has seen
_METHODS = {"mean": "x.mean", "amax": "x.amax", "slice": "x[…]"}
_SCRIPTED = "compiled by TorchScript"
_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")


def find_sites(model: nn.Module, kinds: Sequence[str], example: Any) -> list[PoolSite]:
    """All pools of a network, and other places of these kinds, in the order they run in: as the example meets them,
    or as the source tells.
    """
    sites: list[PoolSite] = []
    functions = select_functions(kinds)
    named = list(iter_names(model))
    names = {id(module): name for name, module in reversed(named)}
    for name, module in model.named_modules():
        sites += _find_in_module(name, module, functions)
    sites += _find_in_containers(model, names, {*CONVOLUTIONS} <= functions)
    if example is not None:
        calls, others = trace_calls(model, example, functions)
        _add_example(model, sites, calls, names)
        places = {(id(owner), location) for owner, location in others}
        sites = [pool for pool in sites if pool.calls or pool.original or (id(pool.owner), pool.location) not in places]
        batch = _count_images(example)
        for pool in sites:
            pool.batch = batch
            _judge_window(pool, "global" in kinds)
        _merge_global_calls(sites)
    else:
        _add_order(model, sites)
    _number_calls(sites)
    for pool in sites:
        if pool.module is not None:
            every = [name for name, module in named if module is pool.module]
            pool.names = every if pool.name in every else [pool.name]
        if pool.module is model and pool.owner is None and pool.replaceable:
            pool.unreachable_reason = "it is the whole model: nothing holds it"
    return sorted(sites, key=lambda pool: pool.order_index)


def _count_images(example: Any) -> int:
    values = example.values() if isinstance(example, dict) else example
    values = values if isinstance(example, (tuple, list, dict)) else (example,)
    sized = (value for value in values if isinstance(value, list) or (isinstance(value, Tensor) and value.dim()))
    return next(filter(None, map(len, sized)), 1)


def iter_names(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """``model.named_modules(remove_duplicate=False)``, also where a module holds one that holds it."""
    stack: list[tuple[str, nn.Module, tuple[int, ...]]] = [("", model, ())]
    while stack:
        name, module, path = stack.pop()
        yield name, module
        inner = (*path, id(module))
        children = [(key, child) for key, child in module._modules.items() if child is not None]
        for key, child in reversed(children):
            if id(child) not in inner:
                stack.append((f"{name}.{key}" if name else key, child, inner))


def _find_in_module(name: str, module: nn.Module, functions: set[Any]) -> Iterator[PoolSite]:
    was = f"nn.{type(module).__name__}" if type(module).__module__.startswith("torch.nn.") else type(module).__name__
    is_torch = type(module).__module__.startswith("torch.nn.")
    if {*CONVOLUTIONS} <= functions:
        yield from _find_convolution(name, was, module)
        functions = functions - {*CONVOLUTIONS} if read_convolution(module) is not None else functions
    if isinstance(module, torch.jit.ScriptModule):
        yield from _find_scripted(name, module)
    elif "_old_pool" in module.__dict__ or isinstance(module, (TreeParameters, WindowLayer)):
        yield PoolSite(name, was, left_reason="learns already", module=module)
    elif (original := _read_pool(module)) is not None:
        yield PoolSite(name, was, original, left_reason=original.refusal, module=module)
    elif (why := next((why for cls, why in OTHER_MODULES.items() if isinstance(module, cls)), None)) is not None:
        yield PoolSite(name, was, left_reason=why.value, obstacle=why, module=module)
    elif find_pool_class(module) is not None or not is_torch:
        calls = source.find_calls(module, functions)
        if not calls and find_pool_class(module) is not None:
            reason, why = f"{type(module).__name__} has a forward of its own", Obstacle.OWN_FORWARD
            yield PoolSite(name, was, left_reason=reason, obstacle=why, module=module)
        known = {route[0] for route in get_routes(module).values()}
        for call in calls:
            if call.location not in known:
                yield _make_call_site(name, module, call.location, call.function, call.original, call.obstacle)


def _read_pool(module: nn.Module) -> Original | None:
    pool = read_module(module)
    return simplify(pool) if isinstance(pool, TorchPool) else pool


def _find_convolution(name: str, was: str, module: nn.Module) -> Iterator[PoolSite]:
    convolution = read_convolution(module)
    if convolution is not None and isinstance(module, torch.jit.ScriptModule):
        was = f"nn.{module.original_name}"
        yield PoolSite(name, was, convolution, unreachable_reason=_SCRIPTED, module=module)
        return
    if convolution is not None and not get_routes(module):
        why = None
        if getattr(module, "qconfig", None) is not None:
            why = "prepared for quantisation: convert the network first, then prepare it"
        elif any(is_lazy(p) for p in module.parameters()):
            why = "lazy, without its sizes: run the network once before"
        attribute = choose_attribute(module)
        yield PoolSite(name, was, convolution, unreachable_reason=why, module=module, owner=module, attribute=attribute)
        return
    stride = getattr(module, "stride", 1)
    is_strided = isinstance(stride, tuple) and hasattr(module, "in_channels") and max(stride) > 1
    if is_strided and type(module).__module__.startswith(_QUANTIZED):
        why = "quantised: convert the network first, then quantise it"
        yield PoolSite(name, was, unreachable_reason=why, module=module)


def _make_call_site(
    name: str, owner: nn.Module, at: str, function: str, original: Original | None, obstacle: Obstacle | None
) -> PoolSite:
    label = f"{name}.{function}" if name else function
    was = _METHODS.get(function, f"F.{function}")
    pool = PoolSite(label, was, original, [label], obstacle=obstacle, owner=owner, location=at)
    if obstacle is not None:
        pool.left_reason, pool.unreachable_reason = (
            (obstacle.value, None) if obstacle.by_nature else (None, obstacle.value)
        )
    elif original is not None and original.refusal is not None:
        pool.left_reason = original.refusal
    elif source.iterates_submodules(owner):
        pool.unreachable_reason = f"{type(owner).__name__} walks over its submodules: it cannot be given one more"
    return pool


def _find_scripted(name: str, module: Any) -> Iterator[PoolSite]:
    classes = {cls.__name__ for cls in (*POOL_MODULES, *OTHER_MODULES)}
    if module.original_name in classes:
        yield PoolSite(name, f"nn.{module.original_name}", unreachable_reason=_SCRIPTED, module=module)
    elif hasattr(module, "code") and "_pool" in module.code:
        why = f"{_SCRIPTED}: calls a pool"
        yield PoolSite(name, module.original_name, unreachable_reason=why, module=module)


def _find_in_containers(model: nn.Module, names: dict[int, str], convolutions: bool) -> Iterator[PoolSite]:
    """Pools and strided convolutions in plain lists and dicts, which are not registered as submodules."""
    for name, owner in model.named_modules():
        for key, container in owner.__dict__.items():
            if key in _INTERNAL or not issubclass(type(container), (list, tuple, dict)):  # isinstance asks lazy objects
                continue
            items = container.items() if isinstance(container, dict) else enumerate(container)
            for key_, item in items:
                original = _read_pool(item) if issubclass(type(item), nn.Module) else None
                if convolutions and original is None and id(item) not in names:  # a known one stays the same module
                    original = read_convolution(item)
                if original is not None:
                    label = f"{name}.{key}[{key_!r}]" if name else f"{key}[{key_!r}]"
                    why = f"in a plain {type(container).__name__}: use nn.ModuleList or nn.ModuleDict"
                    if id(item) in names:
                        why = f"the same as {names[id(item)]}, but in a plain {type(container).__name__}"
                    was = f"nn.{type(item).__name__}"
                    yield PoolSite(label, was, original, [label], unreachable_reason=why, module=item)


def _add_order(model: nn.Module, sites: list[PoolSite]) -> None:
    """Add to ``sites`` what the source of forward says: the order, and which pools are never called."""
    order = read_order(model, [pool.key for pool in sites])
    for index, use in enumerate(order.uses):
        for pool in sites:
            if pool.key == use.key:
                pool.order_is_certain = use.certain if pool.order_index > index else pool.order_is_certain
                pool.order_index = min(pool.order_index, index)
                pool.uses += use.certain
    unseen = [pool for pool in sites if pool.order_index == sys.maxsize and pool.replaceable]
    for pool in sites:
        pool.order_is_certain = pool.order_is_certain and (order.complete or not unseen)
        if pool.replaceable and isinstance(pool.original, TorchPool):
            kernel = pool.original.window.kernel
            if math.prod(kernel) > _MOST_TAPS:
                pool.left_reason = f"a window of {format_size(kernel)} looks global: give example="
    for pool in unseen if order.complete else ():
        pool.idle_reason = "forward never calls it: no gradient"


def _add_example(model: nn.Module, sites: list[PoolSite], calls: list[TracedCall], names: dict[int, str]) -> None:
    """Add to ``sites`` what the example showed: sizes, order, and windows that are computed in forward."""
    modules = {id(pool.module): pool for pool in reversed(sites) if pool.module is not None}
    for index, call in enumerate(calls):
        site = modules.get(id(call.owner))
        if site is not None and isinstance(site.original, Convolution) != isinstance(call.original, Convolution):
            site = None  # a pool called in the forward of a convolution
        if site is not None and site.obstacle is Obstacle.OWN_FORWARD:
            sites.remove(site)
            del modules[id(call.owner)]
            site = None
        if site is None and id(call.owner) not in names:
            site = modules[id(call.owner)] = _make_unowned_site(call)
            sites.append(site)
        site = site or _match_call(sites, call, names[id(call.owner)])
        site.unreachable_reason = site.unreachable_reason or call.outside_reason
        _record_call(site, call, index)
    for pool in sites:
        pool.order_is_certain = True
        if pool.calls:
            continue
        if pool.obstacle is not None and pool.obstacle.needs_example:
            reason = f"{pool.obstacle.value.split(':')[0]}, and the example never reached it"
            pool.left_reason, pool.unreachable_reason = (
                (None, reason) if pool.left_reason is None else (pool.left_reason, None)
            )
        elif pool.replaceable:
            pool.idle_reason = "the example never reached it: no gradient from such inputs"
    unreached = [pool for pool in sites if pool.idle_reason and pool.module is None]
    trained = {use.key for use in read_order(model, [pool.key for pool in unreached], True).uses if use.certain}
    for pool in (pool for pool in unreached if pool.key in trained):
        pool.idle_reason = ""
        pool.remarks.append("in training alone")


def _match_call(sites: list[PoolSite], call: TracedCall, owner: str) -> PoolSite:
    """The site of a traced call: the one in ``sites`` at the same location, or a new one."""
    same = [pool for pool in sites if pool.owner is call.owner and pool.location == call.location]
    site = next((pool for pool in same if is_same(pool.original, call.original)), None)
    if site is None:
        site = _make_call_site(owner, call.owner, call.location, call.function, call.original, call.obstacle)
        unlocated = (Obstacle.PASSED_ON, Obstacle.NO_SOURCE)
        unlocated_sites = [pool for pool in sites if pool.owner is call.owner and pool.obstacle in unlocated]
        incomplete = next(
            (pool for pool in (*same, *unlocated_sites) if pool.original is None and pool.was == site.was), None
        )
        if incomplete is None:
            sites.append(site)
        else:
            site.window_is_computed = incomplete.obstacle in (Obstacle.COMPUTED, *unlocated)
            sites[sites.index(incomplete)] = site
    return site


def _number_calls(sites: list[PoolSite]) -> None:
    """Name functional calls by their owner and a number: ``Mixed_6a.max_pool2d_0``."""
    used_names: set[tuple[int, str]] = set()
    for pool in sites:
        if pool.owner is not None and pool.module is None:
            number = 0
            while (id(pool.owner), name := f"{pool.name}_{number}") in used_names or hasattr(
                pool.owner, name.split(".")[-1]
            ):
                number += 1
            used_names.add((id(pool.owner), name))
            pool.name, pool.names, pool.attribute = name, [name], name.split(".")[-1]


def _make_unowned_site(call: TracedCall) -> PoolSite:
    name, why = f"({type(call.owner).__name__})", "no module of the model holds it"
    return PoolSite(name, f"F.{call.function}", call.original, [name], unreachable_reason=why, module=call.owner)


def _record_call(pool: PoolSite, call: TracedCall, index: int) -> None:
    pool.order_index, pool.uses = min(pool.order_index, index), pool.uses + 1
    pool.calls.append((call.original, call.shape))
    pool.activation = call.activation if len(pool.calls) == 1 else None
    if pool.replaceable and call.input.dtype not in FLOATS:
        pool.left_reason = f"its input is {str(call.input.dtype).removeprefix('torch.')}, not floating point"
    if not pool.replaceable or not isinstance(pool.original, TorchPool):
        return
    guarded = pool.owner is not None and call.padding is not None and call.padding.can_replicate(pool.original)
    if call.other_purpose is not None:
        pool.left_reason = call.other_purpose
    elif call.meets_minus_infinity and not guarded:
        pool.left_reason = "its input holds −inf: an average of it would too"


def _merge_global_calls(sites: list[PoolSite]) -> None:
    """Make one pool of a call that covers maps of several sizes, each by a window of its own."""
    first: dict[Any, PoolSite] = {}
    for pool in [*sites]:
        if pool.owner is None or not isinstance(pool.original, GlobalPool) or pool.original.window_pool is None:
            continue
        same = first.setdefault((id(pool.owner), pool.route), pool)
        if same is not pool:
            same.calls, same.uses = [*same.calls, *pool.calls], same.uses + pool.uses
            sites.remove(pool)


def _judge_window(pool: PoolSite, replaces_global: bool) -> None:
    """Take a pool whose window covers the whole map for a global pool, or leave it."""
    original = pool.original
    if not pool.replaceable or not isinstance(original, TorchPool):
        return
    # A window of 3 over a map of 3 is a small example, not a global pool.
    is_wide = max(original.window.kernel) > 3 or pool.window_is_computed
    sizes = [shape[-original.dims :] for _, shape in pool.calls]
    covered = [size for size in sizes if is_wide and original.covers(size)]
    if covered and replaces_global and len(covered) == len(sizes):
        pool.original = GlobalPool(original.kind, original.dims, window_pool=original)
    elif covered:
        pool.left_reason = f"global: its window covers the whole input {format_size(covered[0])}"
