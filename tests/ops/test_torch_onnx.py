"""``torch.onnx.export`` as anyone calls it, and onnxruntime's answer."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from cases import LOW, ODD, SHARES, W
from learnpool import Avg, Gate, GatedPool2d, Max, Min, Pool1d, Pool2d, Pool3d, Std, StochasticPool2d
from learnpool.names import TREES
from learnpool.tree import make_tree

ROW = pytest.mark.row("`torch.onnx.export(dynamo=True)`, batch and size dynamic, onnxruntime agrees")
NAMED = [*TREES.values(), make_tree(2), make_tree(3), ODD, LOW, Std(), Min(), Gate(Max(), Avg(), by=Std(), bias=True)]
WINDOWS = [
    W(3, 2),
    W(3, 2, 1, count_include_pad=True),
    W((3, 2), (1, 2), (1, 0), ceil_mode=True),
    W(2, 2, 1, ceil_mode=True, count_include_pad=True),  # ceil mode's last window would begin outside
    W((2, 3), (3, 2), (1, 1), (2, 1), True),
]


class Several(nn.Module):
    def __init__(self, pools):
        super().__init__()
        self.pools = nn.ModuleList(pools)

    def forward(self, input):
        return [pool(input) for pool in self.pools]


def exported(net, x, fixed=False):
    """A session, and the number of nodes; as warnings are errors here, the exporter's own are let through."""
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    free = torch.export.Dim.DYNAMIC
    shapes = None if fixed else {"input": dict.fromkeys([0, *range(2, x.dim())], free)}
    program = torch.onnx.export(
        net.eval(), (x,), dynamo=True, dynamic_shapes=shapes, external_data=False, verbose=False
    )
    model = program.model_proto
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session, len(model.graph.node)


def agrees(net, session, *inputs):
    for x in inputs:
        got = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        with torch.no_grad():
            wanted = net(x)
        for ours, theirs in zip(wanted if isinstance(wanted, list) else [wanted], got, strict=True):
            assert_close(torch.from_numpy(theirs), ours, rtol=1e-4, atol=1e-5)  # another order of summation


@ROW
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("turn", range(len(WINDOWS)), ids=[str(w) for w in WINDOWS])
def test_named_pools(turn):
    """Every pool meets every window and every sharing, every window every sharing."""
    window = WINDOWS[turn]
    x = torch.randn(2, 3, 9, 8)
    grid = window.of().output_size((9, 8))
    options = {"ceil_mode": window.ceil_mode, "count_include_pad": window.count_include_pad}
    pools = [
        Pool2d(tree, *window[:4], share=SHARES[(turn + place) % 4], channels=3, grid=grid, **options)
        for place, tree in enumerate(NAMED)
    ]
    net = Several([*pools, StochasticPool2d(*window[:4], ceil_mode=window.ceil_mode)])
    session, _ = exported(net, x)
    agrees(net, session, x, torch.randn(4, 3, 12, 13), torch.randn(1, 3, 7, 10))


@ROW
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dims", [1, 3])
def test_one_and_three_dimensions(dims):
    size = (7, 6, 5)[:dims]
    layer = (Pool1d, None, Pool3d)[dims - 1]
    net = Several([layer(tree, 3, 2, 1, ceil_mode=True) for tree in (ODD, make_tree(2))])
    session, _ = exported(net, torch.randn(2, 3, *size))
    agrees(net, session, torch.randn(2, 3, *size), torch.randn(3, 3, *(n + 3 for n in size)))


@pytest.mark.row("a gated layer is at most 20 ONNX nodes")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("window", [W(3, 2), W(3, 2, 1), W(2, 2, 1, 1, True, True)], ids=str)
def test_nodes_of_a_gated_layer(window):
    net = GatedPool2d(*window[:4], ceil_mode=window.ceil_mode, count_include_pad=window.count_include_pad)
    session, nodes = exported(net, torch.randn(2, 3, 9, 9))
    agrees(net, session, torch.randn(2, 3, 9, 9), torch.randn(3, 3, 12, 11))
    assert nodes <= 20


@ROW
@pytest.mark.filterwarnings("ignore")
def test_fixed_sizes_and_halves():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), GatedPool2d(3, 2, 1)).eval()
    x = torch.randn(2, 3, 9, 9)
    session, _ = exported(net, x, fixed=True)
    agrees(net, session, x)
    half = GatedPool2d(3, 2, 1, dtype=torch.float16)
    session, _ = exported(half, x.half())
    assert_close(torch.from_numpy(session.run(None, {"input": x.half().numpy()})[0]), half(x.half()).detach())


@pytest.mark.filterwarnings("ignore")  # the exporter's own, that it is old
def test_the_older_exporter_is_refused_in_one_line(tmp_path):
    net = nn.Sequential(nn.Conv2d(1, 2, 3), GatedPool2d(3, 2))
    wanted = r"^learnpool: torch\.onnx\.export\(dynamo=False\) cannot export a pool: leave dynamo=True, its default$"
    with pytest.raises(RuntimeError, match=wanted):
        torch.onnx.export(net, (torch.randn(1, 1, 9, 9),), tmp_path / "net.onnx", dynamo=False)
    assert torch.jit.trace(net, torch.randn(1, 1, 9, 9))  # tracing itself works
