"""Pooling that learns, for PyTorch: mixed, gated and tree pooling (Lee, Gallagher and Tu, 2016)."""

from typing import TYPE_CHECKING, Any

from . import functional, layers, named_layers, tree
from .layers import *  # noqa: F403
from .loading import load
from .named_layers import *  # noqa: F403
from .names import make_pool, parse
from .ops.registration import decompositions
from .parameters import parameter_groups, tie
from .tree import *  # noqa: F403

if TYPE_CHECKING:
    from .calibration import Calibration, calibrate
    from .conversion import Report, convert, downsampling, restore
    from .explanation import Explanation, explain, statistics

__version__ = "0.1.0"

# Tools for whole networks are imported when first asked for: a layer needs none of them.
_TOOLS = {
    "calibration": ("Calibration", "calibrate"),
    "conversion": ("Report", "convert", "downsampling", "restore"),
    "explanation": ("Explanation", "explain", "statistics"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for folder, names in _TOOLS.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{folder}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


__all__ = [
    "__version__",
    "Calibration",
    "Explanation",
    "Report",
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
    *layers.__all__,
    *named_layers.__all__,
    *tree.__all__,
]
