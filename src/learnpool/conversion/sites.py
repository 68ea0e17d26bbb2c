"""A place of a network where a pool stands or may stand: what is there, where, and what an example showed of it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection
from dataclasses import dataclass, field

from torch import nn

from .activations import Activation
from .convolutions import BEFORE, BEHIND, Convolution, Original
from .order import Key
from .routing import Route
from .torch_pools import Obstacle


@dataclass(eq=False)
class PoolSite:
    """One place of a network where a pool stands or may stand, as it is before anything changes."""

    name: str
    was: str
    original: Original | None = None
    names: list[str] = field(default_factory=list)  # a module may have several
    left_reason: str | None = None  # why it has to stay
    unreachable_reason: str | None = None  # why convert cannot reach it
    obstacle: Obstacle | None = None  # which of these reasons its code gives
    module: nn.Module | None = None  # None for a functional call,
    owner: nn.Module | None = None  # which has an owner instead; a convolution is its own
    location: str = ""
    attribute: str = ""  # of the owner, for a pool that takes part in this call
    where: str = ""  # behind or before its convolution
    activation: Activation | None = None  # of its convolution, as the example showed
    pool_owner: nn.Module | None = None  # what holds the new pool, if that is the activation
    pool_owner_name: str = ""
    calls: list[tuple[Original | None, tuple[int, ...]]] = field(default_factory=list)  # in the example: what, input
    batch: int = 1  # of the example
    window_is_computed: bool = False  # in forward, while it runs
    order_index: int = sys.maxsize  # its place in the order pools run in
    order_is_certain: bool = False  # whatever the input is
    uses: int = 0  # in one forward
    idle_reason: str = ""  # why its parameters may get no gradient
    remarks: list[str] = field(default_factory=list)  # on its new pool

    def __post_init__(self) -> None:
        if isinstance(self.original, Convolution):
            is_free = self.original.kind == "shortcut" and self.original.keeps_size
            self.where = BEFORE if is_free else BEHIND

    @property
    def inputs(self) -> list[tuple[int, ...]]:
        """The shapes that a pool here would see, as far as the example showed."""
        shapes = dict.fromkeys(self.get_pool_input(original, shape, self.where) for original, shape in self.calls)
        return list(shapes)

    @staticmethod
    def get_pool_input(original: Original | None, shape: tuple[int, ...], where: str) -> tuple[int, ...]:
        """The shape that a pool sees where the network's call sees ``shape``."""
        if not isinstance(original, Convolution) or where == BEFORE:
            return shape
        dims = original.dims
        return (*shape[: -dims - 1], original.out_channels, *original.unstride(shape[-dims:]))

    @property
    def new_name(self) -> str:
        """The name that a new pool has in the model."""
        if self.pool_owner is not None:
            return ".".join(filter(None, (self.pool_owner_name, self.attribute)))
        return self.name if self.owner is None or self.module is None else f"{self.name}.{self.attribute}"

    @property
    def replaceable(self) -> bool:
        return self.left_reason is None and self.unreachable_reason is None

    @property
    def kind(self) -> str:
        """One of ``max``, ``avg``, ``global``, ``strided`` and ``shortcut``, as far as its name tells where not more is
        known.
        """
        if self.original is not None:
            return self.original.kind
        if self.module is not None and "_old_pool" in self.module.__dict__:
            return str(self.module.__dict__["_old_pool"].kind)
        if self.obstacle is Obstacle.CHANNELS_LAST:
            return "global"
        if "conv" in self.was.lower():
            return "strided"
        return "avg" if "avg" in self.was.lower() else "max"

    @property
    def state(self) -> str:
        """``left`` or ``unreachable``: what becomes of it if it is not replaced."""
        return "unreachable" if self.left_reason is None and self.unreachable_reason is not None else "left"

    @property
    def route(self) -> Route:
        assert self.original is not None
        where = (self.where,) if self.where else ()
        return (self.location, *where, *self.original.key)

    @property
    def key(self) -> Key:
        return (id(self.module), "") if self.owner is None else (id(self.owner), self.location)


def choose_attribute(owner: nn.Module, taken: Collection[tuple[int, str]] = ()) -> str:
    """``pool``, ``pool_0``, …: the first name that a module does not have, and that is not taken."""
    names = itertools.chain(("pool",), (f"pool_{i}" for i in itertools.count()))
    return next(key for key in names if not hasattr(owner, key) and (id(owner), key) not in taken)
