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
from ..ops.window import Window, format_size
from ..parameters import TreeParameters, tie
from ..starts import DEFAULT_START
from ..tree import Tree
from .convolutions import BEFORE, Convolution
from .exact_start import Exactness, start_as
from .global_pools import build_global, tie_global
from .sites import PoolSite, choose_attribute
from .source import pads_by_hand
from .torch_pools import ADAPTIVE_MODULES, GlobalPool

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
    start: str | None  # None: as before where that is a convolution's or a whole map's, else spread
    example: bool  # whether there was one

    def starts_as_before(self, original: Any) -> bool:
        return self.start == "same" or (self.start is None and original.kind not in ("max", "avg"))


def downsampling(layer: nn.Module) -> bool:
    """Whether a layer makes the map smaller: stride > 1 in some direction; for ``convert(only=downsampling)``."""
    if type(layer) in ADAPTIVE_MODULES:
        return True
    stride: Any = getattr(layer, "stride", 1)
    return any(step > 1 for step in (stride if isinstance(stride, (tuple, list)) else (stride,)))


def apply_choices(
    sites: list[PoolSite],
    only: Choice | None,
    skip: Choice | None,
    replace: tuple[str, ...],
    first: Choice | None,
    min_channels: int,
) -> None:
    """Mark the places that ``only``, ``skip``, ``replace`` and ``min_channels`` exclude, with the reason; put the pools
    of those that ``first`` names before their convolutions.
    """
    only_ids, skip_ids = _select(sites, only, "only", replace), _select(sites, skip, "skip", replace)
    for pool in sites:
        if pool.left_reason is not None:
            continue
        if pool.kind not in replace:
            pool.left_reason = f"your choice: replace={replace!r}"
        elif only is not None and id(pool) not in only_ids and (pool.original is not None or isinstance(only, str)):
            pool.left_reason = "your choice: not in only="
        elif id(pool) in skip_ids:
            pool.left_reason = "your choice: skip="
        elif isinstance(pool.original, Convolution) and 0 < pool.original.in_channels < min_channels:  # 0: lazy
            pool.left_reason = f"{pool.original.in_channels} input channels: min_channels={min_channels}"
        elif pool.idle_reason and pool.module is None and pool.name not in _list_rules(only):
            pool.left_reason = pool.idle_reason.partition(":")[0]  # DistributedDataParallel wants every gradient
    _put_first([pool for pool in sites if isinstance(pool.original, Convolution)], first, replace)


def move_behind_activations(model: nn.Module, sites: list[PoolSite]) -> None:
    """``after="activation"``: let the activation behind each strided convolution hold its pool, where there is one."""
    names = {id(module): name for name, module in model.named_modules()}
    taken: set[tuple[int, str]] = set()
    for pool in sites:
        if not isinstance(pool.original, Convolution) or pool.where == BEFORE or not pool.replaceable:
            continue
        found = pool.activation
        if found is None or id(found.owner) not in names:
            pool.remarks.append("no activation follows it alone, so its pool is behind the convolution")
            continue
        pool.pool_owner, pool.pool_owner_name = found.owner, names[id(found.owner)]
        pool.attribute = choose_attribute(found.owner, taken)
        taken.add((id(found.owner), pool.attribute))


def _put_first(sites: list[PoolSite], first: Choice | None, replace: tuple[str, ...]) -> None:
    ids = _select(sites, first, "first", replace)
    for pool in sites:
        assert isinstance(pool.original, Convolution)
        if id(pool) not in ids or not pool.replaceable:
            continue
        if pool.original.keeps_size:
            pool.where = BEFORE
        else:
            pool.remarks.append(f"its pool cannot come first: {_explain_size(pool)}")


def _explain_size(pool: PoolSite) -> str:
    """Why a convolution of a smaller map may give another size."""
    mode = getattr(pool.module, "padding_mode", "zeros")
    if mode != "zeros":
        return f"padding_mode={mode!r}"
    pads = pool.module is not None and pads_by_hand(pool.module)
    return f"{type(pool.module).__name__} pads by hand" if pads else "d(k − 1) is not 2p"


def _list_rules(choice: Choice | None) -> list[Any]:
    return list(choice) if isinstance(choice, (list, tuple, set, frozenset)) else [choice]


def _select(sites: list[PoolSite], choice: Choice | None, argument: str, replace: tuple[str, ...]) -> set[int]:
    """The places a choice names; a function is asked about those of the kinds to replace alone."""
    if choice is None:
        return set()
    ids = set()
    for rule in _list_rules(choice):
        if isinstance(rule, str):
            matches = {id(pool) for pool in sites if any(_match_name(name, rule) for name in pool.names or [pool.name])}
            if not matches:
                names = ", ".join(pool.name for pool in sites)
                there = f"the pools are: {names}" if sites else f"replace={replace!r} finds no strided convolution"
                raise ValueError(f"convert: no pool matches {argument}={rule!r}; {there}")
        elif callable(rule):
            asked = [pool for pool in sites if pool.original is not None and pool.kind in replace]
            matches = {id(pool) for pool in asked if rule(get_old_layer(pool))}
        else:
            raise TypeError(f"convert: {argument} takes name patterns and functions of a layer, got {rule!r}")
        ids |= matches
    return ids


def get_old_layer(site: PoolSite) -> nn.Module:
    """The layer that a user's function is asked about; for a functional call, one of the same kind and sizes."""
    original = site.original
    assert original is not None
    return site.module or (original.build_layer() if isinstance(original, Convolution) else original.build_module())


