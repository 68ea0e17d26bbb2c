"""The paper's own errors, as data: Tables 1 (mixed, gated) and 2 (tree), its text for SVHN and stride-2 convolutions.

Percent of test images; ± is the standard deviation over 3 trials where the paper gives one. ``cifar10+`` is CIFAR10
with augmentation. Tree rows have the tree in the first pool and max in the second. The paper does not say how many
levels the tree of Tree+Max-Avg has on MNIST and SVHN; 2 and 3 are our reading.
"""

from __future__ import annotations

from collections.abc import Mapping

Value = tuple[float, float | None]

SETS = ("mnist", "cifar10", "cifar10+", "cifar100", "svhn")
_ROWS: dict[str, tuple[Value | None, ...]] = {
    "max": ((0.39, None), (9.10, None), (7.32, None), (34.21, None), (1.91, None)),
    "stochastic": ((0.38, 0.04), (8.50, 0.05), (7.30, 0.07), (33.48, 0.27), None),
    "half": ((0.34, 0.012), (8.11, 0.10), (6.78, 0.17), (33.53, 0.16), (1.84, None)),
    "mixed": ((0.33, 0.018), (8.09, 0.19), (6.62, 0.21), (33.51, 0.11), (1.76, None)),
    "mixed:region_channel": ((0.30, 0.012), (8.05, 0.16), (6.58, 0.30), (33.35, 0.19), (1.64, None)),
    "gated": ((0.29, 0.016), (7.90, 0.07), (6.36, 0.28), (33.22, 0.16), (1.74, None)),
    "tree2+max": ((0.35, None), (8.25, None), (6.88, None), (33.53, None), (1.80, None)),
    "tree3+max": ((0.37, None), (8.22, None), (6.67, None), (33.13, None), (1.70, None)),
    "tree2+gated": ((0.31, None), None, None, (32.37, None), None),
    "tree3+gated": (None, (7.62, None), (6.05, None), None, (1.69, None)),
    "conv": (None, (8.77, None), None, None, None),
}
ERRORS: Mapping[str, Mapping[str, Value]] = {
    name: {pool: row[place] for pool, row in _ROWS.items() if row[place] is not None}  # type: ignore[misc]
    for place, name in enumerate(SETS)
}


DEEPER = {1: (9.08, None), 2: (9.17, None)}  # Table 3: extra convolutions, max pooling, CIFAR10 without augmentation


def find_paper_error(
    data: str, pool: str, *, augmented: bool = False, net: str = "dsn", extra_convs: int = 0
) -> Value | None:
    """The paper's error and its spread for this data, pool and the paper's network; None where it has none.

    Augmented runs have the augmented column where there is one: the paper augmented CIFAR10 alone.
    """
    if net != "dsn":
        return None
    column = f"{data}+" if augmented and f"{data}+" in ERRORS else data
    if extra_convs:
        return DEEPER.get(extra_convs) if (column, pool) == ("cifar10", "max") else None
    return ERRORS.get(column, {}).get(pool)
