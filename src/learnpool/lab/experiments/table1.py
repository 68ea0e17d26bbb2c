"""Table 1: max against stochastic, 50/50, mixed and gated pooling in one network."""

from ..paper import PAPER, SETS, read_table
from .error_table import ErrorTable, Row

TITLE = "Mixed and gated pooling"
SOURCE = "Table 1, and the text's line on SVHN"
CLAIM = (
    "Every learned pool beats max pooling, and gated pooling with 18 parameters beats mixed pooling with more than "
    "40,000 on all data sets but SVHN."
)
PAPERS = {pool: {**errors, **read_table("table1_text").get(pool, {})} for pool, errors in read_table("table1").items()}
TABLE = ErrorTable([Row(row["label"], pool, paper=PAPERS[pool]) for pool, row in PAPER["table1"].items()], SETS)
plan, build_page = TABLE.plan, TABLE.build_page
