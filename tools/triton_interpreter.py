"""Triton's interpreter on CPU tensors: the GPU kernels behind the real operators, with no GPU.

Importing this needs triton and ``TRITON_INTERPRET=1``; ``register`` then gives CPU tensors to the GPU's kernels, in
this process only. The interpreter patches triton's language in every call of a function, where once for each module is
enough, and checks every integer for overflow, which the kernels avoid by choosing 64 bits: tests are four times as fast
without both. That of Triton 3.6 takes an array of one number for an index, which NumPy 2.4 refuses: repaired here.
"""

import dataclasses
import warnings

import torch
import triton.language as tl
from triton.runtime import interpreter

from learnpool.ops.triton import launch, stochastic_launch

LIBRARY = torch.library.Library("learnpool", "IMPL")
KERNELS = {
    "pool": launch.pool,
    "pool_backward": launch.pool_backward,
    "stochastic_pool": stochastic_launch.pool,
    "stochastic_pool_backward": stochastic_launch.pool_backward,
}


def register():
    """From now on ``torch.ops.learnpool.pool`` of CPU tensors is what it is of CUDA tensors, and layers call it."""

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kernel in KERNELS.items():
            LIBRARY.impl(name, kernel, "CPU", allow_override=True)
    speed_up()


def speed_up():
    """See above."""
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    patch, run = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched = set()  # modules

    def patch_lang(fn):
        if id(fn.__globals__) in patched:
            return interpreter._LangPatchScope()
        patched.add(id(fn.__globals__))
        scope = patch(fn)
        scope.set_attr(tl.core.tensor, "__index__", lambda self: int(self.handle.data.item()))
        return scope

    def call(self, *args, **kwargs):
        try:
            return run(self, *args, **kwargs)
        finally:
            patched.clear()

    interpreter._patch_lang = patch_lang
    interpreter.GridExecutor.__call__ = call
