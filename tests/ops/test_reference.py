import itertools
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from cases import GATED, MIXED, SHARES, TREES, WINDOWS, W, call, distinct, leaves, numbers, parameters
from learnpool import Avg, Filter, Gate, Max, Min, Mix
from learnpool.ops import reference
from learnpool.program import decode
from learnpool.tree import make_tree


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_backward_by_hand_is_autograd_through_forward(tree, window, share):
    window = window.of()
    x = distinct(2, 3, 9, 8)
    weight, mix = parameters(tree, window, share, 3, (9, 8))
    mix.view(-1)[::3], mix.view(-1)[1::3] = 0, 1  # the borders are ordinary points of the formula
    inputs = leaves(x, weight, mix)
    y = reference.forward(*inputs, tree.program, window)
    grad = torch.randn_like(y)
    theirs = torch.autograd.grad(y, inputs, grad, allow_unused=True)
    ours = reference.backward(grad, *[tensor.detach() for tensor in inputs], tree.program, window)
    for mine, autograd, tensor in zip(ours, theirs, inputs, strict=True):
        assert_close(mine, torch.zeros_like(tensor) if autograd is None else autograd)


@pytest.mark.parametrize("window", [window for window in WINDOWS if window.dilation == 1], ids=str)
def test_forward_is_what_a_user_would_compose(window):
    """max_pool2d, avg_pool2d, a depthwise convolution and a sigmoid; PyTorch's average knows no dilation."""
    window = window.of()
    x = distinct(2, 3, 9, 8)
    weight, mix = parameters(GATED, window, "channel", 3, (9, 8))
    y = reference.forward(x, weight, mix, GATED.program, window)
    largest = F.max_pool2d(x, window.kernel, window.stride, window.padding, 1, window.ceil_mode)
    mean = F.avg_pool2d(x, window.kernel, window.stride, window.padding, window.ceil_mode, window.count_include_pad)
    room = [n * s for n, s in zip(y.shape[2:], window.stride, strict=True)]
    p = window.padding
    wide = F.pad(x, (p[1], p[1] + room[1], p[0], p[0] + room[0]))
    z = F.conv2d(wide, weight[0, :, 0, 0, None], stride=window.stride, groups=3)[..., : y.shape[2], : y.shape[3]]
    assert_close(y, torch.sigmoid(z) * largest + (1 - torch.sigmoid(z)) * mean)


