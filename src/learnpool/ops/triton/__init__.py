"""GPU kernels in Triton, for CUDA and ROCm: found here, imported and compiled when a GPU's tensor is first pooled.

Triton comes with PyTorch's builds for GPUs; without it the reference is used. A kernel that does not compile is
replaced by the reference from then on, with one warning.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Sequence
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


def pool(x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::pool`` on a GPU."""
    from . import launch

    tensors = (x, weight, mix)
    y: Tensor = _run(operator.POOL, launch.pool, operator.pool, tensors, program, arguments)
    return y


def pool_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel of ``learnpool::pool_backward`` on a GPU."""
    from . import launch

    tensors = (grad, x, weight, mix)
    grads: tuple[Tensor, Tensor, Tensor] = _run(
        operator.POOL_BACKWARD, launch.pool_backward, operator.pool_backward, tensors, program, rest
    )
    return grads


def stochastic_pool(x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::stochastic_pool`` on a GPU."""
    from . import stochastic_launch as launch

    y: Tensor = _run(stochastic.POOL, launch.pool, stochastic.pool, (x, seed), None, arguments)
    return y


def stochastic_pool_backward(grad: Tensor, x: Tensor, seed: Tensor | None, *arguments: Any) -> Tensor:
    """The kernel of ``learnpool::stochastic_pool_backward`` on a GPU."""
    from . import stochastic_launch as launch

    tensors = (grad, x, seed)
    dx: Tensor = _run(
        stochastic.POOL_BACKWARD, launch.pool_backward, stochastic.pool_backward, tensors, None, arguments
    )
    return dx


KERNELS = (
    {
        "pool": pool,
        "pool_backward": pool_backward,
        "stochastic_pool": stochastic_pool,
        "stochastic_pool_backward": stochastic_pool_backward,
    }
    if GPU.live
    else {}
)


def _run(
    name: str,
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    tensors: Sequence[Tensor | None],
    program: Sequence[int] | None,
    rest: Sequence[Any],
) -> Any:
    """Run ``kernel``; once it has failed to compile, run ``reference`` instead. Stochastic pooling has no program."""
    arguments = (*tensors, *(() if program is None else (program,)), *rest)
    if failures and _describe_call(name, tensors, program, rest) in failures:
        return reference(*arguments)
    try:
        return kernel(*arguments)
    except (torch.OutOfMemoryError, torch.AcceleratorError, CaptureError):
        raise
    except Exception as error:
        # The reference checks its input as the kernel does: a mistake of the caller is raised again, here.
        result = reference(*arguments)
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        failures[_describe_call(name, tensors, program, rest)] = why
        dtype = next(tensor.dtype for tensor in tensors if tensor is not None)
        tree = "stochastic pooling" if program is None else textwrap.shorten(str(from_program(program)), 200)
        window = Window.from_arguments(*rest[:6])
        warnings.warn(
            f"{name}: the GPU kernel of {tree} for {dtype} and {window} did not compile, "
            f"the slower reference replaces it ({textwrap.shorten(why, 300)})",
            RuntimeWarning,
            stacklevel=2,
        )
        return result


def _describe_call(
    name: str, tensors: Sequence[Tensor | None], program: Sequence[int] | None, rest: Sequence[Any]
) -> tuple[Any, ...]:
    """What calls served by one compiled kernel have in common."""
    dtypes = (tensor.dtype for tensor in tensors if tensor is not None)
    return (name, program and tuple(program), tuple(map(str, rest[:6])), *dtypes)


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
