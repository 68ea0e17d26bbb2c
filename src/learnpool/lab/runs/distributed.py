"""One process or many: the same training loop under ``torchrun``, on one machine or several.

A batch is that of all processes together, and each takes its rows of it. Random numbers are drawn for the whole batch
in every process, so that one process and many compute the same curve within rounding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..hardware import find_device
from .run import RunError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process's place among all that train one network."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def local_slice(self, count: int) -> slice:
        """This process's rows of ``count``, which need not divide evenly."""
        return slice(self.rank * count // self.world, (self.rank + 1) * count // self.world)

    def sum_over_ranks(self, *values: float) -> list[float]:
        """Each value summed over all processes."""
        if self.world == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.all_reduce(sums)
        return [float(value) for value in sums]

    def local_rows(self, count: int, parts: int) -> Tensor:
        """This process's rows of a batch shared part by part: one process and many see the same parts."""
        return torch.cat([part[self.local_slice(len(part))] for part in torch.arange(count).chunk(parts)])

    def gather(self, value: T) -> list[T]:
        """The value of every process."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        distributed.all_gather_object(values, value)
        return values

    def on_rank0(self, function: Callable[[], T]) -> T:
        """What ``function`` returns, or raises, in the first process: only there does it touch the disk."""
        if self.world == 1:
            return function()
        box: list[Any] = [None, None]
        if self.first:
            try:
                box[0] = function()
            except (OSError, ValueError) as error:
                box[1] = error
        distributed.broadcast_object_list(box, device=self.device)
        if box[1] is not None:
            raise box[1]
        return box[0]  # type: ignore[no-any-return]

    def raise_if_any_fails(self, function: Callable[[], T]) -> T:
        """Call ``function`` in every process; if it raises in any of them, all raise that error."""
        if self.world == 1:
            return function()
        result, own_error = None, None
        try:
            result = function()
        except (OSError, ValueError) as error:
            own_error = error
        if first := next((error for error in self.gather(own_error) if error is not None), None):
            raise first
        return result  # type: ignore[return-value]


@contextmanager
def join_ranks(device: str | None = None) -> Iterator[Ranks]:
    """Join the others if ``torchrun`` started us (RANK, WORLD_SIZE, MASTER_ADDR, …); NCCL between GPUs, else gloo."""
    world = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    try:
        choice = find_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except ValueError as error:
        raise RunError(str(error)) from None
    if choice.type == "cuda":
        if choice.index is None:
            choice = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(choice)
    if world == 1:
        yield Ranks(0, 1, choice)
        return
    distributed.init_process_group("nccl" if choice.type == "cuda" else "gloo")
    try:
        yield Ranks(distributed.get_rank(), distributed.get_world_size(), choice)
    except RuntimeError as error:
        if isinstance(error, distributed.DistError) or "gloo" in str(error):
            raise ConnectionError("another process of this run has ended; run the same command to resume") from None
        raise
    finally:
        distributed.destroy_process_group()


class GlobalBatchRandomness(TorchFunctionMode):
    """Dropout, ``rand`` and ``randint`` draw for the batch of all processes, and this process takes its rows."""

    DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self.DROPOUTS:
            return self.dropout(func, *args, **kwargs)
        if func is torch.rand:
            size = tuple(args[0]) if len(args) == 1 and not isinstance(args[0], int) else args
            return self.take_rows(func((size[0] * self.ranks.world, *size[1:]), **kwargs))
        if func is torch.randint and not isinstance(args[-1], int):  # as stochastic pooling draws its seeds
            size = args[-1]
            whole = func(*args[:-1], (size[0] * self.ranks.world, *size[1:]), **kwargs)  # type: ignore[call-overload]
            return self.take_rows(whole)
        return func(*args, **kwargs)

    def dropout(self, func: Any, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        whole = torch.ones((len(x) * self.ranks.world, *x.shape[1:]), dtype=x.dtype, device=x.device)
        if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
            whole = whole.to(memory_format=torch.channels_last)  # the draw goes by memory
        return x * self.take_rows(func(whole, p, True))

    def take_rows(self, whole: Tensor) -> Tensor:
        return whole[self.ranks.local_slice(len(whole))]
