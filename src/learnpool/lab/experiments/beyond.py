"""Average pooling, and a tree with a mixed leaf, which the paper's tables do not have, beside pools they do."""

from ..paper import read_table
from .error_table import TREE_GATED, ErrorTable, Row

TITLE = "Average pooling, and a tree with a mixed leaf"
SOURCE = "Not in the paper's tables"
CLAIM = (
    "The paper's trees are complete trees of filters, but any tree of maxima, means and filters can be learned; its "
    "tables have no average pooling, which is a baseline of its Figure 2."
)
PUBLISHED = read_table("table1")
TABLE = ErrorTable(
    [
        Row("Max", "max", paper=PUBLISHED["max"]),
        Row("Average", "avg"),
        Row("50/50 mix, no learning", "half", paper=PUBLISHED["half"]),
        Row("Gated", "gated", paper=PUBLISHED["gated"]),
        Row("Tree, then gated", TREE_GATED, paper=read_table("table2")[TREE_GATED]),
        Row("Filter or mixed, then gated", "Gate(Filter,Mix(Max,Avg))+gated"),
    ],
    ("cifar10+", "cifar10"),
)
plan, build_page = TABLE.plan, TABLE.build_page
