"""Every kind of response on a GPU, in Triton's interpreter, against the reference: value and all gradients."""

import itertools
import os

import pytest
import torch
from torch.testing import assert_close

from cases import SHARES, WINDOWS, W, call, distinct, numbers
from learnpool.nodes import PROPORTION
from learnpool.ops import reference
from learnpool.program import Kind, decode
from learnpool.tree import Avg, Blur, Filter, Gate, LogSumExp, Max, Median, Min, Mix, Power, Rank, Soft, Std

if os.environ.get("LEARNPOOL_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="triton is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("set TRITON_INTERPRET=1: there is no GPU in these tests", allow_module_level=True)

from test_cpu import TOLERANCES, lay

import triton_interpreter
from learnpool.ops.triton import calls, launch
from learnpool.ops.triton.responses import UNITS

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero):RuntimeWarning")  # numpy's
triton_interpreter.register()

TREES = {
    Kind.MAX: Max(),
    Kind.MIN: Min(),
    Kind.AVG: Avg(),
    Kind.DOT: Filter(),
    Kind.STD: Std(),
    Kind.SOFT: Soft(),
    Kind.LSE: LogSumExp(),
    Kind.POWER: Power(),
    Kind.ABS_POWER: Power(absolute=True),
    Kind.RANK: Rank(),
    Kind.BLUR: Blur(),
    Kind.MEDIAN: Median(),
}
KINDS = pytest.mark.parametrize("kind", list(TREES), ids=lambda kind: kind.name)
COMBINED = [
    Gate(Max(), Avg(), by=Min()),
    Gate(Soft(), Rank(), by=Power(), bias=True),
    Gate(Mix(Soft(), Filter()), Mix(LogSumExp(), Blur(), a=0.3, learn=False)),  # kinds of one and of two passes
    Gate(Gate(Max(), Soft(), by=Soft()), Power(absolute=True), by=Gate(Avg(), Filter())),
    Mix(Soft(2.0, learn=False), Mix(Power(3.0, learn=False), Median())),
    Mix(Max(), Gate(Max(), Max(), by=Max(), bias=True)),  # one response in four places
]


def draw(tree, window, share, channels, size, dtype=torch.float64):
    """``weight`` and ``mix``: proportions inside (0, 1), other numbers between 1 and 3."""
    grid = window.output_size(size) if "region" in share else (1,) * window.dims
    extent = (channels if "channel" in share else 1, *grid)
    program = decode(tree.fit(window.kernel))
    weight = torch.randn((program.weights, *extent, *window.kernel), dtype=torch.float64) * 0.5
    mix = torch.rand((program.mixes, *extent), dtype=torch.float64)
    for row, domain in zip(mix, program.domains, strict=True):
        row.copy_(row * 0.8 + 0.1 if domain == PROPORTION else row * 2 + 1)
    return weight.to(dtype), mix.to(dtype)


def compare(x, weight, mix, tree, window, rtol=None, atol=None):
    """The operator and its backward against the reference."""
    tolerance = {"equal_nan": True} | ({} if rtol is None else {"rtol": rtol, "atol": atol})
    program = tree.fit(window.kernel)
    y = call(x, weight, mix, tree, window)
    assert_close(y, reference.forward(x, weight, mix, program, window), **tolerance)
    grad = torch.randn(y.shape).to(y.dtype)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, program, *numbers(window), [True, True, True])
    theirs = reference.backward(grad, x, weight, mix, program, window)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_close(mine, wanted, **tolerance)


def test_every_kind_has_a_unit_and_a_case():
    assert set(UNITS) == set(TREES) == set(Kind)


