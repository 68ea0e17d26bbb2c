import inspect

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from cases import GATED, MIXED, ODD, W, call, distinct
from learnpool import GatedPool2d, MixedPool2d
from learnpool import functional as LF
from learnpool.tree import make_tree

WINDOW = ["kernel_size", "stride", "padding", "dilation", "ceil_mode"]  # the order of F.max_pool2d


@pytest.mark.parametrize("family", ["pool", "mixed_pool", "gated_pool", "tree_pool", "stochastic_pool"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_window_arguments_come_in_the_order_of_max_pool2d(family, dims):
    function = getattr(LF, f"{family}{dims}d")
    names = list(inspect.signature(function).parameters)
    first = names.index("kernel_size")
    assert names[first : first + 5] == WINDOW
    assert function.__name__ == f"{family}{dims}d"
    assert function.__doc__


@pytest.mark.parametrize("shape", [(), (3, 1, 1), (5, 4), (1, 5, 4), (3, 5, 4), (1, 1, 1), (3, 1, 4), (4,)])
def test_a_broadcasts_against_channels_and_regions(shape):
    x = distinct(2, 3, 9, 7)
    a = torch.rand(shape, dtype=torch.float64, requires_grad=True)
    full = a.detach().expand(3, 5, 4)
    y = LF.mixed_pool2d(x, a, 3, 2, 1)
    expected = call(x, x.new_empty(0, 1, 1, 1, 3, 3), full[None].contiguous(), MIXED, W(3, 2, 1).of())
    assert_close(y, expected)
    y.sum().backward()
    assert a.grad.shape == shape


@pytest.mark.parametrize("shape", [(), (3, 1, 1), (5, 4), (1, 5, 4), (3, 5, 4)])
def test_masks_and_filters_broadcast_with_the_window_behind(shape):
    x = distinct(2, 3, 9, 7)
    mask = torch.randn(*shape, 3, 3, dtype=torch.float64, requires_grad=True)
    full = mask.detach().expand(3, 5, 4, 3, 3)[None].contiguous()
    none = x.new_empty(0, 1, 1, 1)
    y = LF.gated_pool2d(x, mask, 3, 2, 1)
    assert_close(y, call(x, full, none, GATED, W(3, 2, 1).of()))
    y.sum().backward()
    assert mask.grad.shape == mask.shape

    gates, leaves = torch.randn(3, *shape, 3, 3, dtype=torch.float64), torch.randn(4, 3, 3, dtype=torch.float64)
    y = LF.tree_pool2d(x, gates, leaves, 3, 2, 1)
    rows = [
        gates.expand(3, 3, 5, 4, 3, 3)
        if shape == (3, 5, 4)
        else gates.reshape(3, *[1] * (3 - len(shape)), *shape, 3, 3).expand(3, 3, 5, 4, 3, 3)
    ]
    rows.append(leaves.reshape(4, 1, 1, 1, 3, 3).expand(4, 3, 5, 4, 3, 3))
    assert_close(y, call(x, torch.cat(rows), none, make_tree(3), W(3, 2, 1).of()))


def test_gates_are_root_first_and_leaves_left_to_right():
    """Saturated gates choose one leaf: from the root, left is what σ multiplies."""
    x = torch.ones(1, 1, 2, 2)
    leaves = torch.tensor([1.0, 2, 3, 4]).reshape(4, 1, 1).expand(4, 2, 2) / 4
    left, right = torch.full((2, 2), 100.0), torch.full((2, 2), -100.0)
    for root, low, high, leaf in (
        (left, left, right, 1),
        (left, right, left, 2),
        (right, left, left, 3),
        (right, left, right, 4),
    ):
        assert LF.tree_pool2d(x, torch.stack([root, low, high]), leaves, 2).item() == leaf


def test_one_leaf_needs_no_gates():
    x, leaf = torch.randn(1, 2, 4, 4), torch.randn(1, 2, 2)
    expected = torch.nn.functional.conv2d(x, leaf.expand(2, 1, 2, 2), stride=2, groups=2)
    assert_close(LF.tree_pool2d(x, None, leaf, 2), expected)
    assert_close(LF.tree_pool2d(x, torch.empty(0, 2, 2), leaf, 2), expected)


def test_any_tree_in_one_two_and_three_dimensions():
    for dims, function in ((1, LF.pool1d), (2, LF.pool2d), (3, LF.pool3d)):
        x = distinct(2, 3, *(8, 7, 6)[:dims])
        weight, mix = torch.randn(4, *[2] * dims, dtype=torch.float64), torch.rand(1, dtype=torch.float64)
        expected = call(
            x,
            weight.reshape(4, *[1] * (dims + 1), *[2] * dims),
            mix.reshape(1, *[1] * (dims + 1)),
            ODD,
            W(2, 2).of(dims),
        )
        assert_close(function(x, ODD, weight, mix, 2), expected)


def test_half_input_with_float32_parameters():
    x = torch.randn(2, 3, 8, 8, dtype=torch.bfloat16)
    assert LF.mixed_pool2d(x, 0.3, 2).dtype == torch.bfloat16
    assert LF.gated_pool2d(x, torch.randn(2, 2), 2).dtype == torch.bfloat16


def test_every_window_argument_reaches_the_operator():
    x = distinct(2, 3, 11, 9)
    window = (3, 2, 1, 2, True, True)
    weight, mix, none = (
        torch.randn(4, 3, 3, dtype=torch.float64),
        torch.rand(1, dtype=torch.float64),
        torch.empty(0, 1, 1, 1, dtype=torch.float64),
    )
    rows = weight.reshape(4, 1, 1, 1, 3, 3)
    shape = W(*window).of()
    assert_close(LF.pool2d(x, ODD, weight, mix, *window), call(x, rows, mix.reshape(1, 1, 1, 1), ODD, shape))
    assert_close(LF.gated_pool2d(x, weight[0], *window), call(x, rows[:1], none, GATED, shape))
    assert_close(LF.mixed_pool2d(x, mix[0], *window), call(x, rows[:0], mix.reshape(1, 1, 1, 1), MIXED, shape))
    assert_close(LF.tree_pool2d(x, weight[:1], weight[1:3], *window), call(x, rows[:3], none, make_tree(2), shape))


def test_wrong_arguments_are_named_by_the_function():
    x = torch.ones(1, 1, 4, 4)
    with pytest.raises(TypeError, match="^gated_pool2d: got an unexpected keyword argument 'dilatoin'$"):
        LF.gated_pool2d(x, torch.ones(3, 3), 3, dilatoin=2)
    with pytest.raises(TypeError, match="^mixed_pool2d: missing a required argument: 'kernel_size'$"):
        LF.mixed_pool2d(x, 0.5)
    with pytest.raises(TypeError, match="^pool3d: too many positional arguments$"):
        LF.pool3d(x, MIXED, None, torch.ones(1), 3, 1, 0, 1, False, False, True)


def test_the_list_of_public_functions_is_complete():
    made = {name for name in vars(LF) if name[-2:] in ("1d", "2d", "3d")}
    assert made == set(LF.__all__)


def test_a_first_call_in_inference_mode_does_not_spoil_training():
    layer, x = GatedPool2d(3, 2), torch.randn(1, 2, 7, 7)
    with torch.inference_mode():
        layer(x)
    layer(x).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("first", ["hessian", "fake", "mode"])
def test_a_first_call_under_a_transform_or_mode_spoils_no_later_one(first):
    layer, x = GatedPool2d(3, 2, 1), torch.randn(1, 1, 4, 4)

    def compute_loss(x):
        return layer(x).sin().sum()

    if first == "hessian":
        torch.func.hessian(compute_loss)(x)
    elif first == "fake":
        with FakeTensorMode(allow_non_fake_inputs=True):
            layer(x)
    else:
        with torch.device("meta"):
            layer(x)
    assert type(layer(x)) is torch.Tensor
    assert_close(torch.func.hessian(compute_loss)(x), torch.autograd.functional.hessian(compute_loss, x))


def test_nothing_is_recorded_where_autograd_is_off():
    """Gradients may be enabled there: PyTorch's own operations record nothing either."""
    for layer in (GatedPool2d(2), MixedPool2d(2)):
        with torch.inference_mode(), torch.enable_grad():
            assert not layer(torch.randn(2, 3, 8, 8)).requires_grad

        @torch.library.custom_op(f"learnpool_test::{type(layer).__name__}", mutates_args=())
        def pool_inside(x: torch.Tensor) -> torch.Tensor:
            return layer(x)  # noqa: B023

        assert not pool_inside(torch.randn(2, 3, 8, 8)).requires_grad


def test_fake_and_traced_tensors_get_parameters_of_their_own():
    layer, x = MixedPool2d(3, 2), torch.randn(1, 2, 7, 7)
    expected = layer(x)
    graph = make_fx(layer)(x)
    assert torch.equal(graph(x), expected)
    with FakeTensorMode() as mode:
        layer = MixedPool2d(3, 2)
        y = layer(mode.from_tensor(x))
        y.sum().backward()
    assert y.shape == expected.shape
    assert isinstance(layer.mix.grad, FakeTensor)


@pytest.mark.parametrize("pool", [GatedPool2d, MixedPool2d])
def test_a_mode_that_overrides_functions_sees_the_operator_with_gradients_on(pool):
    class Record(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append((str(function), torch.is_grad_enabled()))
            return function(*args, **(kwargs or {}))

    seen = []
    layer, x = pool(3, 2), torch.randn(1, 2, 7, 7)
    with Record():
        y = layer(x)
    assert ("learnpool.pool", True) in seen
    assert torch.equal(y, layer(x))
    y.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


def test_a_window_that_was_accepted_does_not_make_an_equal_mistake_legal():
    x = torch.randn(1, 2, 8, 8)
    assert LF.mixed_pool2d(x, 0.5, 1).shape == x.shape
    with pytest.raises(TypeError, match="kernel_size must be an int"):
        LF.mixed_pool2d(x, 0.5, True)  # equal to 1
