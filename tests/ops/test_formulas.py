"""Value and every gradient of each leaf against its formula in plain PyTorch, and against other packages' definitions.

A formula has the cells of all regions at once, ``x`` ``[N, C, *output, K]``, and which of them exist, ``e``
``[*output, K]``. It is evaluated in float64, and nothing of ``learnpool.ops`` takes part in it.
"""

import itertools
import math
from functools import reduce

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import learnpool as lp
from cases import W, distinct
from learnpool import Avg, Blur, Filter, Gate, LogSumExp, Max, Median, Min, Power, Rank, Soft, Std

pytestmark = pytest.mark.usefixtures("kernel")


def make_constant_filter(taps):
    return Filter(torch.linspace(-0.5, 0.75, taps), learn=False)


TREES = [
    Max(), Min(), Avg(), Filter(), make_constant_filter, Std(), Soft(1.5), Soft(-2.0), LogSumExp(2.0), Power(3.0),
    Power(2.5, absolute=True), Rank(), Median(), Blur(),
    Gate(Max(), Avg(), by=Std(), bias=True), Gate(Soft(1.5), Rank(), by=Power(3.0)),
    Gate(Filter(), LogSumExp(2.0), by=Filter(), bias=True), Gate(Blur(), Min(), by=Soft(-1.0)),
]  # fmt: skip
WINDOWS = [
    W(2, 2), W(3, 2, 1), W(3, 2, ceil_mode=True), W((3, 2, 2), (1, 2, 1), (1, 0, 1)), W(3, 1, 1, 2), W(4, 2, 1),
]  # fmt: skip
SHAPES = {1: (2, 3, 37), 2: (2, 17, 8, 19), 3: (1, 17, 4, 6, 5)}  # not multiples of any vector
PLAIN = torch.contiguous_format
LAYOUTS = {1: [PLAIN], 2: [PLAIN, torch.channels_last], 3: [PLAIN, torch.channels_last_3d]}
EXACT = {"rtol": 1e-11, "atol": 1e-12}  # float64, a few roundings apart
CASES = [(tree, w) for tree in TREES for w in WINDOWS]


def get_name(value):
    return "Filter(values)" if value is make_constant_filter else str(value)


def gather_cells(x, kernel, stride, padding, dilation, ceil_mode):
    """The cells of every region by index, ``[N, C, *output, K]``, and which of them exist."""
    dims = x.dim() - 2
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
    output = pool(x.detach()[:1, :1], kernel, stride, padding, dilation, ceil_mode).shape[2:]
    index, e = torch.tensor(0), torch.tensor(True)
    for a, n in enumerate(x.shape[2:]):
        at = torch.arange(output[a])[:, None] * stride[a] - padding[a] + torch.arange(kernel[a]) * dilation[a]
        at = at.reshape([at.shape[0] if i == a else at.shape[1] if i == dims + a else 1 for i in range(2 * dims)])
        index, e = index * n + at.clamp(0, n - 1), e & (at >= 0) & (at < n)
    return x.flatten(2)[:, :, index.flatten(dims)], e.flatten(dims)


def average(x, e):
    return x.where(e, 0).sum(-1) / e.sum(-1)


def sort_cells(x, e):
    """The largest first, zeros behind those that exist."""
    cells = x.where(e, -math.inf).sort(-1, descending=True).values
    return cells.where(cells > -math.inf, 0)


def spread_over_places(w, e):
    """A step function over the order, ``w`` on K equal steps, averaged over the step of each of n cells."""
    n, taps = e.sum(-1)[..., None, None], e.shape[-1]
    k = torch.arange(taps, dtype=torch.float64)
    j = k[:, None]
    start, stop = torch.maximum(j / n, k / taps), torch.minimum((j + 1) / n, (k + 1) / taps)
    return ((stop - start).clamp(min=0) * taps * w[..., None, :]).sum(-1)


def make_binomial_row(taps):
    return torch.tensor([math.comb(taps - 1, i) / 2 ** (taps - 1) for i in range(taps)], dtype=torch.float64)


