"""Every kind of response: hand-worked numbers, derivatives, and the cases that break pooling packages.

The region of the hand-worked numbers is ``[1, 2; 3, 6]``; ``values`` are worked out on paper from the formula in
``ops/responses.py``, and so are the gradients of the four cells and of learned numbers.
"""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from cases import SHARES, W, distinct, parameters
from learnpool import Avg, Blur, Filter, Gate, LogSumExp, Max, Median, Min, Power, Rank, Soft, Std, functional
from learnpool.ops import decomposition, reference
from learnpool.program import Kind, decode

LN2, LN3 = math.log(2), math.log(3)
ROOT = math.sqrt(12.5)  # of the mean square, (1 + 4 + 9 + 36) / 4
ROOT_DP = ROOT / 2 * ((40 * LN2 + 45 * LN3) / 50 - math.log(12.5) / 2)  # y/p (Σ x² ln x / Σ x² − ln(mean x²) / p)


class Hand(NamedTuple):
    """A tree, and what it gives for the cells 1, 2, 3, 6: value, gradients of the cells and of the rows of ``mix``."""

    tree: object
    y: float
    dx: list[float]
    dmix: list[float] | None = None
    mix: list[float] | None = None  # where it is not the tree's start


HANDS = {
    Kind.MAX: [Hand(Max(), 6, [0, 0, 0, 1])],
    Kind.MIN: [Hand(Min(), 1, [1, 0, 0, 0])],
    Kind.AVG: [Hand(Avg(), 3, [0.25] * 4)],
    Kind.DOT: [Hand(Filter([1, -1, 2, 0.5], learn=False), 8, [1, -1, 2, 0.5])],
    Kind.STD: [Hand(Std(), math.sqrt(3.5), [d / math.sqrt(3.5) / 4 for d in (-2, -1, 0, 3)])],  # 12.5 − 3²
    Kind.SOFT: [
        Hand(Soft(0.0), 3, [0.25] * 4, [3.5]),  # the variance is (4 + 1 + 0 + 9) / 4
        # Weights v = 2^x: 2, 4, 8, 64, sum 78. Σ v x = 2 + 8 + 24 + 384 = 418, Σ v x² = 2 + 16 + 72 + 2304 = 2394.
        Hand(
            Soft(LN2),
            418 / 78,
            [v / 78 * (1 + LN2 * (x - 418 / 78)) for v, x in ((2, 1), (4, 2), (8, 3), (64, 6))],
            [2394 / 78 - (418 / 78) ** 2],
        ),
        # Weights 1, e, e², e⁵: 1, 2.718281828459, 7.389056098931, 148.413159102577, their sum 159.520497029966.
        # p = 0.006268786887, 0.017040329482, 0.046320417981, 0.930370465651; y = Σ p x = 919.082686569170 / 159.52…
        # ∂x = p (1 + x − y) = p · (−3.76…, −2.76…, −1.76…, 1.24…); Σ p x² − y² = 33.984650630060 − 33.195268198980.
        Hand(
            Soft(1.0),
            5.76153349369591,
            [-0.0235802518405475, -0.0470574406070492, -0.0815949677151475, 1.15223266016274],
            [0.789382431080467],
        ),
    ],
    Kind.LSE: [
        # The mean of 2^x is 78 / 4 = 19.5; ∂r is (E[x] − y) / r, with E[x] = 418 / 78 under the weights 2^x.
        Hand(LogSumExp(LN2), math.log2(19.5), [2 / 78, 4 / 78, 8 / 78, 64 / 78], [(418 / 78 - math.log2(19.5)) / LN2]),
    ],
    Kind.POWER: [
        Hand(Power(1.0, learn=False), 3, [0.25] * 4),
        Hand(Power(2.0), ROOT, [x / ROOT / 4 for x in (1, 2, 3, 6)], [ROOT_DP]),
    ],
    Kind.ABS_POWER: [Hand(Power(2.0, absolute=True), ROOT, [x / ROOT / 4 for x in (1, 2, 3, 6)], [ROOT_DP])],
    Kind.RANK: [
        Hand(Rank([1, 0, 0, 0], learn=False), 6, [0, 0, 0, 1]),
        Hand(Rank([0.5, 0.25, 0.25, 0], learn=False), 4.25, [0, 0.25, 0.25, 0.5]),
    ],
    Kind.MEDIAN: [Hand(Median(), 2.5, [0, 0.5, 0.5, 0])],
    Kind.BLUR: [Hand(Blur([1, 1, 2, 4]), 33 / 8, [1 / 8, 1 / 8, 1 / 4, 1 / 2])],
}
# Every gate is open by σ(ln 3) = 3/4, and s (1 − s) = 3/16.
GATES = [
    # g by = ln 3 · 1: 3/4 · 6 + 1/4 · 3. ∂g = 3/16 (6 − 3) · 1, and the minimum receives g times that.
    Hand(Gate(Max(), Avg(), by=Min()), 5.25, [1 / 16 + 9 / 16 * LN3, 1 / 16, 1 / 16, 13 / 16], [9 / 16], [LN3]),
    # g by + b = ln 3 · 3 − 2 ln 3: 3/4 · 6 + 1/4 · 1. ∂b = 3/16 (6 − 1), ∂g = 3 ∂b; each cell receives g ∂b / 4.
    Hand(
        Gate(Max(), Min(), by=Avg(), bias=True),
        4.75,
        [1 / 4 + 15 / 64 * LN3, 15 / 64 * LN3, 15 / 64 * LN3, 3 / 4 + 15 / 64 * LN3],
        [45 / 16, 15 / 16],
        [LN3, -2 * LN3],
    ),
    # Rows g, p, β; g by = ln 3 / 3 · 3. With c = 3/16 (√12.5 − 3): ∂g = 3 c, ∂p = 3/4 of the leaf's, ∂β = c g · 3.5.
    Hand(
        Gate(Power(2.0), Avg(), by=Soft(0.0)),
        3 / 4 * ROOT + 3 / 4,
        [3 / 4 * x / ROOT / 4 + 1 / 16 + 3 / 16 * (ROOT - 3) * LN3 / 3 / 4 for x in (1, 2, 3, 6)],
        [9 / 16 * (ROOT - 3), 3 / 4 * ROOT_DP, 3 / 16 * (ROOT - 3) * LN3 / 3 * 3.5],
        [LN3 / 3, 2, 0],
    ),
]
LEARNED = [
    Max(),
    Min(),
    Avg(),
    Filter(),
    Std(),
    Soft(1.5),
    LogSumExp(2.0),
    Power(3.0),
    Power(2.5, absolute=True),
    Rank(),
    Blur(),
    Median(),
]
MEANS = [Soft(1.5), Soft(-0.7), LogSumExp(2.0), LogSumExp(0.3), Power(3.0), Power(2.5, absolute=True)]
LEAVES = [*LEARNED, Soft(-2.0, learn=False), Power(2.0, learn=False, absolute=True)]


