"""Everything PyTorch does with a layer, done with ours; each ``row`` is a line of docs/results/torch.md."""

import copy
import functools
import io
import json
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import test_torch_func
import test_torch_onnx
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import learnpool
import torch_table
import two_processes
from cases import GATED, MIXED, ODD, distinct
from learnpool import GatedPool2d, MixedPool2d, Pool2d, StochasticPool2d, TreePool2d, decompositions, tie
from learnpool.ops import cpu
from learnpool.tree import make_tree

row = pytest.mark.row
FREE = torch.export.Dim.DYNAMIC
SIZES = {0: FREE, 2: FREE, 3: FREE}
TESTS = Path(__file__).parents[1]


def network():
    """Each kind of parameter and of sharing."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        GatedPool2d(3, 1, 1),
        MixedPool2d(2, 1, share="channel", channels=4),
        Pool2d(ODD, 3, 2, 1, ceil_mode=True, share="region", grid=7),
    )


def gradients(net, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(net(x).sin().sum(), [x, *net.parameters()])


def inputs():
    return torch.randn(2, 3, 15, 15), torch.randn(3, 3, 12, 17)


def fresh(code, *arguments):
    """Run ``code`` in a new process."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@row("torch.compile: fullgraph, dynamic shapes, backward")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compile():
    net = network()
    compiled = torch.compile(net, fullgraph=True, dynamic=True)
    for x in inputs():
        assert_close(gradients(compiled, x), gradients(net, x), rtol=1e-4, atol=1e-5)  # the convolution's order of sums


@row("torch.compile of torch.func.grad")
@pytest.mark.filterwarnings("ignore")
def test_compile_of_a_transform():
    layer, x = GatedPool2d(3, 2, 1), torch.randn(2, 3, 9, 9)

    def slope(x):
        return torch.func.grad(lambda x: layer(x).sin().sum())(x)

    assert_close(torch.compile(slope, fullgraph=True, backend="aot_eager")(x), slope(x))


@row("torch.export, batch and size dynamic")
def test_export():
    net = network().eval()
    first, second = inputs()
    program = torch.export.export(net, (first,), dynamic_shapes=(SIZES,))
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("learnpool.pool.default") == 3
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for x in (first, second):
        assert_close(loaded(x), net(x))


@row("AOTInductor package, run in a process without learnpool")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_aotinductor(tmp_path):
    if not cpu.CPU.live:
        pytest.skip(f"needs the compiled kernel ({cpu.CPU.detail})")
    net = nn.Sequential(nn.Conv2d(3, 4, 3), GatedPool2d(3, 2, 1), TreePool2d(2, share="channel", channels=4)).eval()
    first, second = inputs()
    program = torch.export.export(net, (first,), dynamic_shapes=(SIZES,))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "net.pt2"))
    torch.save([(x, net(x).detach()) for x in (first, second)], tmp_path / "pairs.pt")
    code = """import sys, torch
path, pairs, library = sys.argv[1:]
torch.ops.load_library(library)
net = torch._inductor.aoti_load_package(path)
for x, y in torch.load(pairs):
    torch.testing.assert_close(net(x), y)
assert "learnpool" not in sys.modules
print("agrees")"""
    library = next(Path(cpu.__file__).parent.glob("library*.so"))
    assert fresh(code, path, tmp_path / "pairs.pt", library).strip() == "agrees"


@row("the operator from the library alone, without Python's half")
def test_the_library_has_the_schemas():
    if not cpu.CPU.live:
        pytest.skip(f"needs the compiled kernel ({cpu.CPU.detail})")
    library = next(Path(cpu.__file__).parent.glob("library*.so"))
    code = """import sys, torch
torch.ops.load_library(sys.argv[1])
print(torch.ops.learnpool.pool.default._schema)
print(torch.ops.learnpool.pool_backward.default._schema)
x, w = torch.arange(16.).reshape(1, 1, 4, 4), torch.zeros(1, 1, 1, 1, 2, 2)
y = torch.ops.learnpool.pool(x, w, torch.empty(0, 1, 1, 1), [4, 0, 1], [2, 2], [2, 2], [0, 0], [1, 1], False, False)
print(y.flatten().tolist())"""
    pool, backward, values = fresh(code, library).splitlines()
    assert pool == str(torch.ops.learnpool.pool.default._schema)
    assert backward == str(torch.ops.learnpool.pool_backward.default._schema)
    assert json.loads(values) == [3.75, 5.75, 11.75, 13.75]  # half way between max and mean


@row("ExecuTorch")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_executorch():
    exir = pytest.importorskip("executorch.exir", reason="needs executorch")
    from executorch.runtime import Runtime

    net = nn.Sequential(nn.Conv2d(3, 4, 3), GatedPool2d(3, 2, 1), MixedPool2d(2, 1), TreePool2d(2, 1)).eval()
    x = torch.randn(2, 3, 15, 15)
    program = torch.export.export(net, (x,)).run_decompositions(decompositions())
    buffer = exir.to_edge(program).to_executorch().buffer
    (y,) = Runtime.get().load_program(buffer).load_method("forward").execute([x])
    assert_close(y, net(x).detach())


