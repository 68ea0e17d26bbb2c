"""The operator ``learnpool::pool``: geometry, equations, kernels, and all that PyTorch has to know of it."""

from . import registration  # noqa: F401  (importing it registers the operators)
