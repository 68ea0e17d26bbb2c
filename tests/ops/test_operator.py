import itertools
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.testing import assert_close

from cases import (
    GATED,
    MIXED,
    ODD,
    SHARES,
    TREES,
    WINDOWS,
    W,
    call,
    distinct,
    draw_window,
    leaves,
    numbers,
    parameters,
)
from learnpool import functional, ops
from learnpool.ops import reference
from learnpool.tree import make_tree

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
THIN = [GATED, make_tree(2), ODD]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_operator_agrees_with_the_equations(tree, window, share):
    window = window.of()
    x = distinct(2, 9, 3, 11)[..., :8].transpose(1, 2)  # not contiguous
    params = parameters(tree, window, share, 3, (9, 8))
    ours, theirs = leaves(x, *params), leaves(x, *params)
    y, expected = call(*ours, tree, window), reference.forward(*theirs, tree.program, window)
    grad = torch.randn_like(y)
    assert_close(y, expected)
    mine = torch.autograd.grad(y, ours, grad)
    auto = torch.autograd.grad(expected, theirs, grad, allow_unused=True, materialize_grads=True)
    assert_close(mine, auto)


@pytest.mark.parametrize(
    ("dims", "window", "size"),
    [
        (1, W(3, 2, 1, 2, True), (11,)),
        (2, W((3, 2), (1, 2), (1, 0), (1, 2), True, True), (6, 7)),
        (3, W((2, 3, 1), (1, 2, 3), (1, 0, 0), (2, 1, 1), True, True), (4, 5, 4)),
    ],
    ids=["1d", "2d", "3d"],
)
@pytest.mark.parametrize("tree", THIN, ids=str)
@pytest.mark.parametrize("share", SHARES)
def test_first_and_second_derivatives(dims, window, size, tree, share):
    window = window.of(dims)
    weight, mix = parameters(tree, window, share, 2, size)
    inputs = leaves(distinct(1, 2, *size), weight, mix)
    inputs = [tensor.requires_grad_(tensor.numel() > 0) for tensor in inputs]

    def function(*tensors):
        return call(*tensors, tree, window)

    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, fast_mode=True)  # all of it would take minutes


def test_third_derivative():
    """Of a gate's mask, compared with autograd through the reference."""
    window = W(2).of()
    x = distinct(1, 1, 4, 4)

    def third(function, weight, mix):
        w = weight.clone().requires_grad_()
        value = function(x, w, mix).sum()
        for _ in range(3):
            (slope,) = torch.autograd.grad(value, w, create_graph=True)
            value = (slope * torch.arange(slope.numel(), dtype=slope.dtype).reshape(slope.shape).cos()).sum()
        return value.detach()

    for tree in (GATED, make_tree(2)):
        params = parameters(tree, window, "layer", 1, (4, 4))
        ours = third(lambda *t, tree=tree: call(*t, tree, window), *params)
        theirs = third(lambda *t, tree=tree: reference.forward(*t, tree.program, window), *params)
        assert theirs.abs() > 1e-6
        assert_close(ours, theirs)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("tree", [MIXED, *THIN], ids=str)
def test_opcheck(dims, tree):
    size = (7, 6, 5)[:dims]
    window = W(3, 2, 1, 1, True).of(dims)
    for share in ("layer", "region_channel"):
        x = distinct(2, 3, *size, dtype=torch.float32)
        inputs = leaves(x, *parameters(tree, window, share, 3, size, torch.float32))
        opcheck(torch.ops.learnpool.pool.default, (*inputs, tree.program, *numbers(window)))
        grad = torch.randn_like(call(*inputs, tree, window))
        constants = [tensor.detach() for tensor in inputs]
        for mask in ([True, True, True], [True, False, False], [False, True, True]):
            opcheck(torch.ops.learnpool.pool_backward.default, (grad, *constants, tree.program, *numbers(window), mask))


