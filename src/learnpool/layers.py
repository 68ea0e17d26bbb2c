"""Drop-in layers with ``nn.MaxPool2d``'s arguments: any tree over a window, adaptive and stochastic pools.

``named_layers.py`` has the pools with names of their own, such as ``GatedPool2d``; each is a ``NamedPool``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Concatenate, ParamSpec

import torch
from torch import Tensor, nn

from . import functional, sharing
from .ops import adaptive
from .ops.operator import check_input
from .ops.rows import clamp_mix
from .ops.transforms import choose_form
from .ops.window import Size, Window, check_arguments, fill_signature
from .parameters import TreeParameters
from .starts import DEFAULT_START, DEFAULT_STD
from .tree import Tree

__all__ = [
    "AdaptivePool1d", "AdaptivePool2d", "AdaptivePool3d",
    "Pool1d", "Pool2d", "Pool3d",
    "StochasticPool1d", "StochasticPool2d", "StochasticPool3d",
]  # fmt: skip

_WINDOW = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "count_include_pad")

P = ParamSpec("P")


class WindowLayer(nn.Module):
    """The window arguments of ``nn.MaxPool2d``, readable (and settable) as attributes."""

    dims: ClassVar[int]
    why_no_indices: ClassVar[str] = "a learned pool has no indices: its output is a blend of all cells, not one of them"
    count_include_pad = False
    window: Window

    def _set_window(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        if return_indices:
            raise ValueError(f"{type(self).__name__}: return_indices must be False ({self.why_no_indices})")
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode
        self.window = self._build_window({})

    def _build_window(self, change: dict[str, Any]) -> Window:
        values = (change.get(key, getattr(self, key)) for key in _WINDOW)
        return Window.of(type(self).__name__, self.dims, *values)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _WINDOW and "window" in self.__dict__:
            self.__dict__["window"] = self._build_window({name: value})
        super().__setattr__(name, value)

    def _window_repr(self) -> str:
        return ", ".join(f"{key}={getattr(self, key)!r}" for key in _WINDOW[:-1])


def name_arguments(init: Callable[P, None]) -> Callable[P, None]:
    """Let an error about the arguments of ``__init__`` begin with the name of the layer that was asked for."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def initialize(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            init(*args, **kwargs)
        except TypeError:
            check_arguments(type(args[0]).__name__, signature, args, kwargs)
            raise

    return initialize


