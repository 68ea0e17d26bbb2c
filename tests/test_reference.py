import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from cases import GATED, MIXED, SHARES, TREES, WINDOWS, W, distinct, leaves, parameters
from learnpool import reference
from learnpool.tree import complete


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_backward_by_hand_is_autograd_through_forward(tree, window, share):
    window = window.of()
    x = distinct(2, 3, 9, 8)
    weight, mix = parameters(tree, window, share, 3, (9, 8))
    mix.view(-1)[::3], mix.view(-1)[1::3] = 0, 1  # the borders are ordinary points of the formula
    inputs = leaves(x, weight, mix)
    y = reference.forward(*inputs, tree.program, window)
    grad = torch.randn_like(y)
    theirs = torch.autograd.grad(y, inputs, grad, allow_unused=True)
    ours = reference.backward(grad, *[tensor.detach() for tensor in inputs], tree.program, window)
    for mine, autograd, tensor in zip(ours, theirs, inputs, strict=True):
        assert_close(mine, torch.zeros_like(tensor) if autograd is None else autograd)


@pytest.mark.parametrize("window", [window for window in WINDOWS if window.dilation == 1], ids=str)
def test_forward_is_what_a_user_would_compose(window):
    """max_pool2d, avg_pool2d, a depthwise convolution and a sigmoid; PyTorch's average knows no dilation."""
    window = window.of()
    x = distinct(2, 3, 9, 8)
    weight, mix = parameters(GATED, window, "channel", 3, (9, 8))
    y = reference.forward(x, weight, mix, GATED.program, window)
    largest = F.max_pool2d(x, window.kernel, window.stride, window.padding, 1, window.ceil_mode)
    mean = F.avg_pool2d(x, window.kernel, window.stride, window.padding, window.ceil_mode, window.count_include_pad)
    room = [n * s for n, s in zip(y.shape[2:], window.stride, strict=True)]
    p = window.padding
    wide = F.pad(x, (p[1], p[1] + room[1], p[0], p[0] + room[0]))
    z = F.conv2d(wide, weight[0, :, 0, 0, None], stride=window.stride, groups=3)[..., : y.shape[2], : y.shape[3]]
    assert_close(y, torch.sigmoid(z) * largest + (1 - torch.sigmoid(z)) * mean)


@pytest.mark.parametrize("levels", range(1, 7))
def test_a_tree_of_any_depth_is_its_definition(levels):
    """The paper's (10), evaluated by recursion over single regions."""
    window = W(2).of()
    tree = complete(levels)
    x = distinct(1, 2, 4, 4)
    weight, mix = parameters(tree, window, "layer", 2, (4, 4))
    y = reference.forward(x, weight, mix, tree.program, window)

    def f(region, m, first_leaf):
        if m >= first_leaf:
            return (weight[m, 0, 0, 0] * region).sum()
        s = torch.sigmoid((weight[m, 0, 0, 0] * region).sum())
        return s * f(region, 2 * m + 1, first_leaf) + (1 - s) * f(region, 2 * m + 2, first_leaf)

    for c in range(2):
        for i in range(2):
            for j in range(2):
                region = x[0, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
                assert_close(y[0, c, i, j], f(region, 0, 2 ** (levels - 1) - 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_once(dtype):
    window = W(3, 2, 1).of()
    x = distinct(2, 3, 9, 9, dtype=dtype)
    for tree in TREES:
        weight, mix = parameters(tree, window, "channel", 3, (9, 9), dtype=torch.float32)
        y = reference.forward(x, weight, mix, tree.program, window)
        wide = reference.forward(x.float(), weight, mix, tree.program, window)
        assert torch.equal(y, wide.to(dtype))
        grad = torch.randn_like(y)
        narrow = reference.backward(grad, x, weight, mix, tree.program, window)
        full = reference.backward(grad.float(), x.float(), weight, mix, tree.program, window)
        assert torch.equal(narrow[0], full[0].to(dtype))
        assert torch.equal(narrow[1], full[1])
        assert torch.equal(narrow[2], full[2])


def test_a_region_without_any_cell():
    """Dilation can step over a small input: as in PyTorch the maximum is −inf; the mean is 0, and nobody is paid."""
    x = torch.randn(1, 1, 3, 3, dtype=torch.float64)
    window = W(2, 1, 1, 4).of()
    weight, mix = parameters(MIXED, window, "layer", 1, (3, 3))
    assert torch.equal(reference.forward(x, weight, 0 * mix + 1, MIXED.program, window), F.max_pool2d(x, 2, 1, 1, 4))
    assert reference.forward(x, weight, 0 * mix, MIXED.program, window).item() == 0
    dx, _, _ = reference.backward(x.new_ones(1, 1, 1, 1), x, weight, 0 * mix + 1, MIXED.program, window)
    assert torch.equal(dx, torch.zeros_like(x))


def test_work_only_for_gradients_that_are_asked_for():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        ops = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.ops += 1
            return func(*args, **(kwargs or {}))

    x, window = distinct(2, 3, 9, 9), W(3, 2, 1).of()
    weight, mix = parameters(GATED, window, "layer", 3, (9, 9))
    grad = torch.randn(2, 3, 5, 5, dtype=torch.float64)

    def ops(*mask):
        with Count() as count:
            result = reference.backward(grad, x, weight, mix, GATED.program, window, mask)
        assert [part is not None for part in result] == list(mask)
        return count.ops

    nothing = ops(False, False, False)
    assert ops(True, False, False) > nothing + 9 * 3
    assert ops(False, True, False) > nothing + 9 * 3
    assert ops(True, True, True) >= ops(True, False, False) + ops(False, True, False) - nothing - 9 * 2


MEMORY = """
import resource, torch
from learnpool import reference, Gate, Max, Avg
from learnpool.window import Window
torch.set_num_threads(1)
window = Window.of("test", 2, 7, 1, 3)
def step(n):
    x = torch.randn(4, 16, n, n)
    weight, mix, program = torch.randn(1, 1, 1, 1, 7, 7), torch.empty(0, 1, 1, 1), Gate(Max(), Avg()).program
    y = reference.forward(x, weight, mix, program, window)
    reference.backward(y, x, weight, mix, program, window)
    return y.numel() * 4
step(16)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
output = step(512)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / output)
"""


def test_memory_is_of_the_order_of_the_output():
    """A 7×7 window: unfolding it would take 49 times the output; a handful of maps is enough."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 20
