"""Swap the pools of any network for pools that learn, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import sharing
from ..names import parse
from ..starts import DEFAULT_START, STARTS
from ..tree import Tree
from .attachments import move_attachments, move_back
from .optimizers import GroupUpdate, check_optimizers, plan_group_updates
from .pool_sites import PoolSite, find_pools
from .replacements import Choice, Replacement, Request, apply_choices, plan_replacements
from .report import Report, Row, name_pool
from .routing import get_routes, route, unroute
from .source import pads_by_hand


@dataclass
class OldPool:
    """What a new pool stands for; kept on that pool, outside of its state_dict, so that copies and pickles have it."""

    plain_pool: nn.Module  # computes what was there before: a PyTorch pool without hooks
    module: nn.Module | None  # the module that was replaced; None for a functional call
    attributes: tuple[str, ...] = ()  # that others had set on that module, and the new one has now


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
    start: str = DEFAULT_START,
    optimizers: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    example: Any = None,
) -> Report:
    """Replace the max pools of a network by pools that learn, in place; all of them or, if anything is wrong, none.

    ``pool`` is a pool's name (``tree2+gated``: a tree first, gated after), a tree, or a function of the old layer that
    returns a layer, a name, a tree, or None to keep it. ``only`` and ``skip`` choose by name pattern (``layer1.*``), by
    a function of the old layer such as ``downsampling``, or by a list of these. ``replace`` names the kinds: ``max``,
    ``avg``. ``start`` is that of the layers (see ``learnpool.starts``), or ``same``: begin as the old pool where that
    is possible. New parameters go to the ``optimizers`` given, each to the one that owns its neighbours. ``example``
    (a tensor, a tuple of arguments or a dict of them) is run once, to see sizes, order, and windows that only a running
    forward knows.

    >>> print(convert(model, "gated", only=downsampling))
    """
    _check_arguments(model, pool, replace, share, start)
    optimizer_list = check_optimizers(model, optimizers)
    sites = find_pools(model, example)
    if not sites:
        where = (
            "" if example is not None else " among its modules and the calls its source shows; example= shows others"
        )
        raise ValueError(f"convert: {type(model).__name__} has no pools{where}")
    apply_choices(sites, only, skip, tuple(replace))
    replacements = plan_replacements(model, sites, Request(pool, share, start, example is not None))
    if not replacements:
        seen = "; ".join(f"{pool.name or 'the model'}: {pool.left_reason or pool.unreachable_reason}" for pool in sites)
        again = "; learnpool.restore(model) puts the old pools back" if list_swaps(model) else ""
        raise ValueError(f"convert: nothing to replace in {type(model).__name__}: {seen}{again}")
    updates = plan_group_updates(model, replacements, optimizer_list)
    _apply(model, sites, replacements, updates)
    report = _build_report(sites, replacements, tuple(update.note for update in updates))
    if report.unreachable:
        rows = "; ".join(f"{row.name} ({row.was}): {row.reason}" for row in report.unreachable)
        warnings.warn(f"convert: not replaced in {type(model).__name__}: {rows}", stacklevel=2)
    return report


def restore(model: nn.Module) -> list[str]:
    """Put back the pools that ``convert`` replaced, and say where; the optimizers still hold the new parameters."""
    _check_model("restore", model)
    swaps = list_swaps(model)
    if not swaps:
        raise ValueError(f"restore: {type(model).__name__} has no pools that convert put there")
    routed = {id(module._modules[name]) for module in model.modules() for name in get_routes(module)}
    _remove_pools(model, {id(swap.new) for swap in swaps} | routed)
    return [swap.name for swap in swaps]


def list_swaps(model: nn.Module) -> list[Swap]:
    """The pools that ``convert`` put into a network, once each, in the order of ``model.modules()``."""
    candidates = ((name, module, module.__dict__.get("_old_pool")) for name, module in model.named_modules())
    return [Swap(name, module, before.plain_pool) for name, module, before in candidates if isinstance(before, OldPool)]


def _check_model(name: str, model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name}: model must be an nn.Module, got {type(model).__name__}")


def _check_arguments(model: Any, pool: Any, replace: Any, share: Any, start: Any) -> None:
    _check_model("convert", model)
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
    sites: list[PoolSite],
    replacements: list[Replacement],
    updates: list[GroupUpdate],
) -> None:
    """Change the model and its optimizers; if that fails half-way, change them back."""
    kept_ids: set[int] = set()
    try:
        for replacement in replacements:
            _insert(model, replacement)
        _route_kept_calls(sites, replacements, kept_ids)
        for update in updates:
            update.apply()
    except BaseException:
        for update in updates:
            update.undo()
        _remove_pools(model, {id(replacement.new) for replacement in replacements} | kept_ids)
        raise


def _insert(model: nn.Module, replacement: Replacement) -> None:
    old, torch_pool = replacement.site, replacement.site.torch_pool
    assert torch_pool is not None
    before = replacement.new.__dict__["_old_pool"] = OldPool(torch_pool.build_module(), old.module)
    if old.owner is not None:
        old.owner.add_module(old.attribute, replacement.new)
        route(old.owner, {old.route: old.attribute}, pads_by_hand(old.owner))
        return
    assert old.module is not None
    before.attributes = move_attachments(old.module, replacement.new, before.plain_pool)
    _replace_module(model, old.module, replacement.new)


def _route_kept_calls(sites: list[PoolSite], replacements: list[Replacement], kept_ids: set[int]) -> None:
    """A call that stays, of the same code as one that is replaced further out, is routed to what it was."""
    owners: dict[Any, list[nn.Module]] = {}
    for replacement in replacements:
        if replacement.site.owner is not None:
            owners.setdefault(replacement.site.route, []).append(replacement.site.owner)
    changed = {id(replacement.site) for replacement in replacements}
    for pool in sites:
        if pool.owner is None or pool.torch_pool is None or id(pool) in changed or pool.route not in owners:
            continue
        if any(pool.owner is inner for owner in owners[pool.route] for inner in owner.modules()):
            same = pool.torch_pool.build_module()
            kept_ids.add(id(same))
            pool.owner.add_module(pool.attribute, same)
            route(pool.owner, {pool.route: pool.attribute})


def _remove_pools(model: nn.Module, ids: set[int]) -> None:
    """Remove new pools by their ids: originals come back, functional calls are computed in place again."""
    for new in [module for module in model.modules() if id(module) in ids]:
        before = new.__dict__.pop("_old_pool", None)
        if before is not None and before.module is not None:
            before.module.train(new.training)
            move_back(new, before.module, before.attributes)
            _replace_module(model, new, before.module)
    for owner in list(model.modules()):
        calls = {key for key, child in owner._modules.items() if id(child) in ids}
        unroute(owner, calls)
        for key in calls:
            del owner._modules[key]


def _replace_module(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put ``new`` wherever a module of the model holds ``old``."""
    for parent in list(model.modules()):
        for key, child in parent._modules.items():
            if child is old:
                parent._modules[key] = new


def _build_report(sites: list[PoolSite], replacements: list[Replacement], notes: tuple[str, ...]) -> Report:
    rows: list[Row] = []
    seen: set[int] = set()
    by_site = {id(replacement.site): replacement for replacement in replacements}
    for pool in sites:
        window = "" if pool.torch_pool is None else pool.torch_pool.label
        replacement = by_site.get(id(pool))
        if replacement is None:
            reason = pool.left_reason or pool.unreachable_reason or ""
            rows.append(Row(pool.name or "(model)", pool.was, window, pool.state, reason=reason))
            continue
        fresh = {id(p): p.numel() for p in replacement.new.parameters() if id(p) not in seen}
        seen |= set(fresh)
        now = name_pool(replacement.new)
        also = "also " + ", ".join(pool.names[1:]) if len(pool.names) > 1 else ""
        reason = "; ".join(filter(None, (f"used {pool.uses} times" if pool.uses > 1 else "", also, pool.idle_reason)))
        rows.append(Row(pool.name, pool.was, window, "replaced", now, sum(fresh.values()), replacement.exact, reason))
    return Report(tuple(rows), notes)
