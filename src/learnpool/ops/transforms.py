"""Everything learnpool asks of PyTorch that PyTorch does not document: the only file with private names of torch.

====================================  ===============================================================================
private name                          what it is for, and what happens in a torch without it
====================================  ===============================================================================
``forward_ad._current_level``         whether tangents may exist; without it import fails, since a formula for reverse
                                      mode would silently give a tangent of zero
``torch._C._functorch``               which derivatives torch.func is taking; import fails without
``torch._C._after_autograd_keyset``,  the operator below its autograd kernel, as torch's own do; import fails without
``_AutoDispatchBelowAutograd``,
``_handle.redispatch_boxed``
``_dispatch_tls_is_dispatch_key_…``,  whether autograd is off although gradients are enabled; import fails without
``DispatchKey``
``torch._C._any_requires_grad``       faster than asking every tensor; without it they are asked
``torch._C._is_tracing``              whether ``torch.jit.trace`` is recording; without it nothing is
``_jit_get_schemas_for_operator``     whether the compiled library has defined an operator; import fails without
``torch.utils._python_dispatch``      documented under this name: sees the operations of a network; import fails without
``torch._jit_internal``               a module between ``F.max_pool2d`` and what intercepts it: only its name is used
``torch._dynamo.symbolic_convert``,   where in the source a call is that Dynamo traces; without them a network converted
``_dynamo_marked_constant``           by its functional calls cannot be compiled
``nn.modules.module._WrappedHook``    hooks of state_dict that are called with their module, which ``convert`` replaces;
                                      without it they are called with the module of before
``nn.Module._call_impl``              the frame in which a layer is called, for ``convert`` to find who calls pools;
                                      without it import fails
``_orig_mod``,                        whether torch.compile has wrapped a module, or compiled it in place; without them
``_compiled_call_impl``               no module counts as compiled
``OpOverload._schema``                an operator's arguments by name, to follow positions through a network; without
                                      it ``explain`` fails
``torch.cuda._sleep``                 slow work on a stream, for one check of ``learnpool doctor``, which fails without
====================================  ===============================================================================

What a subclass of ``nn.Module`` shares with it, such as ``_parameters``, ``_modules`` and
``_replicate_for_data_parallel``, is used where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.compiler import is_compiling, is_exporting
from torch.overrides import has_torch_function_variadic
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["TorchDispatchMode"]  # for others to import from here


def _require(path: str) -> Any:
    """A private name of torch; ImportError in one sentence where it is missing."""
    value: Any = torch
    for part in path.split("."):
        if not hasattr(value, part):
            raise ImportError(f"learnpool: wanted a torch with torch.{path}, got torch {torch.__version__}")
        value = getattr(value, part)
    return value


_require("autograd.forward_ad._current_level")  # a number that changes: read where it is used
_FUNCTORCH = _require("_C._functorch")
_DERIVATIVES = (_FUNCTORCH.TransformType.Grad, _FUNCTORCH.TransformType.Jvp)
_AFTER_AUTOGRAD = _require("_C._after_autograd_keyset")
_AUTOGRAD = _require("_C.DispatchKey.AutogradFunctionality")
_BelowAutograd = _require("_C._AutoDispatchBelowAutograd")
_is_excluded = _require("_C._dispatch_tls_is_dispatch_key_excluded")
_get_schemas = _require("_C._jit_get_schemas_for_operator")
MODULE_CALL = _require("nn.Module._call_impl").__code__  # of the frame in which a layer is called

is_tracing: Callable[[], bool] = getattr(torch._C, "_is_tracing", lambda: False)


def any_requires_grad(*inputs: Any) -> bool:
    """Whether one of the arguments is a tensor that requires a gradient."""
    return any(isinstance(t, Tensor) and t.requires_grad for t in inputs)


any_requires_grad = getattr(torch._C, "_any_requires_grad", any_requires_grad)


class Form(Enum):
    """The form of an operation that PyTorch can differentiate, or export, where it is called."""

    OPERATOR = auto()  # the operator, with what is registered for it
    EAGER = auto()  # an ordinary call: its backward formula is enough
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
    if has_tangents():
        return Form.FORWARD_MODE
    if is_tracing():
        if torch.onnx.is_in_onnx_export():
            wanted = "leave dynamo=True, its default"
            raise RuntimeError(f"learnpool: torch.onnx.export(dynamo=False) cannot export a pool: {wanted}")
        return Form.TORCHSCRIPT
    if not torch.is_grad_enabled():
        return Form.NO_GRAD
    if tensors and _FUNCTORCH.peek_interpreter_stack() is None:
        # In inference mode and below another operator's autograd, gradients may be enabled, but nothing records them.
        if _is_excluded(_AUTOGRAD):
            return Form.NO_GRAD
        if has_torch_function_variadic(*tensors):
            return Form.OPERATOR
        return Form.EAGER if any_requires_grad(*tensors) else Form.NO_GRAD
    levels = count_derivatives()
    return Form.OPERATOR if levels == 0 else Form.FUNCTION if levels == 1 else Form.NESTED


def has_tangents() -> bool:
    """Whether forward mode is on, torch.func's jvp too."""
    return forward_ad._current_level >= 0


