"""Pools with names of their own, each one leaf of the grammar over a window, with ``nn.MaxPool2d``'s arguments.

Every class exists for 1, 2 and 3 spatial dimensions; the arguments behind the window's are those of ``Pool2d``.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from . import functional
from .layers import (
    GatedPool1d,
    GatedPool2d,
    GatedPool3d,
    MixedPool1d,
    MixedPool2d,
    MixedPool3d,
    Pool1d,
    Pool2d,
    Pool3d,
    TreePool1d,
    TreePool2d,
    TreePool3d,
    _NamedPool,
    _Pool,
    _show_full_signature,
    _WindowLayer,
)
from .leaves import make_binomial
from .ops.window import Size, Window
from .tree import Avg, Blur, Filter, Gate, LogSumExp, Max, Median, Mix, Power, Rank, Soft, Tree, make_tree

BORDERS = ("existing", "zeros", "reflect")


class _SoftPool(_NamedPool):
    """``Σ x_i e^{βx_i} / Σ e^{βx_i}`` with one learned β: from average (0) to maximum; fixed β = 1 is SoftPool.

    >>> SoftPool2d(3, stride=2)(torch.randn(8, 96, 15, 15)).shape
    torch.Size([8, 96, 7, 7])
    """

    @_show_full_signature
    def __init__(self, kernel_size: Size, *window: Any, beta: float = 1.0, learn: bool = True, **options: Any) -> None:
        _Pool.__init__(self, Soft(beta, learn), kernel_size, *window, **options)


class _LogSumExpPool(_NamedPool):
    """``ln(mean e^{r x_i}) / r`` with one learned r in [0.1, 100]: from average to maximum."""

    @_show_full_signature
    def __init__(self, kernel_size: Size, *window: Any, r: float = 1.0, learn: bool = True, **options: Any) -> None:
        _Pool.__init__(self, LogSumExp(r, learn), kernel_size, *window, **options)


class _GeMPool(_NamedPool):
    """``(mean max(x_i, 1e-6)^p)^{1/p}``, the generalised mean, with one learned p in [1, 64].

    ``absolute=True`` takes ``|x_i|``: with a fixed p of 2 that is ``nn.LPPool2d(2, …)`` up to its factor.
    """

    @_show_full_signature
    def __init__(
        self,
        kernel_size: Size,
        *window: Any,
        p: float = 3.0,
        learn: bool = True,
        absolute: bool = False,
        **options: Any,
    ) -> None:
        _Pool.__init__(self, Power(p, learn, absolute), kernel_size, *window, **options)


class _RankPool(_NamedPool):
    """``Σ_k w_k x_(k)``: one learned weight for each place in the sorted region; starts as the average."""

    tree = Rank()


class _MedianPool(_NamedPool):
    """The median of each region; no parameters."""

    tree = Median()


class _BlurPool(_NamedPool):
    """The binomial filter of the window, ``[1, 2, 1] / 4`` for 3 taps, in every direction; no parameters.

    ``border`` says what happens where a window reaches over the edge: ``"existing"`` averages the cells that exist,
    ``"zeros"`` and ``"reflect"`` pad by zeros or by reflection, as other packages do.
    """

    @_show_full_signature
    def __init__(self, kernel_size: Size, *window: Any, border: str = "existing", **options: Any) -> None:
        name = type(self).__name__
        if border not in BORDERS:
            raise ValueError(f"{name}: border must be one of {', '.join(BORDERS)}, got {border!r}")
        tree: Tree = Blur()
        if border == "zeros":
            tree = Filter(make_binomial(Window.of(name, self.dims, kernel_size).kernel), learn=False)
        self.border = border
        _Pool.__init__(self, tree, kernel_size, *window, **options)

    def forward(self, input: Tensor) -> Tensor:
        if self.border != "reflect":
            return super().forward(input)
        pads = [p for p in reversed(self.window.padding) for _ in range(2)]
        inner = Window(self.window.kernel, self.window.stride, (0,) * self.dims, *self.window.arguments[3:])
        padded = F.pad(input, pads, mode="reflect") if any(pads) else input
        return functional.pool(type(self).__name__, padded, self.tree, None, None, inner)

    def _options_repr(self) -> str:
        return ("" if self.border == "existing" else f", border={self.border!r}") + super()._options_repr()


class _MaxBlurPool(_WindowLayer):
    """The maximum of each window at stride 1, then a binomial filter of 3 taps at the stride: max pooling that shifts
    with its input (Zhang, 2019). The output is as large as that of ``nn.MaxPool2d``; no parameters.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        self._set_window(*args, **options)

    def forward(self, input: Tensor) -> Tensor:
        name, window, one = type(self).__name__, self.window, (1,) * self.dims
        dense = Window(window.kernel, one, window.padding, window.dilation)
        x = functional.pool(name, input, Max(), None, None, dense)
        blur = Window((3,) * self.dims, window.stride, one, one, window.ceil_mode)
        return functional.pool(name, x, Blur(), None, None, blur)

    def extra_repr(self) -> str:
        return self._window_repr()


