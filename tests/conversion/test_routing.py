"""Functional calls go to pools that learn, wherever they stand, and the network does not notice."""

import copy
import inspect
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import learnpool
from learnpool import convert, restore
from learnpool.conversion.swap import list_swaps
from networks import Block, Calls, X, helper, outputs

KNOWN = ["max_pool2d_0", "max_pool2d_1", "max_pool2d_2", "max_pool2d_4", "max_pool2d_5"]  # 3 is in a loop over windows


def states(report):
    return {row.name: row.state for row in report.rows}


@pytest.mark.parametrize("train", [True, False])
def test_calls_with_known_windows_are_found_without_an_example(train):
    net = Calls().train(train)
    with pytest.warns(
        UserWarning, match=r"convert: not replaced in Calls: max_pool2d_3 \(F.max_pool2d\): its window is"
    ):
        report = convert(net)
    names = [row.name for row in report.replaced if row.was == "F.max_pool2d"]
    assert names == ["block.max_pool2d_0", "block.max_pool2d_1", *KNOWN[:3], *KNOWN[:2:-1]]  # in the order of execution
    assert [row.name for row in report.unreachable] == ["max_pool2d_3"]
    assert report.unreachable[0].reason == "its window is computed in forward: give example="
    assert {states(report)[name] for name in ("avg_pool2d_0", "avg_pool2d_1")} == {"left"}


def test_an_example_shows_the_other_windows_and_the_order():
    report = convert(Calls(), example=X)
    assert not report.unreachable
    # in the order of execution; what only training computes comes last
    assert [row.name for row in report.replaced] == [
        "block.max_pool2d_1", "max_pool2d_0", "max_pool2d_1", "max_pool2d_2", "max_pool2d_5", "max_pool2d_3",
        "max_pool2d_6", "max_pool2d_4", "pool", "block.max_pool2d_0",
    ]  # fmt: skip
    assert [row.window for row in report.replaced][5:7] == ["3×3, stride 1, padding 1", "5×5, stride 1, padding 2"]
    assert next(row.reason for row in report.left if row.name == "avg_pool2d_0").startswith("global: ")


@pytest.mark.parametrize("converted_in_training", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_the_same_function_in_both_modes_whichever_it_was_converted_in(train, converted_in_training):
    net = Calls().train(converted_in_training)
    expected = outputs(net, X, train)
    report = convert(net, "mixed", start="same", replace=("max", "avg"), example=X)
    assert torch.equal(outputs(net, X, train), expected)
    assert {row.exact for row in report.replaced} == {"to the last bit"}
    for pool in list_swaps(net):  # and every one of them is in use
        with torch.no_grad():
            before, kept = outputs(net, X, train), pool.new.mix.clone()
            pool.new.mix.fill_(0.5)
            used = not torch.equal(outputs(net, X, train), before)
            pool.new.mix.copy_(kept)
        assert used == (train or pool.name != "block.max_pool2d_0"), pool.name


def test_each_call_has_its_own_pool():
    net = Calls().eval()
    convert(net, "mixed", start="same", example=X)
    net.max_pool2d_1.mix.data.fill_(0)  # torch.max_pool2d(x, 3, 1, 1), beside one of the same window
    old = F.max_pool2d
    stem = net.block(net.stem(X))
    x = old(stem, 2)
    x = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) + old(x, 3, 1, 1)
    x = old(x, 2) + F.avg_pool2d(x, 2)
    x = old(x, 3, 1, 1) + old(x, 5, 1, 2)
    x = old(old(x, 3, 1, 1), 2)
    torch.testing.assert_close(net(X), x.mean((2, 3)))


def test_restore_leaves_no_trace():
    net = Calls()
    expected, keys, fields = outputs(net, X, True), list(net.state_dict()), set(net.__dict__)
    report = convert(net, "gated", example=X, replace=("max", "avg"))
    assert not torch.equal(outputs(net, X, True), expected)
    assert sorted(restore(net)) == sorted(row.name for row in report.replaced)
    assert torch.equal(outputs(net, X, True), expected)
    assert list(net.state_dict()) == keys
    assert set(net.__dict__) == fields
    assert "forward" not in net.block.__dict__