def evaluate(tree, x, e, kernel, weights, mixes):
    """The formula of a leaf, or of a gate over leaves; its parameters are the next rows of weight and mix."""
    match tree:
        case Max():
            return x.where(e, -math.inf).amax(-1)
        case Min():
            return x.where(e, math.inf).amin(-1)
        case Avg():
            return average(x, e)
        case Std():
            return average((x - average(x, e)[..., None]) ** 2, e).sqrt()
        case Filter():
            v = next(weights) if tree.learn else torch.tensor(tree.values, dtype=torch.float64)
            return (x.where(e, 0) * v).sum(-1)
        case Soft():
            beta = next(mixes)[..., None]
            return (x * (beta * x).where(e, -math.inf).softmax(-1)).sum(-1)
        case LogSumExp():
            r = next(mixes)
            return ((r[..., None] * x).where(e, -math.inf).logsumexp(-1) - e.sum(-1).double().log()) / r
        case Power():
            p = next(mixes)
            u = (x.abs() if tree.absolute else x).clamp(min=1e-6)
            return average(u ** p[..., None], e) ** (1 / p)
        case Rank():
            return (sort_cells(x, e) * spread_over_places(next(weights), e)).sum(-1)
        case Median():
            cells, n = sort_cells(x, e), e.sum(-1).expand(x.shape[:-1])[..., None]
            return (cells.gather(-1, (n - 1) // 2) + cells.gather(-1, n // 2))[..., 0] / 2
        case Blur():
            v = reduce(torch.kron, map(make_binomial_row, kernel))
            return (x * v * e).sum(-1) / (v * e).sum(-1)
        case Gate():
            g, b = next(mixes), next(mixes) if tree.bias else 0
            left, right, by = (evaluate(t, x, e, kernel, weights, mixes) for t in (tree.left, tree.right, tree.by))
            s = torch.sigmoid(g * by + b)
            return s * left + (1 - s) * right
    raise ValueError(f"no formula of {tree}")


def assert_same(y, expected, inputs):
    """Value and the gradient of x and of all parameters."""
    scale, exact = inputs[0].abs().max().item(), EXACT if y.dtype == torch.float64 else {}
    sums = {"rtol": 1e-3, "atol": 1e-6 * scale} if y.dtype == torch.float16 else exact  # of cells that cancel
    assert_close(y, expected.to(y.dtype), **sums)
    grad = torch.randn(y.shape, dtype=torch.float64).to(y.dtype)
    ours, theirs = (torch.autograd.grad(z, inputs, grad.to(z.dtype)) for z in (y, expected))
    assert_close(ours[0], theirs[0], **exact)
    sums = {"rtol": 1e-4, "atol": 1e-4 * scale}  # in float32, over all regions in another order
    assert_close(ours[1:], theirs[1:], **exact or sums)


def vary_parameters(layer):
    for name, p in layer.named_parameters():
        p.data += 0.2 * torch.rand_like(p) if name == "mix" else 0.1 * torch.randn_like(p)


def check_layer(tree, window, x, share="layer", gain=1.0):
    """A layer with random parameters against the formula, and its value; ``gain`` multiplies that of a gate."""
    dims, dtype, ceil_mode = x.dim() - 2, torch.promote_types(x.dtype, torch.float32), window.ceil_mode
    kernel, *rest = (v[:dims] if isinstance(v, tuple) else (v,) * dims for v in window[:4])
    cells, e = gather_cells(x.requires_grad_().double(), kernel, *rest, ceil_mode)
    tree = tree(cells.shape[-1]) if callable(tree) else tree
    options = {"share": share, "channels": x.shape[1], "grid": cells.shape[2:-1], "dtype": dtype}
    options |= {"ceil_mode": ceil_mode, "count_include_pad": window.count_include_pad}
    layer = (lp.Pool1d, lp.Pool2d, lp.Pool3d)[dims - 1](tree, kernel, *rest, **options)
    vary_parameters(layer)
    if isinstance(tree, Gate):
        layer.mix.data[0] *= gain
    weights = iter(() if layer.weight is None else layer.weight.double().flatten(-dims))
    mixes = iter(() if layer.mix is None else layer.mix.double())
    y = layer(x)
    assert_same(y, evaluate(tree, cells, e, kernel, weights, mixes), [x, *layer.parameters()])
    return y


@pytest.mark.parametrize(("tree", "window"), CASES, ids=get_name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_every_tree_is_its_formula(tree, window, dtype):
    for dims, shape in SHAPES.items():
        for layout, share in itertools.product(LAYOUTS[dims], ("layer", "region_channel")):
            check_layer(tree, window, distinct(*shape, dtype=dtype).to(memory_format=layout), share)


@pytest.mark.parametrize("tree", [tree for tree in TREES if "Avg" not in str(tree)], ids=get_name)
@pytest.mark.parametrize("layout", LAYOUTS[2], ids=str)
def test_padding_counts_for_averages_alone(tree, layout):
    window = W(3, 2, 1, ceil_mode=True, count_include_pad=True)
    check_layer(tree, window, distinct(*SHAPES[2]).to(memory_format=layout))


@pytest.mark.parametrize("tree", TREES, ids=get_name)
@pytest.mark.parametrize("layout", LAYOUTS[2], ids=str)
def test_negative_cells_and_large_ones(tree, layout):
    """1e4 in float16 is where exponentials and powers overflow if they are taken as a formula has them."""
    check_layer(tree, W(3, 2, 1), (distinct(*SHAPES[2]) - 2.1).to(memory_format=layout))
    x = (5e3 * distinct(1, 17, 6, 7)).to(torch.float16)
    y = check_layer(tree, W(3, 2, 1), x.to(memory_format=layout), gain=1e-4)  # so that gates are open
    assert y.isfinite().all()


@pytest.mark.parametrize("tree", [Soft(), LogSumExp(), Power(), Std(), Gate(Max(), Soft(), by=Std())], ids=str)
@pytest.mark.parametrize("size", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("share", ["layer", "channel"])
def test_adaptive_regions(tree, size, share):
    x, regions = distinct(2, 3, 7, 8).requires_grad_(), []
    layer = lp.AdaptivePool2d(tree, size, share=share, channels=3, dtype=torch.float64)
    vary_parameters(layer)
    for place in itertools.product(*map(range, size)):
        parts = zip(place, x.shape[2:], size, strict=True)
        cells = x[(..., *(slice(i * n // out, math.ceil((i + 1) * n / out)) for i, n, out in parts))].flatten(2)
        mixes = iter(() if layer.mix is None else layer.mix.flatten(1))
        regions.append(evaluate(tree, cells, torch.ones(cells.shape[-1], dtype=torch.bool), (), (), mixes))
    assert_same(layer(x), torch.stack(regions, -1).unflatten(-1, size), [x, *layer.parameters()])


def make_maps():
    return distinct(2, 5, 15, 17).requires_grad_()


def convolve(x, row, stride, padding=0):
    """A depthwise convolution by the outer product of ``row``."""
    weight = torch.outer(row, row).expand(x.shape[1], 1, -1, -1)
    return F.conv2d(x, weight, stride=stride, padding=padding, groups=x.shape[1])


@pytest.mark.parametrize("window", [(3, 2), ((2, 3), (1, 2)), ((4, 1), 2, (2, 0))], ids=str)
def test_softpool(window):
    """Stergiou et al. (2021): exponentials weigh the cells of a region."""
    x = make_maps()
    e = F.avg_pool2d(x.exp(), *window)
    assert_same(lp.SoftPool2d(*window, learn=False)(x), F.avg_pool2d(x * x.exp(), *window) / e, [x])


@pytest.mark.parametrize("taps", [2, 3, 4, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_blur_of_timm(taps, stride):
    """timm.layers.BlurPool2d: reflection by ``(stride + taps − 2) // 2`` cells."""
    x, padding = make_maps(), (stride + taps - 2) // 2
    expected = convolve(F.pad(x, [padding] * 4, mode="reflect"), make_binomial_row(taps), stride)
    assert_same(lp.BlurPool2d(taps, stride, padding, border="reflect")(x), expected, [x])


@pytest.mark.parametrize("taps", [3, 4, 5])
def test_blur_of_kornia(taps):
    """kornia.filters.BlurPool2D: zeros around the map."""
    x, padding = make_maps(), (taps - 1) // 2
    expected = convolve(x, make_binomial_row(taps), 2, padding)
    assert_same(lp.BlurPool2d(taps, 2, padding, border="zeros")(x), expected, [x])


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_lp_pool_of_torch(ceil_mode):
    """``nn.LPPool2d`` has a sum where a power mean has a mean: a factor of ``K^(1/p)``."""
    x = make_maps()
    for stride in (2, 3):
        y = 3 * lp.make_pool("lp2", 3, stride, ceil_mode=ceil_mode)(x)
        assert_same(y, nn.LPPool2d(2, 3, stride, ceil_mode)(x), [x])
    y = 6 ** (1 / 3) * lp.GeMPool2d((3, 2), (2, 1), p=3.0, learn=False, absolute=True)(x)
    assert_same(y, nn.LPPool2d(3, (3, 2), (2, 1))(x.abs()), [x])


def test_gem_of_cnnimageretrieval():
    """Radenović et al. (2018): clamped at 1e-6, and p is learned; over the whole map, and over windows."""
    x = make_maps()
    whole, windows = lp.AdaptivePool2d(Power(), dtype=x.dtype), lp.GeMPool2d(3, 2, 1, p=2.5, dtype=x.dtype)
    wide = lp.GeMPool2d((2, 5), (1, 3), (0, 2), p=4.0, dtype=x.dtype)
    cases = ((whole, (x.shape[2:],)), (windows, (3, 2, 1)), (wide, ((2, 5), (1, 3), (0, 2))))
    for layer, window in cases:
        p = layer.mix.flatten()
        expected = F.avg_pool2d(x.clamp(min=1e-6).pow(p), *window, count_include_pad=False).pow(1 / p)
        assert_same(layer(x), expected, [x, layer.mix])


@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1)], ids=str)
def test_max_blur(window):
    """Zhang (2019): the maximum at stride 1, then [1, 2, 1] at the stride, over the cells that exist."""
    x, (kernel, stride, padding) = make_maps(), window
    dense, row = F.max_pool2d(x, kernel, 1, padding), make_binomial_row(3)
    expected = convolve(dense, row, stride, 1) / convolve(torch.ones_like(dense), row, stride, 1)
    assert_same(lp.MaxBlurPool2d(*window)(x), expected, [x])