def run(tree, x, window, weight=None, mix=None):
    return functional.pool("test", x, tree, weight, mix, window)


def make_mix(tree, dtype=torch.float64, values=None):
    return torch.tensor(values or tree.starts, dtype=dtype).reshape(-1, 1, 1, 1)


def test_every_kind_has_hand_worked_numbers():
    assert set(HANDS) == set(Kind)
    tested = {r.kind for tree in LEARNED for r in decode(tree.fit((2, 2))).responses}
    assert tested == set(Kind)


@pytest.mark.parametrize("hand", [*itertools.chain(*HANDS.values()), *GATES], ids=lambda hand: str(hand.tree))
@pytest.mark.parametrize("way", ["operator", "reference", "decomposition", "autograd of the reference"])
def test_hand_worked_numbers(hand, way):
    x = torch.tensor([[1.0, 2], [3, 6]], dtype=torch.float64).reshape(1, 1, 2, 2).requires_grad_()
    mix, window = make_mix(hand.tree, values=hand.mix).requires_grad_(), W(2).of()
    weight, program = torch.empty(0, 1, 1, 1, 2, 2, dtype=torch.float64), hand.tree.fit((2, 2))
    if way == "operator":
        y = run(hand.tree, x, window, weight, mix)
    else:
        forward = decomposition.forward if way == "decomposition" else reference.forward
        y = forward(x, weight, mix, program, window)
    assert y.item() == pytest.approx(hand.y, rel=1e-12)
    if way == "reference":
        dx, _, dmix = reference.backward(torch.ones_like(y), x, weight, mix, program, window)
    else:
        dx, dmix = torch.autograd.grad(y.sum(), [x, mix], allow_unused=True, materialize_grads=True)
    assert dx.flatten().tolist() == pytest.approx(hand.dx, rel=1e-12, abs=1e-15)
    assert dmix.flatten().tolist() == pytest.approx(hand.dmix or [], rel=1e-12)


