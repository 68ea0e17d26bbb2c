"""Strided convolutions, shortcuts and slices: the same shapes and start as before, whatever the geometry."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import (
    DeQuantStub,
    QuantStub,
    get_default_qat_qconfig,
    get_default_qconfig,
    get_default_qconfig_mapping,
    prepare,
    prepare_qat,
    quantize_fx,
)
from torch.ao.quantization import convert as quantize
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import learnpool
from learnpool import Avg, Filter, Gate, Max, Mix, Pool2d, convert, restore
from learnpool.conversion.convolutions import read_convolution
from learnpool.conversion.swap import list_swaps
from learnpool.formatting import format_large

ALL = ("strided", "shortcut")
GEOMETRIES = [
    {"kernel_size": k, "stride": s, "padding": p, "dilation": d}
    for k, s, p, d in [
        (3, 2, 1, 1), (3, 2, 0, 1), (2, 2, 0, 1), (4, 4, 0, 1), (7, 2, 3, 1), (3, 3, 2, 2), (5, 2, 4, 2), (1, 2, 0, 1),
        (1, 3, 1, 1), (2, 5, 1, 1), ((3, 1), (2, 1), (1, 0), 1), ((1, 5), (1, 4), (0, 3), (1, 2)),
    ]
]  # fmt: skip


class Block(nn.Module):
    """A residual block: a strided convolution, a norm, an activation that is used twice, and a shortcut."""

    def __init__(self, channels=4, stride=2):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 2 * channels, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(2 * channels), nn.BatchNorm2d(2 * channels)
        self.conv2 = nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Conv2d(channels, 2 * channels, 1, stride)

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + self.down(x))


class Net(nn.Module):
    """Two blocks behind a stem, a functional convolution, a slice, and a mean over the map."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 5, 2, 2)
        self.body = nn.Sequential(Block(4), Block(8))
        self.weight = nn.Parameter(torch.randn(16, 16, 3, 3) / 12)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.body(self.stem(x))
        x = F.conv2d(x, self.weight, stride=2, padding=1)
        x = x[:, :, ::2, ::2]
        return self.head(x.mean((2, 3)))


def make(seed=0, **options):
    torch.manual_seed(seed)
    net = Net(**options)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(), module.running_var.uniform_(0.5, 2), module.weight.normal_()
    return net


X = torch.randn(2, 3, 70, 66, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_every_size_has_the_same_output(geometry, groups):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 8, groups=groups, **geometry)).double()
    old = copy.deepcopy(net)
    report = convert(net, "filter", replace=ALL)
    assert [row.exact for row in report.rows] == ["up to rounding"]
    tried = 0
    for size in range(1, 66):
        x = torch.randn(1, 4, size, 66 - size, dtype=torch.float64)
        try:
            expected = old(x)
        except RuntimeError:  # smaller than the kernel
            continue
        assert_close(net(x), expected)
        tried += 1
    assert tried > 40
    restore(net)
    x = torch.randn(1, 4, 20, 20, dtype=torch.float64)
    assert torch.equal(net(x), old(x))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_every_number_of_dimensions(dims):
    torch.manual_seed(0)
    net = nn.Sequential((nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](2, 3, 3, 2, 1))
    x = torch.randn(2, 2, *(9, 8, 7)[:dims])
    expected = net(x)
    convert(net, "filter", replace=ALL)
    assert_close(net(x), expected)
    assert net[0].pool.weight.shape == (1, 1, *[1] * dims, *[3] * dims)


@pytest.mark.parametrize("mode", ["reflect", "circular", "replicate"])
def test_a_convolution_that_pads_in_another_way(mode):
    net = nn.Sequential(nn.Conv2d(3, 4, 5, 2, 2, padding_mode=mode))
    expected = net(X)
    convert(net, "filter", replace=ALL, example=X)
    assert_close(net(X), expected)
    restore(net)
    report = convert(net, lambda old: "filter", replace=ALL, skip=lambda old: old.stride == (1, 1), only="0", example=X)
    assert report.rows[0].window == "5×5, stride 2, padding 2"
    restore(net)
    report = convert(net, "filter", replace=ALL, first="*")
    assert report.rows[0].now == "then filter 3×3"
    assert report.rows[0].reason.endswith(f"its pool cannot come first: padding_mode='{mode}'")


