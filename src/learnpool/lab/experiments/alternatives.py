"""The text's other ways to pool: stochastic, convolutions of stride 2, a fixed 50/50 mix."""

from ..paper import PAPER, read_value
from .error_table import ErrorTable, Row

TITLE = "Learned pools against other ways to pool"
SOURCE = "Text, comparison with alternative pooling layers"
CLAIM = (
    "Stride-2 convolutions need 0.5 million parameters for less than stochastic pooling gives for none; a fixed 50/50 "
    "mix is better than both, and tree + gated pooling is best."
)
TABLE = ErrorTable(
    [
        Row(row["label"], pool, paper={"cifar10": read_value(row["error"])}, paper_parameters=row["extra"])
        for pool, row in PAPER["alternatives"].items()
    ],
    ("cifar10", "cifar10+"),
)
plan, build_page = TABLE.plan, TABLE.build_page
