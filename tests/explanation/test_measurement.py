"""What explain says of a pool, against numbers worked by hand and a loop over regions, and that it leaves no trace."""

import itertools
import math
import random
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import learnpool
from cases import ODD, SHARES, W
from learnpool import AdaptivePool2d, Avg, Filter, Gate, GatedPool2d, Max, Mix, MixedPool2d, Pool2d, TreePool2d, leaves
from learnpool.observation import preserve_state
from learnpool.tree import make_tree

TWO = Gate(Gate(Filter(), Max()), Gate(Avg(), Filter()))


def with_mask(values, **options):
    mask = torch.tensor(values)
    pool = GatedPool2d(mask.shape[-1], **options)
    with torch.no_grad():
        pool.weight[0, 0, 0, 0] = mask
    return pool


def gate(model, batch, number=0):
    return learnpool.explain(model, batch).pools[0].gates[number]


def test_a_mask_of_zeros_is_undecided_everywhere():
    found = gate(with_mask([[0.0] * 3] * 3), torch.randn(2, 3, 7, 7))
    assert (found.mean, found.near_0, found.near_1, found.entropy) == (0.5, 0, 0, 1)


def test_one_region_by_hand():
    # ω · x = ln 3, so s = 3/4 and its entropy is 2 − 3/4 log₂ 3
    found = gate(with_mask([[math.log(3), 0.0], [0.0, 0.0]]), torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))
    assert found.mean == pytest.approx(0.75)
    assert found.entropy == pytest.approx(2 - 0.75 * math.log2(3))
    assert (found.near_0, found.near_1, found.left, found.right) == (0, 0, "max", "mean")
    assert_close(found.map, torch.full((1, 1, 1), 0.75))


def test_near_0_and_near_1_are_below_a_twentieth_and_above_nineteen():
    logit = math.log(19)  # σ = 0.95 exactly there
    x = torch.tensor([-9.0, -logit - 1e-3, -logit + 1e-3, 0.0, 0.0, logit - 1e-3, logit + 1e-3, 9.0, 9.0, 9.0])
    found = gate(with_mask([[1.0]]), x.reshape(1, 1, 1, -1))
    assert (found.near_0, found.near_1) == (0.2, 0.4)


def by_loop(pool, x):
    """(mean, near 0, near 1, entropy) of every gate, one region and one cell after the other."""
    window, weight = pool.window, pool.weight.detach().double()
    rows = pool.program.masks
    output = window.output_size(x.shape[2:])
    statistics = []
    for row in rows:
        values = []
        for n, c, *region in itertools.product(*map(range, (*x.shape[:2], *output))):
            own = weight[row]
            own = own[c if own.shape[0] > 1 else 0]
            for place in region:
                own = own[place if own.shape[0] > 1 else 0]
            z = 0.0
            for tap in itertools.product(*map(range, window.kernel)):
                at = [
                    o * s - p + t * d
                    for o, t, s, p, d in zip(region, tap, window.stride, window.padding, window.dilation, strict=True)
                ]
                if all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True)):
                    z += float(own[tap]) * float(x[(n, c, *at)])
            values.append(1 / (1 + math.exp(-z)))
        entropies = [-(s * math.log2(s) + (1 - s) * math.log2(1 - s)) for s in values]
        total = len(values)
        statistics.append(
            (
                sum(values) / total,
                sum(s < 0.05 for s in values) / total,
                sum(s > 0.95 for s in values) / total,
                sum(entropies) / total,
            )
        )
    return statistics


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("tree", [Gate(Max(), Avg()), make_tree(3), TWO, ODD], ids=str)
@pytest.mark.parametrize("window", [W(3, 2, 1), W((2, 3), (1, 2), (1, 0), (2, 1), True)], ids=str)
def test_statistics_are_those_of_a_loop_over_regions(tree, window, share):
    pool = Pool2d(tree, *window[:4], ceil_mode=window.ceil_mode, share=share, start="paper", std=1.5)
    x = torch.randn(2, 3, 6, 7) * 1.5
    pool(x)
    found = learnpool.explain(pool, x).pools[0].gates
    ours = [(g.mean, g.near_0, g.near_1, g.entropy) for g in found]
    assert_close(torch.tensor(ours), torch.tensor(by_loop(pool, x)), rtol=1e-5, atol=1e-6)
    assert any(near for g in found for near in (g.near_0, g.near_1)), "the case is too tame to tell"


