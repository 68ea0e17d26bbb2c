"""The paper's own numbers, read from ``paper.json`` beside this file: the one place that has them.

Errors are percent of test images; ± is the standard deviation over 3 trials where the paper gives one. ``cifar10+`` is
CIFAR10 with augmentation. Tree rows have the tree in the first pool and max in the second. The paper does not say how
many levels the tree of Tree+Max-Avg has on MNIST and SVHN; 2 and 3 are our reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..formatting import format_number

Value = tuple[float, float | None]  # mean, standard deviation

PAPER: Mapping[str, Any] = json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))
SETS = ("mnist", "cifar10", "cifar10+", "cifar100", "svhn")


def read_value(entry: Sequence[float]) -> Value:
    """``[8.09, 0.19]`` or ``[9.10]`` of the file as mean and spread."""
    return entry[0], entry[1] if len(entry) > 1 else None


def format_value(value: Value | None) -> str:
    """``8.09 ± 0.19``."""
    if value is None:
        return "–"
    mean, spread = value
    digits = 3 if spread is not None and round(spread, 2) != spread else 2  # as many as the paper has
    return format_number(mean) + ("" if spread is None else f" ± {format_number(spread, digits)}")


def read_table(name: str) -> dict[str, dict[str, Value]]:
    """The errors of a table by pool and data set."""
    return {pool: {data: read_value(row[data]) for data in SETS if data in row} for pool, row in PAPER[name].items()}


def find_error(
    data: str, pool: str, *, augmented: bool = False, net: str = "dsn", extra_convs: int = 0
) -> Value | None:
    """The paper's error and its spread for this data, pool and the paper's network; None where it has none.

    Augmented runs have the augmented column where there is one: the paper augmented CIFAR10 alone.
    """
    if net != "dsn":
        return None
    column = f"{data}+" if augmented and f"{data}+" in SETS else data
    if extra_convs:
        deeper = PAPER["table3"].get(f"{extra_convs} extra conv{'s' * (extra_convs > 1)}")
        return read_value(deeper["error"]) if deeper and (column, pool) == ("cifar10", "max") else None
    row = "tree+gated" if pool == PAPER["tree+gated"].get(column) else pool
    for table in ("table1", "table1_text", "table2"):
        if published := read_table(table).get(row, {}).get(column):
            return published
    single = PAPER["alternatives"].get(pool)
    return read_value(single["error"]) if single and column == "cifar10" else None
