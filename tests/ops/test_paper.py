"""Each equation of the paper by itself, on one 2×2 region, with numbers worked out by hand.

x = (1, 3, 2, 6): max 6, mean 3. δ = 2 is the gradient that arrives. The mask ω = (0, 0, ln3/2, 0) gives ω · x = ln 3
and σ = 3/4, σ(1 − σ) = 3/16. The filters v₁ = (1, 0, 0, 1) and v₂ = (0, 1, 1, 0) give 7 and 5. Each number is asked of
the reference and of the operator through autograd.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from cases import GATED, MIXED, W, call, leaves
from learnpool.ops import reference
from learnpool.tree import make_tree

X = torch.tensor([1.0, 3, 2, 6], dtype=torch.float64)
OMEGA = torch.tensor([0, 0, math.log(3) / 2, 0], dtype=torch.float64)
V1 = torch.tensor([1.0, 0, 0, 1], dtype=torch.float64)
V2 = torch.tensor([0, 1.0, 1, 0], dtype=torch.float64)
DELTA = 2.0
TREE2 = make_tree(2)


@pytest.fixture(params=["reference", "operator"])
def pooled(request):
    """tree, masks and filters, a -> value and the gradients of x, weight and mix."""

    def run(tree, weights=(), a=None, x=X):
        cells = x.reshape(1, 1, 2, 2)
        weight = (
            torch.stack(list(weights)).reshape(-1, 1, 1, 1, 2, 2) if weights else cells.new_empty((0, 1, 1, 1, 2, 2))
        )
        mix = cells.new_full((1, 1, 1, 1), a) if a is not None else cells.new_empty((0, 1, 1, 1))
        window = W(2).of()
        if request.param == "reference":
            y = reference.forward(cells, weight, mix, tree.program, window)
            grads = reference.backward(torch.full_like(y, DELTA), cells, weight, mix, tree.program, window)
        else:
            inputs = leaves(cells, weight, mix)
            y = call(*inputs, tree, window)
            grads = torch.autograd.grad(y, inputs, torch.full_like(y, DELTA))
        dx, dw, dm = grads
        return y.item(), dx.flatten(), dw.reshape(-1, 4), dm.flatten()

    return run


def test_equation_1_mixed_forward(pooled):
    # 1/4 · 6 + 3/4 · 3
    assert pooled(MIXED, a=0.25)[0] == 3.75


def test_equation_2_gradient_of_a(pooled):
    # δ (max − mean) = 2 (6 − 3)
    assert pooled(MIXED, a=0.25)[3].item() == 6.0


def test_equation_4_gradient_of_x_in_mixed(pooled):
    # δ [a 1[max] + (1 − a)/N] = 2 [1/4 · 1[max] + 3/16]
    assert pooled(MIXED, a=0.25)[1].tolist() == [0.375, 0.375, 0.375, 0.875]


def test_equation_5_gated_forward(pooled):
    # 3/4 · 6 + 1/4 · 3
    assert pooled(GATED, [OMEGA])[0] == pytest.approx(5.25, rel=1e-14)


def test_equation_7_gradient_of_the_mask(pooled):
    # δ σ(1 − σ) x (max − mean) = 2 · 3/16 · 3 x = 9/8 x
    assert_close(pooled(GATED, [OMEGA])[2][0], 9 / 8 * X)


def test_equation_9_gradient_of_x_in_gated(pooled):
    # δ [σ(1 − σ) ω_i (max − mean) + σ 1[max] + (1 − σ)/N] = 2 [9/16 ω_i + 3/4 1[max] + 1/16]
    expected = [0.125, 0.125, 2 * (9 / 16 * math.log(3) / 2 + 1 / 16), 1.625]
    assert_close(pooled(GATED, [OMEGA])[1], torch.tensor(expected, dtype=torch.float64))


def test_equation_10_tree_forward(pooled):
    # 3/4 · 7 + 1/4 · 5; and a single leaf is v · x = 7
    assert pooled(TREE2, [OMEGA, V1, V2])[0] == pytest.approx(6.5, rel=1e-14)
    assert pooled(make_tree(1), [V1])[0] == 7.0


def test_equation_10_three_levels(pooled):
    # Root σ = 3/4 over (3/4 · 7 + 1/4 · 5 = 6.5) and (1/2 · 12 + 1/2 · 6 = 9), as 0 · x gives a gate of one half.
    ones = torch.ones_like(X)
    value = pooled(make_tree(3), [OMEGA, OMEGA, 0 * OMEGA, V1, V2, ones, ones / 2])[0]
    assert value == pytest.approx(0.75 * 6.5 + 0.25 * 9, rel=1e-14)


def test_equation_11_gradient_of_the_left_filter(pooled):
    # δ σ x = 3/2 x
    assert_close(pooled(TREE2, [OMEGA, V1, V2])[2][1], 1.5 * X)


def test_equation_12_gradient_of_the_right_filter(pooled):
    # δ (1 − σ) x = 1/2 x
    assert_close(pooled(TREE2, [OMEGA, V1, V2])[2][2], 0.5 * X)


def test_equation_13_gradient_of_the_trees_gate(pooled):
    # δ σ(1 − σ) x (v₁ − v₂)·x = 2 · 3/16 · 2 x = 3/4 x
    assert_close(pooled(TREE2, [OMEGA, V1, V2])[2][0], 0.75 * X)


def test_equation_15_gradient_of_x_in_the_tree(pooled):
    # δ [σ(1 − σ) ω (v₁ − v₂)·x + σ v₁ + (1 − σ) v₂] = 2 [3/8 ω + 3/4 v₁ + 1/4 v₂]
    expected = [1.5, 0.5, 0.375 * math.log(3) + 0.5, 1.5]
    assert_close(pooled(TREE2, [OMEGA, V1, V2])[1], torch.tensor(expected, dtype=torch.float64))


def test_the_first_of_equal_maxima_receives_the_gradient(pooled):
    # PyTorch's rule, where the paper's indicator gives it to both: 2 [1/2 · 1[first] + 1/8]
    assert pooled(MIXED, a=0.5, x=torch.tensor([0.0, 5, 5, 2], dtype=torch.float64))[1].tolist() == [
        0.25,
        1.25,
        0.25,
        0.25,
    ]


def test_equations_4_and_9_as_printed_give_every_maximum_the_gradient():
    x = torch.tensor([0.0, 5, 5, 2], dtype=torch.float64).reshape(1, 1, 2, 2)
    grad = torch.full((1, 1, 1, 1), DELTA, dtype=torch.float64)
    none = x.new_empty((0, 1, 1, 1, 2, 2)), x.new_empty((0, 1, 1, 1))
    a = x.new_full((1, 1, 1, 1), 0.5)
    dx, _, _ = reference.backward(grad, x, none[0], a, MIXED.program, W(2).of(), ties="all")
    assert dx.flatten().tolist() == [0.25, 1.25, 1.25, 0.25]  # 2 [1/2 · 1[max] + 1/8]
    zero = x.new_zeros((1, 1, 1, 1, 2, 2))
    dx, _, _ = reference.backward(grad, x, zero, none[1], GATED.program, W(2).of(), ties="all")
    assert dx.flatten().tolist() == [0.25, 1.25, 1.25, 0.25]  # σ = 1/2, ω = 0: the same
