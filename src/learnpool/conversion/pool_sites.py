"""The pools of a network: its modules, the functional calls of its forwards, and what an example shows of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..layers import _WindowLayer
from ..parameters import TreeParameters
from . import source
from .routing import Route, get_routes
from .torch_pools import (
    OTHER_FUNCTIONS,
    OTHER_MODULES,
    POOL_MODULES,
    TorchPool,
    find_pool_class,
    is_same_pool,
    read_module,
)
from .trace import TracedCall, trace_calls

_INTERNAL = {*nn.Module().__dict__}


@dataclass(eq=False)
class PoolSite:
    """One pool of a network, as it is before anything changes."""

    name: str
    was: str
    torch_pool: TorchPool | None = None
    names: list[str] = field(default_factory=list)  # a module may have several
    left: str | None = None  # why it has to stay
    unreachable: str | None = None  # why nothing can be done about it
    module: nn.Module | None = None  # None for a functional call,
    owner: nn.Module | None = None  # which has an owner instead
    location: str = ""
    attribute: str = ""  # of the owner, for a pool that takes this call's place
    inputs: list[tuple[int, ...]] = field(default_factory=list)  # shapes the example showed
    computed: bool = False  # its window is worked out in forward
    turn: int = sys.maxsize  # when the example came by

    @property
    def replaceable(self) -> bool:
        return self.left is None and self.unreachable is None

    @property
    def route(self) -> Route:
        assert self.torch_pool is not None
        return (self.location, self.torch_pool.kind, *self.torch_pool.window.arguments)


def find_pools(model: nn.Module, example: Any = None) -> list[PoolSite]:
    """All pools of a network: in the order the example meets them, then in the order of ``model.named_modules()``."""
    found: list[PoolSite] = []
    names = {id(module): name for name, module in reversed(list(model.named_modules(remove_duplicate=False)))}
    for name, module in model.named_modules():
        found += _find_in_module(name, module)
    found += _find_in_containers(model, names)
    if example is not None:
        _add_traced(found, trace_calls(model, example), names)
    _number_calls(found)
    for pool in found:
        if pool.module is not None:
            every = [name for name, module in model.named_modules(remove_duplicate=False) if module is pool.module]
            pool.names = every if pool.name in every else [pool.name]
    if found and found[0].module is model and found[0].replaceable:
        found[0].unreachable = "it is the whole model: nothing holds it"
    return sorted(found, key=lambda pool: pool.turn)


def _find_in_module(name: str, module: nn.Module) -> Iterator[PoolSite]:
    was = f"nn.{type(module).__name__}" if type(module).__module__.startswith("torch.nn.") else type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        yield from _find_scripted(name, module)
    elif "_old_pool" in module.__dict__ or isinstance(module, (TreeParameters, _WindowLayer)):
        yield PoolSite(name, was, left="learns already", module=module)
    elif find_pool_class(module) is not None:
        torch_pool = read_module(module)
        left = f"{type(module).__name__} has a forward of its own" if torch_pool is None else torch_pool.refusal
        yield PoolSite(name, was, torch_pool, left=left, module=module)
    elif (why := next((why for cls, why in OTHER_MODULES.items() if isinstance(module, cls)), None)) is not None:
        yield PoolSite(name, was, left=why, module=module)
    elif not type(module).__module__.startswith("torch.nn."):
        known = {route[0] for route in get_routes(module).values()}
        for site in source.find_calls(module):
            if site.location not in known:
                yield _describe_call(name, module, site.location, site.function, site.torch_pool, site.why)


def _describe_call(
    name: str, owner: nn.Module, at: str, function: str, torch_pool: TorchPool | None, why: str | None = None
) -> PoolSite:
    label = f"{name}.{function}" if name else function
    pool = PoolSite(label, f"F.{function}", torch_pool, [label], owner=owner, location=at)
    if torch_pool is None:
        known = why in OTHER_FUNCTIONS.values()
        pool.left, pool.unreachable = (why, None) if known else (None, why)
    elif torch_pool.refusal is not None:
        pool.left = torch_pool.refusal
    elif source.iterates_submodules(owner):
        pool.unreachable = f"{type(owner).__name__} walks over its submodules: it cannot be given one more"
    return pool


def _find_scripted(name: str, module: Any) -> Iterator[PoolSite]:
    classes = {cls.__name__ for cls in (*POOL_MODULES, *OTHER_MODULES)}
    if module.original_name in classes:
        yield PoolSite(name, f"nn.{module.original_name}", unreachable="compiled by TorchScript", module=module)
    elif hasattr(module, "code") and "_pool" in module.code:
        yield PoolSite(name, module.original_name, unreachable="compiled by TorchScript: calls a pool", module=module)


def _find_in_containers(model: nn.Module, names: dict[int, str]) -> Iterator[PoolSite]:
    """Pools in plain lists and dicts, which a network computes with but does not own."""
    for name, owner in model.named_modules():
        for key, held in owner.__dict__.items():
            if key in _INTERNAL or not isinstance(held, (list, tuple, dict)):
                continue
            items = held.items() if isinstance(held, dict) else enumerate(held)
            for key_, item in items:
                if isinstance(item, nn.Module) and read_module(item) is not None:
                    label = f"{name}.{key}[{key_!r}]" if name else f"{key}[{key_!r}]"
                    why = f"in a plain {type(held).__name__}: use nn.ModuleList or nn.ModuleDict"
                    if id(item) in names:
                        why = f"the same as {names[id(item)]}, but in a plain {type(held).__name__}"
                    yield PoolSite(
                        label, f"nn.{type(item).__name__}", read_module(item), [label], unreachable=why, module=item
                    )


def _add_traced(found: list[PoolSite], calls: list[TracedCall], names: dict[int, str]) -> None:
    """Take into ``found`` what an example showed: sizes, order, windows that only a running forward knows, and more."""
    modules = {id(pool.module): pool for pool in reversed(found) if pool.module is not None}
    for turn, call in enumerate(calls):
        if id(call.owner) not in names and id(call.owner) not in modules:
            modules[id(call.owner)] = _describe_unowned(call)
            found.append(modules[id(call.owner)])
        pool = modules.get(id(call.owner)) or _match_call(found, call, names[id(call.owner)])
        _record(pool, call, turn)


def _match_call(found: list[PoolSite], call: TracedCall, owner: str) -> PoolSite:
    """The functional call in ``found``, completed or added."""
    same = [pool for pool in found if pool.owner is call.owner and pool.location == call.location]
    known = next((pool for pool in same if is_same_pool(pool.torch_pool, call.torch_pool)), None)
    if known is None:
        known = _describe_call(owner, call.owner, call.location, call.function, call.torch_pool, call.left)
        values = [
            pool for pool in found if pool.owner is call.owner and pool.unreachable in (source.VALUE, source.NO_SOURCE)
        ]
        computed = next((pool for pool in (*same, *values) if pool.torch_pool is None and pool.was == known.was), None)
        if computed is None:
            found.append(known)
        else:
            known.computed, found[found.index(computed)] = True, known
    known.unreachable = known.unreachable or call.outside
    return known


def _number_calls(found: list[PoolSite]) -> None:
    """Name functional calls by their owner and a number: ``Mixed_6a.max_pool2d_0``."""
    taken: set[tuple[int, str]] = set()
    for pool in found:
        if pool.owner is not None:
            number = 0
            while (id(pool.owner), name := f"{pool.name}_{number}") in taken or hasattr(
                pool.owner, name.split(".")[-1]
            ):
                number += 1
            taken.add((id(pool.owner), name))
            pool.name, pool.names, pool.attribute = name, [name], name.split(".")[-1]


def _describe_unowned(call: TracedCall) -> PoolSite:
    name = f"({type(call.owner).__name__})"
    return PoolSite(
        name, f"F.{call.function}", call.torch_pool, [name], None, "no module of the model holds it", call.owner
    )


def _record(pool: PoolSite, call: TracedCall, turn: int) -> None:
    pool.turn = min(pool.turn, turn)
    if call.shape not in pool.inputs:
        pool.inputs.append(call.shape)
    if not pool.replaceable or pool.torch_pool is None:
        return
    window, size = pool.torch_pool.window, call.shape[-pool.torch_pool.dims :]
    # A window of 3 over a map of 3 is a small example, not a global pool.
    if window.kernel == tuple(size) and not any(window.padding) and (max(size) > 3 or pool.computed):
        pool.left = f"global: its window covers the whole input {'×'.join(map(str, size))}"
    elif call.infinite:
        pool.left = "its input holds −inf (padding by hand): an average of it would too"
