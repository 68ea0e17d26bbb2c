"""The order of pools is the order they run in, read from the source where there is no example."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from learnpool import convert
from networks import X, helper

P = functools.partial(nn.MaxPool2d, 2)


def order(net, **options):
    return [row.name for row in convert(net, "mixed", **options).replaced]


class Guide(nn.Module):
    """A module pool runs before a functional call of the outermost forward."""

    def __init__(self):
        super().__init__()
        self.pool = P()

    def forward(self, x):
        x = self.pool(F.relu(x))
        return F.max_pool2d(x, 2)


class Backwards(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.first = P(), P()

    def forward(self, x):
        return self.last(self.first(x))


class Loops(nn.Module):
    """Lists, dicts, numbers, names and slices of modules."""

    def __init__(self):
        super().__init__()
        self.by_name = nn.ModuleDict({"a": P(), "b": P()})
        self.stages = nn.ModuleList([nn.Sequential(nn.ReLU(), P()), P()])
        self.p0, self.p1 = P(), P()
        self.tail = nn.Sequential(P(), P())
        self.early = P()

    def forward(self, x):
        if not torch.is_tensor(x):
            raise TypeError("no tensor")
        for i in range(2):
            x = getattr(self, f"p{1 - i}")(x)
        for i, stage in enumerate(self.stages):
            x = stage(x) if i < 5 else self.early(x)
        x = self.tail[1:](x)
        for name, layer in reversed(list(self.by_name.items())):
            x = layer(x) if name else x
        return self.tail[0](x)


class Methods(nn.Module):
    """Methods, functions, lambdas, a checkpoint and another module's method."""

    def __init__(self):
        super().__init__()
        self.e, self.d, self.c, self.b, self.a = P(), P(), P(), P(), P()
        self.other = Guide()

    def forward(self, x):
        x = self.begin(self.a, x)
        x = checkpoint(self.c, x, use_reentrant=False)
        again = lambda y: self.d(y)  # noqa: E731
        x = self.other.forward(again(x))
        return helper(self.e(x))

    def begin(self, pool, x):
        return self.b(pool(x))


def test_modules_and_calls_in_the_order_of_the_source():
    assert order(Guide()) == ["pool", "max_pool2d_0"]
    assert order(Backwards()) == ["first", "last"]
    assert order(Methods()) == ["a", "b", "c", "d", "other.pool", "other.max_pool2d_0", "e", "max_pool2d_0"]
    names = [row.name for row in convert(Loops(), "mixed").rows]
    assert names == ["p1", "p0", "stages.0.1", "stages.1", "tail.1", "by_name.b", "by_name.a", "tail.0", "early"]


@pytest.mark.parametrize("make", [Guide, Backwards, Methods])
def test_an_example_agrees(make):
    x = torch.randn(1, 3, 512, 512)
    assert order(make()) == order(make(), example=x)


def test_the_tree_goes_to_the_pool_that_runs_first():
    net = Guide()
    report = convert(net, "tree2+gated")
    assert [(row.name, row.now) for row in report.rows] == [("pool", "tree2"), ("max_pool2d_0", "gated")]
    assert [row.now for row in convert(Loops(), "tree2+gated").rows] == ["tree2", *["gated"] * 8]


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.small, self.large = P(), P()

    def forward(self, x):
        if x.shape[-1] > 16:
            x = self.large(x)
        return self.small(x)


class Hidden(nn.Module):
    """Which of its layers runs is decided by a function of the input."""

    def __init__(self):
        super().__init__()
        self.a, self.b = P(), P()

    def choose(self, x):
        return {"a": self.a, "b": self.b}[sorted("ab", key=lambda name: x.sum().item())[0]]

    def forward(self, x):
        pick = self.choose(x)
        return pick(x)


@pytest.mark.parametrize("make", [Branch, Hidden])
def test_where_the_source_does_not_tell_an_example_is_asked_for(make):
    with pytest.raises(
        ValueError, match=r"convert: 'tree2\+gated' depends on the order in which pools run.*give example="
    ):
        convert(make(), "tree2+gated")
    assert [row.reason for row in convert(make(), "gated").replaced] == ["", ""]  # alike pools need no order
    assert len(convert(make(), "tree2+gated", only="[al]*").replaced) == 1
    report = convert(make(), "tree2+gated", example=X)
    assert [row.now for row in report.replaced] == ["tree2", "gated"]


def test_a_list_of_layers_has_the_order_of_the_list():
    net = nn.ModuleDict({"b": nn.ModuleList([P(), P()]), "a": P()})
    report = convert(net, "tree2+gated")
    assert [(row.name, row.now, row.reason) for row in report.rows] == [
        ("b.0", "tree2", ""), ("b.1", "gated", ""), ("a", "gated", ""),
    ]  # fmt: skip


def test_pools_that_never_run_and_pools_that_run_often_say_so():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.pool = P(), P()

        def forward(self, x):
            for _ in range(3):
                x = self.pool(x)
            return F.max_pool2d(F.max_pool2d(x, 2), 2, 1)

    reasons = {row.name: row.reason for row in convert(Unused()).replaced}
    assert reasons == {
        "pool": "used 3 times",
        "max_pool2d_0": "",
        "max_pool2d_1": "",
        "unused": "forward never calls it: no gradient",
    }
    reasons = {row.name: row.reason for row in convert(Unused(), example=X).replaced}
    assert reasons["pool"] == "used 3 times"
    assert reasons["unused"] == "the example never reached it: no gradient from such inputs"


def test_a_function_that_calls_itself_and_one_too_long_to_follow_end():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = P(), P()

        def again(self, x, n):
            return self.again(x, n - 1) if n else self.b(x)

        def forward(self, x):
            for _ in range(900):
                for _ in range(900):
                    x = x + 1
            return self.a(self.again(x, 5))

    assert sorted(order(Deep())) == ["a", "b"]
    with pytest.raises(ValueError, match="give example="):
        convert(Deep(), "tree2+gated")


def halve(x, by_pool=False):
    return F.max_pool2d(x, 2) if by_pool else x[..., ::2]


def run(x, function):
    return function(x)


class Known(nn.Module):
    """Calls that the source shows in unusual ways: each of them runs."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.inner = nn.Sequential(Called())

    def forward(self, x):
        match self.way:
            case "match":
                return F.max_pool2d(x, 2)
            case "forward":
                return self.inner.forward(x)
            case "call":
                return self.inner.__call__(x)
            case "words":
                words = {"by_pool": True}
                return halve(x, **words)
            case "values":
                return halve(*(x, True))
            case "checkpoint":
                return checkpoint(functools.partial(halve, by_pool=True), x, use_reentrant=False)
            case _:
                return run(x, self.pool)

    def pool(self, x):
        return F.max_pool2d(x, 2)


class Called(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 2)


@pytest.mark.parametrize("way", ["match", "forward", "call", "words", "values", "checkpoint", "passed on"])
def test_a_call_in_an_unusual_way_is_not_taken_for_one_that_never_runs(way):
    report = convert(Known(way))
    assert not [row.name for row in report.left if row.kind == "max"]


def test_a_sequence_with_a_forward_of_its_own():
    class Scaled(nn.Sequential):
        def forward(self, x):
            return super().forward(x) / 2

    report = convert(Scaled(Called(), P()), "tree2+gated")
    assert [(row.name, row.now, row.reason) for row in report.rows] == [
        ("0.max_pool2d_0", "tree2", ""), ("1", "gated", ""),
    ]  # fmt: skip
