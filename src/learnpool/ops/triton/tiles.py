"""Which part of a map one program covers: few bytes read twice, few idle lanes, enough programs.

A tile is a tuple of channels, depth, rows and columns: of regions in forward, of cells in backward, where a second tile
of windows covers it. Lanes are powers of two; the last ones of a tile idle.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..window import Window

Tile = tuple[int, int, int, int]
SECTOR = 32  # bytes: the smallest piece of memory a GPU reads
PROGRAMS = 432  # four on each multiprocessor of an A100: with fewer, some of it idles
FORWARD_OVERHEAD = 512  # bytes that could be moved while a program starts
BACKWARD_OVERHEAD = 2048  # and while it sums the gradients of parameters over its lanes
FORWARD_LANES, BACKWARD_LANES, BACKWARD_REGIONS = 1024, 4096, 1024
FEW_NODES = 7  # a larger tree has half as many lanes in backward: its numbers would not fit in registers
FEW_TAPS = 16  # where all cells of a region are in registers at once, a larger window has half as many lanes


class Map(NamedTuple):
    """What decides tiles: sizes as C, D, H, W, bytes of a number, and which axis is contiguous."""

    images: int
    sizes: Tile
    outputs: Tile
    itemsize: int
    last: bool  # channels_last


def round_up(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << (number - 1).bit_length()


def count_tiles(images: int, sizes: Sequence[int], tile: Sequence[int]) -> int:
    """How many programs cover everything."""
    return images * math.prod(-(-n // t) for n, t in zip(sizes, tile, strict=True))


def count_lanes(tile: Sequence[int]) -> int:
    """Lanes of a program for a tile: a power of two, and a warp of four each at least."""
    return max(128, round_up(math.prod(tile)))


def cover(tile: Tile, shape: Map, window: Window) -> Tile:
    """The most windows that touch a tile of cells, axis by axis."""
    axes = zip(tile[1:], shape.outputs[1:], window.kernel, window.stride, window.dilation, strict=True)
    windows = (min(out, (t - 1 + (k - 1) * d) // s + 1) for t, out, k, s, d in axes)
    return (tile[0], *windows)  # type: ignore[return-value]


def count_regions(most: int, load: int) -> int:
    """How many regions a program has at most, for a pool of some load."""
    return most // (1 if load <= 2 else 2 if load <= 8 else 4)


@lru_cache(maxsize=1024)
def choose_forward(shape: Map, window: Window, load: int = 1) -> Tile:
    """A tile of regions; a pool of a higher ``load`` has fewer of them."""

    def count_bytes(tile: Tile) -> int:
        cells = (tile[0], *_span(tile, shape, window))
        return _count_bytes(cells, shape.sizes, shape) + _count_bytes(tile, shape.outputs, shape)

    lanes = count_regions(FORWARD_LANES, load)
    tiles = _iter_tiles(shape.outputs, shape, lanes, lanes)
    return min(tiles, key=lambda tile: _score(tile, shape.outputs, shape, count_bytes, FORWARD_OVERHEAD))


@lru_cache(maxsize=1024)
def choose_backward(shape: Map, window: Window, channels: int, load: int = 1) -> Tile | None:
    """A tile of cells of at most so many channels; a pool of a higher ``load`` has fewer of them.

    None if its windows would be too many, or mostly not its own.
    """
    lanes = BACKWARD_LANES // max(load, 1 if shape.itemsize <= 4 else 2)
    regions = count_regions(BACKWARD_REGIONS, load)

    def count_bytes(tile: Tile) -> int:
        windows = cover(tile, shape, window)
        cells = (tile[0], *_span(windows, shape, window))
        read = _count_bytes(cells, shape.sizes, shape) + _count_bytes(windows, shape.outputs, shape)
        return read + _count_bytes(tile, shape.sizes, shape)

    best: tuple[float, Tile] | None = None
    for tile in _iter_tiles(shape.sizes, shape, lanes, channels):
        windows = cover(tile, shape, window)
        if math.prod(windows) > regions:
            continue
        score = _score(tile, shape.sizes, shape, count_bytes, BACKWARD_OVERHEAD)
        if best is None or score < best[0]:
            best = score, tile
    if best is None:
        return None
    windows = cover(best[1], shape, window)
    computed = count_tiles(shape.images, shape.sizes, best[1]) * math.prod(windows)
    return best[1] if computed <= 4 * shape.images * math.prod(shape.outputs) + BACKWARD_REGIONS else None


def _span(tile: Tile, shape: Map, window: Window) -> tuple[int, ...]:
    axes = zip(tile[1:], shape.sizes[1:], window.kernel, window.stride, window.dilation, strict=True)
    return tuple(min(n, (t - 1) * s + (k - 1) * d + 1) for t, n, k, s, d in axes)


def _count_bytes(part: Sequence[int], sizes: Sequence[int], shape: Map) -> int:
    """Sectors of a part of a map, in bytes; a row that neither begins nor ends the map may begin inside a sector."""
    order = (1, 2, 3, 0) if shape.last else (0, 1, 2, 3)
    run, rows = 1, 1
    whole = True
    for axis in reversed(order):
        if whole:
            run, whole = run * part[axis], part[axis] == sizes[axis]
        else:
            rows *= part[axis]
    length = run * shape.itemsize
    return rows * (-(-length // SECTOR) + (length % SECTOR != 0)) * SECTOR


def _score(tile: Tile, sizes: Tile, shape: Map, count_bytes: Callable[[Tile], int], overhead: int) -> float:
    programs = count_tiles(shape.images, sizes, tile)
    useful = shape.images * math.prod(sizes)
    idle = programs * count_lanes(tile) / useful
    starved = max(1.0, min(PROGRAMS, useful / 256) / programs)
    return float(programs * (count_bytes(tile) + overhead) * idle**0.3 * starved**0.5)


def _iter_tiles(sizes: Tile, shape: Map, lanes: int, channels: int) -> Iterator[Tile]:
    """Tiles of at most so many lanes: axes cut into equal parts, channels by powers of two in channels_last."""
    cuts = [
        sorted({-(-n // parts) for parts in (*range(1, 17), *(2**j for j in range(5, 31))) if parts < 2 * n})
        for n in sizes[1:]
    ]
    for d, h, w in itertools.product(*cuts):
        volume = d * h * w
        if volume > lanes:
            continue
        if shape.last:
            c = 1
            while c <= round_up(sizes[0]) and volume * c <= lanes:
                yield (c, d, h, w)
                c *= 2
        else:
            fits = min(sizes[0], channels, lanes // volume) if (d, h, w) == sizes[1:] else 1
            yield (-(-sizes[0] // -(-sizes[0] // fits)), d, h, w)
