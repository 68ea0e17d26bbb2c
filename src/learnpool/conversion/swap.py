"""Swap the pools of any network for pools that learn, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import observation, sharing
from ..formatting import format_count, join_words
from ..names import parse
from ..starts import STARTS
from ..tree import Tree
from .attachments import move_attachments, move_back
from .convolutions import Convolution
from .costs import count_multiply_adds, describe_new, describe_other_place
from .optimizers import GroupUpdate, check_optimizers, plan_group_updates
from .pool_sites import find_sites
from .replacements import (
    Choice,
    Replacement,
    Request,
    apply_choices,
    move_behind_activations,
    plan_replacements,
)
from .report import Report, Row
from .routing import ACTIVATION, ELSEWHERE, get_routes, route, unroute
from .sites import PoolSite
from .source import pads_by_hand
from .torch_pools import TorchPool

_OBSERVERS = ("torch.ao.quantization.observer", "torch.ao.quantization.fake_quantize")
KINDS = ("max", "avg", "global", "strided", "shortcut")


@dataclass
class OldPool:
    """What a new pool stands for; kept on that pool, outside of its state_dict, so that copies and pickles have it."""

    plain_pool: nn.Module  # computes what was there before: a PyTorch pool without hooks
    module: nn.Module | None  # the module that was replaced; None for a functional call
    kind: str = ""  # of its place
    attributes: tuple[str, ...] = ()  # that others had set on that module, and the new one has now
    convolution: tuple[nn.Module, str] | None = None  # whose stride it has, if it stands elsewhere; the route there
    unquantised: nn.Module | None = None  # the convolution whose qconfig is None because of it


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
    start: str | None = None,
    after: str = "convolution",
    first: Choice | None = None,
    min_channels: int = 1,
    optimizers: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    example: Any = None,
) -> Report:
    """Put pools that learn where a network shrinks its maps, in place; if anything is wrong, nothing changes.

    ``pool`` is a pool's name (``tree2+gated``: a tree first, gated after), a tree, or a function of the old layer that
    returns a layer, a name, a tree, or None to keep it. ``only`` and ``skip`` choose by name pattern (``layer1.*``), by
    a function of the old layer such as ``downsampling``, or by a list of these. ``replace`` names the kinds of places:
    ``max`` and ``avg`` pools; ``global`` pools (of the whole map); ``strided`` convolutions, which become convolutions
    of stride 1 with a pool behind them; ``shortcut``, convolutions of one tap with a stride and strided slices, where
    the pool comes first and costs nothing. ``after="activation"`` puts the pools of strided convolutions behind the
    norm and the activation that follow, which needs an example. ``first`` chooses strided convolutions whose pool comes
    first too; ``min_channels`` leaves convolutions of fewer input channels. ``start`` is that of the layers (see
    ``learnpool.starts``), or ``same``: begin as what was there where that is possible, as the three new kinds do by
    default; else ``spread``. New parameters go to the ``optimizers`` given, each to the one that owns its neighbours.
    ``example`` (a tensor, a tuple of arguments or a dict of them) is run once, to see sizes, order, and windows that
    only a running forward knows.

    >>> print(convert(model, "gated", only=downsampling))
    """
    _check_arguments(model, pool, replace, share, start, min_channels)
    if after not in ("convolution", "activation"):
        raise ValueError(f"convert: after must be 'convolution' or 'activation', got {after!r}")
    if after == "activation" and example is None:
        raise ValueError("convert: after='activation' needs example=, an input of the network, to see the activations")
    optimizer_list = check_optimizers(model, optimizers)
    sites = find_sites(model, replace, example)
    if not sites:
        where = (
            "" if example is not None else " among its modules and the calls its source shows; example= shows others"
        )
        raise ValueError(f"convert: {type(model).__name__} has no pools{where}{_suggest_kinds(model, replace)}")
    apply_choices(sites, only, skip, tuple(replace), first, min_channels)
    if after == "activation":
        move_behind_activations(model, sites)
    replacements = plan_replacements(model, sites, Request(pool, share, start, example is not None))
    if not replacements:
        again = "; learnpool.restore(model) puts the old pools back"
        hint = again if list_swaps(model) else _suggest_kinds(model, replace)
        raise ValueError(f"convert: nothing to replace in {type(model).__name__}: {_format_reasons(sites)}{hint}")
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
    routed = {id(module._modules.get(name)) for module in model.modules() for name in get_routes(module)}
    _remove_pools(model, {id(swap.new) for swap in swaps} | routed)
    return [swap.name for swap in swaps]


def list_swaps(model: nn.Module) -> list[Swap]:
    """The pools that ``convert`` put into a network, once each, in the order of ``model.modules()``."""
    candidates = ((name, module, module.__dict__.get("_old_pool")) for name, module in model.named_modules())
    return [Swap(name, module, before.plain_pool) for name, module, before in candidates if isinstance(before, OldPool)]


def _format_reasons(sites: list[PoolSite]) -> str:
    """``pool1, pool2: learns already; head: …``: why places stay as they are, each reason once."""
    names: dict[str | None, list[str]] = {}
    for site in sites:
        names.setdefault(site.left_reason or site.unreachable_reason, []).append(site.name or "the model")
    return "; ".join(f"{', '.join(which)}: {reason}" for reason, which in names.items())


def _suggest_kinds(model: nn.Module, replace: Sequence[str]) -> str:
    """What else shrinks this network's maps, for one who asked for its pools."""
    others = [site for site in find_sites(model, KINDS, None) if site.replaceable and site.kind not in replace]
    found = [(site.kind, "convolution" if type(site.original) is Convolution else "pool") for site in others]
    if not found:
        return ""
    whats = sorted(set(found), key=lambda what: (KINDS.index(what[0]), what[1]))
    counts = join_words([format_count(found.count(what), " ".join(what)) for what in whats])
    return f"; its {counts}: replace={tuple(dict.fromkeys(kind for kind, _ in whats))!r}"


