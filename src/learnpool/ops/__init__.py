"""The operator ``learnpool::pool``: geometry, equations, kernels, and everything PyTorch has to know about it."""

from . import registration  # noqa: F401  (importing it registers the operators)
