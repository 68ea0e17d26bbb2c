"""Which pools are replaced and by what: everything ``convert`` has to know before it changes anything."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .. import sharing
from ..names import Part, PoolName, parse
from ..ops.operator import FLOATS
from ..ops.window import format_size
from ..parameters import TreeParameters, tie
from ..tree import Tree
from .exact_start import same
from .search import Found

Choice = str | Callable[[nn.Module], bool] | Sequence[str | Callable[[nn.Module], bool]]


@dataclass
class Plan:
    """A pool to be replaced, and its replacement, before anything is changed."""

    found: Found
    new: nn.Module
    exact: str = ""


def downsampling(layer: nn.Module) -> bool:
    """Whether a pool makes the map smaller: stride > 1 in some direction; for ``convert(only=downsampling)``."""
    stride: Any = getattr(layer, "stride", 1)
    return any(step > 1 for step in (stride if isinstance(stride, (tuple, list)) else (stride,)))


def choose(found: list[Found], only: Choice | None, skip: Choice | None, replace: tuple[str, ...]) -> None:
    """Leave what the user did not ask for."""
    wanted, unwanted = _matches(found, only, "only"), _matches(found, skip, "skip")
    for pool in found:
        if not pool.open or pool.plain is None:
            continue
        if pool.plain.kind not in replace:
            pool.left = f"your choice: replace={replace!r}"
        elif only is not None and id(pool) not in wanted:
            pool.left = "your choice: not in only="
        elif id(pool) in unwanted:
            pool.left = "your choice: skip="


def _matches(found: list[Found], choice: Choice | None, argument: str) -> set[int]:
    if choice is None:
        return set()
    chosen = set()
    for rule in choice if isinstance(choice, (list, tuple, set, frozenset)) else (choice,):
        if isinstance(rule, str):
            now = {id(pool) for pool in found if any(_fits(name, rule) for name in pool.names or [pool.name])}
            if not now:
                names = ", ".join(pool.name for pool in found)
                raise ValueError(f"convert: no pool matches {argument}={rule!r}; the pools are: {names}")
        elif callable(rule):
            now = {id(pool) for pool in found if pool.plain is not None and rule(pool.module or pool.plain.module())}
        else:
            raise TypeError(f"convert: {argument} takes name patterns and functions of a layer, got {rule!r}")
        chosen |= now
    return chosen


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + ".*")


def build(model: nn.Module, found: list[Found], pool: Any, share: str | None, start: str, example: bool) -> list[Plan]:
    """The new layers, ready to be put in; a pool that turns out to stay says so in ``found``."""
    plans: list[Plan] = []
    tied: dict[Part, list[nn.Module]] = {}
    for old in found:
        if not old.open or old.plain is None:
            continue
        new = _new(model, old, pool, len(plans), share, start, example, tied)
        if new is None:
            continue
        if any(plan.new is new for plan in plans) or any(new is module for module in model.modules()):
            raise ValueError(
                f"convert: the function gave one layer for two pools ({old.name}); give share='net' for that"
            )
        plans.append(Plan(old, new))
    for layers in tied.values():
        tie(layers)
    if start == "same":
        for plan in plans:
            assert plan.found.plain is not None
            plan.exact = same(plan.new, plan.found.plain, plan.found.inputs)
    return plans


def _new(
    model: nn.Module,
    old: Found,
    pool: Any,
    index: int,
    share: str | None,
    start: str,
    example: bool,
    tied: dict[Part, list[nn.Module]],
) -> nn.Module | None:
    assert old.plain is not None
    layer = old.module or old.plain.module()
    made = pool if isinstance(pool, (str, Tree)) else pool(layer)
    if made is None or made is layer:
        old.left = "your choice: the function keeps it"
        return None
    device, dtype = _like(model, old)
    if isinstance(made, nn.Module):
        if any(is_lazy(p) for p in made.parameters()):
            raise ValueError(
                f"convert: the function's layer for {old.name} has no sizes yet: give it channels= and grid="
            )
        return made.to(device=device, dtype=dtype).train(layer.training if old.owner is None else old.owner.training)
    if not isinstance(made, (str, Tree)):
        raise TypeError(f"convert: the function must return a layer, a pool's name, a tree or None, got {made!r}")
    name = parse(made, share) if isinstance(made, str) else PoolName((Part(made, share or "layer"),))
    part, plain = name.part(index), old.plain
    options: dict[str, Any] = {} if plain.kind == "max" else {"count_include_pad": plain.count_include_pad}
    if isinstance(part.pool, Tree):
        if not _sizes(part, old, options, example):
            return None
        options |= {"start": "neutral" if start == "same" else start, "device": device, "dtype": dtype}
    if part.pool != "avg":
        options["dilation"] = plain.dilation
    elif set(plain.window.dilation) != {1}:
        raise ValueError(
            f"convert: {old.name} has dilation {format_size(plain.window.dilation)}, which nn.AvgPool has not"
        )
    new = part.make_layer(
        plain.kernel_size, plain.stride, plain.padding, dims=plain.dims, ceil_mode=plain.ceil_mode, **options
    )
    if part.share == "net" and isinstance(new, TreeParameters):
        tied.setdefault(part, []).append(new)
    return new.train(layer.training if old.owner is None else old.owner.training)


def _sizes(part: Part, old: Found, options: dict[str, Any], example: bool) -> bool:
    """The sizes a sharing needs, from the example; False if it did not come by this pool."""
    if not (sharing.varies_by_channel(part.share) or sharing.varies_by_region(part.share)):
        return True
    if not example:
        raise ValueError(f"convert: share={part.share!r} needs sizes: give example=, an input of the network")
    if not old.inputs:
        old.unreachable = f"the example does not come by, so the sizes for share={part.share!r} are unknown"
        return False
    assert old.plain is not None
    dims = old.plain.dims
    channels = {shape[-dims - 1] for shape in old.inputs}
    if sharing.varies_by_channel(part.share):
        if len(channels) > 1:
            raise ValueError(
                f"convert: {old.name} pools {sorted(channels)} channels, so share={part.share!r} is impossible"
            )
        options["channels"] = channels.pop()
    if sharing.varies_by_region(part.share):
        options["grid"] = old.plain.window.output_size(old.inputs[0][-dims:])
    return True


def _like(model: nn.Module, old: Found) -> tuple[torch.device | None, torch.dtype | None]:
    """Device and dtype of the nearest floating-point tensor."""
    near = next((tensor for tensor in neighbours(model, old) if tensor.dtype in FLOATS), None)
    return (None, None) if near is None else (near.device, near.dtype)


def neighbours(model: nn.Module, old: Found) -> Iterator[Tensor]:
    """Parameters and buffers from near to far: the owner's, those of layers before, of all beside, and so on."""
    path = old.name.split(".")[: -1 if old.owner is not None else None]
    while True:
        *path, last = path or [""]
        parent = model.get_submodule(".".join(path))
        beside = [child for child in parent._modules.values() if child is not None]
        here = parent._modules.get(last)
        before = beside[: next((i for i, child in enumerate(beside) if child is here), 0)]
        for layer in (here, *reversed(before), parent):
            if layer is not None:
                yield from layer.parameters()
                yield from layer.buffers()
        if not path:
            return