WINDOWS = [W(2, 2), W(3, 2, 1), W((3, 2), (1, 2), (1, 0), 1, True), W(3, 2, 1, 2)]


@pytest.mark.parametrize("tree", LEARNED, ids=str)
@pytest.mark.parametrize("share", ["layer", "region_channel"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_derivatives_of_first_and_second_order(tree, share, window):
    window, size = window.of(), (6, 7)
    weight, mix = parameters(tree, window, share, 2, size)
    mix = (make_mix(tree) + 0.1 * mix).expand_as(mix).contiguous() if mix.numel() else mix
    x = distinct(1, 2, *size) + (2.5 if decode(tree.fit(window.kernel)).responses[0].kind == Kind.POWER else 0.0)
    inputs = [t.detach().requires_grad_(t.numel() > 0) for t in (x, weight, mix)]

    def function(*tensors):
        return torch.ops.learnpool.pool(*tensors, tree.fit(window.kernel), *window.arguments)

    assert gradcheck(function, inputs, fast_mode=True)
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("tree", LEARNED, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("share", SHARES)
def test_the_operator_agrees_with_the_reference(tree, layout, dtype, share):
    window, size = W(3, 2, 1, count_include_pad="region" in share).of(), (9, 12)
    weight, mix = parameters(tree, window, share, 5, size)
    mix = (make_mix(tree) + 0.1 * mix).expand_as(mix).contiguous() if mix.numel() else mix
    x, low = distinct(2, 5, *size), torch.float32 if dtype != torch.float64 else dtype
    if layout == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last)
    elif layout == "strided":
        x = x.repeat_interleave(2, -1)[..., ::2]
    x, weight, mix = x.to(dtype), weight.to(low), mix.to(low)
    program = tree.fit(window.kernel)
    y = torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)
    assert_close(y, reference.forward(x, weight, mix, program, window))
    grad = torch.randn(y.shape, dtype=torch.float64).to(dtype)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, program, *window.arguments, [True] * 3)
    theirs = reference.backward(grad, x, weight, mix, program, window)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_close(mine, wanted, **({"rtol": 1e-4, "atol": 1e-4} if mine.dtype == torch.float32 else {}))  # sums


def assert_float32_gradients_agree(tree, x, window, share="layer"):
    weight, mix = parameters(tree, window, share, x.shape[1], tuple(x.shape[2:]))
    mix = (make_mix(tree) + 0.1 * mix).expand_as(mix).contiguous() if mix.numel() else mix
    program, weight, mix = tree.fit(window.kernel), weight.float(), mix.float()
    y = torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)
    assert_close(y, reference.forward(x, weight, mix, program, window))
    grad = torch.randn(y.shape)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, program, *window.arguments, [True] * 3)
    theirs = reference.backward(grad, x, weight, mix, program, window)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_close(mine, wanted, rtol=1e-4, atol=1e-4)  # sums


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("window", [W(2, 2), W(3, 2, 1), W((2, 3), 1, (1, 1)), W(5, 3, 2)], ids=str)
@pytest.mark.parametrize("share", ["layer", "channel"])
def test_equal_cells_are_ranked_by_tap(layout, window, share):
    """Behind a ReLU most cells are equal; -0 equals 0, too."""
    x = torch.randint(-1, 3, (2, 20, 11, 13)).float().contiguous(memory_format=layout)
    x = torch.where(x < 0, -0.0, x)
    assert_float32_gradients_agree(Rank(), x, window.of(), share)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("tree", LEARNED, ids=str)
