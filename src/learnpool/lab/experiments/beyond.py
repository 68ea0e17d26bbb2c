"""Other pools in use, beside the paper's: fixed ones, others that learn, and a tree with a mixed leaf."""

from ..paper import read_table
from .error_table import TREE_GATED, ErrorTable, Row

TITLE = "Every other pool, beside those of the paper"
SOURCE = "Not in the paper's tables"
CLAIM = (
    "The paper's trees are complete trees of filters, but any tree of maxima, means, filters and other functions of a "
    "region can be learned; its tables have no average pooling, which is a baseline of its Figure 2."
)
PUBLISHED = read_table("table1")
TABLE = ErrorTable(
    [
        Row("Max", "max", paper=PUBLISHED["max"]),
        Row("Average", "avg"),
        Row("50/50 mix, no learning", "half", paper=PUBLISHED["half"]),
        Row("Blur", "blur"),
        Row("Max, then blur", "maxblur"),
        Row("Median", "median"),
        Row("Quadratic mean", "lp2"),
        Row("Gated", "gated", paper=PUBLISHED["gated"]),
        Row("Tree, then gated", TREE_GATED, paper=read_table("table2")[TREE_GATED]),
        Row("Filter or mixed, then gated", "Gate(Filter,Mix(Max,Avg))+gated"),
        Row("Softmax-weighted (SoftPool, β learned)", "soft"),
        Row("Log-sum-exp, r learned", "lse"),
        Row("Generalised mean (GeM, p learned)", "gem"),
        Row("Ranks, weights learned", "rank"),
    ],
    ("cifar10+", "cifar10"),
)
plan, build_page = TABLE.plan, TABLE.build_page