@pytest.mark.parametrize(("dims", "pool"), [(1, learnpool.Pool1d), (3, learnpool.Pool3d)])
def test_one_and_three_dimensions(dims, pool):
    layer, x = pool(TWO, 2, 2, 1), torch.randn(2, 3, *[5] * dims) * 2
    found = learnpool.explain(layer, x).pools[0]
    assert_close(
        torch.tensor([(g.mean, g.near_0, g.near_1, g.entropy) for g in found.gates]),
        torch.tensor(by_loop(layer, x)),
        rtol=1e-5,
        atol=1e-6,
    )
    assert [gate.name for gate in found.gates] == ["gate0", "gate1", "gate2"]
    assert [(g.left, g.right) for g in found.gates] == [("gate1", "gate2"), ("filter0", "max"), ("mean", "filter1")]
    assert_close(found.filters[1].weight, layer.weight.detach()[4])


def test_gates_of_another_grid_are_resampled_as_the_layer_does():
    pool = Pool2d(Gate(Max(), Avg()), 2, 2, share="region", grid=3)
    seen = learnpool.explain(pool, torch.ones(1, 1, 8, 8)).pools[0].gates[0].map  # a grid of 4
    low, high = torch.zeros_like(seen), torch.ones_like(seen)
    x = torch.ones(1, 1, 8, 8)
    x[..., ::2, ::2] = 5  # max 5, mean 2: the output gives s away
    with torch.no_grad():
        again = learnpool.explain(pool, x).pools[0].gates[0].map
        assert_close((pool(x)[0] - 2) / 3, again)
    assert ((seen > low) & (seen < high)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    net, x = with_mask([[0.5, -0.25], [1.0, 0.75]]).to(dtype), torch.randn(2, 3, 8, 8).to(dtype)
    wide = gate(with_mask([[0.5, -0.25], [1.0, 0.75]]), x.float())
    found = gate(net, x)
    assert found.mean == pytest.approx(wide.mean, rel=1e-5)
    assert found.entropy == pytest.approx(wide.entropy, rel=1e-5)


def test_proportions_by_channel_and_region():
    net = MixedPool2d(2, share="region_channel", channels=2, grid=(1, 2))
    with torch.no_grad():
        net.mix[0, :, 0] = torch.tensor([[0.25, 0.5], [1.5, -1.0]])  # the last two are out of range: 1 and 0 in use
    mix = learnpool.explain(net).pools[0].mixes[0]
    assert (mix.min, mix.max, mix.mean, mix.learned) == (0, 1, 0.4375, True)
    assert learnpool.statistics(net) == {
        "MixedPool2d.mix0.mean": 0.4375,
        "MixedPool2d.mix0.min": 0,
        "MixedPool2d.mix0.max": 1,
    }


def test_fixed_mixes_are_listed_and_not_logged():
    net = Pool2d(Mix(Max(), Mix(Filter(), Avg(), a=0.25, learn=False), a=0.75), 2)
    first, second = learnpool.explain(net).pools[0].mixes
    assert (first.name, first.left, first.right, first.mean, first.learned) == ("mix0", "max", "fixed0", 0.75, True)
    assert (second.name, second.left, second.right, second.mean) == ("fixed0", "filter0", "mean", 0.25)
    assert learnpool.statistics(net) == {"Pool2d.mix0.mean": 0.75}


def make_random_tree(levels):
    """A tree of any nodes and leaves, all of them learned where they can be."""
    if levels == 0:
        return random.choice([getattr(learnpool, name) for name in leaves.__all__])()
    left, right, by = (make_random_tree(random.randrange(levels)) for _ in range(3))
    return random.choice(
        [Gate(left, right), Gate(left, right, by=by, bias=random.random() < 0.5), Mix(left, right, learn=by.size > 1)]
    )


@pytest.mark.parametrize("seed", range(60))
def test_every_parameter_is_explained(seed):
    random.seed(seed)
    pool = Pool2d(make_random_tree(seed % 4), 2, share=random.choice(["layer", "channel"]), channels=3)
    explanation = learnpool.explain(pool, torch.rand(2, 3, 4, 4))
    found = explanation.pools[0]
    tensors = [mix.a for mix in found.mixes if mix.learned]
    tensors += [item.weight for item in (*found.gates, *found.filters, *found.ranks) if item.weight is not None]
    tensors += [number.value for gate in found.gates for number in gate.numbers]
    tensors += [scalar.value for scalar in found.scalars]
    assert sum(tensor.numel() for tensor in tensors) == sum(p.numel() for p in pool.parameters())
    assert all(gate.entropy is not None for gate in found.gates)
    assert ("nothing to learn" in str(explanation)) <= (not found.parameters)
    names = set(explanation.statistics())
    assert {f"Pool2d.{number.name}.mean" for gate in found.gates for number in gate.numbers} <= names


def test_adaptive_pools():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), AdaptivePool2d(Mix(Max(), Avg(), a=0.125)))
    explanation = learnpool.explain(net, torch.randn(1, 1, 8, 8))
    assert explanation["1"].window is None
    assert explanation["1"].mixes[0].mean == 0.125
    assert "adaptive" in str(explanation)
    assert explanation.draw()


