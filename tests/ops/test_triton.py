"""The GPU kernels in Triton's interpreter, through the real operators, against the reference: value and all gradients.

``make test-triton`` runs them. What the CPU kernel is tested for is tested here on smaller maps, by the same code.
"""

import itertools
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from cases import GATED, LOW, MIXED, ODD, SHARES, TREES, WINDOWS, W, call, distinct, draw_window, numbers, parameters
from learnpool import Avg, Gate, Max, Min, Mix, Pool2d
from learnpool.ops import reference
from learnpool.tree import make_tree

if os.environ.get("LEARNPOOL_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="triton is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("set TRITON_INTERPRET=1: there is no GPU in these tests", allow_module_level=True)

from test_cpu import TOLERANCES, compare, lay
from test_limits import (  # noqa: F401  (tests of any kernel, run here with this one)
    test_half_is_the_mean_of_the_two,
    test_nan_spreads_through_masks_and_filters,
    test_nan_wins_a_maximum_and_the_last_receives_the_gradient,
    test_the_minimum_of_a_region_without_a_cell_is_infinity_and_has_no_gradient,
    test_ties_and_windows_of_minus_infinity_give_the_first_cell_the_gradient,
)

import gpu_compilation
import gpu_traffic
import triton_interpreter
from learnpool.ops import triton as gpu
from learnpool.ops.triton import calls, tiles

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero):RuntimeWarning")  # numpy's
triton_interpreter.register()

LAYOUTS = ["contiguous", "channels_last", "strided"]
LARGE = [W(7, 3, 3), W((1, 40), (1, 13), (0, 20)), W(6, 2, 0, 2, True)]  # more taps than a kernel unrolls


@pytest.fixture
def small_tiles(monkeypatch):
    """Many programs on a small map, each with a few lanes, so that windows reach across every border of a tile."""
    for name in ("FORWARD_LANES", "BACKWARD_LANES", "BACKWARD_REGIONS"):
        monkeypatch.setattr(tiles, name, 48)
    for name in ("FORWARD_OVERHEAD", "BACKWARD_OVERHEAD"):
        monkeypatch.setattr(tiles, name, 0)
    clear()
    yield
    clear()


def clear():
    tiles.choose_forward.cache_clear()
    tiles.choose_backward.cache_clear()