class SameConv2d(nn.Conv2d):
    """TensorFlow's "same": the padding depends on the size and on the stride."""

    def forward(self, x):
        pads = []
        for n, k, s in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            total = max((-(-n // s) - 1) * s + k - n, 0)
            pads += [total // 2, total - total // 2]
        return F.conv2d(F.pad(x, pads), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("kernel", [2, 3, 5])
def test_a_convolution_whose_padding_depends_on_its_stride(kernel, stride):
    net = nn.Sequential(SameConv2d(3, 4, kernel, stride))
    old = copy.deepcopy(net)
    report = convert(net, "filter", replace=ALL, first=lambda conv: True)
    assert report.rows[0].reason.endswith("its pool cannot come first: SameConv2d pads by hand")
    for size in range(1, 66):
        x = torch.randn(1, 3, size, 66 - size)
        assert_close(net(x), old(x))


def test_a_whole_network_begins_as_it_was_and_keeps_its_names():
    net = make().eval()
    before, state = net(X), copy.deepcopy(net.state_dict())
    report = convert(net, "filter", replace=ALL, example=X)
    assert [(row.name, row.kind, row.now) for row in report.replaced] == [
        ("stem", "strided", "then filter 3×3"),
        ("body.0.conv1", "strided", "then filter 3×3"),
        ("body.0.down", "shortcut", "filter 3×3 first"),
        ("body.1.conv1", "strided", "then filter 3×3"),
        ("body.1.down", "shortcut", "filter 3×3 first"),
        ("conv2d_0", "strided", "then filter 3×3"),
        ("slice_0", "shortcut", "filter"),
    ]
    assert_close(net(X), before)
    conv = net.body[0].conv1
    assert (conv.stride, conv.kernel_size, conv.padding, conv.out_channels) == ((2, 2), (3, 3), (1, 1), 8)
    keys = net.load_state_dict(state, strict=False)
    assert not keys.unexpected_keys
    assert {*keys.missing_keys} == {f"{swap.name}.weight" for swap in list_swaps(net)}
    assert_close(net(X), before)
    net.train()(X).square().mean().backward()
    assert all(swap.new.weight.grad.abs().sum() > 0 for swap in list_swaps(net))


def test_without_an_example_the_same_places_are_found():
    one, other = make(), make()
    rows = convert(one, "filter", replace=(*ALL, "global"), example=X).rows
    assert [(row.name, row.state) for row in convert(other, "filter", replace=(*ALL, "global")).rows] == [
        (row.name, row.state) for row in rows
    ]


def test_restore_is_bit_for_bit():
    net, x = make(), torch.randn(2, 3, 33, 31)
    old = copy.deepcopy(net)
    convert(net, "filter", replace=("max", *ALL))
    convert(net, "mixed", replace=("global",))
    assert len(restore(net)) == 8
    assert list(net.state_dict()) == list(old.state_dict())
    assert all(
        module.__dict__.keys() == other.__dict__.keys()
        for module, other in zip(net.modules(), old.modules(), strict=True)
    )
    assert torch.equal(net.eval()(x), old.eval()(x))


TREES = [
    ("filter", "up to rounding"), ("tree2", "up to rounding"), ("tree3", "up to rounding"), ("gated", "no"),
    ("mixed", "no"),
    (Mix(Max(), Filter()), "up to rounding"), (Mix(Gate(Max(), Avg()), Gate(Filter(), Filter())), "up to rounding"),
    (Gate(Max(), Filter()), "no"), (Mix(Filter(), Avg(), learn=False), "no"), ("max", "no"), ("avg", "no"),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "exact"), TREES, ids=[str(pool) for pool, _ in TREES])
def test_what_can_begin_as_a_stride(pool, exact):
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1))
    expected = net(X)
    report = convert(net, pool, replace=ALL)
    assert report.rows[0].exact == exact
    assert net(X).shape == expected.shape
    assert (exact == "no") != torch.allclose(net(X), expected, atol=1e-5)


WINDOWS = [
    ((3, 1, False), True), ((5, 2, False), True), ((1, 0, False), True), ((2, 0, True), True), ((1, 0, True), True),
    ((4, 1, True), True), ((6, 2, True), True), ((2, 0, False), False), ((3, 0, False), False), ((5, 1, False), False),
    ((3, 1, True), False),
]  # fmt: skip


@pytest.mark.parametrize(("window", "exact"), WINDOWS, ids=str)
def test_a_window_of_the_users_choice(window, exact):
    """``K = 2q + 1``, or ``K = 2q + s`` and ``K ≤ s`` with ceil_mode, have the stride's outputs for every size."""
    kernel, padding, ceil_mode = window
    old = nn.Sequential(nn.Conv2d(2, 3, 3, 2, 1))
    net = copy.deepcopy(old)
    report = convert(net, lambda _: Pool2d(Filter(), kernel, 2, padding, ceil_mode=ceil_mode), replace=ALL)
    assert report.rows[0].exact == ("up to rounding" if exact else "no")
    same = []
    for size in range(1, 66) if exact else range(5, 60):  # where the window fits
        x = torch.randn(1, 2, size, 66 - size)
        expected, y = old(x), net(x)
        same.append(y.shape == expected.shape and torch.allclose(y, expected, atol=1e-5))
    assert all(same) == exact


def test_a_window_with_another_stride_is_not_the_same():
    net = nn.Sequential(nn.Conv2d(2, 3, 3, 2, 1))
    report = convert(net, lambda _: Pool2d(Filter(), 3, 4, 1), replace=ALL)
    assert report.rows[0].exact == "no"
    restore(net)
    report = convert(net, lambda _: Pool2d(Filter(), 3, 2, 1, dilation=2), replace=ALL)
    assert report.rows[0].exact == "no"


def test_a_slice_begins_to_the_last_bit():
    class Subsample(nn.Module):
        def forward(self, x):
            return F.pad(x[..., ::2, ::3], (0, 0, 0, 0, 1, 1))

    net = Subsample()
    expected = net(X)
    report = convert(net, "filter", replace=ALL)
    assert report.rows[0].exact == "to the last bit"
    assert torch.equal(net(X), expected)
    assert net.slice_0.stride == (2, 3)


class Strides(nn.Module):
    """A stride without a convolution, along all axes or one, written in every way."""

    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(1, (2, 3))

    def forward(self, x):
        y = self.pool(x).sum() + F.max_pool2d(x, 1, 2, ceil_mode=True).sum()
        line = x.flatten(2)
        y = y + x[:, :, ::2].sum() + x[..., ::2].sum() + x[:, :, ::2, :].sum() + line[:, :, ::3].sum()
        return y + line[..., ::2].sum() + x[:, ::2].sum() + line[0, ::2].sum()  # the last two are of channels


def test_one_axis_and_pools_of_one_cell():
    net = Strides()
    expected = net(X)
    report = convert(net, "filter", replace=ALL, example=X)
    assert {(row.state, row.kind, row.exact) for row in report.rows} == {("replaced", "shortcut", "to the last bit")}
    assert [(row.was, row.window.removeprefix("stride ")) for row in report.rows] == [
        ("nn.MaxPool2d", "2×3"), ("F.max_pool2d", "2"), ("x[…]", "2×1"), ("x[…]", "1×2"), ("x[…]", "2×1"),
        ("x[…]", "3"), ("x[…]", "2"),
    ]  # fmt: skip
    assert_close(net(X), expected)
    torch._dynamo.reset()
    assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(X), expected)
    net(X).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    restore(net)
    assert torch.equal(net(X), expected)
    assert (type(net.pool), net.pool.stride) == (nn.MaxPool2d, (2, 3))


@pytest.mark.parametrize("size", range(1, 66, 4))
def test_a_pool_of_one_cell_has_the_same_output_for_every_size(size):
    net = nn.Sequential(nn.MaxPool2d(1, 2, ceil_mode=True), nn.MaxPool2d(1, 3))
    x = torch.randn(1, 2, size, 66 - size)
    expected = net(x)
    assert len(convert(net, "filter", replace=("shortcut",)).replaced) == 2
    assert torch.equal(net(x), expected)


def test_space_to_depth_is_no_shortcut():
    class Focus(nn.Module):
        def forward(self, x):
            return torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)

    for example in (None, X):
        with pytest.raises(ValueError, match="convert: Focus has no pools"):
            convert(Focus(), "filter", replace=ALL, example=example)


