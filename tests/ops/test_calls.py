"""An ordinary call on the CPU passes a handle for all that is no tensor; who records or transforms it sees lists."""

import copy
import itertools
import math
import pickle
import subprocess
import sys

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from cases import MIXED, ODD, SHARES, TREES, W, distinct, parameters
from learnpool import GatedPool2d, MixedPool2d, functional
from learnpool.ops import cpu

needs_kernel = pytest.mark.usefixtures("kernel")  # only the compiled library gives handles


class Watch(TorchDispatchMode):
    """A mode that changes nothing; it has seen these operators of ours."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "learnpool":
            self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def find_operators(function):
    """The names of our operators in a profile of a call."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        function()
    return {event.key for event in found.key_averages() if event.key.startswith("learnpool::")}


def run(tensors, tree, window, clamp, sign=1.0):
    """The output and all gradients."""
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in tensors]
    weight, mix = leaves[1:]
    y = functional.pool("test", leaves[0], tree, weight, mix, window, clamp=clamp)
    (sign * y).sum().backward()
    return [y.detach(), *(leaf.grad for leaf in leaves)]


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", TREES, ids=str)
def test_both_ways_give_the_same_bits(tree, share, dtype):
    window, x = W(3, 2, 1).of(), distinct(2, 5, 9, 8).to(dtype)
    weight, mix = parameters(tree, window, share, 5, (9, 8), torch.float32)
    mix.view(-1)[::3], mix.view(-1)[1::3] = -0.5, 1.0  # some are clamped, and at or beyond a border
    for clamp in (False, True):
        for sign in (1.0, -1.0):
            by_handle = run((x, weight, mix), tree, window, clamp, sign)
            with Watch() as watch:
                in_full = run((x, weight, mix), tree, window, clamp, sign)
            assert watch.seen == ["learnpool::pool", "learnpool::pool_backward"]
            for ours, theirs in zip(by_handle, in_full, strict=True):
                assert torch.equal(ours, theirs)


@needs_kernel
@pytest.mark.parametrize("needs", list(itertools.product([False, True], repeat=3)))
def test_the_library_computes_only_the_gradients_that_are_needed(needs):
    window, x = W(3, 2, 1).of(), distinct(2, 5, 9, 8).float()
    weight, mix = parameters(ODD, window, "layer", 5, (9, 8), torch.float32)
    y = functional.pool("test", x, ODD, weight, mix, window)
    (arguments,) = window.pool_arguments.values()
    found = torch.ops.learnpool._pool_backward(y, x, weight, mix, arguments.handle, *needs)
    wanted = torch.ops.learnpool.pool_backward(y, x, weight, mix, *arguments, [True, True, True])
    for ours, theirs, need in zip(found, wanted, needs, strict=True):
        assert torch.equal(ours, theirs) if need else ours.shape == (0,)


@pytest.mark.parametrize("watched", [False, True], ids=["by handle", "in full"])
@pytest.mark.parametrize("a", [-0.5, 0.0, 0.3, 1.0, 1.5, math.nan])
@pytest.mark.parametrize("grad", [2.0, -2.0, 0.0, math.inf, -math.inf, math.nan])
def test_only_a_finite_outward_gradient_of_a_is_dropped(a, grad, watched):
    window, mix = W(2, 2).of(), torch.full((1, 1, 1, 1), a, requires_grad=True)
    x, weight = torch.tensor([0.0, 0, 0, 4]).reshape(1, 1, 2, 2), torch.empty(0, 1, 1, 1, 2, 2)  # max 4, mean 1
    with Watch() if watched else torch.enable_grad():
        y = functional.pool("test", x, MIXED, weight, mix, window, clamp=True)
        y.backward(torch.full_like(y, grad))
    clamped = min(max(a, 0.0), 1.0) if a == a else a
    assert y.item() == pytest.approx(1 + 3 * clamped, nan_ok=True)
    outward = math.isfinite(grad) and ((a <= 0 and grad > 0) or (a >= 1 and grad < 0))
    assert mix.grad.item() == pytest.approx(0.0 if outward else 3 * grad, nan_ok=True)


@needs_kernel
@pytest.mark.parametrize("layer", [GatedPool2d(3, 2), MixedPool2d(3, 2)], ids=str)
def test_who_sees_a_handle_and_who_lists(layer):
    x = torch.randn(1, 2, 7, 7)
    expected = layer(x)
    short, full = {"learnpool::_pool"}, {"learnpool::pool"}
    assert find_operators(lambda: layer(x).sum().backward()) == {"learnpool::_pool", "learnpool::_pool_backward"}
    with torch.no_grad():
        assert find_operators(lambda: layer(x)) == short
        assert find_operators(lambda: torch.vmap(layer)(x[None])) == full
        assert torch.equal(torch.vmap(layer)(x[None])[0], expected)
        with Watch() as watch:
            layer(x)
        assert watch.seen == ["learnpool::pool"]
    with torch.inference_mode():
        assert find_operators(lambda: layer(x)) == short

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Marked(torch.Tensor):
        pass

    with Functions(), torch.no_grad():
        assert find_operators(lambda: layer(x)) == full
    assert find_operators(lambda: layer(x.as_subclass(Marked))) == full
    traced = torch.jit.trace(layer, x)
    assert "learnpool::pool" in str(traced.graph)
    assert "learnpool::_pool" not in str(traced.graph)
    exported = torch.export.export(layer, (x,))
    assert "learnpool._pool" not in str(exported.graph)


