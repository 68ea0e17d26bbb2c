"""The text's timing: forward and backward per image, with each pool."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import torch
from torch.nn import functional as F

from ...formatting import format_count
from .. import hardware
from ..bench.clock import time_call
from ..bench.net import make_network_and_batch
from ..paper import PAPER
from ..runs.run import Run
from .experiment import VARIANTS, Cell, Page, Scale, Table
from .results import Results

TITLE = "What learned pools cost in time"
SOURCE = "Text, Timing"
CLAIM = "Learned pools add 5 % to 15 % to the time of forward and backward."
DATA = ("cifar10",)
ROUNDS, WARM = 9, 2
SECONDS = 20.0  # more rounds until then: short steps are noisy


def plan(scale: Scale) -> list[Run]:
    """Nothing to train."""
    return []


def measure(data: str, fields: Run) -> dict[str, Any]:
    """Milliseconds per image, the pools taking turns in each round; each pool's time over the baseline's, by rounds."""
    pools = {pool: PAPER["tree+gated"]["cifar10"] if pool == "tree+gated" else pool for pool in PAPER["timing"]}
    steps = {pool: _make_step(data, name, fields) for pool, name in pools.items()}
    machine = hardware.describe_machine()
    for step in steps.values():
        time_call(step, WARM)
    seconds: dict[str, list[float]] = {pool: [] for pool in steps}
    began = time.monotonic()
    for turn in itertools.count():
        if turn >= ROUNDS and time.monotonic() - began > SECONDS:
            break
        order = list(steps) if turn % 2 == 0 else list(reversed(steps))
        for pool in order:
            seconds[pool].append(time_call(steps[pool]))
    settings = {"data": data, "batch": fields.batch, "width": fields.width, "channels_last": fields.channels_last}
    return machine | {"settings": settings, "threads": torch.get_num_threads(), "pools": pools, "seconds": seconds}


def _make_step(data: str, pool: str, fields: Run) -> Any:
    """Forward and backward on a batch of noise."""
    options: Any = {"width": fields.width, "channels_last": fields.channels_last, "start": "neutral"}
    net, x, target = make_network_and_batch(data, pool, fields.batch, **options)

    def step() -> None:
        net.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), target).backward()

    return step


def build_page(scale: Scale, results: Results) -> Page:
    """A table of milliseconds and ratios, the paper's beside ours."""
    data = VARIANTS[next(iter(scale.choose(DATA)), "cifar10")][0]
    fields = scale.make_run("digits" if data == "digits" else "cifar10", "max", seed=0)
    layout = "channels_last" if fields.channels_last else "contiguous"
    name = f"timing-{data}-{fields.width:g}-{fields.batch}-{layout}-{torch.get_num_threads()}"
    record = results.measure_once(name, lambda: measure(data, fields))
    seconds, published = record["seconds"], PAPER["timing"]
    rows, ratios = [], {}
    for pool, entry in published.items():
        ratios[pool] = statistics.median(seconds[pool]) / statistics.median(seconds["max"])
        in_rounds = [ours / base for ours, base in zip(seconds[pool], seconds["max"], strict=True)]
        low, _, high = statistics.quantiles(in_rounds, n=4, method="inclusive")
        ms = 1e3 * statistics.median(seconds[pool]) / record["settings"]["batch"]
        theirs = entry["ms"] / published["max"]["ms"]
        cells = map(Cell, (f"{entry['ms']:.2f}", f"{theirs:.2f}", f"{ms:.3f}"))
        ratio = Cell(f"{ratios[pool]:.2f}", f"{low:.2f} … {high:.2f}")
        rows.append([Cell(entry["label"], record["pools"][pool]), *cells, ratio])
    heads = ["Pools", "paper, ms per image", "over its baseline", "ours, ms per image", "over our baseline"]
    settings = record["settings"]
    caption = (
        f"Medians of {len(seconds['max'])} rounds in which the pools take turns; in small print the middle half of the "
        f"ratios within a round. {data}, {settings['width']:g} of the paper's channels, batch {settings['batch']}, "
        f"{layout}, float32, {format_count(record['threads'], 'thread')}. {hardware.format_machine(record)}."
    )
    slowest = max(entry["ms"] for entry in published.values()) / published["max"]["ms"]
    answer = (
        f"The slowest takes {max(ratios.values()):.2f} times the time of the network with max pooling; the paper's "
        f"took {slowest:.2f} times."
    )
    note = (
        "The paper does not say on what machine it measured. Ours is in float32, on random pixels, with cross-"
        "entropy and without the heads of deep supervision, which the paper drops partway through training."
    )
    return Page([answer], [Table(heads, rows, caption)], [note], {"ratios": ratios})