def test_first_keeps_the_cost():
    behind, first = make(), make()
    a = convert(behind, "filter", replace=ALL, example=X).rows[0]
    b = convert(first, "filter", replace=ALL, example=X, first=["stem", "body.*.conv1"])
    c = b.rows[0]
    outputs = 35 * 33
    assert a.multiply_adds_before == c.multiply_adds_before == outputs * 4 * 3 * 25
    assert a.multiply_adds == 70 * 66 * 4 * 3 * 25 + outputs * 4 * 9
    assert c.multiply_adds == outputs * 4 * 3 * 25 + outputs * 3 * 9
    assert (a.now, c.now) == ("then filter 3×3", "filter 3×3 first")
    assert a.reason == f"with first= {format_large(c.multiply_adds)}"
    assert c.reason == f"without first= {format_large(a.multiply_adds)}"
    assert c.exact == "no"
    assert "multiply-adds there: " in b.summary
    assert first(X).shape == behind(X).shape


@pytest.mark.parametrize("first", ["*", lambda conv: True])
def test_where_sizes_would_change_the_pool_is_behind(first):
    net = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.Conv2d(4, 4, 3, 2, 1))
    report = convert(net, "filter", replace=ALL, first=first, example=X)
    assert [row.now for row in report.rows] == ["then filter 5×5", "filter 3×3 first"]
    assert report.rows[0].reason == "its pool cannot come first: d(k − 1) is not 2p"


