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
from .exact_start import start_as
from .pool_sites import PoolSite

Choice = str | Callable[[nn.Module], bool] | Sequence[str | Callable[[nn.Module], bool]]


@dataclass
class Replacement:
    """A pool to be replaced, and its replacement, before anything is changed."""

    site: PoolSite
    new: nn.Module
    exact: str = ""


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    pool: Any
    share: str | None
    start: str
    example: bool  # whether there was one


def downsampling(layer: nn.Module) -> bool:
    """Whether a pool makes the map smaller: stride > 1 in some direction; for ``convert(only=downsampling)``."""
    stride: Any = getattr(layer, "stride", 1)
    return any(step > 1 for step in (stride if isinstance(stride, (tuple, list)) else (stride,)))


def apply_choices(sites: list[PoolSite], only: Choice | None, skip: Choice | None, replace: tuple[str, ...]) -> None:
    """Mark the pools that ``only``, ``skip`` and ``replace`` exclude, with the reason."""
    only_ids, skip_ids = _select(sites, only, "only"), _select(sites, skip, "skip")
    for pool in sites:
        if pool.left_reason is not None:
            continue
        if pool.kind not in replace:
            pool.left_reason = f"your choice: replace={replace!r}"
        elif only is not None and id(pool) not in only_ids and (pool.torch_pool is not None or isinstance(only, str)):
            pool.left_reason = "your choice: not in only="
        elif id(pool) in skip_ids:
            pool.left_reason = "your choice: skip="


def _select(sites: list[PoolSite], choice: Choice | None, argument: str) -> set[int]:
    if choice is None:
        return set()
    ids = set()
    for rule in choice if isinstance(choice, (list, tuple, set, frozenset)) else (choice,):
        if isinstance(rule, str):
            matches = {id(pool) for pool in sites if any(_match_name(name, rule) for name in pool.names or [pool.name])}
            if not matches:
                names = ", ".join(pool.name for pool in sites)
                raise ValueError(f"convert: no pool matches {argument}={rule!r}; the pools are: {names}")
        elif callable(rule):
            matches = {
                id(pool)
                for pool in sites
                if pool.torch_pool is not None and rule(pool.module or pool.torch_pool.build_module())
            }
        else:
            raise TypeError(f"convert: {argument} takes name patterns and functions of a layer, got {rule!r}")
        ids |= matches
    return ids


def _match_name(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + ".*")


def plan_replacements(model: nn.Module, sites: list[PoolSite], request: Request) -> list[Replacement]:
    """Build the new layers without inserting them; a pool that cannot be replaced gets its reason in ``sites``."""
    replacements: list[Replacement] = []
    tied: dict[Part, list[nn.Module]] = {}
    several = sum(old.replaceable for old in sites) > 1
    for old in sites:
        if not old.replaceable or old.torch_pool is None:
            continue
        new = _build_layer(model, old, request, len(replacements), tied, several)
        if new is None:
            continue
        if any(replacement.new is new for replacement in replacements) or any(
            new is module for module in model.modules()
        ):
            raise ValueError(
                f"convert: the function gave one layer for two pools ({old.name}); give share='net' for that"
            )
        replacements.append(Replacement(old, new))
    for layers in tied.values():
        tie(layers)
    if request.start == "same":
        for replacement in replacements:
            assert replacement.site.torch_pool is not None
            replacement.exact = start_as(replacement.new, replacement.site.torch_pool, replacement.site.inputs)
    return replacements


