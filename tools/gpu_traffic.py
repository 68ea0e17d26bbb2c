"""Bytes the GPU kernels move, counted in Triton's interpreter: sectors of 32 bytes that each program touches.

A launch is planned for the whole shape; of it, the programs of one image and one tile of channels are run, which is all
the kinds of programs there are. What a program reads again, of its own, is in the L1 cache and does not count; what
neighbours read too, the halo, counts for each. Needs ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from gpu_compilation import DTYPES, LAYOUTS, WINDOWS, Case
from learnpool.ops.triton import tiles
from learnpool.ops.triton.launch import Launch

SHAPES = ((64, 128, 32, 32), (32, 64, 112, 112), (256, 64, 56, 56))
SECTOR = tiles.SECTOR
MODELLED = ("mixed", "gated", "tree2")


@dataclass(frozen=True)
class Traffic:
    """Bytes of one call: moved, and the least there can be."""

    pool: str
    window: str
    dtype: str
    layout: str
    mode: str
    shape: tuple[int, ...]
    moved: int
    least: int
    programs: int


class Counter:
    """The sectors that the program of the moment has read and written."""

    def __init__(self) -> None:
        self.read: set[int] = set()
        self.written: set[int] = set()
        self.total = 0

    def flush(self) -> None:
        self.total += SECTOR * (len(self.read) + len(self.written))
        self.read.clear()
        self.written.clear()


def count_sectors(step: Launch, numbers: list[int]) -> int:
    """Bytes of the sectors that the programs with these numbers touch."""
    import numpy as np
    from triton.runtime import interpreter

    builder, counter = interpreter.interpreter_builder, Counter()
    load, store, move = builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx

    def touch(pointers, mask) -> set[int]:
        return set(np.unique(pointers.data[np.broadcast_to(mask.data, pointers.data.shape)] // SECTOR).tolist())

    def watch_load(pointers, mask, *rest):
        counter.read |= touch(pointers, mask)
        return load(pointers, mask, *rest)

    def watch_store(pointers, value, mask, *rest):
        counter.written |= touch(pointers, mask)
        return store(pointers, value, mask, *rest)

    def choose(x, y, z):
        counter.flush()
        builder.grid_idx = (numbers[x], y, z)

    builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx = watch_load, watch_store, choose
    try:
        step.kernel[(len(numbers),)](**step.arguments)
    finally:
        builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx = load, store, move
    counter.flush()
    return counter.total


def fill(step: Launch, case: Case) -> Launch:
    """The launch with real memory for one image in place of meta tensors; its strides are planned already."""
    arguments = dict(step.arguments)
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            shape = (1, *value.shape[1:]) if name in ("x", "y", "dx", "grad") else value.shape
            real = torch.rand(shape).to(value.dtype)
            arguments[name] = real.to(memory_format=LAYOUTS[case.layout]) if len(shape) == 4 else real
    return step._replace(arguments=arguments)


def count_case(case: Case) -> Traffic:
    """All bytes of a call that has one kernel."""
    (step,) = case.plan()
    channels = -(-case.shape[1] // step.arguments["TILE"][0])
    places = step.programs // (case.shape[0] * channels)
    last = case.layout == "channels_last"
    numbers = [place * channels for place in range(places)] if last else list(range(places))
    moved = count_sectors(fill(step, case), numbers) * case.shape[0] * channels
    size = DTYPES[case.dtype].itemsize
    x = math.prod(case.shape) * size
    window = WINDOWS[case.window]
    side = [(n + 2 * window[2] - window[0]) // window[1] + 1 for n in case.shape[2:]]
    y = case.shape[0] * case.shape[1] * math.prod(side) * size
    least = x + y if case.mode == "forward" else 2 * x + y
    return Traffic(case.pool, case.window, case.dtype, case.layout, case.mode, case.shape, moved, least, step.programs)


def count_all() -> Iterator[Traffic]:
    """Mixed, gated and tree2 pools on the three shapes, both layouts, and in half precision."""
    for shape in SHAPES:
        for dtype in ("float32", "bfloat16"):
            for layout in LAYOUTS:
                for mode in ("forward", "backward"):
                    for pool in MODELLED if dtype == "float32" and layout == "nchw" else ("gated",):
                        yield count_case(Case(pool, dtype=dtype, layout=layout, mode=mode, shape=shape))