class Heads(nn.Module):
    """Halves of the channels as two images, and calls whose strides and axes only a running forward knows."""

    def __init__(self):
        super().__init__()
        self.conv, self.weight = nn.Conv2d(2, 4, 3, 2, 1), nn.Parameter(torch.randn(4, 4, 1, 1))

    def forward(self, x):
        x = self.conv(x.reshape(-1, 2, *x.shape[2:]))
        small = x.shape[-1] < 100
        x = F.conv2d(x, self.weight, stride=1 + small)
        x = F.conv2d(x, self.weight, stride=2 - small)
        return x + torch.mean(x, tuple(range(1, x.dim())), True)


def test_a_place_that_is_none_in_the_example_is_not_listed():
    net = Heads()
    report = convert(net, "filter", replace=(*ALL, "global"), example=torch.randn(3, 4, 16, 16))
    assert [(row.name, row.state) for row in report.rows] == [("conv", "replaced"), ("conv2d_0", "replaced")]


def test_a_function_is_asked_about_a_convolution_whichever_way_it_is_called():
    net, old = make(), []

    def choose(conv):
        old.append(conv)
        return "filter" if conv.in_channels > 4 else None

    report = convert(net, choose, replace=("strided",), example=X, first=lambda conv: conv.in_channels == 16)
    assert [row.now for row in report.replaced] == ["then filter 3×3", "filter 3×3 first"]
    call = nn.Conv2d(16, 16, 3, 2, 1, bias=False)
    assert repr(old[-1]) == repr(call)
    with pytest.raises(ValueError, match="nothing to replace"):
        convert(make(), lambda conv: conv, replace=("strided",), only="conv2d_0")


