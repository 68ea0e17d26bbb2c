"""torch.func and forward-mode AD, on layers and on the operator itself."""

import pytest
import torch
import torch.autograd.forward_ad as fwd
from torch.autograd import gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from cases import GATED, MIXED, ODD, SHARES, W, call, distinct, parameters
from learnpool import AdaptivePool2d, GatedPool2d, MixedPool2d, Pool2d, StochasticPool2d
from learnpool.tree import make_tree

ONE = pytest.mark.row("`torch.func`: grad, vmap, vmap(grad), jacrev, hessian")
FORWARD = pytest.mark.row("forward mode: jvp, jacfwd, forward_ad")
# torch loads its own forward-mode formulas through a deprecated door
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def layer_of(tree, share):
    return Pool2d(tree, 3, 2, 1, ceil_mode=True, share=share, channels=3, grid=(4, 3), dtype=torch.float64)


def loss(layer, values, x):
    return functional_call(layer, values, (x,)).sin().sum()


@ONE
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", [MIXED, GATED, make_tree(2), ODD], ids=str)
def test_per_sample_gradients(tree, share):
    """Of parameters and input, for images alone and as a batch of one, against a loop over images."""
    layer, images = layer_of(tree, share), distinct(3, 3, 7, 6)
    values = dict(layer.named_parameters())
    for one in (lambda x: x, lambda x: x[None]):

        def value(values, x, one=one):
            return loss(layer, values, one(x))

        found, at_x = vmap(grad(value, argnums=(0, 1)), in_dims=(None, 0))(values, images)
        only = vmap(grad(value), in_dims=(None, 0))(values, images)
        for i, image in enumerate(images):
            x = image.clone().requires_grad_()
            expected = torch.autograd.grad(value(values, x), [*values.values(), x])
            assert_close([*(g[i] for g in found.values()), at_x[i]], list(expected))
            assert_close([g[i] for g in only.values()], list(expected[:-1]))
        assert_close(vmap(grad(value, argnums=1), in_dims=(None, 0))(values, images), at_x)  # frozen parameters


@ONE
@pytest.mark.parametrize("share", SHARES)
def test_a_batch_of_parameters(share):
    """An ensemble: one call for all members, and their gradients."""
    layer, x = layer_of(ODD, share), distinct(2, 3, 7, 6)
    values = {name: torch.stack([p.detach(), p.detach() * 0.5]) for name, p in layer.named_parameters()}
    members = [{name: p[i] for name, p in values.items()} for i in range(2)]
    y = vmap(lambda v: functional_call(layer, v, (x,)))(values)
    assert_close(y, torch.stack([functional_call(layer, member, (x,)) for member in members]))
    found = vmap(grad(lambda v: loss(layer, v, x)))(values)
    for i, member in enumerate(members):
        expected = grad(lambda v: loss(layer, v, x))(member)
        assert_close({name: g[i] for name, g in found.items()}, expected)


@ONE
@pytest.mark.parametrize("tree", [MIXED, GATED, make_tree(2), ODD], ids=str)
def test_jacobians_and_hessians(tree):
    layer, x = layer_of(tree, "layer"), distinct(1, 3, 7, 6)
    jacobian = torch.autograd.functional.jacobian(layer, x)
    assert_close(jacrev(layer)(x), jacobian)
    values = {name: p.detach() for name, p in layer.named_parameters()}

    def scalar(x):
        return layer(x).sin().sum()

    second = torch.autograd.functional.hessian(scalar, x)
    assert second.abs().max() > 0.01
    assert_close(hessian(scalar)(x), second)
    assert_close(jacrev(jacrev(scalar))(x), second)
    found = hessian(lambda v: loss(layer, v, x))(values)
    name = "weight" if "weight" in values else "mix"
    parameter = getattr(layer, name)
    expected = torch.autograd.functional.hessian(lambda p: loss(layer, {**values, name: p}, x), parameter.detach())
    assert_close(found[name][name], expected)


@ONE
def test_the_operator_itself_and_mixed_kinds_of_autograd():
    window = W(3, 2, 1).of()
    x = distinct(2, 3, 7, 6)
    weight, mix = parameters(ODD, window, "layer", 3, (7, 6))

    def value(weight, x):
        return call(x, weight, mix, ODD, window).sin().sum()

    leaf = weight.clone().requires_grad_()
    (expected,) = torch.autograd.grad(value(leaf, x), leaf)
    assert_close(grad(value)(weight, x), expected)
    each = torch.stack([grad(value)(weight, image) for image in x])
    assert_close(vmap(grad(value), in_dims=(None, 0))(weight, x), each)
    # Ordinary autograd of what torch.func found is a second derivative.
    layer = layer_of(ODD, "layer")
    leaf = x.clone().requires_grad_()
    inner = grad(lambda x: layer(x).sin().sum())(leaf)
    (found,) = torch.autograd.grad(inner.square().sum(), leaf)
    again = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(layer(again).sin().sum(), again, create_graph=True)
    (expected,) = torch.autograd.grad(first.square().sum(), again)
    assert found.abs().max() > 0.01
    assert_close(found, expected)