def test_opcheck_of_the_second_derivative():
    """Its joint graph is the reference's loop over taps, so sizes stay fixed here: tracing them takes minutes."""
    window = W(2, 2, 1).of()
    inputs = leaves(
        distinct(2, 2, 4, 4, dtype=torch.float32), *parameters(GATED, window, "layer", 2, (4, 4), torch.float32)
    )
    grad = torch.randn_like(call(*inputs, GATED, window)).requires_grad_()
    arguments = (grad, *inputs, GATED.program, *numbers(window), [True, True, True])
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    opcheck(torch.ops.learnpool.pool_backward.default, arguments, test_utils=tests)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_fake_output_has_the_shape_and_strides_of_the_real_one(dims):
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims, torch.contiguous_format)
    size = (9, 8, 7)[:dims]
    for channels in (1, 3):
        whole = torch.randn(2, channels, *size)
        inputs = [whole, whole.to(memory_format=last), whole[0], whole.to(memory_format=last)[..., 1:], whole[:0]]
        inputs += [whole.transpose(-1, 1), whole[:1].expand(4, *whole.shape[1:])]
        for x in inputs:
            for window in (W(2), W(3, 2, 1), W(3, 2, ceil_mode=True)):
                if min(x.shape[-dims:]) < 3:
                    continue
                shape = window.of(dims)
                weight, mix = parameters(GATED, shape, "layer", 1, x.shape[-dims:], torch.float32)
                real = call(x, weight, mix, GATED, shape)
                fake = call(*(t.to("meta") for t in (x, weight, mix)), GATED, shape)
                strided = torch.empty_strided(x.shape, x.stride(), device="meta")
                assert fake.device.type == "meta"
                again = call(strided, weight.to("meta"), mix.to("meta"), GATED, shape)
                assert (again.shape, again.stride(), again.dtype) == (real.shape, real.stride(), real.dtype)
                expected = (torch.nn.MaxPool1d, torch.nn.MaxPool2d, torch.nn.MaxPool3d)[dims - 1](
                    *window[:4], ceil_mode=window.ceil_mode
                )(x)
                assert real.shape == expected.shape
                if channels > 1 and dims > 1 and x.dim() == dims + 2 and x.shape[0]:
                    assert real.stride() == expected.stride()


def test_output_and_gradient_keep_channels_last():
    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last).requires_grad_()
    window = W(3, 2, 1).of()
    weight, mix = parameters(GATED, window, "layer", 3, (9, 9), torch.float32)
    y = call(x, weight, mix, GATED, window)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert dx.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("make", ["contiguous", "channels_last", "sliced", "expanded", "transposed", "unbatched"])
@pytest.mark.parametrize("tree", THIN, ids=str)
def test_every_layout_gives_the_same_numbers(make, tree):
    base = distinct(2, 3, 9, 9)
    x = {
        "contiguous": lambda: base,
        "channels_last": lambda: base.to(memory_format=torch.channels_last),
        "sliced": lambda: torch.cat([base, base], -1)[..., :9],
        "expanded": lambda: base[:1].expand(2, 3, 9, 9),
        "transposed": lambda: base.transpose(-1, -2).contiguous().transpose(-1, -2),
        "unbatched": lambda: base[0],
    }[make]()
    window = W(3, 2, 1, 1, True).of()
    params = parameters(tree, window, "region_channel", 3, (9, 9))
    ours, plain = leaves(x, *params), leaves(x.contiguous(), *params)
    ours[0] = x.detach().requires_grad_()
    y, expected = call(*ours, tree, window), call(*plain, tree, window)
    exact = {} if make == "channels_last" else {"rtol": 0, "atol": 0}  # which adds up in another order
    assert_close(y, expected, **exact)
    grad = torch.randn_like(expected)
    assert_close(torch.autograd.grad(y, ours, grad), torch.autograd.grad(expected, plain, grad), **exact)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["own", "float32"])