def test_a_convolution_whose_forward_is_passed_by_is_not_reachable():
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, 2, 1)

        def forward(self, x):
            return self.conv._conv_forward(x, self.conv.weight, None)

    with pytest.raises(ValueError, match="conv: called outside of its module's forward"):
        convert(Around(), "filter", replace=ALL, example=X)


def test_convolutions_of_computed_weights_and_named_padding():
    class Computed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))
            self.stride = (1, 1)

        def forward(self, x):
            if x.shape[-1] > 100:
                x = F.conv2d(x, self.weight[: x.shape[1]], None, self.stride, groups=len(x))
            return F.conv2d(x, self.weight, None, 2, "valid")

    for example in (None, X):
        report = convert(Computed(), "filter", replace=ALL, example=example)
        assert [(row.name, row.state, row.window) for row in report.rows] == [("conv2d_0", "replaced", "3×3, stride 2")]


def test_costs_are_of_one_image_of_a_list():
    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, 2, 1)

        def forward(self, images):
            return self.conv(torch.stack(images))

    one, two = (convert(Detector(), "filter", replace=ALL, example=([*X[:n]],)).rows[0] for n in (1, 2))
    assert one.multiply_adds_before == two.multiply_adds_before == 35 * 33 * 4 * 27


def test_costs_are_of_one_image_of_the_example():
    """As PyTorch counts them, of a convolution that sees two parts of each image."""

    def count(net, x):
        with FlopCounterMode(display=False) as counter:
            net(x)
        return counter.get_total_flops() / 2 / len(x)

    x = torch.randn(3, 4, 16, 16)
    before = count(Heads(), x)
    for first in (None, "*"):
        net = Heads()
        report = convert(net, "filter", replace=ALL, example=x, first=first)
        added = sum(row.multiply_adds - row.multiply_adds_before for row in report.replaced)
        assert count(net, x) - before == added


def test_min_channels_leaves_the_stem():
    report = convert(make(), "filter", replace=ALL, min_channels=4)
    assert [row.name for row in report.left] == ["stem"]
    assert report.left[0].reason == "3 input channels: min_channels=4"


def test_a_shared_convolution_has_one_pool():
    conv = nn.Conv2d(4, 4, 3, 2, 1)
    net = nn.Sequential(conv, nn.ReLU(), conv)
    x = torch.randn(1, 4, 20, 20)
    expected = net(x)
    report = convert(net, "filter", replace=ALL)
    assert [(row.name, row.reason) for row in report.rows] == [
        ("0", "used 2 times; also 2; 4 times the convolution's multiply-adds; first= avoids that")
    ]
    assert_close(net(x), expected)
    assert net[0].pool is net[2].pool


def test_optimizers_keep_their_state_and_get_the_pools():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    net(X).square().mean().backward()
    optimizer.step()
    state = {id(p): s["momentum_buffer"].clone() for p, s in optimizer.state.items()}
    convert(net, "filter", replace=ALL, optimizers=optimizer)
    assert {id(p) for p in net.parameters()} == {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert all(
        torch.equal(optimizer.state[p]["momentum_buffer"], state[id(p)]) for p in net.parameters() if id(p) in state
    )


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_and_pickles(copy_of):
    net = make().eval()
    convert(net, "gated", replace=ALL)
    other = copy_of(net)
    assert torch.equal(other(X), net(X))
    with torch.no_grad():
        other.stem.pool.weight.add_(1)
    assert not torch.equal(other(X), net(X))
    restore(other)
    assert torch.equal(other(X), make().eval()(X))


def test_compiles_in_one_graph():
    net = make().eval()
    convert(net, "filter", replace=ALL, first="stem")
    torch._dynamo.reset()
    assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(X), net(X))
    exported = torch.export.export(net, (X,)).module()
    assert_close(exported(X), net(X))


