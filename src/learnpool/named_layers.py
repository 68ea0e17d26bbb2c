"""Pools with names of their own: each is a small tree over a window, with ``nn.MaxPool2d``'s arguments.

Every class exists for 1, 2 and 3 spatial dimensions; the arguments behind the window's are those of ``Pool2d``.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from . import functional
from .layers import FixedPool, NamedPool, Pool1d, Pool2d, Pool3d, WindowPool, show_full_signature
from .leaves import make_binomial
from .ops.operator import check_input
from .ops.window import Size, Window, format_size
from .tree import Avg, Blur, Filter, Gate, LogSumExp, Max, Median, Mix, Power, Rank, Soft, Tree, make_tree

__all__ = [
    "MixedPool1d", "MixedPool2d", "MixedPool3d",
    "GatedPool1d", "GatedPool2d", "GatedPool3d",
    "TreePool1d", "TreePool2d", "TreePool3d",
    "SoftPool1d", "SoftPool2d", "SoftPool3d",
    "LogSumExpPool1d", "LogSumExpPool2d", "LogSumExpPool3d",
    "GeMPool1d", "GeMPool2d", "GeMPool3d",
    "RankPool1d", "RankPool2d", "RankPool3d",
    "MedianPool1d", "MedianPool2d", "MedianPool3d",
    "BlurPool1d", "BlurPool2d", "BlurPool3d",
    "MaxBlurPool1d", "MaxBlurPool2d", "MaxBlurPool3d",
]  # fmt: skip

BORDERS = ("existing", "zeros", "reflect")


class _MixedPool(NamedPool):
    tree: Mix

    @show_full_signature(NamedPool.__init__)
    def __init__(self, kernel_size: Size, *window: Any, a: float = 0.5, learn: bool = True, **options: Any) -> None:
        WindowPool.__init__(self, self._plant(Mix, Max(), Avg(), a, learn), kernel_size, *window, **options)
        self.a, self.learn = self.tree.a, self.tree.learn


class MixedPool1d(_MixedPool, Pool1d):
    """``a * max + (1 - a) * mean`` over ``[N, C, L]``; see ``MixedPool2d``."""


class MixedPool2d(_MixedPool, Pool2d):
    """``a * max + (1 - a) * mean`` with one learned ``a`` in [0, 1]; ``learn=False`` keeps it fixed.

    A drop-in for ``nn.MaxPool2d``: 1 parameter, whatever the window and the number of channels. ``a`` is clamped to
    [0, 1]. ``share``, ``channels`` and ``grid`` are explained in ``Pool2d``; ``start`` and ``std`` have no effect here.

    >>> MixedPool2d(3, stride=2)(torch.randn(8, 96, 15, 15)).shape
    torch.Size([8, 96, 7, 7])
    """


class MixedPool3d(_MixedPool, Pool3d):
    """``a * max + (1 - a) * mean`` over ``[N, C, D, H, W]``; see ``MixedPool2d``."""


class _GatedPool(NamedPool):
    tree = Gate(Max(), Avg())


class GatedPool1d(_GatedPool, Pool1d):
    """``s * max + (1 - s) * mean`` over ``[N, C, L]``; see ``GatedPool2d``."""


class GatedPool2d(_GatedPool, Pool2d):
    """``s * max + (1 - s) * mean`` with ``s = sigmoid(w · x)``: the region itself decides how it is pooled.

    A drop-in for ``nn.MaxPool2d``: 9 parameters for a 3×3 window, whatever the number of channels. ``share``,
    ``channels``, ``grid``, ``start`` and ``std`` are explained in ``Pool2d``.

    >>> GatedPool2d(3, stride=2)(torch.randn(8, 96, 15, 15)).shape
    torch.Size([8, 96, 7, 7])
    """


class GatedPool3d(_GatedPool, Pool3d):
    """``s * max + (1 - s) * mean`` over ``[N, C, D, H, W]``; see ``GatedPool2d``."""


class _TreePool(NamedPool):
    @show_full_signature(NamedPool.__init__)
    def __init__(self, kernel_size: Size, *window: Any, levels: int = 2, **options: Any) -> None:
        WindowPool.__init__(self, make_tree(levels, type(self).__name__), kernel_size, *window, **options)
        self.levels = levels

    def _options_repr(self) -> str:
        return f", levels={self.levels}{super()._options_repr()}"


class TreePool1d(_TreePool, Pool1d):
    """Learned filters fused by learned gates over ``[N, C, L]``; see ``TreePool2d``."""


class TreePool2d(_TreePool, Pool2d):
    """2^(levels − 1) learned filters ``v · x``, fused in pairs by gates ``s l + (1 - s) r``, ``s = sigmoid(w · x)``.

    27 parameters for 2 levels of 3×3 windows, 63 for 3; one level is a single learned filter. ``share``, ``channels``,
    ``grid``, ``start`` and ``std`` are explained in ``Pool2d``.

    >>> TreePool2d(3, stride=2, levels=3)(torch.randn(8, 96, 15, 15)).shape
    torch.Size([8, 96, 7, 7])
    """


class TreePool3d(_TreePool, Pool3d):
    """Learned filters fused by learned gates over ``[N, C, D, H, W]``; see ``TreePool2d``."""


class _SoftPool(NamedPool):
    @show_full_signature(NamedPool.__init__)
    def __init__(self, kernel_size: Size, *window: Any, beta: float = 1.0, learn: bool = True, **options: Any) -> None:
        WindowPool.__init__(self, self._plant(Soft, beta, learn), kernel_size, *window, **options)


class SoftPool1d(_SoftPool, Pool1d):
    """``Σ x_i e^{βx_i} / Σ e^{βx_i}`` over ``[N, C, L]``; see ``SoftPool2d``."""


class SoftPool2d(_SoftPool, Pool2d):
    """``Σ x_i e^{βx_i} / Σ e^{βx_i}`` with one learned β: from average (0) to maximum; fixed β = 1 is SoftPool.

    β has no bounds. ``share``, ``channels`` and ``grid`` are explained in ``Pool2d``; ``start`` and ``std`` have no
    effect here.

    >>> SoftPool2d(3, stride=2)(torch.randn(8, 96, 15, 15)).shape
    torch.Size([8, 96, 7, 7])
    """


class SoftPool3d(_SoftPool, Pool3d):
    """``Σ x_i e^{βx_i} / Σ e^{βx_i}`` over ``[N, C, D, H, W]``; see ``SoftPool2d``."""


class _LogSumExpPool(NamedPool):
    @show_full_signature(NamedPool.__init__)
    def __init__(self, kernel_size: Size, *window: Any, r: float = 1.0, learn: bool = True, **options: Any) -> None:
        WindowPool.__init__(self, self._plant(LogSumExp, r, learn), kernel_size, *window, **options)


class LogSumExpPool1d(_LogSumExpPool, Pool1d):
    """``ln(mean e^{r x_i}) / r`` over ``[N, C, L]``; see ``LogSumExpPool2d``."""


class LogSumExpPool2d(_LogSumExpPool, Pool2d):
    """``ln(mean e^{r x_i}) / r`` with one learned r: from average to maximum.

    r is clamped to [0.1, 100]. ``share``, ``channels`` and ``grid`` are explained in ``Pool2d``; ``start`` and ``std``
    have no effect here.
    """


class LogSumExpPool3d(_LogSumExpPool, Pool3d):
    """``ln(mean e^{r x_i}) / r`` over ``[N, C, D, H, W]``; see ``LogSumExpPool2d``."""


class _GeMPool(NamedPool):
    @show_full_signature(NamedPool.__init__)
    def __init__(
        self,
        kernel_size: Size,
        *window: Any,
        p: float = 3.0,
        learn: bool = True,
        absolute: bool = False,
        **options: Any,
    ) -> None:
        WindowPool.__init__(self, self._plant(Power, p, learn, absolute), kernel_size, *window, **options)


class GeMPool1d(_GeMPool, Pool1d):
    """The generalised mean over ``[N, C, L]``; see ``GeMPool2d``."""


class GeMPool2d(_GeMPool, Pool2d):
    """``(mean max(x_i, 1e-6)^p)^{1/p}``, the generalised mean, with one learned p.

    p is clamped to [1, 64]. ``absolute=True`` takes ``|x_i|``: with a fixed p of 2 that is ``nn.LPPool2d(2, …)`` up to
    its factor. ``share``, ``channels`` and ``grid`` are explained in ``Pool2d``; ``start`` and ``std`` have no effect
    here.
    """


class GeMPool3d(_GeMPool, Pool3d):
    """The generalised mean over ``[N, C, D, H, W]``; see ``GeMPool2d``."""


class _RankPool(NamedPool):
    tree = Rank()


class RankPool1d(_RankPool, Pool1d):
    """``Σ_k w_k x_(k)`` over ``[N, C, L]``; see ``RankPool2d``."""


class RankPool2d(_RankPool, Pool2d):
    """``Σ_k w_k x_(k)``: one learned weight for each place in the sorted region; starts as the average.

    ``share``, ``channels`` and ``grid`` are explained in ``Pool2d``; ``start`` and ``std`` have no effect here.
    """


class RankPool3d(_RankPool, Pool3d):
    """``Σ_k w_k x_(k)`` over ``[N, C, D, H, W]``; see ``RankPool2d``."""


class _MedianPool(NamedPool):
    tree = Median()


class MedianPool1d(_MedianPool, Pool1d):
    """The median over ``[N, C, L]``; see ``MedianPool2d``."""


class MedianPool2d(_MedianPool, Pool2d):
    """The median of each region; no parameters."""


class MedianPool3d(_MedianPool, Pool3d):
    """The median over ``[N, C, D, H, W]``; see ``MedianPool2d``."""


def _check_border(name: str, border: Any) -> str:
    if border not in BORDERS:
        raise ValueError(f"{name}: border must be one of {', '.join(BORDERS)}, got {border!r}")
    return str(border)


def _choose_blur(border: str, kernel: tuple[int, ...]) -> Tree:
    return Filter(make_binomial(kernel), learn=False) if border == "zeros" else Blur()


def _reflect(name: str, x: Tensor, window: Window) -> tuple[Tensor, Window]:
    """``x``, reflected as far as the windows reach over its edges, and the same window without padding."""
    dims = window.dims
    output, sizes = check_input(name, x, window)[-dims:], x.shape[-dims:]
    pads = [(p, p) for p in window.padding]
    if window.ceil_mode:  # else a traced size needs no guard
        axes = zip(output, window.kernel, window.stride, window.dilation, strict=True)
        ends = [(o - 1) * s + d * (k - 1) + 1 for o, k, s, d in axes]
        pads = [(p, max(p, end - p - n)) for p, end, n in zip(window.padding, ends, sizes, strict=True)]
    if any(max(pair) >= n for pair, n in zip(pads, sizes, strict=True)):
        wanted, actual = format_size([max(pair) + 1 for pair in pads]), format_size(sizes)
        raise ValueError(f"{name}: border='reflect' needs an input of at least {wanted}, got {actual}")
    if any(map(any, pads)):
        x = F.pad(x, [p for pair in reversed(pads) for p in pair], mode="reflect").to(x.dtype)  # autocast changes it
    return x, Window(window.kernel, window.stride, (0,) * dims, window.dilation)


class _BlurPool(NamedPool):
    @show_full_signature(NamedPool.__init__)
    def __init__(self, kernel_size: Size, *window: Any, border: str = "existing", **options: Any) -> None:
        name = type(self).__name__
        self.border = _check_border(name, border)
        tree = _choose_blur(border, Window.of(name, self.dims, kernel_size).kernel)
        WindowPool.__init__(self, tree, kernel_size, *window, **options)

    def forward(self, input: Tensor) -> Tensor:
        if self.border != "reflect":
            return super().forward(input)
        name = type(self).__name__
        x, window = _reflect(name, input, self.window)
        return functional.pool(name, x, self.tree, None, None, window)

    def _options_repr(self) -> str:
        return ("" if self.border == "existing" else f", border={self.border!r}") + WindowPool._options_repr(self)


class BlurPool1d(_BlurPool, Pool1d):
    """The binomial filter over ``[N, C, L]``; see ``BlurPool2d``."""


class BlurPool2d(_BlurPool, Pool2d):
    """The binomial filter of the window, ``[1, 2, 1] / 4`` for 3 taps, in every direction; no parameters.

    ``border`` says what happens where a window reaches over the edge: ``"existing"`` averages the cells that exist,
    ``"zeros"`` and ``"reflect"`` pad by zeros or by reflection, as other packages do; with ``ceil_mode`` as far as the
    last window reaches.
    """


class BlurPool3d(_BlurPool, Pool3d):
    """The binomial filter over ``[N, C, D, H, W]``; see ``BlurPool2d``."""


class _MaxBlurPool(FixedPool):
    @show_full_signature(FixedPool.__init__)
    def __init__(self, kernel_size: Size, *window: Any, border: str = "existing", **options: Any) -> None:
        super().__init__(kernel_size, *window, **options)
        self.border = _check_border(type(self).__name__, border)
        self.blur = _choose_blur(self.border, (3,) * self.dims)

    def forward(self, input: Tensor) -> Tensor:
        name, window, one, three = type(self).__name__, self.window, (1,) * self.dims, (3,) * self.dims
        dense = Window(window.kernel, one, window.padding, window.dilation)
        x = self._extend(input, dense) if window.ceil_mode else input
        x = functional.pool(name, x, Max(), None, None, dense)
        blurred = Window(three, window.stride, one, one)
        if self.border == "reflect":
            x, blurred = _reflect(name, x, blurred)
        return functional.pool(name, x, self.blur, None, None, blurred)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.border == "existing" else f", border={self.border!r}")

    def _extend(self, input: Tensor, dense: Window) -> Tensor:
        """``input`` with −inf behind it, as far as the windows of ceil mode reach."""
        output = check_input(type(self).__name__, input, self.window)[-self.dims :]
        axes = zip(output, dense.output_size(input.shape[-self.dims :]), self.window.stride, strict=True)
        over = [max(0, (n - 1) * s + 1 - m) for n, m, s in axes]
        return F.pad(input, [n for behind in reversed(over) for n in (0, behind)], value=-math.inf)


class MaxBlurPool1d(_MaxBlurPool):
    """The maximum, then a binomial filter, over ``[N, C, L]``; see ``MaxBlurPool2d``."""

    dims = 1


class MaxBlurPool2d(_MaxBlurPool):
    """The maximum of each window at stride 1, then a binomial filter of 3 taps at the stride (Zhang, 2019).

    A shift of the input changes it less than max pooling. The output is as large as that of ``nn.MaxPool2d``; no
    parameters. ``border`` is that of the filter, as in ``BlurPool2d``.
    """

    dims = 2


class MaxBlurPool3d(_MaxBlurPool):
    """The maximum, then a binomial filter, over ``[N, C, D, H, W]``; see ``MaxBlurPool2d``."""

    dims = 3
