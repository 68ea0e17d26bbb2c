"""convert and restore: what is replaced by what, how it starts, and that nothing else changes."""

import copy
import pickle
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import learnpool
from learnpool import Avg, Filter, Gate, GatedPool2d, Max, Min, Mix, convert, downsampling, restore
from learnpool.conversion.swap import list_swaps
from networks import X, assert_unchanged, modules, outputs, take_snapshot


def rows(report):
    return {row.name: row for row in report.rows}


def test_the_pools_of_a_network_learn():
    net = modules()
    report = convert(net)
    assert type(net[3]) is GatedPool2d
    assert net[3].tree == Gate(Max(), Avg())
    assert (net[3].kernel_size, net[3].stride, net[3].padding) == (3, 2, 1)
    assert net[6].ceil_mode is True
    assert isinstance(net[7], nn.AvgPool2d)
    assert [row.name for row in report.replaced] == ["3", "6"]
    assert rows(report)["7"].reason == "your choice: replace=('max',)"
    assert rows(report)["8"].reason == "your choice: replace=('max',)"
    assert (
        report.parameters
        == 13
        == sum(p.numel() for p in net.parameters()) - sum(p.numel() for p in modules().parameters())
    )
    net(X).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


NAMED = {
    "mixed": "MixedPool2d", "gated": "GatedPool2d", "tree2": "TreePool2d", "tree3": "TreePool2d", "soft": "SoftPool2d",
    "gem": "GeMPool2d", "rank": "RankPool2d", "blur": "BlurPool2d", "lse": "LogSumExpPool2d", "median": "MedianPool2d",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_a_name_with_a_class_gives_that_class(name):
    net = modules()
    convert(net, name)
    assert type(net[3]) is getattr(learnpool, NAMED[name])
    assert repr(net[3]).startswith(f"{NAMED[name]}(kernel_size=3, stride=2, padding=1")


def test_the_report_prints_as_a_table():
    assert (
        str(convert(modules(), "tree2+mixed"))
        == """\
pool  kind    was                   window                    now    parameters  why
3     max     nn.MaxPool2d          3×3, stride 2, padding 1  tree2          27
6     max     nn.MaxPool2d          2×2, stride 2, ceil       mixed           1
7     avg     nn.AvgPool2d          3×3, stride 2, padding 1  left               your choice: replace=('max',)
8     global  nn.AdaptiveAvgPool2d  the whole map             left               your choice: replace=('max',)
2 replaced, 2 left, 0 not reachable; 28 parameters added"""
    )


POOLS = [
    ("max", ("MaxPool2d", "MaxPool2d")), ("half", ("half", "half")), ("tree3", ("tree3", "tree3")),
    ("tree2+gated", ("tree2", "gated")), ("stochastic", ("StochasticPool2d",) * 2),
    (Mix(Filter(), Max()), ("Mix(Filter(), Max())",) * 2),
    (lambda old: GatedPool2d(old.kernel_size, old.stride, old.padding), ("gated", "gated")),
    (lambda old: "mixed" if old.ceil_mode else Filter(), ("filter", "mixed")),
    (lambda old: nn.Identity() if old.ceil_mode else None, (None, "Identity")),
    (lambda old: old if old.ceil_mode else nn.Conv2d(4, 4, 3, 2, 1), ("Conv2d", None)),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "titles"), POOLS, ids=[str(i) for i in range(len(POOLS))])
def test_a_pool_is_a_name_a_tree_or_a_function(pool, titles):
    net = modules()
    report = convert(net, pool)
    assert tuple(rows(report)[name].now or None for name in "36") == titles
    for name, title in zip("36", titles, strict=True):
        assert title is not None or rows(report)[name].reason == "your choice: the function keeps it"
    net.eval()(X)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"only": "3"}, ["3"]),
        ({"only": downsampling}, ["3", "6"]),
        ({"skip": "[3-5]"}, ["6"]),
        ({"skip": lambda layer: layer.padding == 1}, ["6"]),
        ({"only": ["6", lambda layer: layer.kernel_size == 3], "replace": ("max", "avg")}, ["3", "6", "7"]),
        ({"only": downsampling, "skip": ("3", "7"), "replace": ("max", "avg")}, ["6"]),
        ({"replace": ("avg",)}, ["7"]),
    ],
)
def test_only_skip_and_replace(options, expected):
    report = convert(modules(), "mixed", **options)
    assert [row.name for row in report.replaced] == expected
    assert all(row.reason.startswith("your choice") for row in report.left if row.name != "8")