def count_derivatives() -> int:
    """How many of torch.func's derivatives are being taken here, one inside the other."""
    if _FUNCTORCH.peek_interpreter_stack() is None:
        return 0
    stack = _FUNCTORCH.get_interpreter_stack() or []
    return sum(interpreter.key() in _DERIVATIVES for interpreter in stack)


def needs_decomposition() -> bool:
    """Whether an operator has to become plain operations: a backward formula serves neither of these."""
    return has_tangents() or count_derivatives() > 0


def is_recording() -> bool:
    """Whether a compiler, an exporter or torch.jit.trace is recording what is called here."""
    return is_compiling() or is_tracing()


def bind_redispatch(operator: Any) -> Callable[..., Any]:
    """``call(keyset, *inputs)``: the operator below its autograd kernel."""
    redispatch = operator._handle.redispatch_boxed

    def call(keyset: Any, *inputs: Any) -> Any:
        with _BelowAutograd():
            return redispatch(keyset & _AFTER_AUTOGRAD, *inputs)

    return call


def call_below(operator: Any, *inputs: Any) -> Any:
    """The operator without its autograd kernel, which is Python and takes half the time of a small call."""
    with _BelowAutograd():
        return operator(*inputs)


def call_backward(operator: Any, *inputs: Any) -> Any:
    """An operator in a backward formula; its own autograd kernel is there for second derivatives."""
    if torch.is_grad_enabled() or is_compiling() or needs_decomposition():
        return operator(*inputs)
    return call_below(operator, *inputs)


def is_defined(name: str) -> bool:
    """Whether an operator has a schema already."""
    return bool(_get_schemas(name))


def is_wrapped(x: Tensor) -> bool:
    """Whether a tensor stands for many, or for a derivative, inside torch.func."""
    return bool(_FUNCTORCH.is_functorch_wrapped_tensor(x))


INTERNAL_MODULES = ("torch.overrides", "torch.nn.functional", "torch._jit_internal")  # of a call of ``F.max_pool2d``


def get_traced_frame() -> Any:
    """What Dynamo is tracing: it has no frames, so this is its own state."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    return InstructionTranslator.current_tx().output.current_tx


def mark_constant(function: Any) -> Any:
    """``torch.compiler.assume_constant_result``, without loading Dynamo (seconds) whenever learnpool is imported."""
    function._dynamo_marked_constant = True
    return function


def is_compiled_module(module: nn.Module) -> bool:
    """Whether torch.compile wraps this module, or has compiled it in place."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def get_arguments(operator: Any) -> Any:
    """The arguments of an operator's schema, with their names and defaults."""
    return operator._schema.arguments


def delay_stream(cycles: int) -> None:
    """Keep the current CUDA stream busy."""
    torch.cuda._sleep(cycles)


def rebind_hooks(module: nn.Module, other: nn.Module) -> None:
    """Let hooks that ``module`` has from ``other`` be called with ``module``, where they take one as an argument."""
    if (kind := other.__dict__.get("_is_full_backward_hook")) is not None:
        module.__dict__["_is_full_backward_hook"] = kind
    wrapped: Any = getattr(nn.modules.module, "_WrappedHook", ())
    for hooks in (module._load_state_dict_pre_hooks, module._state_dict_hooks):
        for key, hook in hooks.items():
            if isinstance(hook, wrapped) and hook.with_module and hook.module() is other:
                hooks[key] = wrapped(hook.hook, module)