@KINDS
@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_kinds_over_windows(kind, number):
    """Every window, with sharing and layout taking turns."""
    window, turn = WINDOWS[number].of(), number + int(kind)
    share, layout = SHARES[turn % 4], ("contiguous", "channels_last", "strided")[turn % 3]
    x = lay(distinct(1, 3, 9, 8), layout, 2)
    compare(x, *draw(TREES[kind], window, share, 3, (9, 8)), TREES[kind], window)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kinds_in_every_dtype(kind, dtype):
    window, layout = W(3, 2, 1).of(), "channels_last" if int(kind) % 2 else "contiguous"
    x = lay(distinct(2, 3, 9, 11).to(dtype), layout, 2)
    for own in (dtype, torch.float32):
        compare(x, *draw(TREES[kind], window, "layer", 3, (9, 11), own), TREES[kind], window, *TOLERANCES[dtype])


@KINDS
def test_kinds_in_one_and_three_dimensions(kind):
    for dims, window, size, share in (
        (1, W(3, 2, 1, 2, True), (41,), "region_channel"),
        (3, W((2, 3, 1), (1, 2, 3), (1, 0, 0), (2, 1, 1), True), (4, 5, 10), "channel"),
    ):
        x = lay(distinct(1, 3, *size), "channels_last", dims)
        compare(x, *draw(TREES[kind], window.of(dims), share, 3, size), TREES[kind], window.of(dims))


@KINDS
def test_kinds_over_windows_of_many_taps(kind):
    window = W(6, 3, 3) if kind != Kind.RANK else W(5, 3, 2)  # of 32 taps and less a loop is unrolled
    x = distinct(1, 2, 13, 14)
    compare(x, *draw(TREES[kind], window.of(), "layer", 2, (13, 14)), TREES[kind], window.of())


@KINDS
@pytest.mark.parametrize("share", ["layer", "region"])
def test_kinds_beside_infinity_nan_and_ties(kind, share):
    x = torch.randint(-1, 2, (1, 5, 9, 9), dtype=torch.float64)
    x[:, 1, ::2] = torch.inf
    x[:, 2] = -torch.inf
    x[:, 3].view(-1)[::7] = torch.nan
    x[:, 4, :, ::3] = -torch.inf
    for window in (W(3, 2, 1).of(), W(2, 1, 1, 3).of()):  # the latter has regions without a cell
        compare(x, *draw(TREES[kind], window, share, 5, (9, 9)), TREES[kind], window)


@pytest.mark.parametrize("tree", COMBINED, ids=str)
@pytest.mark.parametrize("share", ["layer", "channel", "region"])
def test_kinds_combined(tree, share):
    window = W(3, 2, 1).of()
    x = lay(distinct(1, 3, 9, 8), "channels_last" if share == "channel" else "contiguous", 2)
    compare(x, *draw(tree, window, share, 3, (9, 8)), tree, window)


def test_constants_are_neither_clamped_nor_given_gradients():
    window, x = W(3, 2, 1).of(), distinct(1, 2, 7, 7)
    for tree in (
        Soft(-2.0, learn=False),
        LogSumExp(5.0, learn=False),
        Power(2.0, learn=False, absolute=True),
        Filter(values=[0.5, -1, 2, 0, 1, 0, 3, 1, -2], learn=False),
        Rank(values=[0, 0, 1, 0, 0, 0, 0, 0, 0], learn=False),
        Median(),
    ):
        weight, mix = draw(tree, window, "layer", 2, (7, 7))
        assert len(weight) == len(mix) == 0
        compare(x, weight, mix, tree, window)


@pytest.mark.parametrize("share", ["layer", "region"])
def test_numbers_outside_their_domain_are_clamped_and_may_come_back(share):
    tree, window = Mix(Power(), Mix(LogSumExp(), Soft())), W(3, 2, 1).of()
    weight, mix = draw(tree, window, share, 2, (7, 7))
    for outside in (-3.0, 0.0, 1.0, 500.0):
        compare(distinct(1, 2, 7, 7), weight, mix.fill_(outside), tree, window)


