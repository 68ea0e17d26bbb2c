"""``explain`` and ``statistics``: what the pools of a network learned, and what their gates do on a batch."""

from .measurement import explain, statistics
from .result import Explanation

__all__ = ["Explanation", "explain", "statistics"]