@pytest.mark.parametrize("levels", range(1, 7))
def test_a_tree_of_any_depth_is_its_definition(levels):
    """The paper's (10), evaluated by recursion over single regions."""
    window = W(2).of()
    tree = make_tree(levels)
    x = distinct(1, 2, 4, 4)
    weight, mix = parameters(tree, window, "layer", 2, (4, 4))
    y = reference.forward(x, weight, mix, tree.program, window)

    def f(region, m, first_leaf):
        if m >= first_leaf:
            return (weight[m, 0, 0, 0] * region).sum()
        s = torch.sigmoid((weight[m, 0, 0, 0] * region).sum())
        return s * f(region, 2 * m + 1, first_leaf) + (1 - s) * f(region, 2 * m + 2, first_leaf)

    for c in range(2):
        for i in range(2):
            for j in range(2):
                region = x[0, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
                assert_close(y[0, c, i, j], f(region, 0, 2 ** (levels - 1) - 1))


def one_region(node, cells, count, weight, mix, rows):
    """The definition, by recursion: ``cells`` maps taps that exist to their values, ``rows`` numbers the parameters."""
    name = type(node).__name__
    if name == "Max":
        return max(cells.values())
    if name == "Min":
        return min(cells.values())
    if name == "Avg":
        return sum(cells.values()) / count
    if name == "Filter":
        return sum(weight[(rows[id(node)], *tap)] * v for tap, v in cells.items())
    if name == "Gate":
        s = torch.sigmoid(sum(weight[(rows[id(node)], *tap)] * v for tap, v in cells.items()))
    else:
        s = mix[rows[id(node)]] if node.learn else node.a
    left, right = (one_region(child, cells, count, weight, mix, rows) for child in (node.left, node.right))
    return s * left + (1 - s) * right


def test_min_of_one_region_by_hand():
    """Of [3, 1, 1, 2] the first 1 is the minimum; a quarter of the maximum goes to the 3."""
    x = torch.tensor([[[[3.0, 1.0], [1.0, 2.0]]]])
    weight, tree = torch.empty(0, 1, 1, 1, 2, 2), Mix(Min(), Max(), a=0.75)
    mix = torch.full((1, 1, 1, 1), 0.75)
    assert reference.forward(x, weight, mix, tree.program, W(2).of()).item() == 0.75 * 1 + 0.25 * 3
    dx, _, dm = reference.backward(torch.ones(1, 1, 1, 1), x, weight, mix, tree.program, W(2).of())
    assert dx.flatten().tolist() == [0.25, 0.75, 0, 0]
    assert dm.item() == 1 - 3
    dx, _, _ = reference.backward(torch.ones(1, 1, 1, 1), x, weight, mix, tree.program, W(2).of(), ties="all")
    assert dx.flatten().tolist() == [0.25, 0.75, 0.75, 0]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(
    ("window", "size"),
    [
        (W(3, 2, 1, 2, True), (11,)),
        (W((3, 2), (2, 1), (1, 0), (1, 2), True, True), (6, 5)),
        (W((2, 3), (1, 2), (1, 1), (2, 1), False, False), (5, 6)),
        (W((2, 3, 2), (2, 1, 3), (1, 0, 1), (1, 1, 2), True, True), (4, 4, 5)),
    ],
    ids=str,
)
def test_every_region_by_its_definition(window, size, share):
    """Loops over single regions and taps: nothing of the reference is used but its answer."""
    dims, channels = len(size), 2
    tree = Gate(Mix(Max(), Filter(), a=0.3), Mix(Gate(Avg(), Filter()), Mix(Min(), Avg(), a=0.2, learn=False)))
    queue, rows, counts = [tree], {}, {"weight": 0, "mix": 0}
    for node in queue:
        queue.extend(getattr(node, side) for side in ("left", "right") if hasattr(node, side))
        kind = {"Gate": "weight", "Filter": "weight", "Mix": "mix"}.get(type(node).__name__)
        if kind and getattr(node, "learn", True):
            rows[id(node)], counts[kind] = counts[kind], counts[kind] + 1
    w = window.of(dims)
    x = distinct(1, channels, *size)
    weight, mix = parameters(tree, w, share, channels, size)
    y = reference.forward(x, weight, mix, tree.program, w)
    assert_close(call(x, weight, mix, tree, w), y)
    for c, place in itertools.product(range(channels), itertools.product(*map(range, y.shape[2:]))):
        cells, count = {}, 0
        for tap in itertools.product(*map(range, w.kernel)):
            at = [o * s + k * d - p for o, s, k, d, p in zip(place, w.stride, tap, w.dilation, w.padding, strict=True)]
            inside = all(0 <= i < n for i, n in zip(at, size, strict=True))
            if inside:
                cells[tap] = x[(0, c, *at)]
            padded = all(i < n + p for i, n, p in zip(at, size, w.padding, strict=True))
            count += padded if w.count_include_pad else inside
        where = [c if "channel" in share else 0, *(place if "region" in share else (0,) * dims)]
        masks, mixes = (p[(slice(None), *where)] for p in (weight, mix))
        assert_close(y[(0, c, *place)], one_region(tree, cells, count, masks, mixes, rows))


def test_a_side_that_is_not_read_gets_nothing_even_of_infinity():
    """Where a = 1, an infinite gradient must not come back as 0 · inf on the side of the average."""
    x = distinct(1, 1, 2, 2)
    none = x.new_empty((0, 1, 1, 1, 2, 2))
    for a, expected in ((1.0, [0, 1]), (0.0, [0.25])):
        grad = torch.full((1, 1, 1, 1), torch.inf, dtype=torch.float64)
        mix = x.new_full((1, 1, 1, 1), a)
        dx, _, _ = reference.backward(grad, x, none, mix, MIXED.program, W(2).of(), (True, False, False))
        assert not dx.isnan().any()
        assert sorted(set((dx.isinf().double() * (1 if a else 0.25)).flatten().tolist())) == expected


def test_a_saturated_gate_passes_no_gradient_beside_infinity():
    """σ (1 − σ) is 0 there, and max − mean infinite: their product must be 0, not NaN."""
    x = distinct(1, 1, 2, 2).abs() + 1
    x[0, 0, 0, 0] = torch.inf
    mask, none = torch.full((1, 1, 1, 1, 2, 2), -1e4, dtype=torch.float64), x.new_empty((0, 1, 1, 1))
    grad = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    dx, _, _ = reference.backward(grad, x, mask, none, GATED.program, W(2).of(), (True, False, False))
    assert torch.equal(dx, torch.full_like(x, 0.25))
    backward = (grad, x, mask, none, GATED.program, *numbers(W(2).of()), [True, False, False])
    assert torch.equal(torch.ops.learnpool.pool_backward(*backward)[0], dx)


@pytest.mark.parametrize("sides", [(Min(), Avg()), (Max(), Gate(Avg(), Min()))], ids=str)
def test_a_gate_that_is_not_read_gets_nothing_beside_infinity(sides):
    """Its mask gives −inf + inf = NaN and its sides differ by infinity, and all of that is multiplied by 0."""
    tree = Mix(Max(), Gate(*sides))
    x = torch.tensor([[-torch.inf, -torch.inf], [1.0, 2.0]], dtype=torch.float64).reshape(1, 1, 2, 2)
    weight = torch.tensor([1.0, -1, 0.5, 0.5], dtype=torch.float64).reshape(1, 1, 1, 1, 2, 2)
    weight = weight.repeat(decode(tree.program).weights, 1, 1, 1, 1, 1)
    grad, mix = torch.ones(1, 1, 1, 1, dtype=torch.float64), torch.ones(1, 1, 1, 1, dtype=torch.float64)
    dx, _, _ = reference.backward(grad, x, weight, mix, tree.program, W(2).of(), (True, False, False))
    assert dx.flatten().tolist() == [0, 0, 0, 1]
    backward = (grad, x, weight, mix, tree.program, *numbers(W(2).of()), [True, False, False])
    assert torch.equal(torch.ops.learnpool.pool_backward(*backward)[0], dx)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("by_region", [True, False], ids=["proportions by region", "by a subtree"])
def test_whatever_closes_a_gate_off_it_gets_nothing_beside_infinity(by_region, dtype, layout):
    unread = Gate(Min(), Avg())
    tree = Mix(Max(), unread) if by_region else Gate(Max(), unread, by=Max())
    x = torch.tensor([[-torch.inf, -torch.inf], [1.0, 2.0]], dtype=dtype).repeat(1, 2).reshape(1, 1, 2, 4)
    x = x.to(memory_format=layout)
    weight = torch.tensor([1.0, -1, 0.5, 0.5], dtype=dtype).reshape(1, 1, 1, 1, 2, 2)
    mix = torch.full((decode(tree.program).mixes, 1, 1, 2 if by_region else 1), 1.0 if by_region else 1e4, dtype=dtype)
    grad = torch.ones(1, 1, 1, 2, dtype=dtype)
    arguments = (grad, x, weight, mix, tree.program)
    dx, _, _ = reference.backward(*arguments, W(2).of(), (True, False, False))
    assert dx.flatten().tolist() == [0, 0, 0, 0, 0, 1, 0, 1]
    assert torch.equal(torch.ops.learnpool.pool_backward(*arguments, *numbers(W(2).of()), [True, False, False])[0], dx)


def test_parameter_gradients_of_halves_are_summed_in_float32():
    """4,096 regions give 1 each; in bfloat16 such a sum stops at 256."""
    x = torch.ones(1, 1, 64, 64, dtype=torch.bfloat16)
    weight, mix = torch.ones(1, 1, 1, 1, 1, 1, dtype=torch.bfloat16), torch.empty(0, 1, 1, 1, dtype=torch.bfloat16)
    _, dw, _ = reference.backward(torch.ones_like(x), x, weight, mix, make_tree(1).program, W(1).of())
    assert dw.item() == 4096
    backward = (
        torch.ones_like(x),
        x,
        weight,
        mix,
        make_tree(1).program,
        *numbers(W(1).of()),
        [False, True, False],
    )
    assert torch.ops.learnpool.pool_backward(*backward)[1].item() == 4096


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_zeros_keep_their_sign(layout):
    x = torch.full((1, 17, 4, 2), -0.0).to(memory_format=layout)
    none = torch.empty(0, 1, 1, 1, 2, 2)
    for pool in (
        reference.forward(x, none, torch.ones(1, 1, 1, 1), MIXED.program, W(2).of()),
        call(x, none, torch.ones(1, 1, 1, 1), MIXED, W(2).of()),
    ):
        assert torch.equal(1 / pool, 1 / F.max_pool2d(x, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_once(dtype):
    window = W(3, 2, 1).of()
    x = distinct(2, 3, 9, 9, dtype=dtype)
    for tree in TREES:
        weight, mix = parameters(tree, window, "channel", 3, (9, 9), dtype=torch.float32)
        y = reference.forward(x, weight, mix, tree.program, window)
        wide = reference.forward(x.float(), weight, mix, tree.program, window)
        assert torch.equal(y, wide.to(dtype))
        grad = torch.randn_like(y)
        narrow = reference.backward(grad, x, weight, mix, tree.program, window)
        full = reference.backward(grad.float(), x.float(), weight, mix, tree.program, window)
        assert torch.equal(narrow[0], full[0].to(dtype))
        assert torch.equal(narrow[1], full[1])
        assert torch.equal(narrow[2], full[2])


def test_a_region_without_any_cell():
    """Dilation can step over a small input: as in PyTorch the maximum is −inf, the mean is 0, no gradient flows."""
    x = torch.randn(1, 1, 3, 3, dtype=torch.float64)
    window = W(2, 1, 1, 4).of()
    weight, mix = parameters(MIXED, window, "layer", 1, (3, 3))
    assert torch.equal(reference.forward(x, weight, 0 * mix + 1, MIXED.program, window), F.max_pool2d(x, 2, 1, 1, 4))
    assert reference.forward(x, weight, 0 * mix, MIXED.program, window).item() == 0
    dx, _, _ = reference.backward(x.new_ones(1, 1, 1, 1), x, weight, 0 * mix + 1, MIXED.program, window)
    assert torch.equal(dx, torch.zeros_like(x))


def test_work_only_for_gradients_that_are_asked_for():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        ops = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.ops += 1
            return func(*args, **(kwargs or {}))

    x, window = distinct(2, 3, 9, 9), W(3, 2, 1).of()
    weight, mix = parameters(GATED, window, "layer", 3, (9, 9))
    grad = torch.randn(2, 3, 5, 5, dtype=torch.float64)

    def ops(*mask):
        with Count() as count:
            result = reference.backward(grad, x, weight, mix, GATED.program, window, mask)
        assert [part is not None for part in result] == list(mask)
        return count.ops

    nothing = ops(False, False, False)
    assert ops(True, False, False) > nothing + 9 * 3
    assert ops(False, True, False) > nothing + 9 * 3
    assert ops(True, True, True) >= ops(True, False, False) + ops(False, True, False) - nothing - 9 * 2


def test_an_unknown_operation_is_an_error():
    program = decode(MIXED.program)
    unknown = program._replace(nodes=(program.nodes[0]._replace(op=7), *program.nodes[1:]))
    one, mix = torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), 0.5)
    reference.evaluate(program, [one, one], mix)
    with pytest.raises(ValueError, match="unknown operation 7 of a node"):
        reference.evaluate(unknown, [one, one], mix)


MEMORY = """
import resource, torch
from learnpool import Gate, Max, Avg
from learnpool.ops import reference
from learnpool.ops.window import Window
torch.set_num_threads(1)
window = Window.of("test", 2, 7, 1, 3)
def step(n):
    x = torch.randn(4, 16, n, n)
    weight, mix, program = torch.randn(1, 1, 1, 1, 7, 7), torch.empty(0, 1, 1, 1), Gate(Max(), Avg()).program
    y = reference.forward(x, weight, mix, program, window)
    reference.backward(y, x, weight, mix, program, window)
    return y.numel() * 4
step(16)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
output = step(512)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / output)
"""


def test_memory_is_of_the_order_of_the_output():
    """A 7×7 window: unfolding it would take 49 times the output; some maps are enough, freed soon or late."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 30
