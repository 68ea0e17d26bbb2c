"""Table 2: trees in the first pool, alone and followed by a gated pool; and the text's tree in both pools."""

from ..paper import PAPER, read_value
from .error_table import ErrorTable, Row

TITLE = "Tree pooling"
SOURCE = "Table 2, and the text on a tree in both pools"
CLAIM = (
    "A tree in the first pool beats max pooling, a third level helps on all data sets but MNIST, and a gated pool "
    "behind the tree helps further. A tree in both pools gives no further improvement."
)
DATA = ("mnist", "cifar10", "cifar10+", "cifar100", "svhn")


def _make_row(pool: str) -> Row:
    entry = PAPER["table2"][pool]
    values = {data: value for data in DATA if (value := read_value(entry.get(data)))}
    return Row(entry["label"], pool, paper=values)


TABLE = ErrorTable([*map(_make_row, PAPER["table2"]), Row("Tree, 2 level, in both pools", "tree2")], DATA)
plan, build_page = TABLE.plan, TABLE.build_page
