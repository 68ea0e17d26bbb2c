"""Strided convolutions: maps shrunk by max pools, by the convolutions themselves, or by pools behind these."""

from .error_table import ErrorTable, Row

TITLE = "Pools behind strided convolutions"
SOURCE = "Not in the paper, whose networks shrink maps by pools"
CLAIM = (
    "A convolution of stride 2 is one of stride 1 of which every second cell is kept, so it aliases. The paper has "
    "stride-2 convolutions in place of pools, but no pools behind them."
)
BEHIND = {"replace": "strided"}  # each convolution at stride 1, and the row's pool behind it
TABLE = ErrorTable(
    [
        Row("Max pools", "max"),
        Row("Strided convolutions", "conv"),
        Row("Strided convolutions, 50/50 mix behind them", "half", BEHIND),
        Row("Strided convolutions, gated pools behind them", "gated", BEHIND),
        Row("Strided convolutions, blur behind them", "blur", BEHIND),
    ],
    ("cifar10+", "cifar10"),
)
plan, build_page = TABLE.plan, TABLE.build_page
