"""The operator ``learnpool::pool``: geometry, equations, kernels, and all that PyTorch has to know of it."""
