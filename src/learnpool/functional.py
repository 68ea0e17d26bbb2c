"""The pools as functions; window arguments in the order of ``torch.nn.functional.max_pool2d``.

Parameters broadcast as tensors do. A proportion ``a`` broadcasts against ``[C, OH, OW]``: a scalar for the whole layer,
``[C, 1, 1]`` per channel, ``[OH, OW]`` per region. Masks and filters have the window's axes after these:
``[3, 3]``, ``[C, 1, 1, 3, 3]``, ``[OH, OW, 3, 3]``. Where there are several (``gates``, ``leaves``, ``weight``,
``mix``), their number comes first. Learned numbers are clamped to their domains: a proportion to [0, 1].

Layers and the other functions call ``pool``, ``stochastic_pool`` and ``adaptive_pool``, which take any number of
dimensions, parameters in the operator's own shape, and the name that errors begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor

from .ops import adaptive, operator
from .ops.registration import call_operator
from .ops.rows import get_accumulation_dtype
from .ops.transforms import is_recording
from .ops.uniform import draw_seed
from .ops.window import Size, Window, check_arguments, fill_signature, format_size
from .tree import Avg, Gate, Max, Mix, Tree, make_tree

__all__ = [
    "adaptive_pool1d", "adaptive_pool2d", "adaptive_pool3d",
    "gated_pool1d", "gated_pool2d", "gated_pool3d",
    "mixed_pool1d", "mixed_pool2d", "mixed_pool3d",
    "pool1d", "pool2d", "pool3d",
    "stochastic_pool1d", "stochastic_pool2d", "stochastic_pool3d",
    "tree_pool1d", "tree_pool2d", "tree_pool3d",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


P = ParamSpec("P")
_MIXED, _GATED = Mix(Max(), Avg()), Gate(Max(), Avg())


def pool(
    name: str,
    x: Tensor,
    tree: Tree,
    weight: Tensor | None,
    mix: Tensor | None,
    window: Window,
    words: tuple[str, str] = ("weight", "mix"),
) -> Tensor:
    """``tree`` over every window of ``x``.

    ``weight`` is ``[D, C|1, *grid|1, *kernel]`` and ``mix`` ``[M, C|1, *grid|1]``; None where the tree has none.
    ``words`` is what the caller calls them in an error.
    """
    program = tree.fit(window.kernel)
    if weight is None:
        weight = make_empty_parameter(x, window.dims, window.kernel)
    if mix is None:
        mix = make_empty_parameter(x, window.dims, ())
    try:
        return call_operator("pool", (program, *window.arguments), x, weight, mix)  # type: ignore[no-any-return]
    except (RuntimeError, TypeError, ValueError):
        try:
            operator.check(name, x, weight, mix, program, window, words)  # says what is wrong in the caller's words
        except (TypeError, ValueError) as error:
            raise error from None
        raise


def stochastic_pool(name: str, x: Tensor, window: Window, training: bool) -> Tensor:
    """A random cell of every window in training, else the expected one."""
    operator.check_input(name, x, window)
    images = x.shape[0] if x.dim() == window.dims + 2 else 1
    seed = draw_seed(images, x.device) if training else None
    return call_operator("stochastic_pool", (seed, *window.arguments[:5]), x)  # type: ignore[no-any-return]


@torch.fx.wrap  # torch.fx.symbolic_trace keeps the call: it is no operator, and looks at sizes
def adaptive_pool(name: str, x: Tensor, tree: Tree, mix: Tensor | None, output_size: Any, dims: int) -> Tensor:
    """A tree of leaves without taps over regions of the whole map; ``mix`` is ``[M, C|1, *output|1]``."""
    mix = make_empty_parameter(x, dims, ()) if mix is None else mix
    return adaptive.pool(name, x, tree, mix, output_size, dims)


def make_empty_parameter(x: Tensor, dims: int, taps: tuple[int, ...]) -> Tensor:
    """A parameter without rows, for a tree that needs none."""
    try:
        return x.new_empty((0, *(1,) * (dims + 1), *taps))
    except AttributeError:
        return torch.empty(0)  # x is no tensor: the operator will refuse it


def _make_window(*args: Any, **options: Any) -> Window:
    """``Window.of``; the same window in every call, because checking it takes as long as a small pool."""
    if not is_recording():
        try:
            return _get_window(*args, **options)
        except TypeError:
            pass  # a list cannot be looked up, or a number is none: then this says so
    return Window.of(*args, **options)


_get_window = lru_cache(maxsize=256, typed=True)(Window.of)


def _make_functions(name: str, function: Callable[Concatenate[str, int, P], Tensor]) -> tuple[Callable[P, Tensor], ...]:
    """The 1d, 2d and 3d forms of a function of ``(name, dims, ...)``, with the window's arguments spelled out."""
    signature = fill_signature(function, Window.of)
    signature = signature.replace(parameters=list(signature.parameters.values())[2:])

    def make(dims: int) -> Callable[P, Tensor]:
        full_name = f"{name}{dims}d"

        def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            try:
                return function(full_name, dims, *args, **kwargs)
            except TypeError:
                check_arguments(full_name, signature, args, kwargs)
                raise

        call.__name__ = call.__qualname__ = full_name
        call.__doc__ = function.__doc__
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return make(1), make(2), make(3)


