"""``min ‖new(x) − y‖²`` over the parameters of each swapped pool, in the order of the forward pass.

y is what the old pool gave in the original network, x what reaches the new pool in the network as it is now, earlier
pools calibrated already: so a later pool also corrects what an earlier one could not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

from torch import Tensor, nn

from .. import observation
from ..conversion.report import name_pool
from ..conversion.swap import Swap, list_swaps
from ..formatting import format_count, format_html_table, format_percent, format_table
from .least_squares import fit

MAX_VALUES = 2**26  # values of a pool's input that are kept; images beyond it do not take part in its fit


@dataclass(frozen=True)
class PoolFit:
    """How far a pool's output is from the original network's, ``‖new − old‖ / ‖old‖``."""

    name: str
    pool: str
    before: float
    after: float


@dataclass(frozen=True)
class Calibration:
    """The result of ``calibrate``, printed as a table."""

    pools: tuple[PoolFit, ...]
    images: int
    output_before: float  # the same of the network's output
    output_after: float

    def __repr__(self) -> str:
        return f"{self._format_title()}\n\n{format_table(self._make_rows(), right=(2, 3))}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._format_title())}</p>\n{format_html_table(self._make_rows(), right=(2, 3))}"

    def _format_title(self) -> str:
        pools, images = format_count(len(self.pools), "pool"), format_count(self.images, "image")
        return f"{pools} fitted on {images}; distance to the original network: ‖new − old‖ / ‖old‖"

    def _make_rows(self) -> list[tuple[str, ...]]:
        distances = [(fit.name, fit.pool, fit.before, fit.after) for fit in self.pools]
        distances.append(("the network's output", "", self.output_before, self.output_after))
        rows = [(name, pool, format_percent(old, 2), format_percent(new, 2)) for name, pool, old, new in distances]
        return [("pool", "", "before", "after"), *rows]


def calibrate(model: nn.Module, batches: Iterable[Any], *, images: int = 512) -> Calibration:
    """Fit the pools ``convert`` put in to what the old ones gave, on a few batches; say how close they came.

    ``batches`` are what the network is called with (tensors, ``(images, labels)``, mappings); it ends after ``images``
    of them. Only the parameters of the new pools change, and those only for the better. The same call gives the same
    numbers.

    >>> learnpool.convert(net, "gated")
    >>> print(learnpool.calibrate(net, loader))
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"calibrate: model must be a module, got {type(model).__name__}")
    swaps = list_swaps(model)
    if not swaps:
        raise ValueError("calibrate: no pool of the model was swapped; learnpool.convert(model) does that")
    sample, count = take_images(batches, images)
    with observation.preserve_state(model):
        targets, outputs = record_original(model, swaps, sample)
        order = [swap for name in targets for swap in swaps if swap.name == name]
        before = measure_distances(model, order, sample, targets, outputs)
        for group in group_by_parameters(order):
            inputs = record_inputs(model, group, sample, targets)
            pairs = [
                (at, x, y) for at, s in enumerate(group) for x, y in zip(inputs[s.name], targets[s.name], strict=True)
            ]
            fit([swap.new for swap in group], pairs)
        after = measure_distances(model, order, sample, targets, outputs)
    fits = [PoolFit(s.name or "the model", name_pool(s.new), before[s.name], after[s.name]) for s in order]
    return Calibration(tuple(fits), count, before["output"], after["output"])


def take_images(batches: Iterable[Any], images: int) -> tuple[list[Any], int]:
    """The first batches, as many as hold ``images`` images, the last one cut; and how many those are."""
    if isinstance(batches, (Tensor, dict)) or not isinstance(batches, Iterable):
        raise TypeError(f"calibrate: batches must be a list (or loader) of batches, got {type(batches).__name__}")
    sample: list[Any] = []
    count = 0
    for batch in batches:
        args, kwargs = observation.read_arguments("calibrate", batch)
        size, left = len(observation.get_images("calibrate", batch)), images - count
        cut = {k: v[:left] if isinstance(v, Tensor) and v.dim() and len(v) == size else v for k, v in kwargs.items()}
        sample.append(cut or args[0][:left])
        count += min(size, left)
        if count >= images:
            break
    if not count:
        raise ValueError("calibrate: wanted at least one image, got none")
    return sample, count


TensorsByPool = dict[str, list[Tensor]]