def test_a_pattern_names_a_whole_part():
    net = nn.ModuleDict({"body": modules(), "head": nn.ModuleList([nn.MaxPool2d(2), modules()])})
    report = convert(net, only=["head"], skip="head.1")
    assert [row.name for row in report.replaced] == ["head.0"]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("counts", [True, False])
def test_windows_count_include_pad_and_dims_are_kept(dims, counts):
    largest, average = getattr(nn, f"MaxPool{dims}d"), getattr(nn, f"AvgPool{dims}d")
    net = nn.Sequential(largest(3, 1, 1, dilation=2), average(3, 2, 1, ceil_mode=True, count_include_pad=counts))
    x = torch.randn(2, 3, *(11, 10, 9)[:dims])
    expected = net(x)
    report = convert(net, "mixed", replace=("max", "avg"), start="same")
    assert torch.equal(net(x), expected)
    assert [row.exact for row in report.rows] == ["to the last bit"] * 2
    assert net[1].count_include_pad is counts
    assert net[0].window.dilation == (2,) * dims


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtype_and_mode_are_kept(dtype):
    net = modules().to(dtype).eval()
    expected = net(X.to(dtype))
    convert(net, "mixed", start="same", replace=("max", "avg"))
    assert net[3].mix.dtype == dtype
    assert not net[3].training
    assert torch.equal(net(X.to(dtype)), expected)


def test_the_dtype_and_device_of_the_layers_before_a_pool():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3).double(), nn.MaxPool2d(2))
    convert(net)
    assert (net[1].weight.dtype, net[3].weight.dtype) == (torch.float32, torch.float64)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, device="meta"), nn.MaxPool2d(2))
    convert(net, "tree2")
    assert (net[1].weight.device.type, net[3].weight.device.type) == ("cpu", "meta")


@pytest.mark.parametrize("train", [True, False])
def test_the_same_function_to_the_last_bit_dropout_included(train):
    net = modules()
    expected = outputs(net, X, train)
    report = convert(net, "mixed", start="same", replace=("max", "avg"))
    assert torch.equal(outputs(net, X, train), expected)
    assert "to the last bit" in str(report)


def test_mixes_that_start_at_a_border_can_leave_it():
    net = modules()
    convert(net, "mixed", start="same", replace=("max", "avg"))
    a = [p for name, p in net.named_parameters() if name.endswith("mix")]
    assert [p.item() for p in a] == [1, 1, 0]
    up, down = (torch.autograd.grad(sign * outputs_of(net), a) for sign in (1, -1))
    for rise, fall in zip(up, down, strict=True):
        assert (rise == 0) != (fall == 0)  # outward is dropped, inward passes


def outputs_of(net):
    torch.manual_seed(0)
    return net(X).square().sum()


SAME = [
    ("max", "gated", "no"), ("max", "tree2", "no"), ("max", "half", "no"), ("max", "max", "to the last bit"),
    ("max", Mix(Filter(), Max()), "to the last bit"),
    ("max", Mix(Gate(Max(), Avg()), Mix(Avg(), Max())), "to the last bit"),
    ("max", Mix(Max(), Avg(), a=1, learn=False), "to the last bit"), ("max", "stochastic", "no"),
    ("max", lambda old: nn.Identity(), "no"), ("avg", "gated", "no"), ("avg", "filter", "up to rounding"),
    ("avg", "tree3", "up to rounding"), ("avg", Mix(Filter(), Gate(Filter(), Avg())), "up to rounding"),
    ("avg", Mix(Min(), Filter()), "up to rounding"), ("max", Mix(Min(), Max()), "to the last bit"),
    ("avg", Mix(Max(), Filter()), "up to rounding"), ("avg", "max", "no"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "pool", "exact"), SAME, ids=[str(i) for i in range(len(SAME))])