@row("`learnpool.decompositions()` for run_decompositions and make_fx")
def test_decompositions():
    from torch.fx.experimental.proxy_tensor import make_fx

    net = nn.Sequential(network(), StochasticPool2d(2)).eval()
    first, second = inputs()
    program = torch.export.export(net, (first,), dynamic_shapes=(SIZES,)).run_decompositions(decompositions())
    assert not [node for node in program.graph.nodes if "learnpool" in str(node.target)]
    for x in (first, second) if torch.__version__ >= (2, 13) else (first,):  # docs/guide/export.md says why
        assert_close(program.module()(x), net(x))

    x = distinct(1, 3, 9, 9).float()
    for layer in (Pool2d(ODD, 3, 2, 1), StochasticPool2d(3, 2).eval()):
        traced = make_fx(functools.partial(gradients, layer), decomposition_table=decompositions())(x)
        assert "learnpool" not in traced.code
        assert_close(traced(x), gradients(layer, x))


@row("autocast and GradScaler: float32 parameters stay so, their gradients do not overflow")
def test_autocast_and_scaler():
    """Each output's scaled gradient fits float16; the sums that reach the parameters do not, and need not."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), GatedPool2d(3, 2, 1), MixedPool2d(2), TreePool2d(2))
    nn.init.uniform_(net[0].weight.requires_grad_(False), 0, 0.2)  # nothing cancels; its own sums are float16
    net[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(net[1:].parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    before = [p.detach().clone() for p in net[1:].parameters()]
    with torch.autocast("cpu", torch.float16):
        y = net(torch.rand(64, 3, 34, 34) + 1)
        assert y.dtype == torch.float16
        loss = y.float().sum()
    scaler.scale(loss).backward()
    pools = [p for layer in net[1:] for p in layer.parameters()]
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in pools)
    assert all(p.grad.isfinite().all() for p in pools)
    assert max(p.grad.abs().max() for p in pools) > torch.finfo(torch.float16).max  # or nothing was shown
    scaler.step(optimizer)
    scaler.update()
    assert all(not torch.equal(p, old) for p, old in zip(pools, before, strict=True))


@row("activation checkpointing")
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant):
    net, x = nn.Sequential(network(), StochasticPool2d(2)), torch.randn(2, 3, 15, 15)
    torch.manual_seed(3)
    expected = gradients(net, x)
    torch.manual_seed(3)
    net.zero_grad()
    leaf = x.clone().requires_grad_()
    checkpoint(net, leaf, use_reentrant=reentrant).sin().sum().backward()
    assert_close([leaf.grad, *(p.grad for p in net.parameters())], list(expected))


@row("DistributedDataParallel and FSDP2 under gloo: every parameter gets the whole batch's gradient")
@pytest.mark.slow
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_two_processes(how):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(TESTS / "two_processes.py"), how, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    net = two_processes.network()
    expected = two_processes.gradients(net, two_processes.images())
    assert found.keys() == expected.keys() == dict(net.named_parameters()).keys()
    for name, values in expected.items():
        assert_close(torch.tensor(found[name]), torch.tensor(values), msg=lambda m, name=name: f"{name}: {m}")


@row("torch.nn.utils.parametrize")
def test_parametrize():
    class Positive(nn.Module):
        def forward(self, w):
            return w.exp()

    layer, plain, x = GatedPool2d(3, 2), GatedPool2d(3, 2), torch.randn(2, 3, 9, 9)
    nn.utils.parametrize.register_parametrization(layer, "weight", Positive(), unsafe=True)
    with torch.no_grad():
        plain.weight.copy_(layer.weight)
    assert torch.equal(layer(x), plain(x))
    layer(x).sum().backward()
    original = layer.parametrizations.weight.original
    plain(x).sum().backward()
    assert_close(original.grad, plain.weight.grad * original.exp().detach())
    mixed = MixedPool2d(2)
    nn.utils.parametrize.register_parametrization(mixed, "mix", nn.Sigmoid())
    assert_close(mixed(x), learnpool.functional.mixed_pool2d(x, mixed.mix.flatten()[0], 2))


@row("deepcopy, pickle, state_dict")
def test_copies():
    net, (x, _) = network(), inputs()
    again = network()
    again.load_state_dict(net.state_dict())
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), again):
        assert torch.equal(other(x), net(x))
        assert all(p is not q for p, q in zip(net.parameters(), other.parameters(), strict=True))


@row("safetensors, tied parameters stored once")
def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")

    def tied():
        net = nn.Sequential(nn.Conv2d(3, 4, 3), GatedPool2d(3, 1, 1), MixedPool2d(2), GatedPool2d(3, 2))
        tie([net[1], net[3]])
        return net

    net, other, x = tied(), tied(), torch.randn(2, 3, 17, 17)
    safetensors.save_model(net, str(tmp_path / "net.safetensors"))
    stored = safetensors.load_file(str(tmp_path / "net.safetensors"))
    assert sum("weight" in key for key in stored) == 2  # the convolution's and one for both pools
    assert not torch.equal(other(x), net(x))
    missing, unexpected = safetensors.load_model(other, str(tmp_path / "net.safetensors"))
    assert (list(missing), list(unexpected)) == ([], [])
    assert other[1].weight is other[3].weight
    assert torch.equal(other(x), net(x))


@row("meta device")
def test_meta():
    with torch.device("meta"):
        net = network()
        assert net(torch.empty(2, 3, 15, 15)).shape == (2, 4, 7, 7)
    net.to_empty(device="cpu")
    source = network()
    net.load_state_dict(source.state_dict())
    x, _ = inputs()
    assert torch.equal(net(x), source(x))
    lazy = GatedPool2d(3, 2, share="channel", device="meta")
    assert lazy(torch.empty(1, 5, 9, 9, device="meta")).shape == (1, 5, 4, 4)
    assert lazy.weight.shape == (1, 5, 1, 1, 3, 3)


@row("memory_format=channels_last")
def test_channels_last():
    net, (x, _) = network(), inputs()
    expected = gradients(net, x)
    net = net.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    assert net(x).is_contiguous(memory_format=torch.channels_last)
    assert_close(gradients(net, x), expected, rtol=1e-4, atol=1e-5)  # the convolution adds in another order


@row("torch.utils.flop_counter")
def test_flops():
    """As many as the convolution a mask is; in backward three of them: the responses again, and two gradients."""
    x = torch.randn(2, 4, 9, 9, requires_grad=True)
    for tree, masks in ((MIXED, 0), (GATED, 1), (make_tree(2), 3)):
        layer = Pool2d(tree, 3, 2, 1)
        with FlopCounterMode(display=False) as forward:
            y = layer(x)
        with FlopCounterMode(display=False) as backward:
            y.sum().backward()
        with FlopCounterMode(display=False) as convolution:
            nn.functional.conv2d(x, torch.randn(4, 1, 3, 3), None, 2, 1, groups=4)
        one = convolution.get_total_flops()
        assert one == 2 * 2 * 4 * 5 * 5 * 9
        assert forward.get_total_flops() == masks * one
        assert backward.get_total_flops() == masks * 3 * one


@row("quantised neighbours (eager mode)")
@pytest.mark.filterwarnings("ignore")
def test_quantised_neighbours():
    quantization = pytest.importorskip("torch.ao.quantization", reason="needs torch.ao.quantization")
    if "x86" not in torch.backends.quantized.supported_engines:
        pytest.skip("needs the x86 engine of torch.ao.quantization")
    stub, back = quantization.QuantStub, quantization.DeQuantStub
    net = nn.Sequential(
        stub(), nn.Conv2d(3, 4, 3), back(), GatedPool2d(3, 2, 1), stub(), nn.Conv2d(4, 4, 3), back()
    ).eval()
    x = torch.randn(4, 3, 17, 17)
    expected = net(x)
    net.qconfig = quantization.get_default_qconfig("x86")
    prepared = quantization.prepare(net)
    prepared(x)
    quantised = quantization.convert(prepared)
    assert [type(quantised[i]).__module__.split(".")[:4] for i in (1, 5)] == [["torch", "ao", "nn", "quantized"]] * 2
    assert type(quantised[3]) is GatedPool2d
    error = (quantised(x) - expected).abs().max()
    assert 0 < error < 0.05 * expected.abs().max()


@row("TorchScript: trace, save, load")
@pytest.mark.filterwarnings("ignore")
def test_torchscript(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), GatedPool2d(3, 1, 1), MixedPool2d(2), TreePool2d(2)).eval()
    first, second = inputs()
    torch.jit.save(torch.jit.trace(net, first), str(tmp_path / "net.pt"))
    loaded = torch.jit.load(str(tmp_path / "net.pt"))
    assert "learnpool::pool" in str(loaded.inlined_graph)
    for x in (first, second):
        assert_close(loaded(x), net(x))
    assert_close(gradients(loaded, first), gradients(net, first))


class Counted(torch.Tensor):
    """A tensor that notes the functions it meets."""

    functions = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.functions.append(getattr(func, "__name__", ""))
        return super().__torch_function__(func, types, args, kwargs or {})


@row("subclasses of Tensor: the result is one too, and `__torch_function__` sees each pool")
def test_subclasses():
    net, x = network()[1:], torch.randn(2, 4, 13, 13)
    expected = gradients(net, x)
    Counted.functions.clear()
    y = net(x.as_subclass(Counted))
    assert type(y) is Counted
    assert Counted.functions.count("pool") == len(net)
    assert_close(gradients(net, x.as_subclass(Counted)), expected)


def test_the_table_lists_exactly_these_rows():
    text = (TESTS.parent / "docs" / "results" / "torch.md").read_text()
    listed = re.findall(r"^\| (.*?) \| \d+ \| (.*) \|$", text, re.MULTILINE)
    files = [test_torch_func, test_torch_onnx, sys.modules[__name__]]
    assert sorted(name for name, _ in listed) == sorted(torch_table.list_rows(files))
    assert all(result == "works" or result.startswith("needs ") for _, result in listed)