def test_windows_of_many_taps(tree, layout):
    """Kernels keep what each tap weighs only while there are few of them."""
    x = distinct(1, 17, 13, 15).float().contiguous(memory_format=layout) + 2.5
    assert_float32_gradients_agree(tree, x, W(6, 3, 2).of())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("share", ["layer", "channel"])
@pytest.mark.parametrize("tree", MEANS, ids=str)
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (12, 3), (-20, 0.1), (30, 30), (1000, 1)], ids=str)
def test_means_of_small_and_large_numbers(offset, scale, tree, share, layout):
    """Regions share exponentials of their cells where float32 has room for them; elsewhere each takes its own."""
    torch.manual_seed(0)
    x = (torch.randn(2, 20, 45, 37) * scale + offset).contiguous(memory_format=layout)
    window = W(5, 2, 2).of()
    weight, mix = parameters(tree, window, share, x.shape[1], tuple(x.shape[2:]))
    weight, mix = weight.float(), make_mix(tree, torch.float32).expand_as(mix).contiguous()
    program = tree.fit(window.kernel)
    y = torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)
    grad = torch.randn(y.shape)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, program, *window.arguments, [True] * 3)
    weight, mix, grad = weight.double(), mix.double(), grad.double()
    assert_close(y, reference.forward(x.double(), weight, mix, program, window).float())
    wanted = reference.backward(grad, x.double(), weight, mix, program, window)
    assert_close(ours[0], wanted[0].float())
    noise = 1e-6 * float(grad.norm() * x.abs().max())  # of so many numbers of this size, added up
    assert_close(ours[2], wanted[2].float(), rtol=1e-5, atol=noise)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("tree", [*MEANS, Gate(Soft(0.5), Power(2.5), by=LogSumExp(1.5))], ids=str)
@pytest.mark.parametrize("place", [(3, 5), (40, 50), (69, 2)], ids=str)
@pytest.mark.parametrize("bad", [90.0, 1e30])
def test_a_cell_that_is_too_large_for_shared_exponentials(bad, place, tree, layout):
    """It may be in any piece of a plane, and windows of later pieces reach into those before."""
    torch.manual_seed(0)
    x = torch.rand(1, 16, 70, 61)
    x[:, 3, place[0], place[1]] = bad
    x = x.contiguous(memory_format=layout)
    window, mix = W(9, 1, 4).of(), make_mix(tree, torch.float32)
    weight, program = torch.zeros(0, 1, 1, 1, 9, 9), tree.fit((9, 9))
    y = torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)
    assert_close(y, reference.forward(x, weight, mix, program, window))
    grad = torch.randn(y.shape)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, program, *window.arguments, [True] * 3)
    theirs = reference.backward(grad, x, weight, mix, program, window)
    assert_close(ours[0], theirs[0])
    assert_close(ours[2], theirs[2], rtol=1e-4, atol=1e-2)  # sums


