"""The compiled kernel against the reference: value and gradients, for every tree, window, sharing, layout, dtype."""

import itertools
import math
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.testing import assert_close

from cases import GATED, HALF, MIXED, ODD, SHARES, TREES, WINDOWS, W, call, distinct, draw_window, numbers, parameters
from learnpool import LogSumExp, Power, Soft
from learnpool.ops import reference
from learnpool.tree import make_tree

FAST = [W(3, 2, 1), W(3, 2, ceil_mode=True), W(2, 2), W(3, 1, 1)]
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}

pytestmark = pytest.mark.usefixtures("kernel")


def compare(x, weight, mix, tree, window, rtol=None, atol=None):
    """The operator and its backward against the reference."""
    tolerance = {"equal_nan": True} | ({} if rtol is None else {"rtol": rtol, "atol": atol})
    y = call(x, weight, mix, tree, window)
    expected = reference.forward(x, weight, mix, tree.program, window)
    assert_close(y, expected, **tolerance)
    grad = torch.randn(y.shape).to(y.dtype).to(memory_format=torch.preserve_format)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, tree.program, *numbers(window), [True, True, True])
    theirs = reference.backward(grad, x, weight, mix, tree.program, window)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_close(mine, wanted, **tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("window", [*WINDOWS, W(3, 1, 1)], ids=str)
def test_kernel_agrees_with_the_reference(tree, window, share, layout):
    window = window.of()
    for size, channels in (((9, 8), 3), ((7, 37), 19)):  # not multiples of any vector
        x = distinct(2, channels, *size).to(memory_format=LAYOUTS[layout])
        compare(x, *parameters(tree, window, share, channels, size), tree, window)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("own", [True, False], ids=["own", "float32"])
@pytest.mark.parametrize("tree", [MIXED, GATED, make_tree(1), make_tree(2), make_tree(3), ODD], ids=str)
def test_every_dtype(tree, dtype, own, layout):
    """Parameter gradients are sums of thousands of float32 products that cancel, in another order than theirs."""
    for window, share in itertools.product(FAST, ("layer", "region_channel")):
        shape = window.of()
        x = distinct(2, 21, 13, 39).to(dtype).to(memory_format=LAYOUTS[layout])
        weight, mix = parameters(tree, shape, share, 21, (13, 39), dtype if own else torch.float32)
        half = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3}.get(dtype, 1e-4)
        compare(x, weight, mix, tree, shape, rtol=half, atol=5 * half if own else half)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [1.0, 1 / 3, 2.0**-9, -3.0])