def test_what_can_be_the_same_is_and_the_rest_is_said_not_to_be(kind, pool, exact):
    net = nn.Sequential(nn.MaxPool2d(3, 2) if kind == "max" else nn.AvgPool2d(3, 2))
    expected = net(X)
    report = convert(net, pool, start="same", replace=("max", "avg"))
    assert report.rows[0].exact == exact
    if exact == "to the last bit":
        assert torch.equal(net(X), expected)
    elif exact == "up to rounding":
        torch.testing.assert_close(net(X), expected)
    else:
        assert net(X).shape != expected.shape or not torch.allclose(net.train()(X), expected)


@pytest.mark.parametrize(
    ("layer", "size", "exact"),
    [
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), 9, False),
        (nn.AvgPool2d(3, 2, 1), 9, True),
        (nn.AvgPool2d(2, ceil_mode=True), 8, True),
        (nn.AvgPool2d(2, ceil_mode=True), 9, False),
    ],
)
def test_a_tree_is_an_average_where_every_window_is_whole(layer, size, exact):
    x = torch.randn(1, 2, size, size)
    net = nn.Sequential(layer)
    expected = net(x)
    report = convert(net, "tree2", start="same", replace=("avg",), example=x)
    assert report.rows[0].exact == ("up to rounding" if exact else "no")
    assert torch.allclose(net(x), expected, atol=1e-6) is exact
    if layer.ceil_mode:
        restore(net)
        assert convert(net, "tree2", start="same", replace=("avg",)).rows[0].exact == "no"  # nobody knows the size


def test_an_average_tree_can_learn():
    net = nn.Sequential(nn.AvgPool2d(3))
    convert(net, "tree2", start="same", replace=("avg",))
    net(X).square().sum().backward()
    left, right = net[0].weight.grad[1:]
    assert not torch.allclose(left, right)


def test_restore_puts_the_very_modules_back():
    net = modules()
    old, keys, expected = [*net], {**net.state_dict()}, outputs(net, X, True)
    report = convert(net, "gated", replace=("max", "avg"))
    assert not torch.equal(outputs(net, X, True), expected)
    net.eval()
    assert restore(net) == [row.name for row in report.replaced]
    assert all(a is b for a, b in zip(net, old, strict=True))
    assert not any(module.training for module in net.modules())
    assert list(net.state_dict()) == list(keys)
    assert all(torch.equal(value, keys[key]) for key, value in net.state_dict().items())
    assert torch.equal(outputs(net, X, True), expected)
    with pytest.raises(ValueError, match="restore: Sequential has no pools that convert put there"):
        restore(net)


def test_swaps_say_what_was_there():
    net = modules()
    convert(net, "gated")
    first = list_swaps(net)[0]
    assert (first.name, first.new) == ("3", net[3])
    x = torch.randn(1, 4, 9, 9)
    assert torch.equal(first.old(x), F.max_pool2d(x, 3, 2, 1))


def test_copies_and_pickles_can_be_restored():
    net = modules().eval()
    expected = net(X)
    convert(net, "tree2+gated")
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(X), net(X))
        restore(other)
        assert torch.equal(other(X), expected)


def test_one_module_under_two_names_is_one_pool():
    pool = nn.MaxPool2d(2)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), pool, nn.Sequential(nn.Conv2d(4, 4, 3), pool), pool)
    report = convert(net, "gated")
    assert net[1] is net[2][1] is net[3]
    assert report.parameters == 4
    assert report.rows[0].reason == "used 3 times; also 2.1, 3"
    restore(net)
    assert net[1] is net[2][1] is net[3] is pool


def test_hooks_of_the_old_pool_go_to_the_new_one_and_back():
    net = modules()
    seen = []
    handle = net[3].register_forward_hook(lambda module, args, out: seen.append(type(module).__name__))
    convert(net)
    net(X)
    later = net[3].register_forward_pre_hook(lambda module, args: seen.append("before"))
    net(X)
    restore(net)
    net(X)
    assert seen == ["GatedPool2d", "before", "GatedPool2d", "before", "MaxPool2d"]
    handle.remove()
    later.remove()
    convert(net)
    net(X)
    list_swaps(net)[0].old(X)
    assert len(seen) == 5


