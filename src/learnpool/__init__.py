"""Pooling that learns, for PyTorch: mixed, gated and tree pooling (Lee, Gallagher and Tu, 2016)."""

from . import functional
from .calibrate import calibrate
from .convert import convert, restore
from .explain import explain, statistics
from .export import decompositions
from .layers import (
    AdaptivePool1d,
    AdaptivePool2d,
    AdaptivePool3d,
    GatedPool1d,
    GatedPool2d,
    GatedPool3d,
    MixedPool1d,
    MixedPool2d,
    MixedPool3d,
    Pool1d,
    Pool2d,
    Pool3d,
    StochasticPool1d,
    StochasticPool2d,
    StochasticPool3d,
    TreePool1d,
    TreePool2d,
    TreePool3d,
)
from .names import make_pool, parse
from .parameters import parameter_groups, tie
from .plan import downsampling
from .report import Report
from .trained import load
from .tree import Avg, Filter, Gate, Max, Mix, Tree
from .version import __version__

__all__ = [
    "__version__",
    "AdaptivePool1d",
    "AdaptivePool2d",
    "AdaptivePool3d",
    "Avg",
    "Filter",
    "Gate",
    "GatedPool1d",
    "GatedPool2d",
    "GatedPool3d",
    "Max",
    "Mix",
    "MixedPool1d",
    "MixedPool2d",
    "MixedPool3d",
    "Pool1d",
    "Pool2d",
    "Pool3d",
    "StochasticPool1d",
    "StochasticPool2d",
    "StochasticPool3d",
    "Report",
    "Tree",
    "TreePool1d",
    "TreePool2d",
    "TreePool3d",
    "calibrate",
    "convert",
    "downsampling",
    "explain",
    "decompositions",
    "functional",
    "load",
    "make_pool",
    "parameter_groups",
    "parse",
    "restore",
    "statistics",
    "tie",
]