def test_every_half_is_read_and_rounded_as_by_torch(factor, dtype, layout):
    """All 65,536, in whole vectors and at ragged ends: also subnormals, ties, what rounds to infinity, and NaN."""
    tree, window = make_tree(1), W(1, 1).of()
    weight, mix = torch.full((1, 1, 1, 1, 1, 1), factor), torch.empty(0, 1, 1, 1)
    for channels in (19, 55):  # 55: also two vectors at a time
        bits = torch.arange(math.ceil(65536 / channels) * channels).to(torch.int16)
        x = bits.view(dtype).reshape(1, channels, -1, 1).to(memory_format=LAYOUTS[layout])
        expected = (x.float() * factor).to(dtype)
        assert_close(call(x, weight, mix, tree, window), expected, rtol=0, atol=0, equal_nan=True)
        ones = torch.ones_like(x)
        dx, *_ = torch.ops.learnpool.pool_backward(
            x, ones, weight, mix, tree.program, *numbers(window), [True, False, False]
        )
        assert_close(dx, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", [MIXED, GATED, ODD], ids=str)
def test_one_and_three_dimensions(tree, share):
    for dims, window, size in (
        (1, W(3, 2, 1, 2, True), (41,)),
        (1, W(5, 3), (64,)),
        (3, W((2, 3, 1), (1, 2, 3), (1, 0, 0), (2, 1, 1), True, True), (4, 5, 40)),
        (3, W(3, 2, 1), (5, 6, 7)),
    ):
        shape = window.of(dims)
        x = distinct(2, 3, *size)
        params = parameters(tree, shape, share, 3, size)
        compare(x, *params, tree, shape)
        compare(x[0], *params, tree, shape)
        if dims == 3:
            compare(x.to(memory_format=torch.channels_last_3d), *params, tree, shape)


TOLERANCES = {
    torch.float64: (None, None),
    torch.float32: (1e-4, 1e-4),
    torch.bfloat16: (1.6e-2, 8e-2),
    torch.float16: (2e-3, 1e-2),
}


def lay(x, layout, dims):
    """``x`` in a memory layout: contiguous, channels_last, or every second cell of something larger."""
    if layout == "strided":
        return x.repeat_interleave(2, -1)[..., ::2]
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims, torch.contiguous_format)
    return x.to(memory_format=last if layout == "channels_last" else torch.contiguous_format)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    ("dims", "layout"),
    [(1, "contiguous"), (1, "strided"), *itertools.product((2, 3), ("contiguous", "channels_last", "strided"))],
)
def test_any_window(dims, layout, dtype):
    """Also where the input is smaller than the window: down to a single cell, in every layout, dtype and dimension."""

    @settings(max_examples=60 if dims == 2 else 30, deadline=None, database=None)
    @given(st.data())
    def check(data):
        window, n = draw_window(data, kernel=5, stride=4, dilation=3, size={1: 200, 2: 40, 3: 12}[dims], dims=dims)
        tree, share = data.draw(st.sampled_from(TREES)), data.draw(st.sampled_from(SHARES))
        channels = data.draw(st.sampled_from([1, 5, 17]))
        x = lay(distinct(2, channels, *n).to(dtype), layout, dims)
        compare(x, *parameters(tree, window, share, channels, n, dtype), tree, window, *TOLERANCES[dtype])

    check()


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_every_small_input(dims, layout, dtype):
    """Every window of 2 or 3 taps an axis over every input from one cell up to a cell more than the window."""
    for k, s, p, ceil_mode in itertools.product((2, 3), (1, 2, 3), (0, 1), (False, True)):
        window = W(k, s, p, 1, ceil_mode).of(dims)
        for n in range(max(1, k - 2 * p - (s - 1 if ceil_mode else 0)), k + 2):
            for tree, size in itertools.product((MIXED, GATED), {(n,) * dims, (n,) * (dims - 1) + (7,)}):
                x = lay(distinct(2, 17, *size).to(dtype), layout, dims)
                params = parameters(tree, window, "layer", 17, size, dtype)
                compare(x, *params, tree, window, *TOLERANCES[dtype])


def test_ones_stay_ones_where_the_input_is_smaller_than_the_window():
    for size in ((1, 1), (1, 7), (7, 1)):
        none = torch.empty(0, 1, 1, 1, 2, 2)
        y = call(torch.ones(1, 1, *size), none, torch.full((1, 1, 1, 1), 0.5), MIXED, W(2, ceil_mode=True).of())
        assert torch.equal(y, torch.ones_like(y))
    x = torch.ones(1, 1, 1, 1, requires_grad=True)
    weight = torch.randn(1, 1, 1, 1, 3, 3)
    call(x, weight, torch.empty(0, 1, 1, 1), GATED, W(3, padding=1).of()).backward()
    assert x.grad.item() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_regions_without_a_cell(layout, dtype):
    """Their maximum is −inf, which reaches the gate's mask; no cell is there for it to meet."""
    for window, size in (
        (W(2, 2, (0, 1), (1, 2)), (4, 1)),
        (W(2, 1, 1, 4), (3, 3)),
        (W(2, 1, (1, 0), (4, 1)), (3, 40)),
        (W(3, 1, 1, (3, 1)), (5, 90)),
    ):
        for tree, share in itertools.product((MIXED, GATED, make_tree(2), ODD), SHARES):
            x = distinct(2, 17, *size).to(dtype).to(memory_format=LAYOUTS[layout])
            params = parameters(tree, window.of(), share, 17, size, dtype)
            compare(x, *params, tree, window.of(), *TOLERANCES[dtype])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan"), 3e38])