def test_subclasses():
    class Half(nn.MaxPool2d):
        def __init__(self):
            super().__init__(2, 2)

    class Same(nn.MaxPool2d):
        def forward(self, input):
            return super().forward(F.pad(input, (0, 1, 0, 1)))

    net = nn.Sequential(Half(), Same(2), nn.MaxPool2d(2, return_indices=False), nn.AvgPool2d(2, divisor_override=3))
    report = convert(net, replace=("max", "avg"))
    assert [row.state for row in report.rows] == ["replaced", "replaced", "replaced", "left"]
    assert [row.reason for row in report.left] == ["divisor_override: not an average of its window"]
    unpool = nn.ModuleList([nn.MaxPool2d(2, return_indices=True), nn.MaxPool2d(2)])
    assert convert(unpool).left[0].reason == "return_indices: a learned pool has none"
    patched = nn.MaxPool2d(2)
    patched.forward = lambda x: x
    assert convert(nn.Sequential(patched, nn.MaxPool2d(2))).left[0].reason == "MaxPool2d has a forward of its own"


def test_global_pools_are_left_where_an_example_shows_them():
    net = nn.Sequential(nn.MaxPool2d(3, 2), nn.AvgPool2d(17), nn.Flatten())
    report = convert(copy.deepcopy(net), replace=("max", "avg"), example=X)
    assert rows(report)["1"].reason == "global: its window covers the whole input 17×17"
    assert len(convert(net, replace=("max", "avg")).replaced) == 2


@pytest.mark.parametrize(
    ("share", "count"),
    [
        ("channel", 9 * 4 + 4 * 6),
        ("region", 9 * 18**2 + 4 * 9**2),
        ("region_channel", 9 * 4 * 18**2 + 4 * 6 * 9**2),
        ("layer", 13),
    ],
)
def test_sharing_takes_its_sizes_from_the_example(share, count):
    net = modules()
    report = convert(net, "gated", share=share, example=X[:1])
    assert report.parameters == count
    assert not any(torch.nn.parameter.is_lazy(p) for p in net.parameters())
    net(X)


def test_sharing_by_suffix_and_per_net():
    net = modules()
    convert(net, "gated:channel", example=X)
    assert net[3].weight.shape == (1, 4, 1, 1, 3, 3)
    net = nn.Sequential(nn.MaxPool2d(2), nn.MaxPool2d(2), nn.MaxPool2d(2))
    assert convert(net, "tree2+gated", share="net").parameters == 12 + 4
    assert net[1].weight is net[2].weight
    with pytest.raises(ValueError, match="tie: layers must have equal windows"):
        convert(modules(), share="net")


