"""``explain`` and ``statistics``: what the pools of a network learned, and what their gates do on a batch."""

from .measurement import Explanation, explain, statistics

__all__ = ["Explanation", "explain", "statistics"]