@pytest.mark.parametrize("tree", LEAVES, ids=str)
@pytest.mark.parametrize("value", [0.0, -3.0, 1e4, 1e-8], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_equal_cells_give_themselves_and_finite_gradients(tree, value, dtype):
    """Zeros behind a ReLU, negative cells and 1e4 in half precision are what breaks every package."""
    x = torch.full((1, 3, 6, 6), value, dtype=dtype, requires_grad=True)
    layer_mix = make_mix(tree, torch.float32).requires_grad_()
    window = W(3, 2, 1).of()
    weight = torch.full((decode(tree.fit((3, 3))).weights, 1, 1, 1, 3, 3), 1 / 9).requires_grad_()
    y = run(tree, x, window, weight, layer_mix)
    y.float().sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    assert layer_mix.grad.isfinite().all()
    kinds = {r.kind for r in decode(tree.fit((3, 3))).responses}
    if kinds <= {Kind.MAX, Kind.MIN, Kind.AVG, Kind.SOFT, Kind.LSE, Kind.RANK, Kind.BLUR, Kind.MEDIAN}:
        assert_close(y, torch.full_like(y, value))
    elif kinds == {Kind.STD}:
        assert torch.equal(y, torch.zeros_like(y))
        assert torch.equal(x.grad, torch.zeros_like(x))
    elif kinds <= {Kind.POWER, Kind.ABS_POWER}:
        u = max(abs(value) if Kind.ABS_POWER in kinds else value, 1e-6)
        assert_close(y, torch.full_like(y, u))


@pytest.mark.parametrize("tree", LEAVES, ids=str)
def test_a_nan_reaches_the_regions_that_hold_it_and_no_others(tree):
    window, x = W(2, 2).of(), torch.rand(1, 2, 4, 6) + 0.5
    program = tree.fit((2, 2))
    weight = torch.full((decode(program).weights, 1, 1, 1, 2, 2), 0.3)
    mix = make_mix(tree, torch.float32)
    clean = run(tree, x, window, weight, mix)
    x[0, 1, 1, 2] = math.nan
    y = run(tree, x, window, weight, mix)
    median_skips_it = isinstance(tree, Median)  # NaN counts as largest, and the median reads the middle cells alone
    assert bool(y[0, 1, 0, 1].isnan()) != median_skips_it
    y[0, 1, 0, 1] = clean[0, 1, 0, 1]
    assert_close(y, clean)


@pytest.mark.parametrize("tree", [Max(), Soft(1.5), LogSumExp(2.0), Rank([1, 0, 0, 0], learn=False)], ids=str)
def test_minus_infinity_beside_ordinary_cells_counts_for_nothing(tree):
    x = torch.tensor([-math.inf, 1.0, 2.0, -math.inf]).reshape(1, 1, 2, 2).requires_grad_()
    y = run(tree, x, W(2).of(), None, make_mix(tree, torch.float32) if tree.starts else None)
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    assert x.grad[0, 0, 0, 0] == x.grad[0, 0, 1, 1] == 0


def fill(what, dtype):
    """Cells of 17 channels, in which some are equal, infinite, NaN, or a value that masks others."""
    least = torch.finfo(dtype).min
    x = torch.randint(-1, 3, (2, 17, 9, 11)).to(dtype) if what == "ties" else distinct(2, 17, 9, 11).to(dtype)
    value = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "masked": least}.get(what)
    if value is not None:
        x[:, 1, ::3] = value
        x[:, 2, :, 2] = value
        x[:, 3, 4, 5] = value
    if what in ("-inf", "masked"):
        x[:, 5] = value  # regions without another cell
    return x


@pytest.mark.parametrize("tree", LEARNED, ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("what", ["ties", "inf", "-inf", "nan", "masked"])
def test_equal_infinite_and_masked_cells(tree, layout, dtype, what):
    """What is finite in the reference is finite in the kernel, and the same: values and all gradients."""
    kind = decode(tree.fit((3, 3))).responses[0].kind
    if what == "masked" and kind in (Kind.STD, Kind.AVG, Kind.DOT, Kind.BLUR, Kind.RANK, Kind.ABS_POWER):
        pytest.skip("sums of the largest numbers overflow, here or there")
    x, window = fill(what, dtype).contiguous(memory_format=layout), W(3, 2, 1).of()
    program, low = tree.fit(window.kernel), torch.float64 if dtype == torch.float64 else torch.float32
    weight, mix = torch.randn(decode(program).weights, 1, 1, 1, 3, 3, dtype=low), make_mix(tree, low)
    y = torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)
    grad = torch.randn(y.shape, dtype=torch.float64).to(dtype)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, program, *window.arguments, [True] * 3)
    theirs = reference.backward(grad, x, weight, mix, program, window)
    pairs = [(y, reference.forward(x, weight, mix, program, window)), *zip(ours, theirs, strict=True)]
    for mine, wanted in pairs:
        mine, wanted = (torch.where(t.isfinite(), t, math.nan) for t in (mine, wanted))
        wide = {"rtol": 1e-4, "atol": 1e-4} if mine.dtype == torch.float32 else {}  # sums
        assert_close(mine, wanted, equal_nan=True, **wide)