def _make_classes(name: str, mixin: type[Any]) -> tuple[type[Any], type[Any], type[Any]]:
    """The classes of a pool for 1, 2 and 3 dimensions."""
    classes = []
    for dims, base in enumerate((Pool1d, Pool2d, Pool3d), 1):
        parents: tuple[type, ...] = (mixin, base) if issubclass(mixin, _Pool) else (mixin,)
        content = {"__doc__": mixin.__doc__, "__module__": __name__, "dims": dims}
        classes.append(type(f"{name}{dims}d", parents, content))
    return classes[0], classes[1], classes[2]


SoftPool1d, SoftPool2d, SoftPool3d = _make_classes("SoftPool", _SoftPool)
LogSumExpPool1d, LogSumExpPool2d, LogSumExpPool3d = _make_classes("LogSumExpPool", _LogSumExpPool)
GeMPool1d, GeMPool2d, GeMPool3d = _make_classes("GeMPool", _GeMPool)
RankPool1d, RankPool2d, RankPool3d = _make_classes("RankPool", _RankPool)
MedianPool1d, MedianPool2d, MedianPool3d = _make_classes("MedianPool", _MedianPool)
BlurPool1d, BlurPool2d, BlurPool3d = _make_classes("BlurPool", _BlurPool)
MaxBlurPool1d, MaxBlurPool2d, MaxBlurPool3d = _make_classes("MaxBlurPool", _MaxBlurPool)

__all__ = [
    f"{name}{dims}d"
    for name in ("SoftPool", "LogSumExpPool", "GeMPool", "RankPool", "MedianPool", "BlurPool", "MaxBlurPool")
    for dims in (1, 2, 3)
]


def make_tree_layer(tree: Tree, dims: int, *args: Any, **options: Any) -> nn.Module:
    """The layer of a tree over a window, of the class named after the tree if there is one, else ``Pool2d``."""
    classes, own = _find_classes(tree)
    if classes is None:
        return (Pool1d, Pool2d, Pool3d)[dims - 1](tree, *args, **options)
    return classes[dims - 1](*args, **own, **options)  # type: ignore[no-any-return]


def _find_classes(tree: Tree) -> tuple[tuple[type[Any], ...] | None, dict[str, Any]]:
    """The classes for 1, 2 and 3 dimensions that are named after a tree, and the arguments that make it this one."""
    match tree:
        case Mix() if (tree.left, tree.right) == (Max(), Avg()):
            return (MixedPool1d, MixedPool2d, MixedPool3d), {"a": tree.a, "learn": tree.learn}
        case Gate() if tree == Gate(Max(), Avg()):
            return (GatedPool1d, GatedPool2d, GatedPool3d), {}
        case Soft():
            return (SoftPool1d, SoftPool2d, SoftPool3d), {"beta": tree.theta, "learn": tree.learn}
        case LogSumExp():
            return (LogSumExpPool1d, LogSumExpPool2d, LogSumExpPool3d), {"r": tree.theta, "learn": tree.learn}
        case Power():
            own = {"p": tree.theta, "learn": tree.learn, "absolute": tree.absolute}
            return (GeMPool1d, GeMPool2d, GeMPool3d), own
        case Rank() if tree.values is None:
            return (RankPool1d, RankPool2d, RankPool3d), {}
        case Median():
            return (MedianPool1d, MedianPool2d, MedianPool3d), {}
        case Blur() if tree.values is None:
            return (BlurPool1d, BlurPool2d, BlurPool3d), {}
    levels = tree.size.bit_length()
    if tree.size == 2**levels - 1 and tree == make_tree(levels):
        return (TreePool1d, TreePool2d, TreePool3d), {"levels": levels}
    return None, {}
