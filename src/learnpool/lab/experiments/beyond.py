"""Pools the paper does not try in its tables, beside those it does: average pooling, and a tree with a mixed leaf."""

from ..paper import read_table
from .error_table import ErrorTable, Row

TITLE = "Pools the paper does not try"
SOURCE = "Not in the paper's tables"
CLAIM = (
    "Any tree of maxima, means and filters can be learned the same way; the paper tries complete trees of filters. "
    "Its tables have no average pooling."
)
PUBLISHED = read_table("table1")
TABLE = ErrorTable(
    [
        Row("Max", "max", paper=PUBLISHED["max"]),
        Row("Average", "avg"),
        Row("50/50 mix, no learning", "half", paper=PUBLISHED["half"]),
        Row("Gated", "gated", paper=PUBLISHED["gated"]),
        Row("Tree, 3 level, then gated", "tree3+gated", paper=read_table("table2")["tree3+gated"]),
        Row("Filter or mixed, then gated", "Gate(Filter,Mix(Max,Avg))+gated"),
    ],
    ("cifar10+", "cifar10"),
)
plan, build_page = TABLE.plan, TABLE.build_page
