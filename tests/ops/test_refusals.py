"""A refused call says what was wanted, and lets go of its input at once."""

import gc
import weakref

import pytest
import torch

from learnpool import GatedPool2d, MixedPool2d, functional


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("x", [None, [1.0], "x", 1.0], ids=repr)
def test_what_is_no_tensor_is_refused_in_words(x, mode):
    for layer in (GatedPool2d(3), MixedPool2d(3)):
        with (
            mode(),
            pytest.raises(TypeError, match=f"{type(layer).__name__}: input must be a tensor, got {type(x).__name__}"),
        ):
            layer(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: GatedPool2d(3)(x),
        lambda x: functional.gated_pool2d(x, torch.zeros(2, 2), 3),
        lambda x: functional.mixed_pool2d(x, 0.5, 3, wrong=1),
        lambda x: functional.mixed_pool2d(x, torch.zeros(7, 1, 1), 3),
        lambda x: functional.stochastic_pool2d(x, 30),
    ],
    ids=["layer", "mask", "argument", "channels", "stochastic"],
)
def test_a_refused_input_is_freed_without_the_garbage_collector(call):
    gc.disable()
    try:
        x = torch.randn(1, 2, 2, 2)
        seen = weakref.ref(x)
        with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
            call(x)
        del x, caught
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_default_device_changes_nothing(mode):
    for layer in (GatedPool2d(3, 2), MixedPool2d(3, 2, a=1.0)):
        x = torch.randn(1, 2, 7, 7)
        with mode():
            expected = layer(x)
            with torch.device("cpu"):  # a mode that overrides functions
                assert torch.equal(layer(x), expected)