def test_class_hooks_and_signature_survive():
    net = Calls()
    seen = []
    net.block.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    signature = inspect.signature(net.forward)
    keys = set(net.state_dict())
    convert(net, skip="max_pool2d_3")
    assert type(net) is Calls
    assert type(net.block) is Block
    net(X)
    assert seen == [(2, 4, 36, 36)]
    assert inspect.signature(net.forward) == signature
    assert keys < set(net.state_dict())


def test_copies_use_their_own_pools():
    net = Calls().eval()
    convert(net, "mixed", start="same", example=X)
    expected = net(X)
    copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    with torch.no_grad():
        for swap in list_swaps(net):
            swap.new.mix.fill_(0.5)
    for other in copies:
        assert torch.equal(other(X), expected)
        assert not torch.equal(other(X), net(X))
        assert len(restore(other)) == 10
        assert torch.equal(other(X), expected)


def test_a_pickle_works_in_a_fresh_process(tmp_path):
    net = Calls().eval()
    convert(net, "gated", example=X)
    torch.save(net, tmp_path / "net.pt")
    torch.save((X, net(X)), tmp_path / "xy.pt")
    code = f"""import torch
net = torch.load({str(tmp_path / "net.pt")!r}, weights_only=False)
x, y = torch.load({str(tmp_path / "xy.pt")!r})
torch.testing.assert_close(net(x), y, rtol=0, atol=0)"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True)


def test_a_state_dict_goes_from_one_converted_network_to_another():
    one, other = Calls().eval(), Calls().eval()
    for net in (one, other):
        convert(net, "tree2+gated", example=X)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(X), other(X))


@pytest.mark.slow
@pytest.mark.parametrize("train", [True, False])
def test_compiles_in_one_graph(train):
    net = Calls().train(train)
    net.drop.p = 0.0
    convert(net, "gated", example=X)
    expected = net(X)
    torch._dynamo.reset()
    got = torch.compile(net, fullgraph=True, backend="aot_eager")(X)
    torch.testing.assert_close(got, expected)
    grads = [torch.autograd.grad(y.sum(), net.max_pool2d_1.weight)[0] for y in (got, expected)]
    torch.testing.assert_close(*grads)
    assert torch._dynamo.explain(net)(X).graph_break_count == 0


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
def test_exports(strict):
    net = Calls().eval()
    convert(net, "gated", example=X)
    program = torch.export.export(net, (X,), strict=strict)
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert names.count("learnpool.pool.default") == 9
    assert not any("max_pool2d" in name for name in names)
    torch.testing.assert_close(program.module()(X), net(X))


def test_threads_and_replicas_keep_apart():
    net = Calls().eval()
    convert(net, "mixed", start="same", example=X)
    replica = net._replicate_for_data_parallel()
    replica._modules = dict(net._modules)
    replica._modules["max_pool2d_0"] = nn.AvgPool2d(2)
    assert not torch.equal(replica(X), net(X))  # the replica's own pool, not the original's
    expected = [net(X * scale) for scale in (1, 2, 3)]
    got = [None] * 3
    threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, net(X * (i + 1)))) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_an_error_in_forward_leaves_nothing_behind():
    net = Calls().eval()
    convert(net, "mixed", start="same", example=X)
    expected = net(X)
    with pytest.raises(RuntimeError):
        net(X[:, :2])
    assert torch._C._len_torch_function_stack() == 0
    assert torch.equal(net(X), expected)


def test_a_call_that_stays_is_not_taken_for_the_one_around_it():
    net = Block(4, inner=Block(4)).eval()  # the same line of code, once inside the other
    x = torch.randn(1, 4, 9, 9)
    expected = net(x)
    report = convert(net, "mixed", skip="inner")
    assert states(report)["inner.max_pool2d_1"] == "left"
    with torch.no_grad():
        net.max_pool2d_1.mix.fill_(1)
    assert torch.equal(net(x), expected)
    with torch.no_grad():
        net.max_pool2d_1.mix.fill_(0)
    inner = F.max_pool2d(F.relu(net.inner.conv(F.relu(net.conv(x)))), 3, 1, 1)
    torch.testing.assert_close(net(x), F.avg_pool2d(inner, 3, 1, 1, count_include_pad=False))
    restore(net)
    assert torch.equal(net(x), expected)
    assert [*net._modules] == ["conv", "aux", "inner"]
    assert [*net.inner._modules] == ["conv", "aux"]


def test_a_call_in_a_loop_is_one_pool():
    class Loop(nn.Module):
        def forward(self, x):
            for _ in range(2):
                x = F.max_pool2d(x, 2)
            return x

    net = Loop()
    assert convert(net, "mixed", start="same").parameters == 1
    assert torch.equal(net(X), F.max_pool2d(X, 4))


def test_what_a_forward_inherits_or_decorates():
    class Base(nn.Module):
        def forward(self, x):
            return F.max_pool2d(x, 2)

    class Child(Base):
        @torch.no_grad()
        def forward(this, x):  # noqa: N805
            return super().forward(this.half(x))

        @staticmethod
        def half(x):
            return F.max_pool2d(x, 2)

    net = Child()
    report = convert(net, "mixed", start="same")
    assert [row.name for row in report.replaced] == ["max_pool2d_1", "max_pool2d_0"]  # half runs first
    net.max_pool2d_0.mix.data.fill_(0)
    assert not torch.equal(net(X), F.max_pool2d(X, 4))
    restore(net)
    assert torch.equal(net(X), F.max_pool2d(X, 4))


def test_a_traced_graph():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool2d(2)

        def forward(self, x):
            return F.max_pool2d(self.pool(x), 3, 1, 1) + F.max_pool2d(self.pool(x), 3, 1, 1)

    net = torch.fx.symbolic_trace(Net())
    expected = net(X)
    assert convert(net, "mixed", start="same").parameters == 3
    for other in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(X), expected)
    net.max_pool2d_1.mix.data.fill_(0)
    assert not torch.equal(net(X), expected)


def test_a_converted_network_is_traced_symbolically():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 2, 3, 3))

        def forward(self, x):
            return F.max_pool2d(F.conv2d(x, self.weight, stride=2, padding=1), 3, 2, 1)

    net, x = nn.Sequential(nn.Conv2d(3, 2, 3, 2), Inner(), nn.AdaptiveAvgPool2d(1)), torch.randn(1, 3, 30, 30)
    convert(net, "gated", replace=("max", "strided", "global"), example=x)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1)
    torch.testing.assert_close(torch.fx.symbolic_trace(net)(x), net(x))


class Pieces(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.whole = whole
        self.block = Block(3)

    def forward(self, x):
        if self.whole:
            return checkpoint(self.block, x, use_reentrant=False)
        return checkpoint(self.piece, x, use_reentrant=False)

    def piece(self, x):
        return F.max_pool2d(self.block.conv(x), 3, 1, 1)


def test_checkpointing_a_module_recomputes_the_new_pools():
    net = Pieces(whole=True)
    convert(net, "gated", only="block")
    x = X.clone().requires_grad_()
    with_it = torch.autograd.grad(net(x).sum(), [x, net.block.max_pool2d_1.weight])
    without = torch.autograd.grad(net.block(x).sum(), [x, net.block.max_pool2d_1.weight])
    torch.testing.assert_close(with_it, without)


def test_checkpointing_a_piece_of_forward_is_refused_not_wrong():
    net = Pieces(whole=False)
    why = "max_pool2d_0: inside torch.utils.checkpoint, which calls it again outside of forward"
    with pytest.raises(ValueError, match=why):
        convert(copy.deepcopy(net), "gated", example=X)
    convert(net, "gated")  # without an example nobody knows
    with pytest.raises(RuntimeError, match="convert: a pool is called inside torch.utils.checkpoint"):
        net(X.clone().requires_grad_())


def test_checkpointing_another_module_inside_a_forward():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Sequential(nn.Conv2d(3, 3, 1), nn.MaxPool2d(2))

        def forward(self, x):
            return F.max_pool2d(checkpoint(self.part, x, use_reentrant=False), 2)

    net = Whole()
    convert(net, "mixed", start="same", skip="part")
    x = X.clone().requires_grad_()
    net(x).sum().backward()  # the pool inside stays a module of its own: nothing to refuse
    assert net.max_pool2d_0.mix.grad is not None


def test_calls_that_no_route_reaches_are_reported():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block(3)
            self.pools = [nn.MaxPool2d(2), nn.MaxPool2d(3)]
            self.by_hand = nn.MaxPool2d(2)
            self.shown = {"a": self.by_hand}

        def forward(self, x):
            x = self.shown["a"](self.pools[0](x))
            x = Block.forward(self.block, x)
            return F.max_pool2d(x.masked_fill(x <= x.mean(), -torch.inf), 3, 1)

    with pytest.warns(UserWarning, match="in a plain list: use nn.ModuleList"):
        report = convert(Odd(), "gated", example=X)
    reasons = {row.name: row.reason for row in report.rows if row.state != "replaced"}
    assert reasons["pools[0]"] == "in a plain list: use nn.ModuleList or nn.ModuleDict"
    assert reasons["shown['a']"] == "the same as by_hand, but in a plain dict"
    assert reasons["max_pool2d_0"] == "its input holds −inf: an average of it would too"

    class Walker(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.ReLU(), nn.MaxPool2d(2)

        def forward(self, x):
            for child in self.children():
                x = child(x)
            return F.max_pool2d(x, 2)

    with pytest.warns(UserWarning, match="Walker walks over its submodules"):
        report = convert(Walker())
    assert [row.name for row in report.replaced] == ["b"]
    assert "walks over its submodules" in report.unreachable[0].reason
    net = nn.Sequential(nn.MaxPool2d(2), nn.ReLU())
    net[1].register_forward_hook(lambda module, args, out: F.max_pool2d(out, 2))
    with pytest.warns(UserWarning, match="convert: not replaced in Sequential: 1.max_pool2d_0 .*: called outside"):
        assert convert(net, example=X).unreachable[0].reason == "called outside of its module's forward"


def test_a_pool_passed_on_as_a_value():
    class Chosen(nn.Module):
        def forward(self, x):
            pool = F.max_pool2d if x.dim() == 4 else F.max_pool1d
            return pool(x, 2)

    with pytest.raises(ValueError, match="max_pool1d_0: passed on as a value: example= shows where it is called"):
        convert(Chosen())
    net = Chosen()
    with pytest.warns(UserWarning, match="max_pool1d_0 .*: passed on as a value, and the example never reached it"):
        assert [row.name for row in convert(net, "mixed", start="same", example=X).replaced] == ["max_pool2d_0"]
    assert torch.equal(net(X), F.max_pool2d(X, 2))


def test_code_without_source():
    names = {}
    text = """class Typed(nn.Module):
    def forward(self, x):
        return F.max_pool2d(F.max_pool2d(x, 2), 2)"""
    exec(text, {"nn": nn, "F": F, "__name__": "typed"}, names)
    with pytest.raises(ValueError, match="max_pool2d_0: its source cannot be read: give example="):
        convert(names["Typed"]())
    net = names["Typed"]()
    assert [row.name for row in convert(net, "mixed", start="same", example=X).rows] == ["max_pool2d_0", "max_pool2d_1"]
    assert torch.equal(net(X), F.max_pool2d(X, 4))
    net.max_pool2d_0.mix.data.fill_(0)
    torch.testing.assert_close(net(X), F.max_pool2d(F.avg_pool2d(X, 2), 2))


def test_a_helper_function_shared_by_two_modules():
    class User(nn.Module):
        def __init__(self, inner=None):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return helper(x if self.inner is None else self.inner(x))

    net = User(User())
    convert(net, "mixed", start="same", only="inner")
    net.inner.max_pool2d_0.mix.data.fill_(0)
    torch.testing.assert_close(net(X), F.max_pool2d(F.avg_pool2d(X, 2), 2))


def test_converting_twice_adds_only_what_is_new():
    net = Calls()
    convert(net, "mixed", only="block")
    assert [swap.name for swap in list_swaps(net)] == ["block.max_pool2d_0", "block.max_pool2d_1"]
    report = convert(net, "gated", example=X)
    assert {row.reason for row in report.left if row.name.startswith("block")} == {"learns already"}
    assert len(list_swaps(net)) == 10
    assert isinstance(net.block.max_pool2d_0.tree, learnpool.Mix)
    restore(net)
    assert not list_swaps(net)


def test_a_second_convert_reads_a_forward_that_is_routed_already():
    net = Calls()
    convert(net, "mixed", only="max_pool2d_0")
    report = convert(net, "gated", skip="max_pool2d_3")
    assert [row.name for row in report.replaced if "." not in row.name] == [*KNOWN[1:3], *KNOWN[:2:-1], "pool"]
