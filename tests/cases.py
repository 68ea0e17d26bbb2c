"""What the tests pool: trees, windows, sharings, and inputs without ties."""

from typing import NamedTuple

import torch
from hypothesis import strategies as st

from learnpool import Avg, Filter, Gate, Max, Min, Mix
from learnpool.ops.window import Window
from learnpool.program import decode
from learnpool.tree import make_tree

MIXED = Mix(Max(), Avg())
HALF = Mix(Max(), Avg(), learn=False)
GATED = Gate(Max(), Avg())
ODD = Gate(Gate(Filter(), Max()), Mix(Mix(Avg(), Filter(), a=0.3, learn=False), Max(), a=0.8))
LOW = Gate(Mix(Min(), Max()), Mix(Min(), Filter(), a=0.3, learn=False))
TREES = [
    Max(),
    Avg(),
    HALF,
    MIXED,
    GATED,
    make_tree(1),
    make_tree(2),
    make_tree(3),
    ODD,
    Min(),
    LOW,
]
SHARES = ["layer", "region", "channel", "region_channel"]


class W(NamedTuple):
    """A window as a user writes it."""

    kernel_size: object
    stride: object = None
    padding: object = 0
    dilation: object = 1
    ceil_mode: bool = False
    count_include_pad: bool = False

    def of(self, dims=2):
        return Window.of("test", dims, *self)

    def __str__(self):
        return "-".join(str(value).replace(" ", "") for value in self)


WINDOWS = [
    W(2, 2),
    W(3, 2, 1),
    W(3, 2, ceil_mode=True),
    W((3, 2), (1, 2), (1, 0), count_include_pad=True),
    W(3, 1, 0, 2),
    W((2, 3), (3, 2), (1, 1), (2, 1), True, True),
]


def distinct(*shape, dtype=torch.float64):
    """Values far enough apart that neither rounding nor a finite difference makes two of them tie."""
    count = torch.Size(shape).numel()
    return ((torch.randperm(count).to(torch.float64) + 0.5) / max(count, 1) * 4 - 2).reshape(shape).to(dtype)


def parameters(tree, window, share, channels, size, dtype=torch.float64):
    """``weight`` and ``mix`` for one call of the operator."""
    grid = window.output_size(size) if "region" in share else (1,) * window.dims
    extent = (channels if "channel" in share else 1, *grid)
    plan = decode(tree.fit(window.kernel))
    weight = torch.randn((plan.weights, *extent, *window.kernel), dtype=torch.float64) * 0.5
    mix = torch.rand((plan.mixes, *extent), dtype=torch.float64) * 0.8 + 0.1
    return weight.to(dtype), mix.to(dtype)


def call(x, weight, mix, tree, window):
    """The operator itself."""
    return torch.ops.learnpool.pool(x, weight, mix, tree.fit(window.kernel), *numbers(window))


def numbers(window):
    return window.arguments


def draw_window(data, *, kernel, stride, dilation, size, dims=2):
    """A legal window and an input size it fits into, by hypothesis; the arguments are upper bounds.

    Half of the sizes are at most the window's, down to the smallest it fits: there some taps never meet a cell.
    """
    ceil_mode, count_include_pad = data.draw(st.booleans()), data.draw(st.booleans())
    is_square = data.draw(st.booleans())  # the axes, so that 2×2 and 3×3, which have code of their own, are not rare
    rows = []
    for _ in range(dims):
        k = rows[0][0] if is_square and rows else data.draw(st.integers(1, kernel))
        s, d = data.draw(st.integers(1, stride)), data.draw(st.integers(1, dilation))
        p = data.draw(st.integers(0, k // 2))
        reach = d * (k - 1) + 1
        least = max(1, reach - 2 * p - (s - 1 if ceil_mode else 0))
        most = reach if data.draw(st.booleans()) else size
        rows.append((k, s, p, d, data.draw(st.integers(least, max(least, most)))))
    k, s, p, d, n = zip(*rows, strict=True)
    return W(k, s, p, d, ceil_mode, count_include_pad).of(dims), n


def leaves(*tensors):
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]
