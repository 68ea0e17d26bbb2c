"""What an example shows: calls of decorated and patched forwards, and pools that are not there to pool features."""

import functools
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from learnpool import convert, restore
from networks import X


def state(report):
    return {row.name: row.reason if row.state != "replaced" else "replaced" for row in report.rows}


def unmarked(function):
    def wrapper(*args):  # without functools.wraps
        return function(*args)

    return wrapper


def body(self, x):
    return F.max_pool2d(self.relu(x), self.size)


class Net(nn.Module):
    size = 2

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()


def decorated(decorator):
    return lambda: type("Decorated", (Net,), {"forward": decorator(body), "__module__": __name__})()


def patched(make):
    def build():
        net = Net()
        net.forward = make(net)
        return net

    return build


FORWARDS = {
    "no_grad": decorated(torch.no_grad()),
    "autocast": decorated(torch.amp.autocast("cpu", enabled=False)),
    "wraps": decorated(lambda f: functools.wraps(f)(lambda self, x: f(self, x))),
    "no wraps": decorated(unmarked),
    "method": patched(lambda net: types.MethodType(body, net)),
    "partial": patched(lambda net: functools.partial(body, net)),
    "lambda": patched(lambda net: lambda x: F.max_pool2d(net.relu(x), 2)),
    "accelerate": patched(lambda net: functools.update_wrapper(functools.partial(body, net), body)),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_a_decorated_or_patched_forward(name):
    net = FORWARDS[name]()
    expected = net(X)
    report = convert(net, "mixed", start="same", example=X)
    assert state(report) == {"max_pool2d_0": "replaced"}
    assert torch.equal(net(X), expected)
    net.max_pool2d_0.mix.data.fill_(0)
    assert not torch.equal(net(X), expected)
    restore(net)
    assert torch.equal(net(X), expected)
    assert "_routed" not in net.__dict__


@pytest.mark.parametrize("name", ["no_grad", "autocast", "wraps", "method", "accelerate"])
def test_without_an_example_its_source_is_read(name):
    net = FORWARDS[name]()
    expected = net(X)
    assert state(convert(net, "mixed", start="same")) == {"max_pool2d_0": "replaced"}
    net.max_pool2d_0.mix.data.fill_(0)
    assert not torch.equal(net(X), expected)


class Peaks(nn.Module):
    """CenterNet's non-maximum suppression, after a pool of features."""

    def __init__(self, module):
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.nms = nn.MaxPool2d(3, 1, 1) if module else None

    def forward(self, x):
        heat = self.pool(x).sigmoid()
        top = self.largest(heat) if self.nms is None else self.nms(heat)
        return heat * (top == heat).float()

    def largest(self, heat):
        return F.max_pool2d(heat, 3, stride=1, padding=1)


@pytest.mark.parametrize(("module", "name"), [(False, "max_pool2d_0"), (True, "nms")])
def test_non_maximum_suppression_is_left(module, name):
    report = state(convert(Peaks(module), "gated", example=X))
    assert report["pool"] == "replaced"
    assert report[name] == "compared with its own input (non-maximum suppression)"


class Spread(nn.Module):
    def __init__(self, square):
        super().__init__()
        self.square = square
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        x = self.pool(x)
        return (F.avg_pool2d(self.square(x), 3) - F.avg_pool2d(x, 3) ** 2).sqrt()


@pytest.mark.parametrize("square", [torch.square, lambda x: x**2, lambda x: x * x, lambda x: x.pow(2)])
def test_a_variance_is_left(square):
    report = state(convert(Spread(square), "gated", replace=("avg",), example=X))
    assert report.pop("pool") == "replaced"
    assert set(report.values()) == {"part of a variance, avg(x²) − avg(x)²"}


WHOLE = [(17, 17, True), (40, 17, True), ((20, 99), 18, True), (4, 5, False), (3, 3, False)]


@pytest.mark.parametrize(("kernel", "size", "left"), WHOLE)
def test_a_window_that_covers_the_whole_map_is_global(kernel, size, left):
    net = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(kernel, ceil_mode=True))
    report = convert(net, replace=("max", "avg"), example=torch.randn(1, 3, 2 * size, 2 * size))
    why = f"global: its window covers the whole input {size}×{size}"
    assert state(report)["1"] == (why if left else "replaced")


def test_calls_the_example_never_reached_are_marked():
    class Rare(nn.Module):
        def forward(self, x):
            if x.shape[-1] > 100:
                x = F.max_pool2d(F.max_pool2d(x, x.shape[-1] // 10), 2)
            return F.max_pool2d(x, 2)

    with pytest.warns(UserWarning, match="max_pool2d_0 .*: its window is computed in forward, and the example never"):
        report = convert(Rare(), example=X)
    reasons = {row.name: row.reason for row in report.rows}
    assert reasons == {
        "max_pool2d_0": "its window is computed in forward, and the example never reached it",
        "max_pool2d_1": "the example never reached it",
        "max_pool2d_2": "",
    }


def test_a_module_made_in_forward_is_said_not_to_be_reachable():
    class Fresh(nn.Module):
        def forward(self, x):
            return nn.MaxPool2d(2)(x)

    with pytest.raises(ValueError, match="convert: Fresh has no pools among its modules.*example= shows others"):
        convert(Fresh())
    with pytest.raises(ValueError, match=r"in Fresh: \(MaxPool2d\): no module of the model holds it"):
        convert(Fresh(), example=X)


class Correlation:
    """Not a module, as RAFT's."""

    def __init__(self, x):
        self.levels = [x, F.avg_pool2d(x, 2, stride=2)]


def test_a_call_in_an_object_that_is_no_module():
    class Flow(nn.Module):
        def forward(self, x):
            return Correlation(x).levels[1]

    with pytest.raises(ValueError, match="example= shows others"):
        convert(Flow(), replace=("avg",))
    net = Flow()
    expected = net(X)
    convert(net, "mixed", replace=("avg",), start="same", example=X)
    assert torch.equal(net(X), expected)
    net.avg_pool2d_0.mix.data.fill_(1)
    assert torch.equal(net(X), F.max_pool2d(X, 2))