def test_infinite_weights_meet_only_cells_that_exist(bad, layout):
    """Zero times infinity would be NaN where there is no cell; 3e38 becomes infinite on the way.

    Not in a filter: there it leaves sums of several numbers near 3e38, which overflow or not by the order of rounding.
    """
    places = [(0, (0, 0)), (0, (1, 1)), (0, (-1, -1))]
    if not math.isfinite(bad):
        places += [(1, (1, 1)), (-1, (1, 1))]
    for tree, window, share in itertools.product(
        (GATED, make_tree(2), ODD), [*FAST, W(3, 1, 1, 2)], ("layer", "region")
    ):
        shape, size = window.of(), (9, 21)
        for row, tap in places:
            x = distinct(1, 17, *size, dtype=torch.float32).to(memory_format=LAYOUTS[layout])
            weight, mix = parameters(tree, shape, share, 17, size, torch.float32)
            weight[(min(row, len(weight) - 1), 0, -1, -1, *tap)] = bad
            compare(x, weight, mix, tree, shape, 1e-4, 1e-4)


def test_a_window_of_a_million_cells():
    """Cost is linear in the window: a loop over maps × taps would take hours here."""
    for x, pools in (
        (torch.randn(1, 1, 1_000_000), (F.max_pool1d, F.avg_pool1d)),
        (torch.randn(1, 2, 1000, 1000), (F.max_pool2d, F.avg_pool2d)),
        (torch.randn(1, 2, 1000, 1000).to(memory_format=torch.channels_last), (F.max_pool2d, F.avg_pool2d)),
    ):
        x.requires_grad_()
        window = W(tuple(x.shape[2:])).of(x.dim() - 2)
        y = call(x, *parameters(HALF, window, "layer", 1, x.shape[2:], torch.float32), HALF, window)
        largest, mean = (pool(x, x.shape[2:]) for pool in pools)
        assert_close(y, (largest + mean) / 2)
        assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad((largest + mean).sum() / 2, x))


def test_a_mix_per_region_beside_masks_per_channel():
    """Each parameter has its own sharing: any axis of either may be 1."""
    window = W(3, 2, 1).of()
    x = distinct(2, 5, 9, 11)
    weight, _ = parameters(ODD, window, "channel", 5, (9, 11))
    for extent in ((1, 5, 6), (5, 1, 1), (1, 5, 1), (5, 1, 6), (1, 1, 1)):
        mix = torch.rand((1, *extent), dtype=torch.float64) * 0.8 + 0.1
        for layout in LAYOUTS.values():
            compare(x.to(memory_format=layout), weight, mix, ODD, window)
            compare(x.to(memory_format=layout), weight[:, :1], mix, ODD, window)


@pytest.mark.parametrize("window", [*FAST, W(5, 3, 2, 2), W(3, 1, 1, 9), W(9, 1, 4)], ids=str)
@pytest.mark.parametrize("tree", [MIXED, GATED, make_tree(2), ODD], ids=str)
def test_planes_of_many_bands(tree, window):
    """A large plane goes through in bands: what one leaves unfinished the next completes, whatever was there before."""
    shape, size = window.of(), (67, 90)
    for share, dtype in (("layer", torch.float64), ("region", torch.float64), ("layer", torch.float32)):
        x = distinct(1, 3, *size).to(dtype)
        weight, mix = parameters(tree, shape, share, 3, size, dtype)
        compare(x, weight, mix, tree, shape, *((1e-4, 1e-4) if dtype == torch.float32 else ()))
    weight, mix = parameters(tree, shape, "channel", 3, size)
    for row in (0, 31, 66):  # a plane of NaN, one with a single NaN, one without
        x = distinct(1, 3, *size)
        x[0, 0] = float("nan")
        x[0, 1, row, 44] = float("nan")
        compare(x, weight, mix, tree, shape)


def compare_with_float32(x, tree, window, share="layer"):
    """Halves against the kernel's own float32, which writes gradients to where they belong at once."""
    weight, mix = parameters(tree, window, share, x.shape[1], x.shape[2:], torch.float32)
    y, expected = call(x, weight, mix, tree, window), call(x.float(), weight, mix, tree, window)
    assert_close(y, expected.to(x.dtype), equal_nan=True)
    grad = torch.randn(y.shape).to(x.dtype)
    rest = weight, mix, tree.program, *numbers(window), [True, True, True]
    dx, *ours = torch.ops.learnpool.pool_backward(grad, x, *rest)
    wanted, *theirs = torch.ops.learnpool.pool_backward(grad.float(), x.float(), *rest)
    assert_close(dx, wanted.to(x.dtype), equal_nan=True)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other, rtol=1e-4, atol=1e-3, equal_nan=True)