@pytest.mark.parametrize("tree", LEARNED, ids=str)
def test_a_region_without_a_cell(tree):
    """Only dilation with padding makes one: the middle tap of three lies on the only cell, or none does."""
    window, x = W(2, 1, 1, 2).of(), torch.full((1, 1, 1, 1), 2.0)
    program = tree.fit((2, 2))
    weight, mix = torch.full((decode(program).weights, 1, 1, 1, 2, 2), 0.5), make_mix(tree, torch.float32)
    y = torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)
    assert_close(y, reference.forward(x, weight, mix, program, window), equal_nan=True)
    dx, *_ = torch.ops.learnpool.pool_backward(
        y.nan_to_num(1, 1, 1), x, weight, mix, program, *window.arguments, [True] * 3
    )
    assert dx.isfinite().all()


@pytest.mark.parametrize("tree", LEARNED, ids=str)
def test_vmap_and_per_sample_gradients(tree):
    window, x = W(3, 2, 1).of(), distinct(4, 2, 3, 7, 7)
    weight, mix = parameters(tree, window, "channel", 3, (7, 7))
    mix = (make_mix(tree) + 0.1 * mix).expand_as(mix).contiguous() if mix.numel() else mix

    def loss(weight, mix, x):
        return run(tree, x, window, weight, mix).square().sum()

    ours = torch.func.vmap(torch.func.grad(loss, (0, 1, 2)), (None, None, 0))(weight, mix, x)
    for i in range(4):
        inputs = [t.detach().clone().requires_grad_() for t in (weight, mix, x[i])]
        theirs = torch.autograd.grad(loss(*inputs), inputs, allow_unused=True)
        for mine, wanted in zip(ours, theirs, strict=True):
            assert wanted is None or assert_close(mine[i], wanted) is None


def test_limits():
    x, window = distinct(2, 3, 9, 9, dtype=torch.float64), W(3, 2, 1).of()
    maximum, average = (run(tree, x, window) for tree in (Max(), Avg()))
    assert_close(run(Soft(0.0, learn=False), x, window), average)
    assert_close(run(Soft(1e5, learn=False), x, window), maximum)
    assert_close(run(Soft(-1e5, learn=False), x, window), run(Min(), x, window))
    assert_close(run(LogSumExp(100.0, learn=False), x + 0, window), maximum, rtol=0, atol=math.log(9) / 100 + 1e-12)
    assert_close(run(Power(1.0, learn=False), x + 3, window), run(Avg(), x + 3, window))
    high = run(Power(64.0, learn=False), x + 3, window)
    assert (high <= run(Max(), x + 3, window)).all()
    assert_close(high, run(Max(), x + 3, window), rtol=1 - 9 ** (-1 / 64), atol=0)
    for weights, tree in (([1, *[0] * 8], Max()), ([*[0] * 8, 1], Min()), ([1 / 9] * 9, Avg())):
        assert_close(run(Rank(weights, learn=False), x, window), run(tree, x, window))  # at borders too


@pytest.mark.parametrize("shape", [(4, 4), (5, 7), (9, 8)])
def test_the_median_is_torchs_where_the_number_of_cells_is_odd(shape):
    x = distinct(2, 3, *shape)
    ours = run(Median(), x, W(3, 1).of())
    cells = x.unfold(2, 3, 1).unfold(3, 3, 1).flatten(-2)
    assert torch.equal(ours, cells.median(-1).values)