@pytest.mark.parametrize("fused", [True, False])
def test_extremes_of_size(fused, monkeypatch):
    """Zeros, values of 1e4 in float16 and the largest powers: the cases that overflow where formulas are naive."""
    monkeypatch.setattr(calls, "FUSED_TAPS", 32 if fused else 0)
    window = W(3, 2, 1).of()
    for data in (torch.zeros(1, 2, 7, 7), distinct(1, 2, 7, 7) * 5000, -distinct(1, 2, 7, 7).abs()):
        for tree, number in ((Soft(), 9.0), (Soft(), -9.0), (LogSumExp(), 100.0), (Power(), 64.0), (Power(), 1.0)):
            x, mix = data.half(), torch.full((1, 1, 1, 1), number)
            y = call(x, torch.empty(0, 1, 1, 1, 3, 3), mix, tree, window)
            assert y.isfinite().all()
            compare(x, torch.empty(0, 1, 1, 1, 3, 3), mix, tree, window, *TOLERANCES[torch.float16])


def test_ranks_of_ties_and_nan_by_hand():
    """NaN first, then larger cells, of equal cells the lower tap; a weight of 0 does not read its cell."""
    nan, inf = torch.nan, torch.inf
    x = torch.tensor([[2.0, 5.0, 2.0, nan], [inf, 1.0, -inf, 1.0]]).reshape(1, 2, 1, 4).double()
    window = W((1, 4)).of()
    for shares, values, grads in (
        ([0, 1, 0, 0], [5.0, 1.0], [[0, 1, 0, 0], [0, 1, 0, 0]]),
        ([0, 0, 1, 0], [2.0, 1.0], [[1, 0, 0, 0], [0, 0, 0, 1]]),
        ([0, 0, 2, 1], [6.0, -inf], [[2, 0, 1, 0], [0, 0, 1, 2]]),
        ([1, 0, 0, 0], [nan, inf], [[0, 0, 0, 1], [1, 0, 0, 0]]),
    ):
        weight, mix = torch.tensor(shares).double().reshape(1, 1, 1, 1, 1, 4), torch.empty(0, 1, 1, 1).double()
        y = call(x, weight, mix, Rank(), window)
        assert_close(y.flatten().tolist(), values, equal_nan=True)
        rest = Rank().fit((1, 4)), *numbers(window), [True, False, False]
        dx = torch.ops.learnpool.pool_backward(torch.ones_like(y), x, weight, mix, *rest)[0]
        assert_close(dx.reshape(2, 4), torch.tensor(grads).double())


def test_25_cells_are_ranked_here_and_more_by_the_reference(monkeypatch):
    runs = []
    run = calls.Launch.run
    monkeypatch.setattr(calls.Launch, "run", lambda self: (runs.append(self.kernel.__name__), run(self)))
    for window, kernels in (
        (W(4, 2, 2), ["forward", "backward"]),
        (W(5, 5), ["forward", "backward"]),
        (W(5, 2, 2), ["forward", "send", "gather", "reduce"]),  # too many windows over a cell to stay on the chip
        (W((2, 13), (1, 4)), []),
    ):
        runs.clear()
        x = distinct(1, 2, 6, 19)
        compare(x, *draw(Rank(), window.of(), "layer", 2, (6, 19)), Rank(), window.of())
        assert runs == kernels


def test_gradients_nobody_asked_for():
    tree, window = COMBINED[1], W(3, 2, 1).of()
    x, program = distinct(1, 2, 7, 7), tree.fit((3, 3))
    for share in ("layer", "region"):
        weight, mix = draw(tree, window, share, 2, (7, 7))
        grad = torch.randn_like(call(x, weight, mix, tree, window))
        expected = reference.backward(grad, x, weight, mix, program, window)
        for mask in itertools.product((True, False), repeat=3):
            rest = (program, *numbers(window), list(mask))
            got = torch.ops.learnpool.pool_backward(grad, x, weight, mix, *rest)
            for wanted, mine, value in zip(mask, got, expected, strict=True):
                assert_close(mine, value if wanted else value.new_empty((0,)))


def test_kernels_are_supported_for_every_tree_here():
    assert all(launch.is_supported(tree.fit((3, 3)), W(3).of()) for tree in (*TREES.values(), *COMBINED))