# Each is several bands of 256 kB of float32 for 64 channels. Together: windows that overlap, that leave cells out at
# the end or between them (more of them than a band holds, too), that reach far, that meet no cell at all, and depth.
BANDS = [
    (W(3, 2, 1), (67, 45)),
    (W(2, 2), (65, 47)),
    (W(3, 2, ceil_mode=True), (66, 46)),
    (W(2, 3), (64, 48)),
    (W(1, (50, 2)), (140, 21)),
    (W((9, 3), (1, 2), (4, 1)), (90, 33)),
    (W((3, 2), 1, (1, 0), (9, 2)), (80, 31)),
    (W(2, 1, 1, (64, 1)), (63, 48)),
    (W(3, 2, 1), (13, 16, 15)),
    (W((1, 3, 2), (3, 1, 2), (0, 1, 0)), (11, 20, 14)),
    (W((2, 3, 1), (1, 2, 3), (1, 0, 0), (3, 1, 1), True), (14, 15, 14)),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("window", "size"), BANDS, ids=str)
def test_images_of_many_bands(window, size, dtype):
    """In channels_last gradients of halves collect in a band of float32 that moves over the image."""
    dims = len(size)
    for tree, share, images in ((MIXED, "layer", 2), (GATED, "layer", 8), (GATED, "channel", 1), (ODD, "region", 1)):
        x = lay(distinct(images, 83, *size).to(dtype), "channels_last", dims)  # below 8 images 64 channels, then 19
        compare_with_float32(x, tree, window.of(dims), share)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_what_is_not_finite_among_pairs_of_vectors(bad, dtype):
    """A region with infinity or NaN is computed by other code than its neighbours, with channels in another order."""
    for tree, window in itertools.product((HALF, MIXED, GATED, make_tree(1), make_tree(2), ODD), FAST):
        x = torch.randn(1, 59, 9, 21)
        for channel, place in ((0, (0, 0)), (1, (4, 7)), (30, (4, 8)), (33, (5, 15)), (58, (8, 20))):
            x[(0, channel, *place)] = bad
        compare_with_float32(x.to(dtype).to(memory_format=torch.channels_last), tree, window.of())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_infinity_and_nan_reach_only_what_reads_them(bad, layout, dtype):
    """Vectors also work where no output or no window is; what they read there must not show, least of all in sums."""
    trees = HALF, MIXED, GATED, make_tree(1), make_tree(2), make_tree(3), ODD
    for tree, window, share in itertools.product(trees, [*FAST, W(2, 3)], ("layer", "region")):
        shape = window.of()
        for at in ((0, 0), (0, 20), (4, 0), (5, 9), (8, 20)):
            x = distinct(1, 17, 9, 21, dtype=dtype)
            x[(0, 1, *at)] = bad
            x = x.to(memory_format=LAYOUTS[layout])
            compare(x, *parameters(tree, shape, share, 17, (9, 21), dtype), tree, shape, *TOLERANCES[dtype])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "tree", [Soft(1.0, learn=False), LogSumExp(1.0, learn=False), Power(3.0, learn=False)], ids=str
)
def test_nan_in_a_cell_that_no_region_reads(tree, layout):
    window = W(2, 2).of()
    for dtype in (torch.float32, torch.float64):
        x = distinct(1, 17, 9, 21, dtype=dtype)
        x[..., 20] = float("nan")
        x = x.to(memory_format=LAYOUTS[layout])
        compare(x, *parameters(tree, window, "layer", 17, (9, 21), dtype), tree, window, *TOLERANCES[dtype])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "lowest", "units"), [(torch.float32, -85, 4), (torch.float64, -700, 5)], ids=str)
