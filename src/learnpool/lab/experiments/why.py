"""Why gated pools are better than max: what is left when a gate may not learn, or decides by less.

Max, the fixed half and gated are the confirmed runs of the same seeds, so only the other rows are trained.
``docs/results/protocol.md``.
"""

from .error_table import ErrorTable, Row

TITLE = "Why gated pools are better"
SOURCE = "Not in the paper, whose tables compare gated pools with mixed ones alone"
CLAIM = "The paper explains the lead of gated over mixed pools by gates that respond to the region, not by parameters."
NET = "resnet9"
FIRST_SEED = 105  # confirmed ones; fixed masks are the means of those learned with the seeds before it
GATED = {"rate": (0.2,)}  # the rates that screening chose
TABLE = ErrorTable(
    [
        Row("Max", "max", GATED),
        Row("Fixed half", "half", {"rate": (0.1,)}),
        Row("One learned proportion", "mixed", GATED),
        Row("Gated", "gated", GATED),
        Row("Gated, masks as fast as other weights", "gated", GATED | {"pool_rate": 1.0}),
        Row("Gated, masks stay as they start, random", "gated", GATED | {"pool_rate": 0.0}),
        Row("Gated by the region's mean", "Gate(Max,Avg,by=Avg,bias=True)", GATED),
        Row("Max blended with a learned filter", "Mix(Max,Filter)", {"rate": (0.1,)}),
    ],
    ("cifar10+",),
    first_seed=FIRST_SEED,
)
plan, build_page = TABLE.plan, TABLE.build_page
