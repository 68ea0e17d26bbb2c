"""Every kind of response: hand-worked numbers, derivatives, and the cases that break pooling packages.

The region of the hand-worked numbers is ``[1, 2; 3, 6]``; ``values`` are worked out on paper from the formula in
``ops/responses.py``, and so are the gradients of the four cells.
"""

import math
from typing import NamedTuple

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from cases import SHARES, W, distinct, parameters
from learnpool import Avg, Blur, Filter, LogSumExp, Max, Median, Min, Power, Rank, Soft, Std, functional
from learnpool.ops import decomposition, reference
from learnpool.program import Kind, decode

E = math.e


class Hand(NamedTuple):
    """A leaf, and what it gives for the cells 1, 2, 3, 6: value, gradient of each cell, gradient of its number."""

    tree: object
    y: float
    dx: list[float]
    dtheta: float | None = None


def compute_soft(beta):
    e = [math.exp(beta * x) for x in (1, 2, 3, 6)]
    p = [v / sum(e) for v in e]
    y = sum(a * b for a, b in zip(p, (1, 2, 3, 6), strict=True))
    square = sum(a * b * b for a, b in zip(p, (1, 2, 3, 6), strict=True))
    return y, [a * (1 + beta * (x - y)) for a, x in zip(p, (1, 2, 3, 6), strict=True)], square - y * y


HANDS = {
    Kind.MAX: [Hand(Max(), 6, [0, 0, 0, 1])],
    Kind.MIN: [Hand(Min(), 1, [1, 0, 0, 0])],
    Kind.AVG: [Hand(Avg(), 3, [0.25] * 4)],
    Kind.DOT: [Hand(Filter([1, -1, 2, 0.5], learn=False), 8, [1, -1, 2, 0.5])],
    Kind.STD: [Hand(Std(), math.sqrt(3.5), [d / math.sqrt(3.5) / 4 for d in (-2, -1, 0, 3)])],  # 12.5 − 3²
    Kind.SOFT: [
        Hand(Soft(0.0), 3, [0.25] * 4, 3.5),  # the variance is (4 + 1 + 0 + 9) / 4
        Hand(Soft(math.log(2)), 418 / 78, [2 / 78 * (1 + math.log(2) * (1 - 418 / 78)), *([None] * 3)]),
        Hand(Soft(1.0), *compute_soft(1.0)),
    ],
    Kind.LSE: [
        Hand(LogSumExp(math.log(2)), math.log2(78 / 4), [2 / 78, 4 / 78, 8 / 78, 64 / 78]),  # mean of 2^x
    ],
    Kind.POWER: [
        Hand(Power(1.0), 3, [0.25] * 4),
        Hand(Power(2.0), math.sqrt(12.5), [x / math.sqrt(12.5) / 4 for x in (1, 2, 3, 6)]),
    ],
    Kind.ABS_POWER: [Hand(Power(2.0, absolute=True), math.sqrt(12.5), [x / math.sqrt(12.5) / 4 for x in (1, 2, 3, 6)])],
    Kind.RANK: [
        Hand(Rank([1, 0, 0, 0], learn=False), 6, [0, 0, 0, 1]),
        Hand(Rank([0.5, 0.25, 0.25, 0], learn=False), 4.25, [0, 0.25, 0.25, 0.5]),
        Hand(Median(), 2.5, [0, 0.5, 0.5, 0]),
    ],
    Kind.BLUR: [Hand(Blur([1, 1, 2, 4]), 33 / 8, [1 / 8, 1 / 8, 1 / 4, 1 / 2])],
}
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
]
LEAVES = [*LEARNED, Median(), Soft(-2.0, learn=False), Power(2.0, learn=False, absolute=True)]


def run(tree, x, window, weight=None, mix=None):
    return functional.pool("test", x, tree, weight, mix, window)


def make_mix(tree, dtype=torch.float64):
    return torch.tensor(tree.starts, dtype=dtype).reshape(-1, 1, 1, 1)


def test_every_kind_has_hand_worked_numbers():
    assert set(HANDS) == set(Kind)
    tested = {r.kind for tree in LEARNED for r in decode(tree.fit((2, 2))).responses}
    assert tested == set(Kind)


@pytest.mark.parametrize("hand", [hand for hands in HANDS.values() for hand in hands], ids=lambda hand: str(hand.tree))
@pytest.mark.parametrize("way", ["operator", "reference", "decomposition"])
def test_hand_worked_numbers(hand, way):
    x = torch.tensor([[1.0, 2], [3, 6]], dtype=torch.float64).reshape(1, 1, 2, 2).requires_grad_()
    mix, window = make_mix(hand.tree).requires_grad_(), W(2).of()
    weight = torch.empty(0, 1, 1, 1, 2, 2, dtype=torch.float64)
    if way == "operator":
        y = run(hand.tree, x, window, weight, mix)
    else:
        forward = reference.forward if way == "reference" else decomposition.forward
        y = forward(x, weight, mix, hand.tree.fit((2, 2)), window)
    assert y.item() == pytest.approx(hand.y, rel=1e-12)
    inputs = [x, mix] if mix.numel() else [x]
    dx, *rest = torch.autograd.grad(y.sum(), inputs)
    for ours, theirs in zip(dx.flatten().tolist(), hand.dx, strict=True):
        assert theirs is None or ours == pytest.approx(theirs, rel=1e-12, abs=1e-15)
    if hand.dtheta is not None:
        assert rest[0].item() == pytest.approx(hand.dtheta, rel=1e-12)


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
    window, size = W(3, 2, 1).of(), (9, 12)
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
    if kinds <= {Kind.MAX, Kind.MIN, Kind.AVG, Kind.SOFT, Kind.LSE, Kind.RANK, Kind.BLUR}:
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
