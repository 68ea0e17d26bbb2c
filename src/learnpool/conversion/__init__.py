"""``convert`` and ``restore``: swap the pools of any network for pools that learn, and back."""

from .replacements import downsampling
from .report import Report
from .swap import convert, restore

__all__ = ["Report", "convert", "downsampling", "restore"]
