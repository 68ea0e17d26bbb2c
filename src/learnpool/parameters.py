"""The parameters of a pool, ``weight`` and ``mix``: their shape, start, bounds, loading, and sharing across layers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import Parameter, UninitializedParameter, is_lazy

from . import sharing
from .ops.operator import FLOATS, check_fixed_values
from .ops.rows import clamp_mix
from .ops.transforms import choose_form
from .ops.window import format_size
from .program import Program, decode
from .starts import DEFAULT_STD, STARTS, fill_weight
from .tree import Tree


class TreeParameters(LazyModuleMixin, nn.Module):
    """A module with the parameters of a tree.

    ``weight`` is ``[D, C|1, *grid|1, *kernel]``, ``mix`` is ``[M, C|1, *grid|1]``; None where the tree has none. A size
    that is needed but not given is taken from the first input, as PyTorch's lazy modules do.
    """

    dims: ClassVar[int]
    weight: Parameter | None
    mix: Parameter | None

    def __init__(
        self,
        tree: Tree,
        taps: Sequence[int],
        share: str,
        channels: int | None,
        grid: int | Sequence[int] | None,
        start: str,
        std: float,
        device: Any,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if not isinstance(tree, Tree):
            raise TypeError(f"{name}: tree must be a tree such as Gate(Max(), Avg()), got {tree!r}")
        if start not in STARTS:
            raise ValueError(f"{name}: start must be one of {', '.join(STARTS)}, got {start!r}")
        if isinstance(std, bool) or not isinstance(std, (int, float)) or not 0 <= std < math.inf:
            raise ValueError(f"{name}: std must be a number of at least 0, got {std!r}")
        if std != DEFAULT_STD and start != "paper":
            raise ValueError(f"{name}: std is that of start='paper', got std={std} with start={start!r}")
        if dtype is not None and dtype not in FLOATS:
            raise TypeError(f"{name}: dtype must be float16, bfloat16, float32 or float64, got {dtype}")
        self.tree = tree
        self.share = sharing.check_share(name, share)
        self.channels = _check_positive(name, "channels", channels)
        self.grid = _check_grid(name, grid, self.dims)
        self.start, self.std = start, std
        self._taps = tuple(taps)
        decoded = self.program
        if taps:  # an adaptive pool has none
            check_fixed_values(name, decoded, taps)
            tree.check_shape(name, tuple(taps))
        self._register("weight", decoded.weights, taps, device, dtype)
        self._register("mix", decoded.mixes, (), device, dtype)
        if not self.has_uninitialized_params():
            self._remove_lazy_hooks()
            self.reset_parameters()

    @property
    def program(self) -> Program:
        """The tree, decoded for the layer's window."""
        return decode(self.tree.fit(self._taps))

    def _register(self, name: str, rows: int, taps: Sequence[int], device: Any, dtype: torch.dtype | None) -> None:
        parameter: Any = None
        if rows:
            extent = sharing.get_extent(self.share, self.channels, self.grid, self.dims)
            parameter = (
                UninitializedParameter(device=device, dtype=dtype)  # type: ignore[call-arg]
                if extent is None
                else Parameter(torch.empty((rows, *extent, *taps), device=device, dtype=dtype))
            )
        self.register_parameter(name, parameter)

    def reset_parameters(self) -> None:
        """Start again: masks and filters as ``starts`` says, each learned number where the tree says."""
        for name in ("weight", "mix"):
            self._fill_start(name)

    @torch.no_grad()
    def _fill_start(self, name: str) -> None:
        """Give one parameter its start values, if it is there and has a size."""
        parameter = self._parameters[name]
        if parameter is None or is_lazy(parameter):
            return
        if name == "mix":
            for row, a in enumerate(self.tree.starts):
                parameter[row] = a
        else:
            fill_weight(parameter, self.program, parameter.shape[2 + self.dims :], self.start, self.std)

    def _get_parameters(self) -> tuple[Tensor | None, Tensor | None]:
        """``weight`` and ``mix``; attributes are slower, and needed only where a parametrization has replaced one."""
        own = self._parameters
        try:
            return own["weight"], own["mix"]
        except KeyError:
            return self.weight, self.mix

    def proportions(self) -> Tensor | None:
        """The numbers in use, ``[M, C|1, *grid|1]``: mix clamped to its domains; gradients lead back inside."""
        mix = self.mix
        return None if mix is None else clamp_mix(mix, self.program.domains, choose_form())

    def _materialize(self, channels: int, output: Sequence[int], taps: Sequence[int]) -> None:
        """Give lazy parameters their sizes and start values."""
        if not self.has_uninitialized_params():
            return
        self.channels = channels if self.channels is None and sharing.varies_by_channel(self.share) else self.channels
        self.grid = tuple(output) if self.grid is None and sharing.varies_by_region(self.share) else self.grid
        extent = sharing.get_extent(self.share, self.channels, self.grid, self.dims)
        decoded = self.program
        for name, rows, rest in (("weight", decoded.weights, taps), ("mix", decoded.mixes, ())):
            parameter = self._parameters[name]
            if extent is not None and isinstance(parameter, UninitializedParameter):
                parameter.materialize((rows, *extent, *rest))
                self._fill_start(name)

    def _remove_lazy_hooks(self) -> None:
        """Remove the hooks that wait for a first input: all sizes are known."""
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook, self._load_hook

    def _replicate_for_data_parallel(self) -> Any:
        if self.has_uninitialized_params():
            return super()._replicate_for_data_parallel()
        return nn.Module._replicate_for_data_parallel(self)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load; a parameter saved for another output grid is resampled to this layer's grid, with a warning."""
        was_lazy = self.has_uninitialized_params()
        for name, own in self._parameters.items():
            key, saved = prefix + name, state_dict.get(prefix + name)
            if own is None or saved is None or is_lazy(saved) or saved.dim() < 2 + self.dims:
                continue
            grid, saved_grid = self.grid, sharing.get_grid(saved, self.dims)
            if sharing.varies_by_region(self.share) and grid is not None and grid != saved_grid:
                change = f"saved for grid {format_size(saved_grid)}, resampled to {format_size(grid)}"
                warnings.warn(f"{type(self).__name__}: {key} {change}", stacklevel=2)
                state_dict[key] = saved = sharing.resample(saved, grid)
            if is_lazy(own) and not self._matches_sharing(saved):
                problem = (
                    f'{key} of shape {list(saved.shape)} is not for share="{self.share}", channels={self.channels}'
                )
                args[-1].append(f"{type(self).__name__}: {problem}")
                del state_dict[key]
        super()._load_from_state_dict(state_dict, prefix, *args)
        if was_lazy and not self.has_uninitialized_params():
            shape = next(p.shape for p in self._parameters.values() if p is not None)
            if sharing.varies_by_channel(self.share):
                self.channels = shape[1]
            if sharing.varies_by_region(self.share):
                self.grid = tuple(shape[2 : 2 + self.dims])

    def _matches_sharing(self, saved: Tensor) -> bool:
        """Whether a saved parameter varies where this layer's would, as far as its sizes are known."""
        channels = (
            (self.channels, saved.shape[1])[self.channels is None] if sharing.varies_by_channel(self.share) else 1
        )
        grid = sharing.get_grid(saved, self.dims) if sharing.varies_by_region(self.share) else (1,) * self.dims
        return tuple(saved.shape[1 : 2 + self.dims]) == (channels, *grid)