def _pool(
    name: str,
    dims: int,
    x: Tensor,
    tree: Tree,
    weight: Tensor | None,
    mix: Tensor | None,
    kernel_size: Size,
    *rest: Any,
    **options: Any,
) -> Tensor:
    """Any tree over every window of ``x``.

    ``weight`` is ``[D, ..., *kernel]``, one mask or filter for each Gate and Filter, breadth first from the root;
    ``mix`` is ``[M, ...]``, one proportion for each learned Mix. None where the tree has none.
    """
    if not isinstance(tree, Tree):
        raise TypeError(f"{name}: tree must be a tree such as Gate(Max(), Avg()), got {tree!r}")
    window = _make_window(name, dims, kernel_size, *rest, **options)
    tree.check_shape(name, window.kernel)
    weight = _align(name, "weight", weight, x, dims, window.kernel)
    return pool(name, x, tree, weight, _align(name, "mix", mix, x, dims, ()), window)


def _mixed_pool(
    name: str, dims: int, x: Tensor, a: Tensor | float, kernel_size: Size, *rest: Any, **options: Any
) -> Tensor:
    """``a max + (1 - a) mean`` of every window, the paper's (1); ``a`` is clamped to [0, 1]."""
    window = _make_window(name, dims, kernel_size, *rest, **options)
    if isinstance(a, (int, float)) and not isinstance(a, bool) and isinstance(x, Tensor):
        a = torch.tensor(float(a), dtype=get_accumulation_dtype(x.dtype), device=x.device)
    mix = _align_one(name, "a", a, x, dims, ())
    return pool(name, x, _MIXED, None, mix, window, ("weight", "a"))


def _gated_pool(name: str, dims: int, x: Tensor, mask: Tensor, kernel_size: Size, *rest: Any, **options: Any) -> Tensor:
    """``s max + (1 - s) mean`` with ``s = sigmoid(mask · x)`` of every window, the paper's (5)."""
    window = _make_window(name, dims, kernel_size, *rest, **options)
    weight = _align_one(name, "mask", mask, x, dims, window.kernel)
    return pool(name, x, _GATED, weight, None, window, ("mask", "mix"))


def _tree_pool(
    name: str,
    dims: int,
    x: Tensor,
    gates: Tensor | None,
    leaves: Tensor,
    kernel_size: Size,
    *rest: Any,
    **options: Any,
) -> Tensor:
    """The complete tree of filters under gates, the paper's (10); left is what a gate's sigmoid multiplies.

    ``leaves`` is ``[L, ..., *kernel]`` from left to right, L a power of two; ``gates`` is ``[L - 1, ..., *kernel]``,
    root first, breadth first (None if there is one leaf).
    """
    window = _make_window(name, dims, kernel_size, *rest, **options)
    v = _align(name, "leaves", leaves, x, dims, window.kernel)
    w = _align(name, "gates", gates, x, dims, window.kernel)
    filters, masks = (0 if p is None else p.shape[0] for p in (v, w))
    levels = filters.bit_length()
    if filters == 0 or filters != 2 ** (levels - 1):
        raise ValueError(f"{name}: leaves must be 1, 2, 4, 8, … filters, got {filters}")
    if masks != filters - 1:
        raise ValueError(f"{name}: {filters} leaves need {filters - 1} gates, got {masks}")
    weight = _concatenate(name, w, v) if w is not None and v is not None and masks else v
    return pool(name, x, make_tree(levels, name), weight, None, window, ("leaves", "mix"))


