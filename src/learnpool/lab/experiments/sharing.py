"""The paper's five ways to share parameters, (a) to (e), for mixed, gated and tree pooling."""

from ..paper import read_table
from .error_table import ErrorTable, Row

TITLE = "Who shares the parameters"
SOURCE = "Text, options (a) to (e)"
CLAIM = (
    "One set of parameters per layer is enough to beat max pooling; for mixed pooling one per layer, channel and "
    "region does better still. Other options have no number."
)
OPTIONS = {
    "net": "(a) per net", "layer": "(b) per layer", "region": "(c) per region", "channel": "(d) per channel",
    "region_channel": "(e) per region and channel",
}  # fmt: skip
PUBLISHED = read_table("table1")


def _make_row(pool: str, share: str, label: str) -> Row:
    name = pool if share == "layer" else f"{pool}:{share}"
    return Row(f"{pool}, {label}", name, paper=PUBLISHED.get(name, {}))


TABLE = ErrorTable(
    [
        Row("Baseline", "max", paper=PUBLISHED["max"]),
        *(_make_row(pool, share, label) for pool in ("mixed", "gated", "tree2") for share, label in OPTIONS.items()),
    ],
    ("cifar10+", "cifar10"),
)
plan, build_page = TABLE.plan, TABLE.build_page