def _match_name(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + ".*")


def plan_replacements(model: nn.Module, sites: list[PoolSite], request: Request) -> list[Replacement]:
    """Build the new layers without inserting them; a pool that cannot be replaced gets its reason in ``sites``."""
    replacements: list[Replacement] = []
    tied: dict[Any, list[nn.Module]] = {}  # by what their parameters have to agree in
    several = sum(old.replaceable for old in sites) > 1
    for old in sites:
        if not old.replaceable or old.original is None:
            continue
        new = _build(model, old, request, len(replacements), tied, several)
        if new is None:
            continue
        if any(replacement.new is new for replacement in replacements) or any(
            new is module for module in model.modules()
        ):
            raise ValueError(
                f"convert: the function gave one layer for two pools ({old.name}); give share='net' for that"
            )
        replacements.append(Replacement(old, new))
    for (_, kind), layers in tied.items():
        tie(layers) if kind is None else tie_global(layers)
    for replacement in replacements:
        original = replacement.site.original
        assert original is not None
        if request.starts_as_before(original):
            replacement.exact = start_as(replacement.new, original, replacement.site.inputs)
            if isinstance(original, Convolution) and original.kind == "strided" and replacement.site.where == BEFORE:
                replacement.exact = Exactness.NO  # a convolution of fewer cells
            if replacement.site.pool_owner is not None and replacement.exact == Exactness.ROUNDING:
                found = replacement.site.activation
                replacement.exact = Exactness.EVAL if found is not None and found.is_exact else Exactness.NO
    return replacements


def _build(
    model: nn.Module,
    old: PoolSite,
    request: Request,
    index: int,
    tied: dict[Any, list[nn.Module]],
    several: bool,
) -> nn.Module | None:
    assert old.original is not None
    pool, share = request.pool, request.share
    layer = get_old_layer(old)
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
    new = _build_layer(name.part(index), old, request, device, dtype)
    if new is None:
        return None
    if name.part(index).share == "net" and isinstance(new, TreeParameters):
        kind = None
        if isinstance(old.original, GlobalPool):  # one that was a mean begins otherwise than a maximum
            kind = (type(new), old.original.function, device, dtype)
        tied.setdefault((name.part(index), kind), []).append(new)
    return new.train(layer.training if old.owner is None else old.owner.training)


def _build_layer(part: Part, old: PoolSite, request: Request, device: Any, dtype: Any) -> nn.Module | None:
    """The layer of a name or tree for a place; None, with the reason in ``old``, where there cannot be one."""
    original = old.original
    assert original is not None
    options: dict[str, Any] = {}
    if isinstance(part.pool, Tree) and not _add_sizes(part, old, options, request.example):
        return None
    if isinstance(original, GlobalPool):
        return build_global(part, old, channels=options.get("channels"), device=device, dtype=dtype)
    geometry = original.new_geometry
    if isinstance(part.pool, Tree):
        start = request.start or (DEFAULT_START if original.kind in ("max", "avg") else "same")
        options |= {"start": "neutral" if start == "same" else start, "device": device, "dtype": dtype}
    elif part.pool == "avg":
        dilation = geometry.pop("dilation", 1)
        if set(Window.of("avg", original.dims, 1, 1, 0, dilation).dilation) != {1}:
            size = format_size(Window.of("avg", original.dims, 1, 1, 0, dilation).dilation)
            raise ValueError(f"convert: {old.name} has dilation {size}, which nn.AvgPool has not")
    return part.make_layer(**geometry, dims=original.dims, **options)


def _add_sizes(part: Part, old: PoolSite, options: dict[str, Any], example: bool) -> bool:
    """The sizes a sharing needs, from the example; False if it never reached this pool."""
    if not (sharing.varies_by_channel(part.share) or sharing.varies_by_region(part.share)):
        return True
    if not example:
        raise ValueError(f"convert: share={part.share!r} needs sizes: give example=, an input of the network")
    if not old.inputs:
        old.unreachable_reason = f"the example never reached it, so the sizes for share={part.share!r} are not known"
        return False
    assert old.original is not None
    dims = old.original.dims
    channels = {shape[-dims - 1] for shape in old.inputs}
    if sharing.varies_by_channel(part.share):
        if len(channels) > 1:
            raise ValueError(
                f"convert: {old.name} pools {sorted(channels)} channels, so share={part.share!r} is impossible"
            )
        options["channels"] = channels.pop()
    if sharing.varies_by_region(part.share):
        if isinstance(old.original, GlobalPool):
            options["grid"] = (1,) * dims
        else:
            window = Window.of("convert", dims, **old.original.new_geometry)
            options["grid"] = window.output_size(old.inputs[0][-dims:])
    return True


def _find_device_and_dtype(model: nn.Module, old: PoolSite) -> tuple[torch.device | None, torch.dtype | None]:
    """Device and dtype of the nearest floating-point tensor."""
    near = next((tensor for tensor in iter_neighbours(model, old) if tensor.dtype in FLOATS), None)
    return (None, None) if near is None else (near.device, near.dtype)


def iter_neighbours(model: nn.Module, old: PoolSite) -> Iterator[Tensor]:
    """Parameters and buffers, nearest first: the owner's, the preceding siblings', the parent's, and so on outwards."""
    path = old.name.split(".")[: -1 if old.module is None else None]
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
