"""Third-party networks with pools in every place: compiled in one graph, and exported to ONNX."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import onnxruntime
import torch
from checks import flatten, measure, require
from collection import build, sample
from torch import Tensor, nn

import learnpool
from learnpool.conversion.swap import list_swaps

HEAD = """
## Compiled and exported

Networks of these tables, each with pools in every place at once: `filter` at strided convolutions and shortcuts,
`mixed` for global pools, `gated` for max and average pools, with other weights than they begin with. In eval(), for
one image:

- `torch.compile(net, fullgraph=True, backend="aot_eager")` agrees with the uncompiled network.
- `torch.onnx.export(net, dynamo=True)` has no custom operator, and onnxruntime agrees with the network.

The numbers are distances ‖other − net‖ / ‖net‖, and less than 1e-4. "not without pools" says that the network as its
library has it fails in the same way. Inductor was tried on those that the tables above name. PSPNet keeps its global
pool, because its forward computes an average of its own instead when it is exported to ONNX.

"""
KINDS = (("filter", ("strided", "shortcut")), ("mixed", ("global",)), ("gated", ("max", "avg")))
SKIPPED = {"smp/PSPNet-resnet18": "decoder.psp.*"}  # its forward asks torch.onnx.is_in_onnx_export() and passes it by


def check_compilers(name: str) -> dict[str, Any]:
    """One network; its row of the table. AssertionError says what does not hold."""
    net, x = build(name).eval(), sample(name)[:1]
    for pool, kinds in KINDS:
        try:
            learnpool.convert(net, pool, replace=kinds, example=x, skip=SKIPPED.get(name))
        except ValueError as error:
            require("nothing to replace" in str(error) or "has no pools" in str(error), f"pools there: {error}")
    swaps = list_swaps(net)
    with torch.no_grad():
        for parameter in {p for swap in swaps for p in swap.new.parameters()}:
            parameter.add_(0.05)
    return {
        "pools": len(swaps),
        "compiled": compare(run_compiled, name, net, x),
        "ONNX": compare(run_onnx, name, net, x),
    }


def compare(run: Callable[[nn.Module, Tensor], list[Tensor]], name: str, net: nn.Module, x: Tensor) -> str:
    """How far a run of the converted network is from the network."""
    torch._dynamo.reset()
    with torch.no_grad():
        expected = flatten(net(x))
        try:
            actual = run(net, x)
        except Exception as error:
            try:
                run(build(name).eval(), x)
            except Exception as other:
                if type(other) is type(error):
                    return "not without pools"
            raise
    distance = max(measure(one, other) for one, other in zip(actual, expected, strict=True))
    require(distance < 1e-4, f"{run.__name__} to agree; the distance is {distance:.1e}")
    return f"{distance:.0e}" if distance else "0"


def run_compiled(net: nn.Module, x: Tensor, backend: str = "aot_eager") -> list[Tensor]:
    return flatten(torch.compile(net, fullgraph=True, backend=backend)(x))


def run_onnx(net: nn.Module, x: Tensor) -> list[Tensor]:
    program = torch.onnx.export(net, (x,), dynamo=True, external_data=False, verbose=False)
    assert program is not None
    domains = {node.domain for node in program.model.graph}
    require(domains <= {"", "ai.onnx"}, f"standard operators alone, got {domains}")
    buffer = io.BytesIO()
    program.save(buffer)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(buffer.getvalue(), options, providers=["CPUExecutionProvider"])
    return [torch.from_numpy(out) for out in session.run(None, {session.get_inputs()[0].name: x.numpy()})]