def test_sizes_come_from_the_example():
    net = make()
    convert(net, "filter", share="region_channel", replace=ALL, example=X)
    assert net.stem.pool.weight.shape == (1, 4, 35, 33, 3, 3)  # behind: the convolution's output
    assert net.body[0].down.pool.weight.shape == (1, 4, 18, 17, 3, 3)  # before: its input
    assert_close(net.eval()(X), make().eval()(X))


def test_a_compiled_network_is_refused():
    net = torch.compile(make())
    with pytest.raises(ValueError, match="^convert: convert the network first, then compile it$"):
        convert(net, "filter", replace=ALL)


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_convolution_is_not_reachable():
    module = type("Conv2d", (nn.Module,), {"__module__": "torch.ao.nn.quantized.modules.conv"})()
    module.stride, module.in_channels = (2, 2), 3
    with pytest.raises(ValueError, match="0: quantised: convert the network first, then quantise it"):
        convert(nn.Sequential(module), "filter", replace=ALL)


@pytest.mark.filterwarnings("ignore")
def test_eager_quantisation_leaves_convolutions_that_have_pools():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), QuantStub(), nn.Conv2d(4, 4, 3), DeQuantStub()).eval()
    convert(net, "filter", replace=ALL)
    with torch.no_grad():
        net[0].pool.weight.normal_()
    expected = net[0](X)
    other = copy.deepcopy(net)
    other.qconfig = get_default_qconfig("x86")
    prepare(other, inplace=True)(X)
    quantize(other, inplace=True)
    assert torch.equal(other[0](X), expected)
    assert type(other[2]).__module__.startswith("torch.ao.nn.quantized")
    restore(net)
    assert all("qconfig" not in module.__dict__ for module in net.modules())


@pytest.mark.filterwarnings("ignore")
def test_quantisation_by_graph_leaves_what_the_report_names():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU()).eval()
    mapping = get_default_qconfig_mapping("x86")
    for row in convert(net, "filter", replace=ALL).replaced:
        mapping.set_module_name(row.name, None)
    with torch.no_grad():
        net[0].pool.weight.normal_()
    prepared = quantize_fx.prepare_fx(net, mapping, (X,))
    assert torch.equal(quantize_fx.convert_fx(prepared)(X), net(X))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("by_graph", [False, True])
def test_a_network_that_is_prepared_for_quantisation_is_refused(by_graph):
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(2)).eval()
    if by_graph:
        net = quantize_fx.prepare_fx(net, get_default_qconfig_mapping("x86"), (X,))
    else:
        net.qconfig = get_default_qconfig("x86")
        prepare(net, inplace=True)
    for kinds in (ALL, ("max",)):
        with pytest.raises(ValueError, match="^convert: convert the network first, then prepare it for quantisation$"):
            convert(net, "filter", replace=kinds)


def test_a_convolution_that_will_be_quantised_is_not_reachable():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1))
    net[0].qconfig = get_default_qconfig("x86")
    with pytest.raises(ValueError, match="0: prepared for quantisation: convert the network first, then prepare it"):
        convert(net, "filter", replace=ALL)


def test_an_exported_network_is_refused():
    net = torch.export.export(make(), (X,)).module()
    with pytest.raises(ValueError, match="^convert: convert the network first, then export it$"):
        convert(net, "filter", replace=ALL)


@pytest.mark.filterwarnings("ignore")
def test_an_example_does_not_touch_a_network_that_is_prepared_for_training_in_integers():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1))
    net.qconfig = get_default_qat_qconfig("x86")
    net = prepare_qat(net)
    old = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ValueError, match="convert the network first, then prepare it for quantisation"):
        convert(net, "filter", replace=ALL, example=X)  # observers resize their buffers
    assert_close(net.state_dict(), old)