def show_full_signature(source: Callable[..., None]) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Show what an ``__init__`` passes on to ``source`` in its signature, for ``help``, editors and errors."""

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        init.__signature__ = fill_signature(init, source)  # type: ignore[attr-defined]
        return name_arguments(init)

    return decorate


class WindowPool(WindowLayer, TreeParameters):
    """A tree over a window, in any number of dimensions."""

    @name_arguments
    def __init__(
        self,
        tree: Tree,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        share: str = "layer",
        channels: int | None = None,
        grid: int | Sequence[int] | None = None,
        count_include_pad: bool = False,
        start: str = DEFAULT_START,
        std: float = DEFAULT_STD,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        taps = Window.of(type(self).__name__, self.dims, kernel_size).kernel
        TreeParameters.__init__(self, tree, taps, share, channels, grid, start, std, device, dtype)
        self.count_include_pad = count_include_pad
        self._set_window(kernel_size, stride, padding, dilation, return_indices, ceil_mode)

    def initialize_parameters(self, input: Tensor) -> None:
        """Take sizes that were not given from the first input."""
        shape = check_input(type(self).__name__, input, self.window)
        self._materialize(shape[-self.dims - 1], shape[-self.dims :], self.window.kernel)

    def forward(self, input: Tensor) -> Tensor:
        name, window = type(self).__name__, self.window
        weight, mix = self._get_parameters()
        if self.share in sharing.REGIONAL:
            output, mix = check_input(name, input, window)[-self.dims :], self.proportions()
            for parameter in (weight, mix):
                if parameter is not None:
                    sharing.warn_of_grid(self, parameter, output)
            weight = None if weight is None else sharing.resample(weight, output)
            mix = None if mix is None else sharing.resample(mix, output)
        return functional.pool(name, input, self.tree, weight, mix, window)

    def extra_repr(self) -> str:
        return f"{self._tree_repr()}{self._window_repr()}{self._options_repr()}"

    def _tree_repr(self) -> str:
        return f"{self.tree!r}, "

    def _options_repr(self) -> str:
        defaults: dict[str, Any] = {"share": "layer", "channels": None, "grid": None, "count_include_pad": False}
        defaults |= {"start": DEFAULT_START, "std": DEFAULT_STD}
        options = {key: getattr(self, key) for key, default in defaults.items() if getattr(self, key) != default}
        return "".join(f", {key}={value!r}" for key, value in options.items())


class Pool1d(WindowPool):
    """Any tree over the windows of ``[N, C, L]`` or ``[C, L]``; see ``Pool2d``."""

    dims = 1


class Pool2d(WindowPool):
    """Any tree over the windows of ``[N, C, H, W]`` or ``[C, H, W]``.

    From ``kernel_size`` to ``ceil_mode`` the arguments are ``nn.MaxPool2d``'s, in its order. ``share`` says who shares
    the parameters: ``layer``, ``region``, ``channel``, ``region_channel``, or ``net`` (see ``tie``); ``channels`` and
    ``grid`` (the output height and width) may be left to the first input. ``count_include_pad`` is ``nn.AvgPool2d``'s.
    ``start`` says where masks and filters begin: ``"spread"`` as in ``convert``, ``"neutral"``, ``"tournament"``, or
    ``"paper"``, N(0, std) (``learnpool.starts`` has the formulas and the reasons).

    >>> Pool2d(Gate(Filter(), Mix(Max(), Avg())), 3, stride=2)(torch.randn(8, 96, 15, 15)).shape
    torch.Size([8, 96, 7, 7])
    """

    dims = 2


class Pool3d(WindowPool):
    """Any tree over the windows of ``[N, C, D, H, W]`` or ``[C, D, H, W]``; see ``Pool2d``."""

    dims = 3


def _take_tree_from_class(init: Callable[Concatenate[Any, Tree, P], None]) -> Callable[Concatenate[Any, P], None]:
    def initialize(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        init(self, type(self).tree, *args, **kwargs)

    signature = inspect.signature(init)
    remaining = [parameter for name, parameter in signature.parameters.items() if name != "tree"]
    initialize.__signature__ = signature.replace(parameters=remaining)  # type: ignore[attr-defined]
    initialize.__name__ = initialize.__qualname__ = "__init__"
    return name_arguments(initialize)


class NamedPool(WindowPool):
    """A pool whose tree is a class attribute; its arguments are those of ``Pool2d`` without the tree."""

    tree: Tree
    __init__ = _take_tree_from_class(WindowPool.__init__)

    @classmethod
    def _plant(cls, node: type[Tree], *arguments: Any) -> Tree:
        """``node(*arguments)``; a refusal begins with the layer's name instead of the node's."""
        try:
            return node(*arguments)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace(node.__name__, cls.__name__, 1)) from None

    def _tree_repr(self) -> str:
        return ""

    def _options_repr(self) -> str:
        return self.tree._options() + super()._options_repr()


class FixedPool(WindowLayer):
    """A pool without parameters that is no tree."""

    @show_full_signature(WindowLayer._set_window)
    def __init__(self, kernel_size: Size, *window: Any, **options: Any) -> None:
        super().__init__()
        self._set_window(kernel_size, *window, **options)

    def extra_repr(self) -> str:
        return self._window_repr()


class _StochasticPool(FixedPool):
    why_no_indices = "in evaluation its output is a mean over all cells, not one of them"

    def forward(self, input: Tensor) -> Tensor:
        return functional.stochastic_pool(type(self).__name__, input, self.window, self.training)


class StochasticPool1d(_StochasticPool):
    """One cell of each region, picked with probability ``max(x, 0) / sum``; see ``StochasticPool2d``."""

    dims = 1


class StochasticPool2d(_StochasticPool):
    """One cell of each region, picked with probability ``max(x, 0) / sum`` in training; its mean in evaluation.

    Zeiler and Fergus (2013). Where no cell of a region is positive, all are equally likely. No parameters.
    """

    dims = 2


class StochasticPool3d(_StochasticPool):
    """One cell of each region, picked with probability ``max(x, 0) / sum``; see ``StochasticPool2d``."""

    dims = 3


class _AdaptivePool(TreeParameters):
    def __init__(
        self,
        tree: Tree,
        output_size: Any = 1,
        *,
        share: str = "layer",
        channels: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        adaptive.check_tree(type(self).__name__, tree)
        sizes = adaptive.expand_output_size(type(self).__name__, output_size, self.dims)
        known = tuple(n for n in sizes if n is not None)
        grid = known if len(known) == self.dims else None
        super().__init__(tree, (), share, channels, grid, "paper", 0.0, device, dtype)
        self.output_size = output_size

    def initialize_parameters(self, input: Tensor) -> None:
        """Take sizes that were not given from the first input."""
        output = adaptive.get_output_size(type(self).__name__, input, self.output_size, self.dims)
        self._materialize(input.shape[-self.dims - 1], output, ())

    def forward(self, input: Tensor) -> Tensor:
        name, mix = type(self).__name__, self._get_parameters()[1]
        if mix is not None and sharing.varies_by_region(self.share):
            output = adaptive.get_output_size(name, input, self.output_size, self.dims)
            sharing.warn_of_grid(self, mix, output)
            mix = sharing.resample(clamp_mix(mix, self.program.domains, choose_form()), output)
        return functional.adaptive_pool(name, input, self.tree, mix, self.output_size, self.dims)

    def extra_repr(self) -> str:
        options = "" if self.share == "layer" else f", share={self.share!r}"
        return f"{self.tree!r}, {self.output_size!r}{options}" + (
            f", channels={self.channels}" if self.channels else ""
        )


class AdaptivePool1d(_AdaptivePool):
    """A tree of leaves without taps over the regions of ``nn.AdaptiveMaxPool1d``; see ``AdaptivePool2d``."""

    dims = 1


class AdaptivePool2d(_AdaptivePool):
    """A tree of leaves without taps over the regions of ``nn.AdaptiveMaxPool2d``; by default over the whole map.

    For the last pool of a network. Masks, filters and ranks need windows of one size and are refused; a Gate works
    with ``by=``.

    >>> AdaptivePool2d(Mix(Max(), Avg()))(torch.randn(8, 96, 7, 7)).shape
    torch.Size([8, 96, 1, 1])
    """

    dims = 2


class AdaptivePool3d(_AdaptivePool):
    """A tree of leaves without taps over the regions of ``nn.AdaptiveMaxPool3d``; see ``AdaptivePool2d``."""

    dims = 3