@pytest.mark.parametrize("tree", THIN, ids=str)
def test_dtypes(dtype, kind, tree):
    """Output like x, parameter gradients like the parameter; close to float64 as far as the dtype goes."""
    own = dtype if kind == "own" else torch.float32
    window = W(3, 2, 1).of()
    x = distinct(2, 2, 7, 7, dtype=dtype)
    weight, mix = parameters(tree, window, "layer", 2, (7, 7), own)
    inputs, exact = leaves(x, weight, mix), leaves(x.double(), weight.double(), mix.double())
    y, expected = call(*inputs, tree, window), call(*exact, tree, window)
    assert y.dtype == dtype
    grad = torch.randn_like(y)
    grads = torch.autograd.grad(y, inputs, grad)
    assert [g.dtype for g in grads] == [dtype, own, own]
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-5 if torch.float32 in (dtype, own) else 1e-12)
    assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(grads, torch.autograd.grad(expected, exact, grad.double()), strict=True):
        assert_close(ours.double(), theirs, rtol=2 * tolerance, atol=2 * tolerance)


def test_an_empty_batch():
    window = W(3, 2, 1).of()
    inputs = leaves(torch.empty(0, 3, 9, 9), *parameters(ODD, window, "channel", 3, (9, 9), torch.float32))
    y = call(*inputs, ODD, window)
    assert y.shape == (0, 3, 5, 5)
    grads = torch.autograd.grad(y.sum(), inputs)
    assert grads[0].shape == (0, 3, 9, 9)
    assert all(torch.equal(g, torch.zeros_like(t)) for g, t in zip(grads[1:], inputs[1:], strict=True))


def test_only_x_and_the_parameters_are_saved():
    window = W(3, 2, 1).of()
    inputs = leaves(torch.randn(2, 3, 9, 9), *parameters(ODD, window, "layer", 3, (9, 9), torch.float32))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.data_ptr()) or t, lambda t: t):
        call(*inputs, ODD, window)
    assert sorted(saved) == sorted(t.data_ptr() for t in inputs)


def test_gradients_nobody_asked_for_are_none():
    window = W(3, 2, 1).of()
    x, weight, mix = leaves(torch.randn(2, 3, 9, 9), *parameters(ODD, window, "layer", 3, (9, 9), torch.float32))
    y = call(x, weight.detach(), mix, ODD, window)
    y.sum().backward()
    assert x.grad is not None
    assert mix.grad is not None
    empty = torch.ops.learnpool.pool_backward(y, x, weight, mix, ODD.program, *numbers(window), [False, True, False])
    assert [t.shape for t in empty] == [(0,), weight.shape, (0,)]


