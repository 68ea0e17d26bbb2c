"""Table 3: a deeper network instead of a pool that learns."""

from ..paper import PAPER, read_value
from .error_table import ErrorTable, Row

TITLE = "Learned pools against more depth"
SOURCE = "Table 3"
CLAIM = "One or two more convolutions, with 0.6 and 1.2 million parameters, do not help; 72 parameters in the pools do."
FIELDS = {
    "max": ("max", {}), "1 extra conv": ("max", {"extra_convs": 1}), "2 extra convs": ("max", {"extra_convs": 2}),
    "tree+gated": ("tree+gated", {}),
}  # fmt: skip
TABLE = ErrorTable(
    [
        Row(row["label"], *FIELDS[name], paper={"cifar10": read_value(row["error"])}, paper_parameters=row["extra"])
        for name, row in PAPER["table3"].items()
    ],
    ("cifar10", "cifar10+"),
)
plan, build_page = TABLE.plan, TABLE.build_page