def _concatenate(name: str, gates: Tensor, leaves: Tensor) -> Tensor:
    """Gates, then leaves, each as large as the larger of them."""
    if leaves.dtype != gates.dtype or leaves.device != gates.device:
        actual = f"{gates.dtype} on {gates.device} and {leaves.dtype} on {leaves.device}"
        raise TypeError(f"{name}: gates and leaves must be of one dtype and device, got {actual}")
    try:
        extent = torch.broadcast_shapes(leaves.shape[1:], gates.shape[1:])
    except RuntimeError:
        actual = f"{list(gates.shape[1:])} and {list(leaves.shape[1:])}"
        raise ValueError(f"{name}: gates and leaves must broadcast, got {actual}") from None
    return torch.cat([gates.expand(-1, *extent), leaves.expand(-1, *extent)])


def _stochastic_pool(
    name: str,
    dims: int,
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    training: bool = True,
) -> Tensor:
    """One cell of every window, picked with probability ``max(x, 0) / sum``; the expected one if not training.

    Where no cell of a window is positive, all are equally likely.
    """
    window = _make_window(name, dims, kernel_size, stride, padding, dilation, ceil_mode)
    return stochastic_pool(name, x, window, training)


def _adaptive_pool(name: str, dims: int, x: Tensor, tree: Tree, mix: Tensor | None, output_size: Any = 1) -> Tensor:
    """A tree of leaves without taps over the regions of ``F.adaptive_max_pool2d``; by default the whole map."""
    return adaptive_pool(name, x, tree, _align(name, "mix", mix, x, dims, ()), output_size, dims)


def _align(name: str, what: str, p: Any, x: Tensor, dims: int, taps: Sequence[int]) -> Tensor | None:
    """``[rows, ..., *taps]`` in the operator's shape ``[rows, C|1, *grid|1, *taps]``."""
    return None if p is None else _reshape(name, what, p, x, dims, taps, lead=1)


def _align_one(name: str, what: str, p: Any, x: Tensor, dims: int, taps: Sequence[int]) -> Tensor:
    """``[..., *taps]``, one row without its axis, as ``[1, C|1, *grid|1, *taps]``."""
    return _reshape(name, what, p, x, dims, taps, lead=0)


def _reshape(name: str, what: str, p: Any, x: Any, dims: int, taps: Sequence[int], lead: int) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: input must be a tensor, got {type(x).__name__}")
    if not isinstance(p, Tensor):
        raise TypeError(f"{name}: {what} must be a tensor, got {type(p).__name__}")
    inner = p.dim() - lead - len(taps)
    if inner < 0 or inner > dims + 1:
        axes = ["C", "L"] if dims == 1 else ["C", "OH", "OW"] if dims == 2 else ["C", "OD", "OH", "OW"]
        full = ", ".join([*["rows"][:lead], *axes, *map(str, taps)])
        raise ValueError(f"{name}: {what} must broadcast against [{full}], got shape {list(p.shape)}")
    last = p.shape[p.dim() - len(taps) :]
    if tuple(last) != tuple(taps):
        raise ValueError(f"{name}: {what} must have {format_size(taps)} taps, got {format_size(last)}")
    return p.reshape(*(p.shape[:lead] if lead else (1,)), *(1,) * (dims + 1 - inner), *p.shape[lead:])


pool1d, pool2d, pool3d = _make_functions("pool", _pool)
mixed_pool1d, mixed_pool2d, mixed_pool3d = _make_functions("mixed_pool", _mixed_pool)
gated_pool1d, gated_pool2d, gated_pool3d = _make_functions("gated_pool", _gated_pool)
tree_pool1d, tree_pool2d, tree_pool3d = _make_functions("tree_pool", _tree_pool)
stochastic_pool1d, stochastic_pool2d, stochastic_pool3d = _make_functions("stochastic_pool", _stochastic_pool)
adaptive_pool1d, adaptive_pool2d, adaptive_pool3d = _make_functions("adaptive_pool", _adaptive_pool)