def test_autocast_leaves_float32_parameters_alone():
    window = W(3, 2, 1).of()
    weight, mix = leaves(*parameters(ODD, window, "layer", 3, (9, 9), torch.float32))
    x = torch.randn(2, 3, 9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        half = torch.nn.functional.conv2d(x, torch.randn(3, 3, 1, 1))
        y = call(half, weight, mix, ODD, window)
        assert half.dtype == torch.bfloat16
        assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert weight.grad.dtype == torch.float32
    assert torch.equal(y, call(half.float(), weight, mix, ODD, window).bfloat16())


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(dynamic):
    from learnpool import GatedPool2d, MixedPool2d

    net = torch.nn.Sequential(GatedPool2d(3, 2, 1), MixedPool2d(2, share="channel"))
    net(torch.randn(1, 3, 9, 9))  # sizes
    compiled = torch.compile(net, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for n in (9, 13):
        x = torch.randn(2, 3, n, n, requires_grad=True)
        ours = torch.autograd.grad(compiled(x).sum(), [x, *net.parameters()])
        assert_close(ours, torch.autograd.grad(net(x).sum(), [x, *net.parameters()]))
        torch.compiler.reset() if not dynamic else None


@settings(max_examples=600, deadline=None, database=None)
@given(st.data())
def test_fake_kernels_know_every_window(data):
    """Shape and strides of output and gradient, fake against real, both operators."""
    window, n = draw_window(data, kernel=4, stride=5, dilation=2, size=12)
    layout = data.draw(st.sampled_from([torch.contiguous_format, torch.channels_last]))
    x = torch.randn(2, 3, *n).to(memory_format=layout)
    weight, mix = parameters(GATED, window, "layer", 3, n, torch.float32)
    fakes = [torch.empty_strided(t.shape, t.stride(), device="meta") for t in (x, weight, mix)]
    y, fake = call(x, weight, mix, GATED, window), call(*fakes, GATED, window)
    expected = torch.nn.functional.max_pool2d(x, *window.arguments[:5])
    assert fake.shape == y.shape == expected.shape
    assert fake.stride() == y.stride()
    rest = (GATED.program, *numbers(window), [True, True, True])
    real = torch.ops.learnpool.pool_backward(y, x, weight, mix, *rest)
    thought = torch.ops.learnpool.pool_backward(fake, *fakes, *rest)
    assert [(t.shape, t.stride()) for t in real] == [(t.shape, t.stride()) for t in thought]
    draw = numbers(window)[:5]
    real = torch.ops.learnpool.stochastic_pool(x, None, *draw)
    thought = torch.ops.learnpool.stochastic_pool(fakes[0], None, *draw)
    assert (real.shape, real.stride()) == (thought.shape, thought.stride())
    assert torch.ops.learnpool.stochastic_pool_backward(real, x, None, *draw).stride() == x.stride()
    assert torch.ops.learnpool.stochastic_pool_backward(thought, fakes[0], None, *draw).stride() == x.stride()


def test_autograd_asks_only_for_what_is_needed():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        masks = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "pool_backward" in str(func):
                self.masks.append(list(args[-1]))
            return func(*args, **(kwargs or {}))

    window = W(3, 2, 1).of()
    for needs in itertools.product([False, True], repeat=3):
        if any(needs):
            inputs = [torch.randn(2, 3, 9, 9), *parameters(ODD, window, "layer", 3, (9, 9), torch.float32)]
            inputs = [t.requires_grad_(need) for t, need in zip(inputs, needs, strict=True)]
            Watch.masks = []
            y = call(*inputs, ODD, window)
            with Watch():
                y.sum().backward()
            assert Watch.masks == [list(needs)]


@pytest.mark.parametrize("tree", THIN, ids=str)
def test_forward_mode_and_function_transforms_are_right(tree):
    """A registered backward formula alone would give tangents of zero, silently."""
    import torch.autograd.forward_ad as fwd

    window = W(3, 2, 1).of()
    x, tangent = distinct(1, 2, 7, 7), torch.randn(1, 2, 7, 7, dtype=torch.float64)
    weight, mix = parameters(tree, window, "layer", 2, (7, 7))

    def pool(x):
        return functional.pool("test", x, tree, weight, mix, window)

    leaf = x.clone().requires_grad_()
    jacobian = torch.autograd.functional.jacobian(pool, leaf).flatten(0, 3).flatten(1)
    expected = (jacobian @ tangent.flatten()).reshape(1, 2, 4, 4)
    assert_close(torch.func.jvp(pool, (x,), (tangent,))[1], expected)
    with fwd.dual_level():
        assert_close(fwd.unpack_dual(pool(fwd.make_dual(x, tangent))).tangent, expected)
    (dx,) = torch.autograd.grad(pool(leaf).square().sum(), leaf)
    assert_close(torch.func.grad(lambda x: pool(x).square().sum())(x), dx)
    assert_close(torch.func.jacrev(pool)(x).flatten(0, 3).flatten(1), jacobian)
    many = distinct(3, 1, 2, 7, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_close(torch.func.vmap(pool)(many), torch.stack([pool(x) for x in many]))


def test_a_torch_that_is_too_old_is_refused_in_one_sentence():
    with pytest.raises(ImportError, match=r"^learnpool needs torch 2\.10 or later, got torch 2\.9\.1\+cpu$"):
        ops.check_torch("2.9.1+cpu")
    for version in ("2.10.0a0+git1", "2.10.0", "2.15.0+cu130", "3.0.0"):
        ops.check_torch(version)
