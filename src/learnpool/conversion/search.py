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
from .routing import Route, attributes
from .torch_pools import MODULES, OTHER_CALLS, OTHER_MODULES, Plain, alike, of_module, pool_class
from .trace import Call, watch

_INTERNAL = {*nn.Module().__dict__}


@dataclass(eq=False)
class Found:
    """One pool of a network, as it is before anything changes."""

    name: str
    was: str
    plain: Plain | None = None
    names: list[str] = field(default_factory=list)  # a module may have several
    left: str | None = None  # why it has to stay
    unreachable: str | None = None  # why nothing can be done about it
    module: nn.Module | None = None  # None for a functional call,
    owner: nn.Module | None = None  # which has an owner instead
    where: str = ""
    attribute: str = ""  # of the owner, for a pool that takes this call's place
    inputs: list[tuple[int, ...]] = field(default_factory=list)  # shapes the example showed
    vague: bool = False  # its window is worked out in forward
    turn: int = sys.maxsize  # when the example came by

    @property
    def open(self) -> bool:
        return self.left is None and self.unreachable is None

    @property
    def route(self) -> Route:
        assert self.plain is not None
        return (self.where, self.plain.kind, *self.plain.window.arguments)


def search(model: nn.Module, example: Any = None) -> list[Found]:
    """All pools of a network: in the order the example meets them, then in the order of ``model.named_modules()``."""
    found: list[Found] = []
    names = {id(module): name for name, module in reversed(list(model.named_modules(remove_duplicate=False)))}
    for name, module in model.named_modules():
        found += _pools(name, module)
    found += _hidden(model, names)
    if example is not None:
        _learn(found, watch(model, example), names)
    _number(found)
    for pool in found:
        if pool.module is not None:
            every = [name for name, module in model.named_modules(remove_duplicate=False) if module is pool.module]
            pool.names = every if pool.name in every else [pool.name]
    if found and found[0].module is model and found[0].open:
        found[0].unreachable = "it is the whole model: nothing holds it"
    return sorted(found, key=lambda pool: pool.turn)


def _pools(name: str, module: nn.Module) -> Iterator[Found]:
    was = f"nn.{type(module).__name__}" if type(module).__module__.startswith("torch.nn.") else type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        yield from _scripted(name, module)
    elif "_before" in module.__dict__ or isinstance(module, (TreeParameters, _WindowLayer)):
        yield Found(name, was, left="learns already", module=module)
    elif pool_class(module) is not None:
        plain = of_module(module)
        left = f"{type(module).__name__} has a forward of its own" if plain is None else plain.refusal
        yield Found(name, was, plain, left=left, module=module)
    elif (why := next((why for cls, why in OTHER_MODULES.items() if isinstance(module, cls)), None)) is not None:
        yield Found(name, was, left=why, module=module)
    elif not type(module).__module__.startswith("torch.nn."):
        known = {route[0] for route in attributes(module).values()}
        for site in source.sites(module):
            if site.where not in known:
                yield _functional(name, module, site.where, site.function, site.plain, site.why)


def _functional(
    name: str, owner: nn.Module, at: str, function: str, plain: Plain | None, why: str | None = None
) -> Found:
    label = f"{name}.{function}" if name else function
    pool = Found(label, f"F.{function}", plain, [label], owner=owner, where=at)
    if plain is None:
        known = why in OTHER_CALLS.values()
        pool.left, pool.unreachable = (why, None) if known else (None, why)
    elif plain.refusal is not None:
        pool.left = plain.refusal
    elif source.iterates(owner):
        pool.unreachable = f"{type(owner).__name__} walks over its submodules: it cannot be given one more"
    return pool


def _scripted(name: str, module: Any) -> Iterator[Found]:
    classes = {cls.__name__ for cls in (*MODULES, *OTHER_MODULES)}
    if module.original_name in classes:
        yield Found(name, f"nn.{module.original_name}", unreachable="compiled by TorchScript", module=module)
    elif hasattr(module, "code") and "_pool" in module.code:
        yield Found(name, module.original_name, unreachable="compiled by TorchScript: calls a pool", module=module)


def _hidden(model: nn.Module, names: dict[int, str]) -> Iterator[Found]:
    """Pools in plain lists and dicts, which a network computes with but does not own."""
    for name, owner in model.named_modules():
        for key, held in owner.__dict__.items():
            if key in _INTERNAL or not isinstance(held, (list, tuple, dict)):
                continue
            items = held.items() if isinstance(held, dict) else enumerate(held)
            for place_, item in items:
                if isinstance(item, nn.Module) and of_module(item) is not None:
                    label = f"{name}.{key}[{place_!r}]" if name else f"{key}[{place_!r}]"
                    why = f"in a plain {type(held).__name__}: use nn.ModuleList or nn.ModuleDict"
                    if id(item) in names:
                        why = f"the same as {names[id(item)]}, but in a plain {type(held).__name__}"
                    yield Found(
                        label, f"nn.{type(item).__name__}", of_module(item), [label], unreachable=why, module=item
                    )


def _learn(found: list[Found], calls: list[Call], names: dict[int, str]) -> None:
    """Take into ``found`` what an example showed: sizes, order, windows that only a running forward knows, and more."""
    modules = {id(pool.module): pool for pool in reversed(found) if pool.module is not None}
    for turn, call in enumerate(calls):
        if id(call.owner) not in names and id(call.owner) not in modules:
            modules[id(call.owner)] = _unowned(call)
            found.append(modules[id(call.owner)])
        pool = modules.get(id(call.owner)) or _site(found, call, names[id(call.owner)])
        _note(pool, call, turn)


def _site(found: list[Found], call: Call, owner: str) -> Found:
    """The functional call in ``found``, completed or added."""
    same = [pool for pool in found if pool.owner is call.owner and pool.where == call.where]
    known = next((pool for pool in same if alike(pool.plain, call.plain)), None)
    if known is None:
        known = _functional(owner, call.owner, call.where, call.function, call.plain, call.left)
        values = [
            pool for pool in found if pool.owner is call.owner and pool.unreachable in (source.VALUE, source.NO_SOURCE)
        ]
        vague = next((pool for pool in (*same, *values) if pool.plain is None and pool.was == known.was), None)
        if vague is None:
            found.append(known)
        else:
            known.vague, found[found.index(vague)] = True, known
    known.unreachable = known.unreachable or call.outside
    return known


def _number(found: list[Found]) -> None:
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


def _unowned(call: Call) -> Found:
    name = f"({type(call.owner).__name__})"
    return Found(name, f"F.{call.function}", call.plain, [name], None, "no module of the model holds it", call.owner)


def _note(pool: Found, call: Call, turn: int) -> None:
    pool.turn = min(pool.turn, turn)
    if call.shape not in pool.inputs:
        pool.inputs.append(call.shape)
    if not pool.open or pool.plain is None:
        return
    window, size = pool.plain.window, call.shape[-pool.plain.dims :]
    # A window of 3 over a map of 3 is a small example, not a global pool.
    if window.kernel == tuple(size) and not any(window.padding) and (max(size) > 3 or pool.vague):
        pool.left = f"global: its window covers the whole input {'×'.join(map(str, size))}"
    elif call.infinite:
        pool.left = "its input holds −inf (padding by hand): an average of it would too"