def record_original(
    model: nn.Module, swaps: Sequence[Swap], batches: Sequence[Any]
) -> tuple[TensorsByPool, list[Tensor | None]]:
    """The outputs of each old pool in the original network, pools in the order of their first call; and its own."""
    targets: TensorsByPool = {}
    left: dict[str, int] = {}

    def record(swap: Swap, x: Tensor, output: Tensor) -> Tensor:
        y: Tensor = swap.old(x)
        space = left.setdefault(swap.name, MAX_VALUES)
        targets.setdefault(swap.name, []).append(y.clone() if space > 0 else y[:0])  # a ReLU in place may follow
        left[swap.name] = space - x.numel()
        return y

    with register_hooks(swaps, record):
        outputs = [find_first_tensor(observation.run_batch("calibrate", model, batch)) for batch in batches]
    return targets, outputs


class StopForward(BaseException):
    """Ends a forward pass that has nothing more to record; no handler for Exception catches it."""


def record_inputs(
    model: nn.Module, group: Sequence[Swap], batches: Sequence[Any], targets: TensorsByPool
) -> TensorsByPool:
    """The present inputs of the pools of a group, one tensor for each of their targets."""
    inputs: TensorsByPool = {swap.name: [] for swap in group}
    calls = {name: len(targets[name]) // len(batches) for name in inputs}  # in one forward pass
    goal: dict[str, int] = {}

    def record(swap: Swap, x: Tensor, output: Tensor) -> None:
        tensors = inputs[swap.name]
        tensors.append(x[: len(targets[swap.name][len(tensors)])].clone())
        if all(len(inputs[name]) >= goal[name] for name in inputs):
            raise StopForward

    with register_hooks(group, record):
        for batch in batches:
            goal.update({name: len(tensors) + calls[name] for name, tensors in inputs.items()})
            with suppress(StopForward):
                observation.run_batch("calibrate", model, batch)
    return inputs


def measure_distances(
    model: nn.Module,
    swaps: Sequence[Swap],
    batches: Sequence[Any],
    targets: TensorsByPool,
    outputs: Sequence[Tensor | None],
) -> dict[str, float]:
    """``‖new − old‖ / ‖old‖`` of each pool's output, and of the network's as ``output``."""
    sums = {swap.name: [0.0, 0.0] for swap in swaps} | {"output": [0.0, 0.0]}
    calls = dict.fromkeys(sums, 0)

    def add(name: str, new: Tensor, old: Tensor) -> None:
        new, old = new[: len(old)].float(), old.float()
        sums[name][0] += float((new - old).square().sum())
        sums[name][1] += float(old.square().sum())

    def record(swap: Swap, x: Tensor, output: Tensor) -> None:
        add(swap.name, output, targets[swap.name][calls[swap.name]])
        calls[swap.name] += 1

    with register_hooks(swaps, record):
        for batch, old in zip(batches, outputs, strict=True):
            new = find_first_tensor(observation.run_batch("calibrate", model, batch))
            if new is not None and old is not None:
                add("output", new, old)
    return {name: math.sqrt(d / n) if n else math.inf if d else 0.0 for name, (d, n) in sums.items()}


@contextmanager
def register_hooks(swaps: Sequence[Swap], record: Callable[[Swap, Tensor, Tensor], Tensor | None]) -> Iterator[None]:
    """After each call of a new pool, ``record(swap, x, output)``; what that returns replaces the output."""

    def hook(swap: Swap, pool: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        return record(swap, args[0] if args else kwargs["input"], output)

    with ExitStack() as stack:
        for swap in swaps:
            stack.callback(swap.new.register_forward_hook(partial(hook, swap), with_kwargs=True).remove)
        yield


def group_by_parameters(order: Sequence[Swap]) -> list[list[Swap]]:
    """Pools with parameters in forward order; those that share parameters together, at the first one's place."""
    groups: dict[tuple[int, ...], list[Swap]] = {}
    for swap in order:
        if own := tuple(id(p) for p in swap.new.parameters()):
            groups.setdefault(own, []).append(swap)
    return list(groups.values())


def find_first_tensor(output: Any) -> Tensor | None:
    """The network's answer where it gives several: the first of a tuple or mapping."""
    while isinstance(output, (tuple, list, dict)) and output:
        output = next(iter(output.values() if isinstance(output, dict) else output))
    return output if isinstance(output, Tensor) and output.is_floating_point() else None
