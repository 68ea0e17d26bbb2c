"""What ``learnpool bench pools`` is asked to measure, read from its options."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from ... import parse
from ...names import split_names
from ...ops.window import Window, format_size
from ..hardware import find_device

LAYOUTS = ("nchw", "channels_last")
DTYPES = {str(dtype)[6:]: dtype for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)}


@dataclass(frozen=True, kw_only=True)
class PoolBenchmark:
    """Everything that decides what is measured."""

    shapes: tuple[tuple[int, ...], ...]
    window: tuple[int, ...]  # kernel, stride, padding, dilation
    ceil_mode: bool
    pools: tuple[str, ...]
    layout: str
    dtype: str
    threads: int
    rounds: int
    compiled: bool
    reference: bool
    device: str = "cpu"

    def make_window(self, shape: Sequence[int]) -> Window:
        kernel, stride, padding, dilation = self.window
        return Window.of("--window", len(shape) - 2, kernel, stride, padding, dilation, self.ceil_mode)

    def __str__(self) -> str:
        kernel, stride, padding, dilation = self.window
        text = f"window {kernel}, stride {stride}, padding {padding}" + f", dilation {dilation}" * (dilation > 1)
        where = f"threads: {self.threads}" if self.device == "cpu" else self.device
        return f"{text}{', ceil mode' * self.ceil_mode}; {self.layout}, {self.dtype}, {where}"


def parse_options(
    shapes: str,
    window: str,
    pools: str,
    layout: str,
    dtype: str,
    share: str | None = None,
    *,
    threads: int | None = None,
    rounds: int,
    ceil_mode: bool = False,
    compiled: bool = False,
    reference: bool = False,
    device: str = "cpu",
) -> PoolBenchmark:
    """What the options of the command line ask for; ValueError names the option that is wrong."""
    sizes = tuple(parse_numbers(text, "x") for text in shapes.split(","))
    for text, size in zip(shapes.split(","), sizes, strict=True):
        if not 3 <= len(size) <= 5 or min(size) < 1:
            raise ValueError(f"--shapes: wanted 3 to 5 sizes such as 64x128x32x32, got {text.strip()!r}")
        if layout == "channels_last" and len(size) == 3:
            raise ValueError(f"--layout: channels_last needs 2d or 3d shapes, got {text.strip()!r}")
    geometry = parse_numbers(window, ",")
    if not 3 <= len(geometry) <= 4:
        raise ValueError(f"--window: wanted kernel,stride,padding or kernel,stride,padding,dilation, got {window!r}")
    if layout not in LAYOUTS:
        raise ValueError(f"--layout: wanted {' or '.join(LAYOUTS)}, got {layout!r}")
    if dtype not in DTYPES:
        raise ValueError(f"--dtype: wanted one of {', '.join(DTYPES)}, got {dtype!r}")
    names = []
    for text in split_names(pools):
        name = parse(text, share)
        if len(name.parts) > 1:
            raise ValueError(f"--pools: wanted single pools, got {text!r}")
        if name.part().pool == "avg" and geometry[3:] > (1,):
            raise ValueError("--pools: avg has no dilation")
        names.append(str(name).replace("()", ""))
    benchmark = PoolBenchmark(
        shapes=tuple(dict.fromkeys(sizes)),
        window=(*geometry, 1)[:4],
        ceil_mode=ceil_mode,
        pools=tuple(dict.fromkeys(names)),
        layout=layout,
        dtype=dtype,
        threads=threads or torch.get_num_threads(),
        rounds=rounds,
        compiled=compiled,
        reference=reference,
        device=str(find_device(device)),
    )
    for size in sizes:
        if min(benchmark.make_window(size).output_size(size[2:])) < 1:
            raise ValueError(f"--window: {window!r} does not fit into the shape {format_size(size)}")
    return benchmark


def parse_numbers(text: str, separator: str) -> tuple[int, ...]:
    """``64x128x32x32`` as ints; empty if any part is not a number."""
    with suppress(ValueError):
        return tuple(int(part) for part in text.split(separator))
    return ()
