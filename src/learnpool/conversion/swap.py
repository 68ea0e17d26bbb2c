"""Swap the pools of any network for pools that learn, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import sharing
from ..names import parse
from ..starts import STARTS
from ..tree import Tree
from .optimizers import Growth, grow, listed
from .replacements import Choice, Plan, build, choose
from .report import Report, Row, title
from .routing import attributes, route, unroute
from .search import Found, search

_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip


@dataclass
class Before:
    """What a new pool stands for; kept on that pool, outside of its state_dict, so that copies and pickles have it."""

    plain: nn.Module  # computes what was there before: a bare PyTorch pool without hooks
    original: nn.Module | None  # the module that was replaced; None for a functional call


@dataclass(frozen=True)
class Swap:
    """One pool that was replaced: ``new`` is in the network at ``name``, ``old`` computes what was there before."""

    name: str
    new: nn.Module
    old: nn.Module


def convert(
    model: nn.Module,
    pool: str | Tree | Callable[[nn.Module], Any] = "gated",
    *,
    only: Choice | None = None,
    skip: Choice | None = None,
    replace: Sequence[str] = ("max",),
    share: str | None = None,
    start: str = "paper",
    optimizers: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    example: Any = None,
) -> Report:
    """Replace the max pools of a network by pools that learn, in place; all of them or, if anything is wrong, none.

    ``pool`` is a pool's name (``tree2+gated``: a tree first, gated after), a tree, or a function of the old layer that
    returns a layer, a name, a tree, or None to keep it. ``only`` and ``skip`` choose by name pattern (``layer1.*``), by
    a function of the old layer such as ``downsampling``, or by a list of these. ``replace`` names the kinds: ``max``,
    ``avg``. ``start`` is that of the layers, or ``same``: begin as the old pool where that is possible. New parameters
    go to the ``optimizers`` given, each to the one that owns its neighbours. ``example`` (a tensor, a tuple of
    arguments or a dict of them) is run once, to see sizes, order, and windows that only a running forward knows.

    >>> print(convert(model, "gated", only=downsampling))
    """
    _check(model, pool, replace, share, start)
    given = listed(model, optimizers)
    found = search(model, example)
    if not found:
        raise ValueError(f"convert: {type(model).__name__} has no pools")
    choose(found, only, skip, tuple(replace))
    plans = build(model, found, pool, share, start, example is not None)
    if not plans:
        seen = "; ".join(f"{pool.name or 'the model'}: {pool.left or pool.unreachable}" for pool in found)
        raise ValueError(f"convert: nothing to replace in {type(model).__name__}: {seen}")
    growths = grow(model, plans, given)
    _apply(model, found, plans, growths)
    return _report(found, plans, tuple(growth.note for growth in growths))


def restore(model: nn.Module) -> list[str]:
    """Put back the pools that ``convert`` replaced, and say where; the optimizers still hold the new parameters."""
    _module("restore", model)
    done = swaps(model)
    if not done:
        raise ValueError(f"restore: {type(model).__name__} has no pools that convert put there")
    routed = {id(module._modules[name]) for module in model.modules() for name in attributes(module)}
    _take_back(model, {id(swap.new) for swap in done} | routed)
    return [swap.name for swap in done]


def swaps(model: nn.Module) -> list[Swap]:
    """The pools that ``convert`` put into a network, once each, in the order of ``model.modules()``."""
    found = ((name, module, module.__dict__.get("_before")) for name, module in model.named_modules())
    return [Swap(name, module, before.plain) for name, module, before in found if isinstance(before, Before)]


def _module(name: str, model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name}: model must be an nn.Module, got {type(model).__name__}")


def _check(model: Any, pool: Any, replace: Any, share: Any, start: Any) -> None:
    _module("convert", model)
    if not isinstance(pool, (str, Tree)) and (not callable(pool) or isinstance(pool, (type, nn.Module))):
        raise TypeError(f"convert: pool must be a pool's name, a tree or a function of the old layer, got {pool!r}")
    kinds = (replace,) if isinstance(replace, str) else tuple(replace)
    if isinstance(replace, str) or not kinds or not set(kinds) <= {"max", "avg"}:
        raise ValueError(f"convert: replace must be a tuple of 'max' and 'avg', got {replace!r}")
    if share is not None:
        sharing.check_share("convert", share)
    if start not in (*STARTS, "same"):
        raise ValueError(f"convert: start must be one of {', '.join((*STARTS, 'same'))}, got {start!r}")
    if isinstance(pool, str):
        parse(pool, share)
    if start == "same" and any(p.is_meta for p in model.parameters()):
        raise ValueError('convert: start="same" sets values, and a model on the meta device has none')
    for module in model.modules():
        if isinstance(module, nn.parallel.DistributedDataParallel):
            raise ValueError("convert: convert the network first, then wrap it in DistributedDataParallel")
    if any(hasattr(p, "device_mesh") for p in model.parameters()):
        raise ValueError("convert: convert the network first, then shard it")


def _apply(
    model: nn.Module,
    found: list[Found],
    plans: list[Plan],
    growths: list[Growth],
) -> None:
    """Change the model and its optimizers; if that fails half-way, change them back."""
    kept: set[int] = set()
    try:
        for plan in plans:
            _swap(model, plan)
        _keep(found, plans, kept)
        for growth in growths:
            growth.apply()
    except BaseException:
        for growth in growths:
            growth.undo()
        _take_back(model, {id(plan.new) for plan in plans} | kept)
        raise


def _swap(model: nn.Module, plan: Plan) -> None:
    old, plain = plan.found, plan.found.plain
    assert plain is not None
    plan.new.__dict__["_before"] = Before(plain.module(), old.module)
    if old.owner is not None:
        old.owner.add_module(old.attribute, plan.new)
        route(old.owner, {old.route: old.attribute})
        return
    assert old.module is not None
    for name in _HOOKS:
        # One dict for both: a handle the user kept still removes its hook, and restore finds hooks added meanwhile.
        theirs, ours = old.module.__dict__.get(name), plan.new.__dict__.get(name)
        if theirs is not None and not ours:
            plan.new.__dict__[name] = theirs
        elif theirs:
            ours.update(theirs)  # type: ignore[union-attr]
    _put(model, old.module, plan.new)


def _keep(found: list[Found], plans: list[Plan], kept: set[int]) -> None:
    """A call that stays, of the same code as one that is replaced further out, is routed to what it was."""
    owners: dict[Any, list[nn.Module]] = {}
    for plan in plans:
        if plan.found.owner is not None:
            owners.setdefault(plan.found.route, []).append(plan.found.owner)
    changed = {id(plan.found) for plan in plans}
    for pool in found:
        if pool.owner is None or pool.plain is None or id(pool) in changed or pool.route not in owners:
            continue
        if any(pool.owner is inner for owner in owners[pool.route] for inner in owner.modules()):
            same = pool.plain.module()
            kept.add(id(same))
            pool.owner.add_module(pool.attribute, same)
            route(pool.owner, {pool.route: pool.attribute})


def _take_back(model: nn.Module, gone: set[int]) -> None:
    """Remove new pools by their ids: originals come back, functional calls are computed in place again."""
    for new in [module for module in model.modules() if id(module) in gone]:
        before = new.__dict__.pop("_before", None)
        if before is not None and before.original is not None:
            before.original.train(new.training)
            _put(model, new, before.original)
    for owner in list(model.modules()):
        calls = {key for key, child in owner._modules.items() if id(child) in gone}
        unroute(owner, calls)
        for key in calls:
            del owner._modules[key]


def _put(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put ``new`` wherever a module of the model holds ``old``."""
    for parent in list(model.modules()):
        for key, child in parent._modules.items():
            if child is old:
                parent._modules[key] = new


def _report(found: list[Found], plans: list[Plan], notes: tuple[str, ...]) -> Report:
    rows: list[Row] = []
    seen: set[int] = set()
    made = {id(plan.found): plan for plan in plans}
    for pool in found:
        window = "" if pool.plain is None else pool.plain.label
        plan = made.get(id(pool))
        if plan is None:
            state = "left" if pool.unreachable is None else "unreachable"
            rows.append(
                Row(pool.name or "(model)", pool.was, window, state, reason=pool.left or pool.unreachable or "")
            )
            continue
        fresh = {id(p): p.numel() for p in plan.new.parameters() if id(p) not in seen}
        seen |= set(fresh)
        now = title(plan.new)
        reason = "also " + ", ".join(pool.names[1:]) if len(pool.names) > 1 else ""
        rows.append(Row(pool.name, pool.was, window, "replaced", now, sum(fresh.values()), plan.exact, reason))
    return Report(tuple(rows), notes)
