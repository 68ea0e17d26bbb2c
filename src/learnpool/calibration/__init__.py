"""``calibrate``: fit the pools ``convert`` put in to what the old ones gave."""

from .layerwise import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