def test_a_pool_the_example_does_not_reach_has_no_channels():
    class Aux(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.aux = nn.MaxPool2d(2), nn.MaxPool2d(3)

        def forward(self, x):
            return self.aux(x) if self.training else self.body(x)

    with pytest.warns(UserWarning, match="convert: not replaced in Aux: aux"):
        report = convert(Aux(), share="channel", example=X)
    assert (
        report.unreachable[0].reason == "the example never reached it, so the sizes for share='channel' are not known"
    )
    body, aux = convert(Aux(), example=X).replaced
    assert (body.reason, aux.reason) == ("", "the example never reached it: no gradient from such inputs")


def test_the_first_pool_is_the_first_the_example_meets():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = nn.MaxPool2d(2), nn.MaxPool2d(2)

        def forward(self, x):
            return self.last(self.first(x))

    net = Backwards()
    convert(net, "tree2+gated", example=X)
    assert (net.first.tree, net.last.tree) == (learnpool.parse("tree2").part().pool, Gate(Max(), Avg()))


def test_an_example_leaves_statistics_random_numbers_and_modes_alone():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))
            self.register_buffer("last", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            self.last = x.mean()
            return x + 0 * torch.rand(())

    net = nn.Sequential(Counter(), *modules())
    net[2].eval()
    state, modes = copy.deepcopy(net.state_dict()), [module.training for module in net.modules()]
    torch.manual_seed(3)
    search = learnpool.convert.__globals__["find_sites"]
    search(net, ("max",), X)
    drawn = torch.rand(())
    torch.manual_seed(3)
    assert drawn == torch.rand(())
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == modes
    assert net[0].seen == 0


@pytest.mark.parametrize("example", [X, (X,), [X], {"input": X}])
def test_forms_of_an_example(example):
    assert convert(modules(), share="channel", example=example).parameters == 60


def test_meta_models_convert_and_are_filled_later():
    with torch.device("meta"):
        net = modules()
    convert(net, "tree2")
    assert net[3].weight.is_meta
    filled = net.to_empty(device="cpu")
    for module in filled.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert filled[3].weight.std() > 0.1


def test_a_failure_while_changing_is_undone():
    net = modules()
    convert(net, "mixed", only="6")  # what an earlier call did has to stay
    snapshot = take_snapshot(net)
    good, bad = torch.optim.SGD(net[0].parameters(), 0.1), torch.optim.SGD(net[4].parameters(), 0.1, weight_decay=0.1)
    groups = [len(o.param_groups[0]["params"]) for o in (good, bad)]

    def refuse(group):
        raise RuntimeError("no")

    bad.add_param_group = refuse
    with pytest.raises(RuntimeError, match="^no$"):
        convert(net, "gated", optimizers=[good, bad], replace=("max", "avg"))
    assert_unchanged(net, snapshot)
    assert [len(o.param_groups[0]["params"]) for o in (good, bad)] == groups
    assert [swap.name for swap in list_swaps(net)] == ["6"]


def test_a_converted_network_again():
    net = modules()
    convert(net, "mixed", only="3")
    report = convert(net, "gated")
    assert [row.name for row in report.replaced] == ["6"]
    assert rows(report)["3"].reason == "learns already"
    with pytest.raises(
        ValueError,
        match=r"Sequential: 3, 6: learns already; 7, 8: .*; learnpool.restore\(model\) puts the old pools back$",
    ):
        convert(net)
    assert restore(net) == ["3", "6"]


def test_a_network_in_data_parallel_training_is_refused():
    net = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(net)
    net.module = modules()
    with pytest.raises(ValueError, match="convert: convert the network first, then wrap it in DistributedDataParallel"):
        convert(net)
    sharded = modules()
    sharded[0].weight.device_mesh = "a mesh, as a DTensor has"
    with pytest.raises(ValueError, match="convert: convert the network first, then shard it"):
        convert(sharded)


def test_random_networks_stay_the_same_function_and_come_back():
    for seed in range(30):
        pick = random.Random(seed)
        net, expected = _random(pick), None
        x = torch.randn(2, 3, 40, 40)
        expected = outputs(net, x, train=True)
        state = list(net.state_dict())
        convert(net, "mixed", start="same", replace=("max", "avg"), example=pick.choice([x, None]))
        assert torch.equal(outputs(net, x, train=True), expected), seed
        outputs(net, x, train=True).sum().backward()
        restore(net)
        assert list(net.state_dict()) == state
        assert torch.equal(outputs(net, x, train=True), expected), seed


class _Twice(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.parts = nn.ModuleDict({"a": part, "b": part})

    def forward(self, x):
        x = self.parts["a"](x)
        return self.parts["b"](x) if min(x.shape[-2:]) > 12 else F.max_pool2d(x, 2)


def _random(pick, depth=0):
    layers = []
    for _ in range(pick.randint(1, 3)):
        kind = (
            pick.choice(["conv", "max", "avg", "nest", "twice"]) if depth < 2 else pick.choice(["conv", "max", "avg"])
        )
        k, p = pick.choice([(2, 0), (2, 1), (3, 1), (3, 0)])
        if kind == "conv":
            layers += [nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Dropout(0.2)]
        elif kind == "max":
            layers.append(nn.MaxPool2d(k, 1, p, ceil_mode=pick.random() < 0.5))
        elif kind == "avg":
            layers.append(
                nn.AvgPool2d((k, 3), pick.choice([1, (2, 1)]), (p, 1), pick.random() < 0.5, pick.random() < 0.5)
            )
        else:
            inner = _random(pick, depth + 1)
            layers.append(inner if kind == "nest" else _Twice(inner))
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if depth == 0 else []))