def _build_layer(
    model: nn.Module,
    old: PoolSite,
    request: Request,
    index: int,
    tied: dict[Part, list[nn.Module]],
    several: bool,
) -> nn.Module | None:
    assert old.torch_pool is not None
    pool, share, start = request.pool, request.share, request.start
    layer = old.module or old.torch_pool.build_module()
    result = pool if isinstance(pool, (str, Tree)) else pool(layer)
    if result is None or result is layer:
        old.left_reason = "your choice: the function keeps it"
        return None
    device, dtype = _find_device_and_dtype(model, old)
    if isinstance(result, nn.Module):
        if any(is_lazy(p) for p in result.parameters()):
            raise ValueError(
                f"convert: the function's layer for {old.name} has no sizes yet: give it channels= and grid="
            )
        return result.to(device=device, dtype=dtype).train(layer.training if old.owner is None else old.owner.training)
    if not isinstance(result, (str, Tree)):
        raise TypeError(f"convert: the function must return a layer, a pool's name, a tree or None, got {result!r}")
    name = parse(result, share) if isinstance(result, str) else PoolName((Part(result, share or "layer"),))
    if several and index < len(name.parts) - 1 and not old.order_is_certain:
        raise ValueError(
            f"convert: {result!r} depends on the order in which pools run, which the source of {type(model).__name__} "
            "does not show: give example=, an input of the network"
        )
    part, torch_pool = name.part(index), old.torch_pool
    options: dict[str, Any] = {} if torch_pool.kind == "max" else {"count_include_pad": torch_pool.count_include_pad}
    if isinstance(part.pool, Tree):
        if not _add_sizes(part, old, options, request.example):
            return None
        options |= {"start": "neutral" if start == "same" else start, "device": device, "dtype": dtype}
    if part.pool != "avg":
        options["dilation"] = torch_pool.dilation
    elif set(torch_pool.window.dilation) != {1}:
        raise ValueError(
            f"convert: {old.name} has dilation {format_size(torch_pool.window.dilation)}, which nn.AvgPool has not"
        )
    new = part.make_layer(
        torch_pool.kernel_size,
        torch_pool.stride,
        torch_pool.padding,
        dims=torch_pool.dims,
        ceil_mode=torch_pool.ceil_mode,
        **options,
    )
    if part.share == "net" and isinstance(new, TreeParameters):
        tied.setdefault(part, []).append(new)
    return new.train(layer.training if old.owner is None else old.owner.training)


def _add_sizes(part: Part, old: PoolSite, options: dict[str, Any], example: bool) -> bool:
    """The sizes a sharing needs, from the example; False if it never reached this pool."""
    if not (sharing.varies_by_channel(part.share) or sharing.varies_by_region(part.share)):
        return True
    if not example:
        raise ValueError(f"convert: share={part.share!r} needs sizes: give example=, an input of the network")
    if not old.inputs:
        old.unreachable_reason = f"the example never reached it, so the sizes for share={part.share!r} are not known"
        return False
    assert old.torch_pool is not None
    dims = old.torch_pool.dims
    channels = {shape[-dims - 1] for shape in old.inputs}
    if sharing.varies_by_channel(part.share):
        if len(channels) > 1:
            raise ValueError(
                f"convert: {old.name} pools {sorted(channels)} channels, so share={part.share!r} is impossible"
            )
        options["channels"] = channels.pop()
    if sharing.varies_by_region(part.share):
        options["grid"] = old.torch_pool.window.output_size(old.inputs[0][-dims:])
    return True


def _find_device_and_dtype(model: nn.Module, old: PoolSite) -> tuple[torch.device | None, torch.dtype | None]:
    """Device and dtype of the nearest floating-point tensor."""
    near = next((tensor for tensor in iter_neighbours(model, old) if tensor.dtype in FLOATS), None)
    return (None, None) if near is None else (near.device, near.dtype)


def iter_neighbours(model: nn.Module, old: PoolSite) -> Iterator[Tensor]:
    """Parameters and buffers, nearest first: the owner's, the preceding siblings', the parent's, and so on outwards."""
    path = old.name.split(".")[: -1 if old.owner is not None else None]
    while True:
        *path, last = path or [""]
        parent = model.get_submodule(".".join(path))
        siblings = [child for child in parent._modules.values() if child is not None]
        module = parent._modules.get(last)
        before = siblings[: next((i for i, child in enumerate(siblings) if child is module), 0)]
        for layer in (module, *reversed(before), parent):
            if layer is not None:
                yield from layer.parameters()
                yield from layer.buffers()
        if not path:
            return
