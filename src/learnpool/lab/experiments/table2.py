"""Table 2: trees in the first pool, alone and followed by a gated pool; and the text's tree in both pools."""

from ..paper import PAPER, SETS, read_table
from .error_table import ErrorTable, Row

TITLE = "Tree pooling"
SOURCE = "Table 2, and the text on a tree in both pools"
CLAIM = (
    "A tree in the first pool beats max pooling, a third level helps on all data sets but MNIST, and a gated pool "
    "behind the tree helps further. A tree in both pools gives no further improvement."
)
TABLE = ErrorTable(
    [
        *(Row(PAPER["table2"][pool]["label"], pool, paper=errors) for pool, errors in read_table("table2").items()),
        Row("Tree, 2 level, in both pools", "tree2"),
    ],
    SETS,
)
plan, build_page = TABLE.plan, TABLE.build_page
