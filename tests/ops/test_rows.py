"""Learned numbers are clamped by the operator, with a gradient that leads back inside; constants lie behind them."""

import math

import pytest
import torch
from torch.autograd import forward_ad

from cases import MIXED, W
from learnpool import LogSumExp, Max, MixedPool2d, Pool2d, Power, Soft, functional
from learnpool.ops import reference
from learnpool.ops.rows import append_constants, clamp_mix, clamp_rows, drop_outward
from learnpool.ops.transforms import Form
from learnpool.program import UNBOUNDED, decode
from learnpool.tree import Filter, Gate, Mix

WINDOW = W(2, 2).of()
X = torch.tensor([0.0, 0, 0, 4]).reshape(1, 1, 2, 2)  # max 4, mean 1
NO_WEIGHT = torch.empty(0, 1, 1, 1, 2, 2)


@pytest.mark.parametrize("a", [-0.5, 0.0, 0.3, 1.0, 1.5, math.nan])
@pytest.mark.parametrize("grad", [2.0, -2.0, 0.0, math.inf, -math.inf, math.nan])
def test_only_a_finite_outward_gradient_of_a_is_dropped(a, grad):
    mix = torch.full((1, 1, 1, 1), a, requires_grad=True)
    y = functional.pool("test", X, MIXED, NO_WEIGHT, mix, WINDOW)
    y.backward(torch.full_like(y, grad))
    clamped = min(max(a, 0.0), 1.0) if a == a else a
    assert y.item() == pytest.approx(1 + 3 * clamped, nan_ok=True)
    outward = math.isfinite(grad) and ((a <= 0 and grad > 0) or (a >= 1 and grad < 0))
    assert mix.grad.item() == pytest.approx(0.0 if outward else 3 * grad, nan_ok=True)


@pytest.mark.parametrize(
    ("leaf", "outside", "inside"), [(Power(2.0), 100.0, 64.0), (Power(2.0), -3.0, 1.0), (LogSumExp(), 0.0, 0.1)]
)
def test_every_number_has_its_own_domain(leaf, outside, inside):
    x = torch.rand(1, 1, 4, 4)
    layer = Pool2d(Mix(leaf, Max(), a=1.0), 2)
    with torch.no_grad():
        rows = [0.7, inside] if layer.program.domains[0] == (0.0, 1.0) else [inside, 0.7]
        layer.mix.copy_(torch.tensor(rows).reshape(2, 1, 1, 1))
        expected = layer(x)
        rows[rows.index(inside)] = outside
        layer.mix.copy_(torch.tensor(rows).reshape(2, 1, 1, 1))
        assert torch.equal(layer(x), expected)


def test_rows_with_one_domain_and_with_several():
    mix = torch.tensor([-1.0, 0.5, 2.0]).reshape(3, 1)
    assert clamp_rows(mix, [(0.0, 1.0)] * 3).flatten().tolist() == [0, 0.5, 1]
    assert clamp_rows(mix, [(0.0, 1.0), (1.0, 64.0), UNBOUNDED]).flatten().tolist() == [0, 1, 2]
    assert clamp_rows(mix, [UNBOUNDED] * 3) is mix
    grad = torch.tensor([1.0, 1.0, -1.0]).reshape(3, 1)
    assert drop_outward(mix, grad, [(0.0, 1.0)] * 3).flatten().tolist() == [0, 1, 0]
    assert drop_outward(mix, grad, [(0.0, 1.0), (1.0, 64.0), UNBOUNDED]).flatten().tolist() == [0, 0, -1]
    assert drop_outward(mix, -grad, [(0.0, 1.0)] * 3).flatten().tolist() == [-1, -1, 1]


def test_a_number_just_inside_its_border_keeps_its_gradient_in_bfloat16():
    inside = torch.tensor([[0.1]], dtype=torch.bfloat16)  # 0.1001
    assert drop_outward(inside, torch.ones_like(inside), [(0.1, 100.0)]).item() == 1
    below = torch.tensor([[0.0996]], dtype=torch.bfloat16)
    assert drop_outward(below, torch.ones_like(below), [(0.1, 100.0)]).item() == 0


def test_a_large_unbounded_number_keeps_its_gradient():
    layer = Pool2d(Soft(1e-3), 2)
    with torch.no_grad():
        layer.mix.fill_(-1e12)  # there a step of 1 changes nothing
    layer(X).backward()
    assert drop_outward(layer.mix, torch.ones_like(layer.mix), layer.program.domains).item() == 1


def test_forward_mode_has_the_same_rule():
    for a, tangent, expected in (
        (0.0, 1.0, 1.0),
        (0.0, -1.0, 0.0),
        (1.0, 1.0, 0.0),
        (1.5, -1.0, -1.0),
        (0.4, 1.0, 1.0),
    ):
        with forward_ad.dual_level():
            mix = forward_ad.make_dual(torch.tensor([[a]]), torch.tensor([[tangent]]))
            assert forward_ad.unpack_dual(clamp_mix(mix, [(0.0, 1.0)], Form.FORWARD_MODE)).tangent.item() == expected


def test_a_gradient_that_overflows_in_half_precision_is_not_dropped():
    layer = MixedPool2d(3, 2, 1, a=1.0, dtype=torch.float16)
    x = torch.arange(64 * 4 * 81, dtype=torch.float16).remainder(7).reshape(64, 4, 9, 9)
    y = layer(x)
    y.backward(torch.full_like(y, -100.0))  # outward, and the sum is beyond 65504
    assert layer.mix.grad.item() == -math.inf


def test_constants_lie_behind_learned_rows():
    tree = Gate(Mix(Filter([1, 2, 3, 4], learn=False), Filter()), Mix(Max(), Soft(2.0, learn=False), 0.25, learn=False))
    program = decode(tree.fit((2, 2)))
    weight, mix = torch.zeros(2, 3, 1, 1, 2, 2), torch.zeros(1, 3, 1, 1)
    weight, mix = append_constants(weight, mix, program, (2, 2))
    assert weight.shape == (3, 3, 1, 1, 2, 2)
    assert weight[2, 1].flatten().tolist() == [1, 2, 3, 4]
    assert sorted(mix[1:, 2].flatten().tolist()) == [0.25, 2.0]
    y = reference.forward(X, torch.zeros(2, 1, 1, 1, 2, 2), torch.ones(1, 1, 1, 1), tree.fit((2, 2)), WINDOW)
    soft = 4 * math.exp(8) / (math.exp(8) + 3)
    assert y.item() == pytest.approx(0.5 * 16 + 0.5 * (0.25 * 4 + 0.75 * soft))
