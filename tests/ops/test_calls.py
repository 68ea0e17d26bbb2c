"""An ordinary call on the CPU passes a number for all that is no tensor; who records or transforms it sees lists."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from cases import MIXED, ODD, SHARES, TREES, W, distinct, parameters
from learnpool import GatedPool2d, MixedPool2d, functional
from learnpool.ops import cpu

needs_kernels = pytest.mark.skipif(not cpu.CPU.live, reason="only the compiled library knows numbers")


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


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", TREES, ids=str)
def test_both_ways_give_the_same_bits(tree, share, dtype):
    window, x = W(3, 2, 1).of(), distinct(2, 5, 9, 8).to(dtype)
    weight, mix = parameters(tree, window, share, 5, (9, 8), torch.float32)
    mix.view(-1)[::3], mix.view(-1)[1::3] = -0.5, 1.0  # some are clamped, and at or beyond a border
    for clamp in (False, True):
        for sign in (1.0, -1.0):
            by_number = run((x, weight, mix), tree, window, clamp, sign)
            with Watch() as watch:
                in_full = run((x, weight, mix), tree, window, clamp, sign)
            assert watch.seen == ["learnpool::pool", "learnpool::pool_backward"]
            for ours, theirs in zip(by_number, in_full, strict=True):
                assert torch.equal(ours, theirs)


@needs_kernels
@pytest.mark.parametrize("needs", list(itertools.product([False, True], repeat=3)))
def test_the_library_computes_only_the_gradients_that_are_needed(needs):
    window, x = W(3, 2, 1).of(), distinct(2, 5, 9, 8).float()
    weight, mix = parameters(ODD, window, "layer", 5, (9, 8), torch.float32)
    y = functional.pool("test", x, ODD, weight, mix, window)
    (arguments,) = window.known.values()
    found = torch.ops.learnpool._pool_backward(y, x, weight, mix, arguments.number, *needs)
    wanted = torch.ops.learnpool.pool_backward(y, x, weight, mix, *arguments, [True, True, True])
    for ours, theirs, need in zip(found, wanted, needs, strict=True):
        assert torch.equal(ours, theirs) if need else ours.shape == (0,)


@pytest.mark.parametrize("watched", [False, True], ids=["by number", "in full"])
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


@needs_kernels
@pytest.mark.parametrize("layer", [GatedPool2d(3, 2), MixedPool2d(3, 2)], ids=str)
def test_who_sees_a_number_and_who_a_list(layer):
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


@needs_kernels
def test_a_number_stays_in_its_process():
    layer, x = GatedPool2d(3, 2), torch.randn(1, 2, 7, 7)
    expected = layer(x)
    assert layer.window.known
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert not other.window.known
        assert other.window == layer.window
        assert torch.equal(other(x), expected)


@needs_kernels
def test_equal_arguments_have_one_number():
    x, mix, found = torch.randn(1, 2, 7, 7), torch.full((1, 1, 1, 1), 0.5), set()
    for clamp in (False, True, False, True):
        window = W(3, 2).of()
        functional.pool("test", x, MIXED, None, mix, window, clamp=clamp)
        found |= {arguments.number for arguments in window.known.values()}
    assert len(found) == 2


@needs_kernels
@pytest.mark.parametrize("number", [-1, 10**6])
def test_an_unknown_number_is_refused(number):
    x, nothing = torch.randn(1, 2, 7, 7), torch.empty(0)
    with pytest.raises(RuntimeError, match=f"arguments number {number} are unknown"):
        torch.ops.learnpool._pool(x, nothing, nothing, number)
    with pytest.raises(RuntimeError, match=f"arguments number {number} are unknown"):
        torch.ops.learnpool._pool_backward(x, x, nothing, nothing, number, True, True, True)