class Net(nn.Module):
    """Two pools with batch normalisation and dropout that is always on."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.pool1 = GatedPool2d(3, 2, ceil_mode=True)
        self.pool2 = TreePool2d(2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = self.pool1(self.norm(self.conv(x)).relu())
        return self.pool2(nn.functional.dropout(x, 0.5, training=True)).mean((1, 2, 3))


def test_nothing_is_left_behind():
    net = Net().train()
    net.norm.eval()
    net.norm.weight.requires_grad_(False)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    images = torch.randn(4, 1, 9, 9, requires_grad=True)
    random = torch.get_rng_state()
    for look in (learnpool.explain, learnpool.statistics):
        look(net, images)
    assert torch.equal(torch.get_rng_state(), random)
    assert [m.training for m in net.modules()] == [True, True, False, True, True]
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == ["norm.weight"]
    assert all(p.grad is None for p in net.parameters())
    assert images.grad is None
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in net.modules())
    assert net.calls == 2
    assert not learnpool.explain(net, images)["pool1"].gates[0].map.requires_grad


def test_buffers_changed_in_evaluation_come_back():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            return x

    net = nn.Sequential(Counts(), GatedPool2d(2))
    learnpool.explain(net, torch.randn(1, 1, 4, 4))
    assert net[0].seen == 0


def test_a_forward_that_fails_leaves_nothing_behind_either():
    net = Net().train()
    with pytest.raises(RuntimeError, match="channels"):
        learnpool.explain(net, torch.randn(4, 3, 9, 9))
    assert all(m.training for m in net.modules())
    assert not any(m._forward_pre_hooks for m in net.modules())


def test_evaluation_mode_decides_what_is_seen():
    net = nn.Sequential(nn.BatchNorm2d(1), with_mask([[1.0]])).train()
    found = gate(net, torch.full((2, 1, 2, 2), 2.0))  # the running mean is 0 and the variance 1
    assert found.mean == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-5)


def test_tied_pools_and_a_pool_in_two_places():
    pools = [GatedPool2d(2), GatedPool2d(2)]
    learnpool.tie(pools)
    net = nn.Sequential(*pools)
    explanation = learnpool.explain(net)
    assert [pool.tied_to for pool in explanation.pools] == [None, "0"]
    assert str(explanation).startswith("2 learned pools, 4 parameters\n")
    again = nn.Sequential(pools[0], pools[0])
    x = torch.randn(1, 1, 4, 4)
    with torch.no_grad():
        both = [gate(pools[0], x), gate(pools[0], pools[0](x))]
    # 4 regions in its first call and 1 in its second
    assert gate(again, x).mean == pytest.approx((4 * both[0].mean + both[1].mean) / 5, rel=1e-6)
    assert_close(gate(again, x).map, both[0].map)


class OutOfOrder(nn.Module):
    """Runs its pools in another order than it registers them, one of them never."""

    def __init__(self):
        super().__init__()
        self.unused, self.third = GatedPool2d(2), MixedPool2d(2)
        self.second, self.first = GatedPool2d(2), TreePool2d(2)
        learnpool.tie([self.second, self.unused])

    def forward(self, x):
        return self.third(self.second(self.first(x)))


def test_pools_are_listed_in_the_order_they_run_in():
    found = learnpool.explain(OutOfOrder(), torch.randn(2, 3, 8, 8))
    assert [pool.name for pool in found.pools] == ["first", "second", "third", "unused"]
    assert [pool.tied_to for pool in found.pools] == [None, None, None, "second"]
    assert [pool.name for pool in learnpool.explain(OutOfOrder()).pools] == ["unused", "third", "second", "first"]


def test_a_pool_that_was_not_called_has_no_statistics():
    class Skips(Net):
        def forward(self, x):
            return self.pool1(x)

    explanation = learnpool.explain(Skips(), torch.randn(1, 1, 9, 9))
    assert explanation["pool1"].gates[0].mean is not None
    assert explanation["pool2"].gates[0].mean is None
    assert sorted(explanation.statistics()) == [
        f"pool1.gate0.{what}" for what in ("entropy", "mean", "near_0", "near_1")
    ]


@pytest.mark.parametrize(
    "form", [lambda x: (x, "labels"), lambda x: [x], lambda x: {"x": x}], ids=["pair", "list", "keywords"]
)
def test_batches_as_loaders_give_them(form):
    net, x = Net(), torch.randn(2, 1, 9, 9)
    assert learnpool.explain(net, form(x))["pool1"].gates[0].mean == gate(net, x).mean
    assert learnpool.explain(net, form(x)).images == 2


def test_a_pool_called_with_a_keyword():
    class Keyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = with_mask([[0.0]])

        def forward(self, x):
            return self.pool(input=x)

    assert gate(Keyword(), torch.randn(1, 1, 2, 2)).entropy == 1


@pytest.mark.slow
def test_compiled_networks_are_seen():
    net = Net().eval()
    x = torch.randn(2, 1, 9, 9)
    random = torch.get_rng_state()  # its dropout is always on

    def read_statistics(model):
        torch.set_rng_state(random)
        return learnpool.statistics(model, x)

    plain = read_statistics(net)
    wrapped = torch.compile(net, backend="eager")
    wrapped(x)
    assert read_statistics(wrapped) == {f"_orig_mod.{key}": value for key, value in plain.items()}
    net.compile(backend="eager")
    net(x)
    assert read_statistics(net) == plain


def test_a_network_without_learned_pools_has_no_statistics():
    assert (
        learnpool.statistics(nn.Sequential(nn.MaxPool2d(2)), torch.randn(1, 3, 4, 4))
        == {}
        == learnpool.statistics(nn.ReLU())
    )


def test_fields_by_name():
    explanation = learnpool.explain(Net())
    assert explanation["pool2"].tree == make_tree(2)
    with pytest.raises(KeyError, match="no learned pool 'pool3'; there are: pool1, pool2"):
        explanation["pool3"]


def test_a_network_without_learned_pools():
    net = nn.Sequential(nn.MaxPool2d(2))
    with pytest.raises(ValueError, match="^explain: the model has no learned pools; "):
        learnpool.explain(net)
    assert learnpool.statistics(net) == {}


@pytest.mark.parametrize("function", ["explain", "statistics"])
@pytest.mark.parametrize(
    ("model", "batch", "error", "message"),
    [
        (lambda: "net", None, TypeError, "model must be a module, got str"),
        (lambda: GatedPool2d(2, share="channel"), None, ValueError, "the pool has no parameters yet; run"),
        (lambda: GatedPool2d(2, device="meta"), None, ValueError, "the pool is on the meta device"),
        (lambda: GatedPool2d(2), "images", TypeError, "a batch must be a tensor, .* got str"),
        (lambda: GatedPool2d(2), (), TypeError, "a batch must be a tensor, .* got tuple"),
        (lambda: GatedPool2d(2), {"x": 3}, TypeError, r"a batch must hold a tensor, got \['x'\]"),
    ],
)
def test_bad_input(model, batch, error, message, function):
    with pytest.raises(error, match=f"^{function}: {message}"):
        getattr(learnpool, function)(model(), batch)


def test_an_empty_batch_says_nothing():
    assert gate(with_mask([[1.0]]), torch.empty(0, 1, 2, 2)).mean is None


def test_matplotlib_only_when_asked_for():
    code = """import sys, torch, learnpool
explanation = learnpool.explain(learnpool.GatedPool2d(2), torch.randn(1, 1, 4, 4))
str(explanation); explanation.statistics()
before = 'matplotlib' in sys.modules; explanation.draw(); print(before, 'matplotlib' in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


def test_untouched_on_a_module_that_refuses_eval():
    class Stubborn(nn.BatchNorm2d):
        def train(self, mode=True):
            return self

    net = Stubborn(1).train()
    with preserve_state(net):
        net(torch.randn(4, 1, 3, 3))
    assert net.training
    assert net.num_batches_tracked == 0