def rotate(*groups):
    """Every pair of one of the first two, with the others taking turns."""
    return [
        (first, second, *(group[(number + number // len(group)) % len(group)] for group in groups[2:]))
        for number, (first, second) in enumerate(itertools.product(*groups[:2]))
    ]


@pytest.mark.parametrize(
    ("tree", "window", "share", "layout"), rotate(TREES, [*WINDOWS, W(3, 1, 1)], SHARES, LAYOUTS), ids=str
)
def test_kernel_agrees_with_the_reference(tree, window, share, layout):
    x = lay(distinct(1, 3, 9, 8), layout, 2)
    compare(x, *parameters(tree, window.of(), share, 3, (9, 8)), tree, window.of())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("window", [W(3, 2, 1), W(2, 1, 1, 2, True, True)], ids=str)
def test_sharing_and_layout(window, share, layout, small_tiles):
    x = lay(distinct(2, 3, 7, 9), layout, 2)
    compare(x, *parameters(ODD, window.of(), share, 3, (7, 9)), ODD, window.of())


@pytest.mark.parametrize(
    ("tree", "window", "dtype", "layout", "own"),
    rotate(
        [MIXED, GATED, make_tree(2), ODD, LOW],
        [W(3, 2, 1), W(2, 2)],
        list(TOLERANCES),
        LAYOUTS[:2],
        [True, False],
    ),
    ids=str,
)
def test_every_dtype(tree, window, dtype, layout, own):
    for share in ("layer", "region_channel"):
        x = lay(distinct(2, 5, 9, 11).to(dtype), layout, 2)
        params = parameters(tree, window.of(), share, 5, (9, 11), dtype if own else torch.float32)
        rtol, atol = TOLERANCES[dtype] if own else (TOLERANCES[dtype][0], TOLERANCES[dtype][1] or 1e-4)
        if dtype == torch.float64 and not own:
            rtol = 1e-4  # the gradients of float32 parameters
        compare(x, *params, tree, window.of(), rtol, atol)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(
    ("dims", "window", "size"),
    [
        (1, W(3, 2, 1, 2, True), (41,)),
        (1, W(5, 3), (64,)),
        (3, W((2, 3, 1), (1, 2, 3), (1, 0, 0), (2, 1, 1), True, True), (4, 5, 10)),
        (3, W(3, 2, 1), (5, 6, 7)),
    ],
    ids=str,
)
def test_one_and_three_dimensions(dims, window, size, share):
    for layout in LAYOUTS[: 1 if dims == 1 else 2]:
        x = lay(distinct(2, 3, *size), layout, dims)
        params = parameters(ODD, window.of(dims), share, 3, size)
        compare(x, *params, ODD, window.of(dims))
    compare(x[0], *params, ODD, window.of(dims))


@pytest.mark.parametrize("window", LARGE, ids=str)
@pytest.mark.parametrize("share", ["layer", "region_channel"])
def test_windows_of_many_taps(window, share):
    for tree in (GATED, LOW):
        x = distinct(1, 2, 13, 41)
        compare(x, *parameters(tree, window.of(), share, 2, (13, 41)), tree, window.of())


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_window(dims, layout, small_tiles):
    """Also where the input is smaller than the window, and with many tiles."""

    @settings(max_examples=12 if dims < 3 else 5, deadline=None, database=None)
    @given(st.data())
    def check(data):
        window, n = draw_window(data, kernel=4, stride=4, dilation=3, size={1: 60, 2: 12, 3: 5}[dims], dims=dims)
        tree, share = data.draw(st.sampled_from(TREES)), data.draw(st.sampled_from(SHARES))
        channels = data.draw(st.sampled_from([1, 3]))
        x = lay(distinct(1, channels, *n), layout, dims)
        compare(x, *parameters(tree, window, share, channels, n), tree, window)

    check()


@pytest.mark.parametrize("layout", LAYOUTS[:2])
@pytest.mark.parametrize("bad", [float("inf"), float("nan"), 3e38])
def test_infinite_weights_meet_only_cells_that_exist(bad, layout):
    for tree, window in ((GATED, W(3, 2, 1)), (make_tree(2), W(3, 2, ceil_mode=True)), (ODD, W(3, 1, 1, 2))):
        x = lay(distinct(1, 3, 7, 9, dtype=torch.float32), layout, 2)
        weight, mix = parameters(tree, window.of(), "layer", 3, (7, 9), torch.float32)
        for tap in ((0, 0), (-1, -1)):
            weight[(0, 0, 0, 0, *tap)] = bad
            compare(x, weight, mix, tree, window.of(), 1e-4, 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_infinities_ties_and_nan_in_the_input(layout):
    data = torch.randint(-1, 2, (1, 4, 9, 9), dtype=torch.float64)
    data[:, 1, ::2] = torch.inf
    data[:, 2] = -torch.inf
    data[:, 3].view(-1)[::7] = torch.nan
    for tree, window in itertools.product((Max(), Mix(Max(), Max(), a=1.0), GATED, LOW), (W(3, 2, 1), W(2, 1, 1, 3))):
        compare(lay(data, layout, 2), *parameters(tree, window.of(), "layer", 4, (9, 9)), tree, window.of())


@pytest.mark.parametrize("a", [0.0, 1.0])
def test_a_proportion_of_0_or_1_does_not_read_the_other_child(a):
    x = distinct(1, 2, 7, 7)
    x[0, 0, ::3] = torch.inf
    x[0, 1, ::3] = -torch.inf
    weight, mix = parameters(MIXED, W(3, 2, 1).of(), "layer", 2, (7, 7))
    compare(x, weight, mix.fill_(a), MIXED, W(3, 2, 1).of())
    fixed = Mix(Max(), Avg(), a=a, learn=False)
    compare(x, weight, mix[:0], fixed, W(3, 2, 1).of())
    gate = Gate(Min(), Avg())  # of which nothing is read either, where its mask is NaN and its sides differ by infinity
    gate_weight, gate_mix = parameters(Mix(gate, gate), W(3, 2, 1).of(), "region", 2, (7, 7))
    compare(x, gate_weight[:1], gate_mix.fill_(a), Mix(Max(), gate) if a else Mix(gate, Max()), W(3, 2, 1).of())
    x = distinct(1, 2, 7, 7)
    grad = torch.full((1, 2, 4, 4), torch.inf, dtype=x.dtype)  # the side that is not read receives 0 even so
    rest = fixed.program, *numbers(W(3, 2, 1).of()), [True, False, False]
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix[:0], *rest)[0]
    assert_close(ours, reference.backward(grad, x, weight, mix[:0], fixed.program, W(3, 2, 1).of())[0], equal_nan=True)
    assert not ours.isnan().any()


def test_regions_without_a_cell():
    for window, size in ((W(2, 2, (0, 1), (1, 2)), (4, 1)), (W(2, 1, 1, 4), (3, 3)), (W(3, 1, 1, (3, 1)), (5, 9))):
        for tree, share in ((MIXED, "layer"), (GATED, "channel"), (ODD, "region"), (LOW, "layer")):
            compare(distinct(1, 3, *size), *parameters(tree, window.of(), share, 3, size), tree, window.of())


def test_sizes_that_are_no_constants(monkeypatch, small_tiles):
    """From the 17th size on, a pool has one kernel for all sizes."""
    monkeypatch.setattr(calls, "STATIC", 0)
    for size, layout in (((7, 9), "contiguous"), ((4, 5), "channels_last")):
        for tree, share in ((GATED, "layer"), (MIXED, "channel"), (ODD, "region_channel")):
            x = lay(distinct(2, 3, *size), layout, 2)
            compare(x, *parameters(tree, W(3, 2, 1).of(), share, 3, size), tree, W(3, 2, 1).of())


@pytest.mark.parametrize("share", ["layer", "region_channel"])
def test_offsets_of_64_bits(monkeypatch, share):
    monkeypatch.setattr(calls, "FAR", 0)
    for layout in LAYOUTS[:2]:
        x = lay(distinct(2, 3, 9, 8), layout, 2)
        compare(x, *parameters(ODD, W(3, 2, 1).of(), share, 3, (9, 8)), ODD, W(3, 2, 1).of())


def test_cells_more_than_two_to_the_31_apart(tmp_path):
    """A file with a hole in it: 4 GiB of address space, a few pages of memory."""
    apart = 2**31 + 64
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2 * (apart + 100))
    memory = torch.from_file(str(path), shared=True, size=apart + 100, dtype=torch.float16)
    x = memory.as_strided((2, 1, 7, 9), (apart, 63, 9, 1))
    x.copy_(distinct(2, 1, 7, 9).half())
    for share in ("layer", "region"):
        compare(
            x, *parameters(GATED, W(3, 2, 1).of(), share, 1, (7, 9), torch.float16), GATED, W(3, 2, 1).of(), 2e-3, 1e-2
        )


def test_views():
    """Storage offsets, broadcast inputs, transposed maps, gradients that are one number, parameters that are views."""
    weight, mix = parameters(ODD, W(3, 2, 1).of(), "channel", 3, (9, 8))
    wide = distinct(2, 5, 11, 13)
    for x in (wide[:, 1:4, 1:10, 3:11], wide[:1, :3, :9, :8].expand(2, -1, -1, -1), wide[:, :3].mT[:, :, :9, :8]):
        compare(x, weight, mix, ODD, W(3, 2, 1).of())
    compare(wide[:, :3, :9, :8], weight.mT.contiguous().mT, mix, ODD, W(3, 2, 1).of())
    x = wide[:, :3, :9, :8]
    y = call(x, weight, mix, ODD, W(3, 2, 1).of())
    grad = y.new_ones(()).expand(y.shape)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, ODD.program, *numbers(W(3, 2, 1).of()), [True] * 3)
    assert_close(ours, reference.backward(grad, x, weight, mix, ODD.program, W(3, 2, 1).of()))


@pytest.mark.parametrize("share", ["layer", "region"])
def test_gradients_nobody_asked_for(share):
    x = distinct(1, 3, 9, 8)
    weight, mix = parameters(ODD, W(3, 2, 1).of(), share, 3, (9, 8))
    grad = torch.randn_like(call(x, weight, mix, ODD, W(3, 2, 1).of()))
    expected = reference.backward(grad, x, weight, mix, ODD.program, W(3, 2, 1).of())
    for mask in itertools.product((True, False), repeat=3):
        rest = (ODD.program, *numbers(W(3, 2, 1).of()), list(mask))
        for wanted, got, value in zip(
            mask, torch.ops.learnpool.pool_backward(grad, x, weight, mix, *rest), expected, strict=True
        ):
            assert_close(got, value) if wanted else None
            assert wanted or got.shape == (0,)


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_an_empty_batch(layout):
    x = lay(torch.empty(0, 3, 9, 8), layout, 2).requires_grad_()
    layer = Pool2d(ODD, 3, 2, 1)
    y = layer(x)
    assert y.shape == (0, 3, 5, 4)
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert not any(parameter.grad.any() for parameter in layer.parameters())


@pytest.mark.parametrize("layout", LAYOUTS[:2])
@pytest.mark.parametrize("share", SHARES)
def test_a_layer(share, layout, monkeypatch):
    """The kernels are reached through a layer and autograd, and give its values and gradients."""
    runs = []
    run = calls.Launch.run
    monkeypatch.setattr(calls.Launch, "run", lambda self: (runs.append(self.kernel.__name__), run(self)))
    layer = Pool2d(ODD, 3, 2, 1, share=share, channels=3, grid=(5, 4))
    x = lay(distinct(2, 3, 9, 8, dtype=torch.float32), layout, 2).requires_grad_()
    y = layer(x)
    grad = torch.randn_like(y)
    ours = torch.autograd.grad(y, [x, layer.weight, layer.mix], grad)
    window = W(3, 2, 1).of()
    assert_close(y, reference.forward(x, layer.weight, layer.mix, ODD.program, window), rtol=1e-4, atol=1e-5)
    theirs = reference.backward(grad, x, layer.weight, layer.mix, ODD.program, window)
    assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert runs == ["forward", *(["send", "gather", "reduce", "reduce"] if "region" in share else ["backward"])]
    assert y.is_contiguous(memory_format=torch.channels_last if layout == "channels_last" else torch.contiguous_format)


def test_the_same_bits_every_time(small_tiles):
    x = distinct(2, 2, 7, 8, dtype=torch.float32)
    for share in ("layer", "region"):
        weight, mix = parameters(ODD, W(3, 2, 1).of(), share, 2, (7, 8), torch.float32)
        grad = torch.randn_like(call(x, weight, mix, ODD, W(3, 2, 1).of()))
        rest = (ODD.program, *numbers(W(3, 2, 1).of()), [True] * 3)
        first, second = (torch.ops.learnpool.pool_backward(grad, x, weight, mix, *rest) for _ in range(2))
        assert all(map(torch.equal, first, second))


def test_warm_up_changes_nothing():
    layer = Pool2d(ODD, 3, 2, 1)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    gpu.warm_up(layer, torch.randn(1, 2, 9, 8))
    assert_close(layer.state_dict(), before)
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_nothing_is_compiled_while_a_graph_is_captured(monkeypatch):
    layer, x = Pool2d(GATED, 3, 2, 1), distinct(1, 2, 5, 31, dtype=torch.float32)
    monkeypatch.setattr(calls, "is_capturing", lambda x: True)
    params = layer.weight.detach(), torch.empty(0, 1, 1, 1)
    with pytest.raises(gpu.CaptureError, match=r"learnpool::pool: the first call.*\[1, 2, 5, 31\].*warm_up"):
        gpu.pool(x, *params, GATED.program, *numbers(layer.window))
    monkeypatch.setattr(calls, "is_capturing", lambda x: False)
    gpu.warm_up(layer, x)
    monkeypatch.setattr(calls, "is_capturing", lambda x: True)
    layer(x.requires_grad_()).sum().backward()


class Pooled(torch.utils.data.Dataset):
    """Regions of images, pooled where they are asked for."""

    def __init__(self, layer, images):
        self.layer, self.images = layer, images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        x = self.images[index : index + 1].clone().requires_grad_()
        self.layer(x).sum().backward()
        return x.grad


def test_forked_workers_of_a_data_loader_pool_after_their_parent_did():
    images = distinct(2, 2, 7, 8, dtype=torch.float32)
    pooled = Pooled(Pool2d(GATED, 3, 2, 1), images)
    here = [pooled[index] for index in range(2)]
    loader = torch.utils.data.DataLoader(pooled, None, num_workers=2, multiprocessing_context="fork")
    assert_close(list(loader), here, rtol=0, atol=0)


def test_bytes_are_close_to_the_least():
    """What a program touches, halo included, over reading and writing everything once."""
    for shape, dtype, layout, mode in (
        ((64, 128, 32, 32), "float32", "nchw", "forward"),
        ((64, 128, 32, 32), "float32", "nchw", "backward"),
        ((32, 64, 112, 112), "float32", "nchw", "backward"),
        ((64, 128, 32, 32), "float32", "channels_last", "backward"),
        ((32, 64, 112, 112), "bfloat16", "channels_last", "backward"),
    ):
        case = gpu_compilation.Case("gated", dtype=dtype, layout=layout, mode=mode, shape=shape)
        count = gpu_traffic.count_case(case)
        assert count.moved <= (1.15 if mode == "forward" else 1.3) * count.least


def test_a_kernel_that_does_not_compile_is_replaced_by_the_reference(monkeypatch):
    def fail(self):
        raise RuntimeError("PassManager::run failed")

    monkeypatch.setattr(calls.Launch, "run", fail)
    monkeypatch.setattr(gpu, "failures", {})
    x, window = distinct(1, 3, 9, 8), W(3, 2, 1).of()
    params = parameters(GATED, window, "layer", 3, (9, 8))
    with pytest.warns(RuntimeWarning, match=r"Gate\(Max\(\), Avg\(\)\).*reference.*PassManager"):
        y = gpu.pool(x, *params, GATED.program, *numbers(window))
    assert_close(y, reference.forward(x, *params, GATED.program, window))
    gpu.pool(x, *params, GATED.program, *numbers(window))  # no second warning: here it would be an error
    with pytest.raises(ValueError, match=r"learnpool::pool: weight must have 3×3 taps"):
        gpu.pool(x, params[0][..., :2], params[1], GATED.program, *numbers(window))