@ONE
@pytest.mark.parametrize("tree", [MIXED, GATED, make_tree(1)], ids=str)
def test_a_tensor_kept_from_inside_a_transform(tree):
    """It is a wrapper that has outlived its transform; ordinary autograd has to reach the tensor behind it."""
    layer, kept = layer_of(tree, "layer"), []

    def keep(x):
        kept.append(x)
        return x.sum()

    x = distinct(2, 3, 7, 6).requires_grad_()
    grad(keep)(x)
    inputs = [x, *layer.parameters()]
    found = torch.autograd.grad(layer(kept[0]).sin().sum(), inputs)
    assert_close(found, torch.autograd.grad(layer(x).sin().sum(), inputs))


@ONE
def test_stochastic_and_adaptive_pools():
    x = distinct(3, 2, 7, 6)
    for layer in (StochasticPool2d(3, 2).eval(), AdaptivePool2d(MIXED, dtype=torch.float64)):
        found = vmap(grad(lambda x, layer=layer: layer(x).sin().sum()))(x)
        leaf = x.clone().requires_grad_()
        assert_close(found, torch.autograd.grad(layer(leaf).sin().sum(), leaf)[0])
        assert_close(vmap(layer)(x), layer(x))
    drawn = vmap(StochasticPool2d(3, 2), randomness="different")(x)
    assert (drawn[..., None] == x.flatten(2)[:, :, None, None]).any(-1).all()  # a cell of that image and channel


@FORWARD
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", [MIXED, GATED, make_tree(2), ODD], ids=str)
def test_forward_mode(tree, share):
    layer, x = layer_of(tree, share), distinct(1, 3, 7, 6)
    tangent = torch.randn_like(x)
    jacobian = torch.autograd.functional.jacobian(layer, x)
    expected = torch.einsum("abcdefgh,efgh->abcd", jacobian, tangent)
    assert expected.abs().max() > 0.01
    assert_close(jacfwd(layer)(x), jacobian)
    assert_close(jvp(layer, (x,), (tangent,))[1], expected)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode(), fwd.dual_level():
            assert_close(fwd.unpack_dual(layer(fwd.make_dual(x, tangent))).tangent, expected)
    values = {name: p.detach() for name, p in layer.named_parameters()}
    assert_close(jacfwd(lambda v: loss(layer, v, x))(values), jacrev(lambda v: loss(layer, v, x))(values))


@FORWARD
def test_forward_mode_of_the_operators_and_of_the_other_pools():
    window = W(3, 2, 1).of()
    x, tangent = distinct(1, 2, 7, 7), torch.randn(1, 2, 7, 7, dtype=torch.float64)
    weight, mix = parameters(ODD, window, "layer", 2, (7, 7))
    y = call(x, weight, mix, ODD, window)
    rest = (ODD.program, *window.arguments)
    seed = torch.tensor([5])
    functions = {
        "pool": lambda x: call(x, weight, mix, ODD, window),
        "pool_backward": lambda x: torch.ops.learnpool.pool_backward(y, x, weight, mix, *rest, [True] * 3)[1],
        "stochastic": lambda x: torch.ops.learnpool.stochastic_pool(x, seed, *window.arguments[:5]),
        "expected": StochasticPool2d(3, 2).eval(),
        "adaptive": AdaptivePool2d(MIXED, 2, dtype=torch.float64),
    }
    for name, function in functions.items():
        numeric = (function(x + 1e-6 * tangent) - function(x - 1e-6 * tangent)) / 2e-6
        for mode in (torch.enable_grad, torch.no_grad):
            with mode(), fwd.dual_level():
                found = fwd.unpack_dual(function(fwd.make_dual(x, tangent))).tangent
            assert_close(found, numeric, rtol=1e-6, atol=1e-7, msg=name)
        assert_close(jvp(function, (x,), (tangent,))[1], numeric, rtol=1e-6, atol=1e-7, msg=name)


@FORWARD
@pytest.mark.parametrize(("a", "passes"), [(0.5, (1, 1)), (1.0, (0, 1)), (0.0, (1, 0))])
def test_a_tangent_of_a_at_a_border_passes_only_inward(a, passes):
    layer = MixedPool2d(2, a=a)
    x = torch.tensor([[0.0, 0], [0, 4.0]]).reshape(1, 1, 2, 2)  # max 4, mean 1
    for sign, through in zip((1.0, -1.0), passes, strict=True):
        tangent = torch.full_like(layer.mix, sign)
        found = jvp(lambda mix: functional_call(layer, {"mix": mix}, (x,)), (layer.mix.detach(),), (tangent,))[1]
        assert found.item() == sign * 3 * through


@pytest.mark.row("per-sample gradients of 64 images are one call forward and one backward")
def test_cost_of_per_sample_gradients():
    layer, x = GatedPool2d(3, 2, 1), torch.randn(64, 16, 8, 8)
    called = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append(func.name().partition("::")[2]) if func.namespace == "learnpool" else None
            return func(*args, **kwargs or {})

    with Count():
        vmap(grad(lambda v, x: functional_call(layer, v, (x,)).sum()), in_dims=(None, 0))(
            {"weight": layer.weight.detach()}, x
        )
    assert called == ["pool", "pool_backward"]


@pytest.mark.row("double backward")
@pytest.mark.parametrize("tree", [MIXED, GATED, make_tree(2), ODD], ids=str)
def test_double_backward(tree):
    layer = layer_of(tree, "channel")

    def function(x, *values):
        return functional_call(layer, dict(zip(dict(layer.named_parameters()), values, strict=True)), (x,))

    inputs = [distinct(1, 3, 7, 6).requires_grad_(), *(p.detach().clone().requires_grad_() for p in layer.parameters())]
    assert gradgradcheck(function, inputs, fast_mode=True)