@needs_kernel
def test_a_handle_stays_in_its_process():
    layer, x = GatedPool2d(3, 2), torch.randn(1, 2, 7, 7)
    expected = layer(x)
    assert layer.window.pool_arguments
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert not other.window.pool_arguments
        assert other.window == layer.window
        assert torch.equal(other(x), expected)


def test_a_library_without_handles_gets_lists(monkeypatch):
    """One that was built before there were any, say."""
    monkeypatch.setattr(cpu, "_register", None)
    layer, x = MixedPool2d(3, 2), torch.randn(1, 2, 7, 7)
    assert find_operators(lambda: layer(x).sum().backward()) == {"learnpool::pool", "learnpool::pool_backward"}


@needs_kernel
def test_equal_arguments_have_one_handle():
    x, mix, found = torch.randn(1, 2, 7, 7), torch.full((1, 1, 1, 1), 0.5), set()
    for clamp in (False, True, False, True):
        window = W(3, 2).of()
        functional.pool("test", x, MIXED, None, mix, window, clamp=clamp)
        found |= {arguments.handle for arguments in window.pool_arguments.values()}
    assert len(found) == 2


@needs_kernel
def test_trees_without_end_do_not_fill_the_memory():
    code = """
import torch
from learnpool import functional
from learnpool.ops.calls import PoolArguments
from learnpool.ops.window import Window
from learnpool.tree import Avg, Max, Mix

window, x, handles = Window.of("test", 2, 2), torch.randn(1, 1, 4, 4), set()
for step in range(5000):
    tree = Mix(Max(), Avg(), a=step / 5000, learn=False)
    handles.add(PoolArguments.of(tree.program, window, False).handle)
    y = functional.pool("test", x, tree, None, None, window)
assert len(handles - {None}) == 4096, len(handles)
assert len(window.pool_arguments) <= 64
expected = torch.lerp(torch.nn.functional.avg_pool2d(x, 2), torch.nn.functional.max_pool2d(x, 2), tree.a)
torch.testing.assert_close(y, expected)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_kernel
@pytest.mark.parametrize("handle", [-1, 4095, 4096])
def test_an_unknown_handle_is_refused(handle):
    x, nothing = torch.randn(1, 2, 7, 7), torch.empty(0)
    with pytest.raises(RuntimeError, match=f"no pool has the handle {handle} in this process"):
        torch.ops.learnpool._pool(x, nothing, nothing, handle)
    with pytest.raises(RuntimeError, match=f"no pool has the handle {handle} in this process"):
        torch.ops.learnpool._pool_backward(x, x, nothing, nothing, handle, True, True, True)


def test_recording_before_dispatch_shows_no_handle():
    """There autograd runs without the mode that overrides functions."""
    layer, x = GatedPool2d(3, 2), torch.randn(1, 2, 7, 7, requires_grad=True)
    y = layer(x)
    backward = make_fx(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0], pre_dispatch=True)
    assert "learnpool.pool_backward" in backward(torch.ones_like(y)).code

    def step(x):
        y = checkpoint(layer, x, use_reentrant=False)
        return torch.autograd.grad(y.sum(), x)[0]

    assert "learnpool._pool" not in make_fx(step, pre_dispatch=True)(x).code


@needs_kernel
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_default_device_changes_nothing(mode):
    for layer in (GatedPool2d(3, 2), MixedPool2d(3, 2, a=1.0)):
        x = torch.randn(1, 2, 7, 7)
        with mode():
            expected = layer(x)
            with torch.device("cpu"):  # a mode that overrides functions
                assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("watched", [False, True], ids=["by handle", "in full"])
def test_a_gradient_that_overflows_in_half_precision_is_not_dropped(watched):
    layer = MixedPool2d(3, 2, 1, a=1.0, dtype=torch.float16)
    x = torch.arange(64 * 4 * 81, dtype=torch.float16).remainder(7).reshape(64, 4, 9, 9)
    with Watch() if watched else torch.enable_grad():
        y = layer(x)
        y.backward(torch.full_like(y, -100.0))  # outward, and the sum is beyond 65504
    assert layer.mix.grad.item() == -math.inf


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("x", [None, [1.0], "x", 1.0], ids=repr)
def test_what_is_no_tensor_is_refused_in_words(x, mode):
    for layer in (GatedPool2d(3), MixedPool2d(3)):
        with (
            mode(),
            pytest.raises(TypeError, match=f"{type(layer).__name__}: input must be a tensor, got {type(x).__name__}"),
        ):
            layer(x)