def _check_model(name: str, model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name}: model must be an nn.Module, got {type(model).__name__}")


def _check_arguments(model: Any, pool: Any, replace: Any, share: Any, start: Any, min_channels: Any) -> None:
    _check_model("convert", model)
    if not isinstance(pool, (str, Tree)) and (not callable(pool) or isinstance(pool, (type, nn.Module))):
        raise TypeError(f"convert: pool must be a pool's name, a tree or a function of the old layer, got {pool!r}")
    kinds = (replace,) if isinstance(replace, str) else tuple(replace)
    if isinstance(replace, str) or not kinds or not set(kinds) <= {*KINDS}:
        raise ValueError(f"convert: replace must be a tuple of {', '.join(map(repr, KINDS))}, got {replace!r}")
    if isinstance(min_channels, bool) or not isinstance(min_channels, int):
        raise TypeError(f"convert: min_channels must be an int, got {min_channels!r}")
    if min_channels < 1:
        raise ValueError(f"convert: min_channels must be at least 1, got {min_channels}")
    if share is not None:
        sharing.check_share("convert", share)
    if start not in (*STARTS, "same", None):
        raise ValueError(f"convert: start must be one of {', '.join((*STARTS, 'same'))}, got {start!r}")
    if isinstance(pool, str):
        parse(pool, share)
    only_pools = {*kinds} <= {"max", "avg"}
    if not only_pools and observation.is_compiled(model):
        raise ValueError("convert: convert the network first, then compile it")
    if not only_pools and isinstance(model, torch.jit.ScriptModule):
        raise ValueError("convert: convert the network first, then script or trace it")
    if any(type(module).__module__.startswith(_OBSERVERS) for module in model.modules()):
        raise ValueError("convert: convert the network first, then prepare it for quantisation")
    if isinstance(model, torch.fx.GraphModule) and "torch.ops.aten." in model.code:
        raise ValueError("convert: convert the network first, then export it")
    starts_as_before = start == "same" or (start is None and not only_pools)
    if starts_as_before and any(p.is_meta for p in model.parameters()):
        raise ValueError(
            'convert: start="same" sets values, and a model on the meta device has none; give start="spread"'
        )
    if any(isinstance(module, nn.parallel.DistributedDataParallel) for module in model.modules()):
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
    old, original = replacement.site, replacement.site.original
    assert original is not None
    replacement.new.__dict__["_place"] = old.new_name
    before = replacement.new.__dict__["_old_pool"] = OldPool(
        original.build_module(), old.module if old.owner is None else None, original.kind
    )
    if old.owner is not None and old.owner is old.module and "qconfig" not in old.module.__dict__:
        # torch.ao.quantization builds another convolution from this one's attributes, without the pool; None forbids it
        before.unquantised, old.owner.__dict__["qconfig"] = old.owner, None
    if old.owner is not None and old.pool_owner is not None and old.activation is not None:
        before.convolution = (old.owner, ELSEWHERE + old.new_name)
        route(old.owner, {old.route: ELSEWHERE + old.new_name})
        old.pool_owner.add_module(old.attribute, replacement.new)
        route(old.pool_owner, {(old.activation.location, ACTIVATION): old.attribute})
        return
    if old.owner is not None:
        old.owner.add_module(old.attribute, replacement.new)
        pads = isinstance(original, TorchPool) and pads_by_hand(old.owner)
        route(old.owner, {old.route: old.attribute}, pads)
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
        if pool.owner is None or pool.original is None or id(pool) in changed or pool.route not in owners:
            continue
        if any(pool.owner is inner for owner in owners[pool.route] for inner in owner.modules()):
            same = pool.original.build_module()
            kept_ids.add(id(same))
            pool.owner.add_module(pool.attribute, same)
            route(pool.owner, {pool.route: pool.attribute})


def _remove_pools(model: nn.Module, ids: set[int]) -> None:
    """Remove new pools by their ids: originals come back, functional calls are computed in place again."""
    for new in [module for module in model.modules() if id(module) in ids]:
        before = new.__dict__.pop("_old_pool", None)
        if before is not None and before.convolution is not None:
            owner, name = before.convolution
            unroute(owner, {name})
        if before is not None and before.unquantised is not None:
            before.unquantised.__dict__.pop("qconfig", None)
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
        window = "" if pool.original is None else pool.original.label
        replacement = by_site.get(id(pool))
        if replacement is None:
            reason = pool.left_reason or pool.unreachable_reason or ""
            rows.append(Row(pool.name or "(model)", pool.was, window, pool.state, reason=reason, kind=pool.kind))
            continue
        fresh = {id(p): p.numel() for p in replacement.new.parameters() if id(p) not in seen}
        seen |= set(fresh)
        also = "also " + ", ".join(pool.names[1:]) if len(pool.names) > 1 else ""
        costs = count_multiply_adds(pool, replacement.new)
        uses = f"used {pool.uses} times" if pool.uses > 1 else ""
        remarks = uses, also, describe_other_place(pool, replacement.new), *pool.remarks, pool.idle_reason
        reason = "; ".join(filter(None, remarks))
        row = Row(
            pool.name or "(model)",
            pool.was,
            window,
            "replaced",
            describe_new(pool, replacement.new),
            sum(fresh.values()),
            replacement.exact,
            reason,
            *costs,
            pool.kind,
        )
        rows.append(row)
    return Report(tuple(rows), notes)
