"""GPU kernels in Triton, for CUDA and ROCm: found here, imported and compiled when a GPU's tensor is first pooled.

Triton comes with PyTorch's builds for GPUs; without it the reference is used. A kernel that does not compile is
replaced by the reference from then on, with one warning.
"""

import textwrap
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ...tree import from_program
from .. import operator, stochastic
from ..cpu import Status
from ..window import Window


class CaptureError(RuntimeError):
    """A kernel would have to be compiled while a CUDA graph is captured."""


failures: dict[tuple[Any, ...], str] = {}  # calls whose kernel did not compile, and the compiler's error


def _find_triton() -> Status:
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        return Status(False, "triton is not installed")
    return Status(True, "Triton")


GPU = _find_triton()


def _make_kernel(name: str, launch: str, reference: Callable[..., Any], before: int) -> Callable[..., Any]:
    """An operator's kernel on a GPU; the window comes behind ``before`` arguments, tensors and perhaps a program.

    The module ``launch``, which needs Triton, is imported by the first call. Once the kernel of a call has failed to
    compile, ``reference`` runs in its place.
    """

    def find_program(arguments: Sequence[Any]) -> tuple[int, ...] | None:
        """None of stochastic pooling, which has no program."""
        return next((tuple(a) for a in arguments[:before] if isinstance(a, (list, tuple))), None)

    def describe_call(arguments: Sequence[Any]) -> tuple[Any, ...]:
        """What calls served by one compiled kernel have in common."""
        dtypes = (a.dtype for a in arguments[:before] if isinstance(a, Tensor))
        return (name, find_program(arguments), tuple(map(str, arguments[before : before + 6])), *dtypes)

    def run(*arguments: Any) -> Any:
        if failures and describe_call(arguments) in failures:
            return reference(*arguments)
        try:
            return getattr(import_module(f"{__name__}.{launch}"), reference.__name__)(*arguments)
        except (torch.OutOfMemoryError, torch.AcceleratorError, CaptureError):
            raise
        except Exception as error:
            # The reference checks its input as the kernel does: a mistake of the caller is raised again, here.
            result = reference(*arguments)
            why, program = f"{type(error).__name__}: {' '.join(str(error).split())}", find_program(arguments)
            failures[describe_call(arguments)] = why
            tree = "stochastic pooling" if program is None else textwrap.shorten(str(from_program(program)), 200)
            window = Window.from_arguments(*arguments[before : before + 6])
            warnings.warn(
                f"{name}: the GPU kernel of {tree} for {arguments[0].dtype} and {window} did not compile, "
                f"the slower reference replaces it ({textwrap.shorten(why, 300)})",
                RuntimeWarning,
                stacklevel=2,
            )
            return result

    return run


pool = _make_kernel(operator.POOL, "launch", operator.pool, 4)
pool_backward = _make_kernel(operator.POOL_BACKWARD, "launch", operator.pool_backward, 5)
stochastic_pool = _make_kernel(stochastic.POOL, "stochastic_launch", stochastic.pool, 2)
stochastic_pool_backward = _make_kernel(stochastic.POOL_BACKWARD, "stochastic_launch", stochastic.pool_backward, 3)
KERNELS = {
    "pool": pool, "pool_backward": pool_backward,
    "stochastic_pool": stochastic_pool, "stochastic_pool_backward": stochastic_pool_backward,
} if GPU.live else {}  # fmt: skip


def warm_up(net: nn.Module, x: Tensor) -> None:
    """Compile and load every kernel that a training step of ``net`` on ``x`` needs; no parameter or gradient changes.

    Call it before a step is captured in a CUDA graph: inside a capture nothing can be compiled.
    """
    inputs = [tensor for tensor in (x.detach().requires_grad_(), *net.parameters()) if tensor.requires_grad]
    with torch.enable_grad():
        y = net(inputs[0])
        torch.autograd.grad(y, inputs, torch.zeros_like(y), allow_unused=True)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
