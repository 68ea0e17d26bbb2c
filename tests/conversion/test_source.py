"""Calls that run elsewhere or later are not routed in silence, and odd objects do not end a conversion."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from learnpool import convert
from networks import X


class Lazy:
    """An optional import that is not there: everything one asks of it raises."""

    def __getattribute__(self, name):
        raise ImportError(f"import failed: {name}")

    def __hash__(self):
        raise ImportError("import failed: hash")

    def __eq__(self, other):
        raise ImportError("import failed: eq")


missing = Lazy()


def test_lazy_globals_that_raise():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool2d(2)
            self.__dict__["missing"] = missing

        def forward(self, x):
            if x.dim() == 7:
                x = missing.warp(missing(x), missing, key=missing[0])
                x = self.missing.there(x) if self.missing else missing.a.b
            return F.max_pool2d(self.pool(x), 2)

    net = Net()
    assert [row.name for row in convert(net, "mixed", start="same").replaced] == ["pool", "max_pool2d_0"]
    assert torch.equal(net(X), F.max_pool2d(X, 4))


class Threads(nn.Module):
    def __init__(self, pool_of_threads=False):
        super().__init__()
        self.executor = ThreadPoolExecutor(1) if pool_of_threads else None

    def forward(self, x):
        if self.executor is not None:
            return self.executor.submit(self.half, x).result()
        out = []
        thread = threading.Thread(target=lambda: out.append(self.half(x)))
        thread.start()
        thread.join()
        return out[0]

    def half(self, x):
        return F.max_pool2d(x, 2)


@pytest.mark.parametrize("example", [None, X])
@pytest.mark.parametrize("pool_of_threads", [False, True])
def test_calls_in_threads_are_refused(pool_of_threads, example):
    net = Threads(pool_of_threads)
    with pytest.raises(ValueError, match="max_pool2d_0: its forward starts threads, where calls are not replaced"):
        convert(net, example=example)


def test_modules_in_threads_work():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool2d(2)
            self.inner = nn.Sequential(nn.ReLU(), Helper())

        def forward(self, x):
            with ThreadPoolExecutor(2) as executor:
                return sum(executor.map(lambda branch: branch(x), [self.pool, self.inner]))

    class Helper(nn.Module):
        def forward(self, x):
            return F.max_pool2d(x, 2)

    net = Branches()
    expected = net(X)
    convert(net, "mixed", start="same")
    assert torch.equal(net(X), expected)
    net.inner[1].max_pool2d_0.mix.data.fill_(0)
    assert not torch.equal(net(X), expected)


class Yields(nn.Module):
    def forward(self, x):
        yield F.max_pool2d(x, 2)


class Coroutine(nn.Module):
    async def forward(self, x):
        return F.max_pool2d(x, 2)


@pytest.mark.parametrize("example", [None, X])
@pytest.mark.parametrize("make", [Yields, Coroutine])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_forward_that_runs_later_is_refused(make, example):
    with pytest.raises(ValueError, match="max_pool2d_0: in a generator or coroutine, "):
        convert(make(), example=example)


class Inside(nn.Module):
    """A generator and a coroutine that are used up inside of forward."""

    def pieces(self, x):
        yield F.max_pool2d(x, 2)

    async def half(self, x):
        return F.max_pool2d(x, 2)

    def forward(self, x):
        return asyncio.run(self.half(next(self.pieces(x))))


def test_generators_inside_of_forward_need_an_example():
    with pytest.raises(ValueError, match="in a generator or coroutine, which may run after forward: give example="):
        convert(Inside())
    net = Inside()
    convert(net, "mixed", start="same", example=X)
    assert torch.equal(net(X), F.max_pool2d(X, 4))
    for name in ("max_pool2d_0", "max_pool2d_1"):
        pool = net.get_submodule(name)
        pool.mix.data.fill_(0)
        assert not torch.equal(net(X), F.max_pool2d(X, 4))
        pool.mix.data.fill_(1)


def test_a_generator_that_leaves_forward_is_an_error_not_another_result():
    class Sizes(nn.Module):
        def forward(self, x):
            return (F.max_pool2d(x, 2) for _ in range(2))

    net = Sizes()
    convert(net)
    with pytest.raises(RuntimeError, match="convert: Sizes.forward returns a generator, which calls its pools after"):
        net(X)