def test_a_gate_is_a_sigmoid_to_a_few_units_in_the_last_place(dtype, lowest, units, layout):
    """A gate of z between 1 and 0. In float64 PyTorch's own sigmoid is up to 2.5 units off."""
    z = torch.cat([torch.linspace(lowest, 40, 40_000), torch.linspace(-4, 4, 24_000)]).to(dtype)
    x = torch.stack([z, torch.ones_like(z)], -1).view(1, 64, 1000, 2).to(memory_format=LAYOUTS[layout])
    weight = torch.tensor([[1, 0], [0, 1], [0, 0]], dtype=dtype).view(3, 1, 1, 1, 1, 2)
    y = call(x, weight, torch.empty(0, 1, 1, 1, dtype=dtype), make_tree(2), W((1, 2)).of()).flatten()
    expected = z.double().sigmoid()
    unit = torch.nextafter(expected.to(dtype), torch.ones_like(z) * 2).double() - expected.to(dtype)
    assert ((y.double() - expected).abs() / unit).max() <= units


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tree", [GATED, make_tree(2), make_tree(3)], ids=str)
def test_a_gate_of_exactly_0_or_1_does_not_read_its_other_side(tree, layout):
    """Zero times infinity would be NaN."""
    for window in FAST:
        shape = window.of()
        x = torch.randint(-3, 4, (1, 17, 9, 21)).float()  # sums without rounding
        x[0, :, 4, 10] = float("inf")
        weight, mix = parameters(tree, shape, "layer", 17, (9, 21), torch.float32)
        weight = torch.randint(-2, 3, weight.shape).float()
        weight[0] *= 1000
        compare(x.to(memory_format=LAYOUTS[layout]), weight, mix, tree, shape, 1e-4, 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tree", [MIXED, GATED, ODD], ids=str)
@pytest.mark.parametrize("bad", [(), (float("nan"),), (float("inf"), -float("inf"))], ids=str)
def test_ties_and_what_is_not_finite_in_whole_vectors(bad, tree, layout):
    """The first of equal maxima receives, also where windows of many channels are straight code; NaN always wins."""
    for window in FAST:
        shape = window.of()
        x = torch.randint(-2, 3, (2, 37, 12, 21)).float()
        for place, value in enumerate(bad):
            x[0, :, 5, 7 + place] = value
            x[1, 3, 6, 12 + place] = value
        x = x.to(memory_format=LAYOUTS[layout])
        compare(x, *parameters(tree, shape, "layer", 37, (12, 21), torch.float32), tree, shape, 1e-4, 1e-4)


def test_large_trees():
    window = W(2, 2).of()
    x = distinct(1, 2, 4, 4) * 0.1
    for tree in (make_tree(6), make_tree(8)):
        compare(x, *parameters(tree, window, "layer", 2, (4, 4)), tree, window)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("share", ["layer", "channel"])
def test_parameter_gradients_of_a_large_batch_against_float64(share, layout):
    torch.set_num_threads(2)
    window = W(3, 2, 1).of()
    x = torch.randn(64, 128, 32, 32).to(memory_format=LAYOUTS[layout])
    grad = torch.randn(64, 128, 16, 16)
    for tree in (GATED, make_tree(2)):
        weight, mix = parameters(tree, window, share, 128, (32, 32), torch.float32)
        mask = [False, True, False]
        _, ours, _ = torch.ops.learnpool.pool_backward(grad, x, weight, mix, tree.program, *numbers(window), mask)
        wide = (grad.double(), x.double(), weight.double(), mix.double())
        _, exact, _ = torch.ops.learnpool.pool_backward(*wide, tree.program, *numbers(window), mask)
        assert_close(ours.double(), exact, rtol=1e-4, atol=1e-6 * exact.abs().max().item() * 10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_number_of_threads_gives_the_same_bits(layout):
    window = W(3, 2, 1).of()
    x = torch.randn(9, 35, 21, 21).to(memory_format=LAYOUTS[layout])
    for tree, share in itertools.product((GATED, make_tree(2), ODD), SHARES):
        weight, mix = parameters(tree, window, share, 35, (21, 21), torch.float32)
        grad, results = torch.randn(9, 35, 11, 11), []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            y = call(x, weight, mix, tree, window)
            backward = (grad, x, weight, mix, tree.program, *numbers(window), [True, True, True])
            results.append((y, *torch.ops.learnpool.pool_backward(*backward)))
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.slow
def test_training_needs_no_more_memory_than_max_pooling():
    """Largest size of a process that pools forward and backward once."""

    def peak(layer):
        code = f"""import resource, torch, learnpool
x = torch.randn(32, 64, 112, 112, requires_grad=True)
layer = {layer}(3, 2, 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layer(x).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"""
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    allowed = peak("torch.nn.MaxPool2d")
    for ours in ("learnpool.MixedPool2d", "learnpool.GatedPool2d", "learnpool.TreePool2d"):
        assert peak(ours) <= allowed


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_narrower_instruction_sets(isa):
    """The same tests again, in a process that holds back from wider instructions."""
    code = f"from learnpool.ops import cpu; assert cpu.CPU.detail == {isa!r}, cpu.CPU.detail"
    environment = dict(os.environ, LEARNPOOL_ISA=isa)
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if found.returncode and isa == "avx2":
        pytest.skip(f"this processor has no {isa}: {found.stderr.splitlines()[-1]}")
    assert found.returncode == 0, found.stderr
    tests = "agrees or test_every or one_and_three or any_window or same_bits or without_a_cell or infinite"
    command = [
        sys.executable,
        "-m",
        "pytest",
        __file__,
        "-q",
        "-k",
        tests,
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_thousands_of_random_calls_never_crash_the_process():
    done = subprocess.run([sys.executable, "-c", FUZZ], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    refused, served = map(int, done.stdout.split())
    assert refused > 5_000
    assert served > 200


FUZZ = """
import random
import torch
import learnpool
from learnpool.tree import make_tree
random.seed(0)
torch.set_num_threads(1)
programs = [(4, 0, 1), (3, 0, 1), (2,), make_tree(2).program, make_tree(3).program, (0,), (1,)]
refused = served = 0
def some(choices):
    return random.choice(choices)
for _ in range(10_000):
    dims = some([1, 2, 2, 2, 3])
    wild = random.random() < 0.8
    def number(good, bad):
        return some(bad) if wild and random.random() < 0.15 else some(good)
    shape = [number([1, 2], [0, 3]), number([1, 3, 17], [0])] + [number([4, 7, 20], [0, 1, 2]) for _ in range(dims)]
    if random.random() < 0.1:
        shape = shape[1:]
    if wild and random.random() < 0.1:
        shape = shape[random.randrange(len(shape)):]
    k = [number([1, 2, 3], [0, -1, 9, 2**31, 2**62, -2**63]) for _ in range(dims)]
    s = [number([1, 2, 3], [0, -1, 2**40, 2**62]) for _ in range(dims)]
    p = [number([0, min(1, max(0, kk // 2))], [-1, 5, 2**62]) for kk in k]
    d = [number([1, 2], [0, -1, 2**40, 2**62, 2**63 - 1]) for _ in range(dims)]
    if wild and random.random() < 0.1:
        some([k, s, p, d]).append(1)
    program = some(programs)
    if wild and random.random() < 0.2:
        program = tuple(random.randrange(-2, 8) for _ in range(random.randrange(6)))
    weights, mixes = sum(c in (2, 4) for c in program), sum(c == 3 for c in program)
    taps = [kk if 0 < kk < 10 else 1 for kk in k]
    extent = [1] * (dims + 1)
    if wild and random.random() < 0.3:
        extent = [some([1, 2, 3]) for _ in extent]
    weight = torch.randn([weights] + extent + taps)
    mix = torch.rand([mixes] + extent)
    if wild and random.random() < 0.1:
        weight = weight[..., :0] if random.random() < 0.5 else weight.flatten()
    if wild and random.random() < 0.05:
        mix = mix.double() if random.random() < 0.5 else mix.flatten()
    x = torch.randn(shape).to(some([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
    if x.dim() == 4 and random.random() < 0.3:
        x = x.to(memory_format=torch.channels_last)
    if random.random() < 0.2 and x.dim():
        x = x.transpose(0, -1)
    rest = (program, k, s, p, d, random.random() < 0.3, random.random() < 0.3)
    try:
        y = torch.ops.learnpool.pool(x, weight, mix, *rest)
        grad = torch.randn(y.shape).to(y.dtype)
        if wild and random.random() < 0.2:
            grad = grad[..., :1]
        torch.ops.learnpool.pool_backward(grad, x, weight, mix, *rest, [random.random() < 0.7 for _ in range(3)])
        served += 1
    except (RuntimeError, ValueError, TypeError, OverflowError):
        refused += 1
print(refused, served)
"""