def tie(layers: Iterable[nn.Module]) -> None:
    """Make layers of equal tree and window share one set of parameters, the first one's: the paper's "per net".

    The tie is one Parameter in several modules: state_dict, deepcopy, optimizers and ``.to()`` of the network keep it.
    What replaces Parameters instead of filling them (``load_state_dict(..., assign=True)``, ``to_empty``) does not: tie
    again.

    >>> pools = [GatedPool2d(3, 2), GatedPool2d(3, 2)]
    >>> tie(pools)
    >>> pools[0].weight is pools[1].weight
    True
    """
    if isinstance(layers, nn.Module):
        raise TypeError(f"tie: wanted a list of layers, got one {type(layers).__name__}")
    pools = [_check_tied(layer) for layer in layers]
    if not pools:
        raise ValueError("tie: wanted at least one layer, got none")
    first = pools[0]
    for pool in pools[1:]:
        _check_equal(first, pool)
    for pool in pools:
        pool.share = "net"
        for name, parameter in first._parameters.items():
            pool.register_parameter(name, parameter)


def _check_tied(layer: nn.Module) -> TreeParameters:
    if not isinstance(layer, TreeParameters) or not hasattr(layer, "kernel_size"):
        raise TypeError(f"tie: wanted learned pools over windows, got {type(layer).__name__}")
    if layer.share not in ("layer", "net"):
        raise ValueError(f'tie: wanted share="layer" or "net", got {layer.share!r} in {layer}')
    return layer


def _check_equal(first: Any, pool: Any) -> None:
    """Raise unless the parameters of one pool can be those of the other."""
    if pool.tree != first.tree:
        raise ValueError(f"tie: layers must have equal trees, got {first.tree!r} and {pool.tree!r}")
    if pool.window.kernel != first.window.kernel:
        actual = f"{format_size(first.window.kernel)} and {format_size(pool.window.kernel)}"
        raise ValueError(f"tie: layers must have equal windows, got {actual}")
    for name, ours in first._parameters.items():
        theirs = pool._parameters[name]
        if ours is not None and (ours.dtype, ours.device) != (theirs.dtype, theirs.device):
            actual = f"{ours.dtype} on {ours.device} and {theirs.dtype} on {theirs.device}"
            raise ValueError(f"tie: layers must be of one dtype and device, got {actual}")


def parameter_groups(
    model: nn.Module, lr: float | None = None, weight_decay: float | None = 0.0
) -> list[dict[str, Any]]:
    """Two groups for an optimizer: all other parameters first, then those of the pools with their own rate and decay.

    None leaves a setting to the optimizer. Decay is off for the pools unless given: it would pull a mix to average.

    >>> optimizer = torch.optim.SGD(parameter_groups(model, lr=0.01), lr=0.1, weight_decay=5e-4)
    """
    pools = {
        id(p)
        for module in model.modules()
        if isinstance(module, TreeParameters)
        for p in module.parameters(recurse=False)
    }
    settings = {key: value for key, value in (("lr", lr), ("weight_decay", weight_decay)) if value is not None}
    others = [p for p in model.parameters() if id(p) not in pools]
    return [{"params": others}, {"params": [p for p in model.parameters() if id(p) in pools], **settings}]


def _check_positive(name: str, what: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: {what} must be an int, got {value!r}")
    if value < 1:
        raise ValueError(f"{name}: {what} must be at least 1, got {value}")
    return value


def _check_grid(name: str, grid: Any, dims: int) -> tuple[int, ...] | None:
    if grid is None:
        return None
    values = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,) * dims
    if len(values) != dims:
        raise ValueError(f"{name}: grid must be one int or {dims}, got {grid!r}")
    if None in values:
        raise TypeError(f"{name}: grid must be given in all {dims} directions or in none, got {grid!r}")
    return tuple(n for value in values if (n := _check_positive(name, "grid", value)) is not None)
