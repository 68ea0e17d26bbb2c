"""Where in an image the cells of a feature map lie: the centre of cell i is ``start + step · i`` pixels.

The network's own operations are followed: windows (convolutions and pools) move the grid by their stride, padding and
size, padding moves it too, and whatever keeps the size keeps the grid. Where a size changes in any other way, the new
cells are taken to cover what the old ones covered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ..ops.transforms import TorchDispatchMode, get_arguments
from ..ops.window import Window


class Grid(NamedTuple):
    """One number per axis; pixel 0 reaches from 0 to 1, so its centre is 0.5."""

    start: tuple[float, float]
    step: tuple[float, float]

    def place_windows(
        self, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
    ) -> Grid:
        """The centres of windows over these cells."""
        shift = [d * (k - 1) / 2 - p for k, p, d in zip(kernel, padding, dilation, strict=True)]
        return self._map(shift, stride)

    def place_regions(self, window: Window) -> Grid:
        """The centres of a pool's regions over these cells."""
        return self.place_windows(window.kernel, window.stride, window.padding, window.dilation)

    def resize(self, old: Sequence[int], new: Sequence[int]) -> Grid:
        """``new`` cells over what ``old`` ones covered."""
        factor = [o / n for o, n in zip(old, new, strict=True)]
        return self._map([f / 2 - 0.5 for f in factor], factor)

    def _map(self, shift: Sequence[float], factor: Sequence[float]) -> Grid:
        """Cell i of the new grid is cell ``shift + factor · i`` of this one."""
        (y, x), (dy, dx) = self
        return Grid((y + dy * shift[0], x + dx * shift[1]), (dy * factor[0], dx * factor[1]))


PIXELS = Grid((0.5, 0.5), (1.0, 1.0))


class PositionTracker(TorchDispatchMode):
    """Record the grid of every map computed from ``image`` while the mode is on."""

    def __init__(self, image: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = tuple(image.shape[-2:])
        self.grids: Any = WeakTensorKeyDictionary()
        self.grids[image] = PIXELS

    def get_grid(self, x: Tensor) -> Grid:
        """The grid of a map; one that cannot be traced to the image is taken to cover all of it."""
        grid: Grid | None = self.grids.get(x)
        return PIXELS.resize(self.size, x.shape[-2:]) if grid is None else grid

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        source = next((t for t in iter_tensors((*args, *(kwargs or {}).values())) if t in self.grids), None)
        if source is None:
            return out
        for result in iter_tensors((out,)):
            grid = propagate_grid(self.grids[source], bind_arguments(func, args, kwargs or {}), source, result)
            if grid is not None:
                self.grids[result] = grid
        return out


def propagate_grid(grid: Grid, arguments: dict[str, Any], source: Tensor, result: Tensor) -> Grid | None:
    """The grid of an operation's result, from the grid of its input; None if the result is not a feature map."""
    if result.dim() < 3:
        return None
    old, new = source.shape[-2:], result.shape[-2:]
    kernel = arguments.get("kernel_size", arguments.get("kernel"))
    if kernel is None and "stride" in arguments and isinstance(arguments.get("weight"), Tensor):
        kernel = arguments["weight"].shape[2:]
    if kernel is not None and "stride" in arguments and result.dim() == 4:
        stride, padding, dilation = (
            to_pair(arguments.get(name), default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
        )
        stride = stride if arguments["stride"] else to_pair(kernel, 1)
        if not arguments.get("transposed"):
            return grid.place_windows(to_pair(kernel, 1), stride, padding, dilation)
        shift = [p - d * (k - 1) / 2 for k, p, d in zip(to_pair(kernel, 1), padding, dilation, strict=True)]
        return grid._map([n / s for n, s in zip(shift, stride, strict=True)], [1 / s for s in stride])
    pad = arguments.get("pad", arguments.get("padding"))  # left, right, top, bottom
    if isinstance(pad, (list, tuple)) and len(pad) > 1 and result.dim() == source.dim():
        return grid._map([-pad[2] if len(pad) > 2 else 0, -pad[0]], [1, 1])
    if old == new:
        return grid
    return grid.resize(old, new) if result.dim() == source.dim() == 4 else None


def bind_arguments(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operator by name, with its defaults."""
    schema = get_arguments(func)
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    return defaults | dict(zip((argument.name for argument in schema), args, strict=False)) | kwargs


def iter_tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    """The tensors among arguments or results, inside lists too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from iter_tensors(value)


def to_pair(value: Any, default: int) -> list[int]:
    """``3``, ``[3]`` or ``[3, 3]`` as two numbers."""
    values: list[int] = [value] if isinstance(value, int) else list(value or [default])
    return values * 2 if len(values) == 1 else values
