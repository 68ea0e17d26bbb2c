"""Backward formulas: what is saved, what is computed, and derivatives through the reference."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from learnpool import GatedPool2d, MixedPool2d, TreePool2d
from learnpool.ops.autograd import compute_vjp, keep_needed


@pytest.mark.parametrize("make", [GatedPool2d, MixedPool2d, TreePool2d])
def test_only_the_input_and_the_parameters_are_saved(make):
    layer, x = make(3, 2), torch.randn(1, 2, 7, 7, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        layer(x)
    kept = {t.data_ptr() for t in saved if t.numel()}
    assert kept == {t.data_ptr() for t in (x, *layer.parameters())}


def test_gradients_nobody_needs_are_not_computed():
    masks = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.learnpool.pool_backward.default:
                masks.append(list(args[-1]))
            return func(*args, **(kwargs or {}))

    for learns, wants in ((True, False), (False, True), (True, True)):
        layer, x = GatedPool2d(3, 2).requires_grad_(learns), torch.randn(1, 2, 7, 7, requires_grad=wants)
        y = layer(x)
        with Record():
            y.sum().backward()
        assert (x.grad is not None, layer.weight.grad is not None) == (wants, learns)
    assert masks == [[False, True, False], [True, False, False], [True, True, False]]


def test_an_empty_gradient_becomes_none():
    full, empty = torch.ones(2), torch.empty(0)
    assert keep_needed((full, empty, empty), (True, False, False)) == (full, None, None)


def test_vector_jacobian_products():
    """Of plain operations, for the inputs that need one; other uses of an input stay out."""
    a, b = torch.randn(3, dtype=torch.float64, requires_grad=True), torch.randn(3, dtype=torch.float64)
    grads = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)

    def function(a, b):
        return a * a * b, None, b.detach()

    values = compute_vjp(function, (a, b), (True, False), (grads[0], None, grads[1]))
    assert_close(values[0], 2 * a * b * grads[0])
    assert values[1] is None
    assert values[0].requires_grad  # a derivative of it exists
    with torch.no_grad():
        assert not compute_vjp(function, (a, b), (True, False), (grads[0], None, grads[1]))[0].requires_grad
    assert compute_vjp(lambda a, b: (b,), (a, b), (True, False), (grads[0],)) == [None, None]
