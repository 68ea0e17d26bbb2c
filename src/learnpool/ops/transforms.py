"""Which of PyTorch's transforms is at work: the only place that asks about forward mode, torch.func and ONNX."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling, is_exporting
from torch.overrides import has_torch_function_variadic

_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality
_PRE_DISPATCH = torch._C.DispatchKey.PreDispatch  # modes of make_fx(pre_dispatch=True) and torch.export
_DERIVATIVES = (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp)


class Form(Enum):
    """The form of an operation that PyTorch can differentiate, or export, where it is called."""

    EAGER = auto()  # an ordinary call: a backward formula is enough
    OPERATOR = auto()  # torch.compile, torch.export or vmap: the operator, with what is registered for it
    OVERRIDDEN = auto()  # __torch_function__: the operator, where a mode or a class of tensors can see it
    NO_GRAD = auto()  # nobody wants a gradient
    FUNCTION = auto()  # one derivative of torch.func: an autograd.Function with setup_context
    NESTED = auto()  # derivatives of torch.func inside each other: plain operations
    FORWARD_MODE = auto()  # tangents: plain operations, or a function with a jvp
    TORCHSCRIPT = auto()  # torch.jit.trace is recording, which stores no gradient written in Python
    ONNX = auto()  # torch.onnx.export is tracing: plain operations, and few of them


def choose_form(*tensors: Any) -> Form:
    """The form an operation has to take here; on these tensors, if they are known."""
    if is_compiling():
        exporting = is_exporting() and torch.onnx.is_in_onnx_export()
        return Form.ONNX if exporting else Form.OPERATOR
    if forward_ad._current_level >= 0:  # there may be tangents, torch.func's jvp too
        return Form.FORWARD_MODE
    if torch._C._is_tracing():
        return Form.TORCHSCRIPT
    if not torch.is_grad_enabled():
        return Form.NO_GRAD
    if torch._C._functorch.peek_interpreter_stack() is None:
        # In inference mode and below another operator's autograd, gradients may be enabled, but nothing records them.
        if torch._C._dispatch_tls_is_dispatch_key_excluded(_AUTOGRAD):
            return Form.NO_GRAD
        if has_torch_function_variadic(*tensors):
            return Form.OVERRIDDEN
        return Form.EAGER if not tensors or torch._C._any_requires_grad(*tensors) else Form.NO_GRAD
    levels = count_derivatives()
    return Form.OPERATOR if levels == 0 else Form.FUNCTION if levels == 1 else Form.NESTED


def is_watched() -> bool:
    """Whether a mode or a transform stands between a call of an operator and its kernel."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._is_torch_function_mode_enabled()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._dispatch_tls_is_dispatch_key_included(_PRE_DISPATCH)
    )


def is_recording() -> bool:
    """Whether a compiler, an exporter or torch.jit.trace is recording what is called here."""
    return is_compiling() or torch._C._is_tracing()


def needs_decomposition() -> bool:
    """Whether an operator has to become plain operations: a backward formula serves neither of these."""
    if forward_ad._current_level >= 0:
        return True
    return torch._C._functorch.peek_interpreter_stack() is not None and count_derivatives() > 0


def count_derivatives() -> int:
    """How many of torch.func's derivatives are being taken here, one inside the other."""
    stack = torch._C._functorch.get_interpreter_stack() or []
    return sum(interpreter.key() in _DERIVATIVES for interpreter in stack)
