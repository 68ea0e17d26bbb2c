"""The text's single learned filter in each pool: 9 parameters each, no tree."""

from ..paper import PAPER
from .error_table import ErrorTable, Row

TITLE = "One learned filter instead of a tree"
SOURCE = "Text on CIFAR10"
GAIN = PAPER["filter"]["gain"]
CLAIM = f"One learned filter per pool has {GAIN} points less error than max pooling; a tree has less still."
BASE = PAPER["table2"]["max"]["cifar10"][0]
TABLE = ErrorTable(
    [
        Row("Baseline", "max", paper={"cifar10": (BASE, None)}),
        Row("One learned filter", "filter", paper={"cifar10": (round(BASE - GAIN, 2), None)}),
        Row("Tree, 2 level", "tree2+max", paper={"cifar10": (PAPER["table2"]["tree2+max"]["cifar10"][0], None)}),
    ],
    ("cifar10", "cifar10+"),
    (f"the paper's text has no error of the filter, but {GAIN} points less than the baseline's {BASE:.2f}",),
)
plan, build_page = TABLE.plan, TABLE.build_page