@pytest.mark.filterwarnings("ignore")
def test_a_pool_of_integers_is_left():
    net = nn.Sequential(QuantStub(), nn.AdaptiveAvgPool2d(1), DeQuantStub(), nn.AdaptiveAvgPool2d(1)).eval()
    net.qconfig = get_default_qconfig("x86")
    prepare(net, inplace=True)(X)
    quantize(net, inplace=True)
    expected = net(X)
    report = convert(net, "mixed", replace=("global",), example=X)
    assert [(row.name, row.reason) for row in report.left] == [("1", "its input is quint8, not floating point")]
    assert_close(net(X), expected)


class Masked(nn.Module):
    """Slices of a map and of its mask."""

    def forward(self, x):
        return x[:, :, ::2, ::2] * (x > 0)[:, :, ::2, ::2]


@pytest.mark.parametrize("example", [None, X])
def test_a_slice_of_a_mask_is_computed_as_before(example):
    net = Masked()
    expected = net(X)
    report = convert(net, "filter", replace=ALL, example=example)
    assert [row.reason for row in report.left] == ["its input is bool, not floating point"] * (example is not None)
    assert torch.equal(net(X), expected)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(net, fullgraph=True, backend="eager")(X), expected)


def test_a_pool_that_learns_already_keeps_the_kind_of_its_place():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 1, 2), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1))
    convert(net, "filter", replace=ALL)
    convert(net, "mixed", replace=("global",))
    report = convert(net, "gated")
    kinds = {row.name: row.kind for row in report.left if row.reason == "learns already"}
    assert kinds == {"0.pool": "strided", "1.pool": "shortcut", "3": "global"}


class Hidden(nn.Module):
    """Strided convolutions where no pool can be put: compiled, and in a plain list."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, 2, 1)
        self.plain = [nn.Conv2d(3, 3, 3, 2, 1), self.conv]
        self.scripted = torch.jit.script(nn.Conv2d(3, 3, 1, 2))

    def forward(self, x):
        return self.scripted(self.plain[0](self.plain[1](x)))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
@pytest.mark.parametrize("example", [None, X])
def test_convolutions_that_are_not_reachable_say_so(example):
    net = Hidden()
    expected = net(X)
    with pytest.warns(UserWarning, match="convert: not replaced in Hidden: "):
        report = convert(net, "filter", replace=ALL, example=example)
    assert {(row.name, row.kind, row.reason) for row in report.unreachable} == {
        ("plain[0]", "strided", "in a plain list: use nn.ModuleList or nn.ModuleDict"),
        ("scripted", "shortcut", "compiled by TorchScript"),
    }
    assert [row.name for row in report.replaced] == ["conv"]
    assert_close(net(X), expected)


def test_calibrate_brings_a_gated_pool_nearer():
    net = make().eval()
    convert(net, "gated", replace=ALL)
    calibration = learnpool.calibrate(net, [X])
    assert calibration.output_after < calibration.output_before


def test_a_convolution_that_is_the_whole_model():
    net = nn.Conv2d(3, 4, 3, 2, 1)
    expected = net(X)
    convert(net, "filter", replace=ALL)
    assert_close(net(X), expected)


def test_what_is_no_strided_convolution():
    assert read_convolution(nn.Conv2d(3, 4, 3)) is None
    assert read_convolution(nn.ConvTranspose2d(3, 4, 3, 2)) is None
    assert read_convolution(nn.Linear(3, 4)) is None
    assert read_convolution(nn.Conv2d(3, 4, 3, (1, 2))).stride == (1, 2)


def test_one_who_asks_for_pools_hears_of_all_other_places():
    counts = "1 global pool, 4 strided convolutions, 2 shortcut convolutions and 1 shortcut pool"
    with pytest.raises(ValueError, match=rf"; its {counts}: replace=\('global', 'strided', 'shortcut'\)$"):
        convert(make())
    both = r"; its 1 global pool and 1 strided convolution: replace=\('global', 'strided'\)$"
    with pytest.raises(ValueError, match=both):
        convert(nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.AdaptiveAvgPool2d(1)))
