"""The other places where third-party networks shrink a map: strided convolutions, shortcuts and global pools."""

from __future__ import annotations

import copy
from typing import Any

import torch
from checks import are_equal, flatten, measure, require, run
from collection import COMPILED_PLACES, EXPORTED_PLACES, build, sample
from compilers import run_compiled, run_onnx
from torch import Tensor, nn

import learnpool
from learnpool.conversion.swap import list_swaps
from learnpool.formatting import format_large

HEAD = """
## Strided convolutions, shortcuts and global pools

The same networks, and more of timm that have no max pool. Every one has to pass all of this:

- `convert(net, "filter", replace=("strided", "shortcut"))` lists every such place; those that are replaced begin as
  they were, so the outputs in eval() are the original's up to rounding: *distance* is ‖new − old‖ / ‖old‖, and less
  than 1e-4. Convolutions keep their `stride`, `kernel_size`, `padding` and `out_channels`.
- `convert(net, "mixed", replace=("global",))` after that begins as the mean.
- Other weights in the pools give other outputs, and a training pass gives every one of them a finite gradient. Layers
  that the network has and never runs (in PSPNet, the last two stages of its encoder) get pools without one; the
  report says so.
- The original's state_dict loads with `strict=False`, and only the pools' keys are missing.
- `learnpool.restore` gives back the original's state_dict and outputs, bit for bit.
- Where a backend is named, `torch.compile(fullgraph=True)` with it agrees with the uncompiled network; where ONNX is,
  onnxruntime agrees with the exported one.

Left are calls that the example never reaches: timm's squeeze-and-excitation blocks can add a maximum, which these
networks switch off. Not reachable is a mean in a forward with a function that walks over submodules (timm's
`checkpoint_seq`): they might be the network's own, so it is not given one more.
*multiply-adds* are those of these places, of one image, before and after.

"""
STRIDES = ("strided", "shortcut")
NAMES = ("stride", "kernel_size", "padding", "out_channels")


def check_places(name: str) -> dict[str, Any]:
    """One network; its row of the table. AssertionError says what does not hold."""
    original, x = build(name).eval(), sample(name)
    expected, net = run(original, x, False), copy.deepcopy(original)
    names = {key: [getattr(m, attribute) for attribute in NAMES] for key, m in iter_convolutions(original)}
    strides, pools = convert(net, "filter", STRIDES, x), convert(net, "mixed", ("global",), x)
    rows = [*strides, *pools]
    replaced = [row for row in rows if row.state == "replaced"]
    require(all(row.exact != "no" for row in replaced), "an exact start everywhere")
    require(names == {k: [getattr(m, a) for a in NAMES] for k, m in iter_convolutions(net)}, "the convolutions' names")
    out = run(net, x, False)
    distance = max(measure(one, other) for one, other in zip(out, expected, strict=True))
    require(distance < 1e-4, f"the same outputs up to rounding; the distance is {distance:.1e}")
    keys = net.load_state_dict(original.state_dict(), strict=False)
    learned = {f"{swap.name}.{key}" for swap in list_swaps(net) for key in swap.new.state_dict()}
    require(not keys.unexpected_keys and set(keys.missing_keys) == learned, "only the pools' keys missing")
    compiled, exported = check_compiled(name, net, x), check_exported(name, net, x)
    if replaced:
        idle = tuple(row.name for row in replaced if "never reached" in row.reason)
        check_training(copy.deepcopy(net), x, expected, idle)
        learnpool.restore(net)
    require(list(net.state_dict()) == list(original.state_dict()), "the state_dict's keys after restore")
    require(are_equal(run(net, x, False), expected), "the outputs after restore")
    before = sum(row.multiply_adds_before or 0 for row in replaced)
    after = sum(row.multiply_adds or 0 for row in replaced)
    kinds = {kind: sum(row.kind == kind for row in replaced) for kind in (*STRIDES, "global")}
    kinds |= {"left": sum(row.state == "left" for row in rows)}
    kinds |= {"not reachable": sum(row.state == "unreachable" for row in rows)}
    cost = f"{format_large(before)} → {format_large(after)}" if before else ""
    return {**kinds, "multiply-adds": cost, "distance": f"{distance:.0e}" if distance else "0"} | {
        "compiled": compiled,
        "ONNX": exported,
    }


def convert(net: nn.Module, pool: str, kinds: tuple[str, ...], x: Tensor) -> list[Any]:
    """The rows of these kinds; none where the network has none."""
    try:
        report = learnpool.convert(net, pool, replace=kinds, example=x)
    except ValueError as error:
        require("nothing to replace" in str(error) or "has no pools" in str(error), f"places to replace: {error}")
        return []
    return [row for row in report.rows if row.kind in kinds]


def iter_convolutions(net: nn.Module) -> list[tuple[str, Any]]:
    return [(key, m) for key, m in net.named_modules() if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Conv3d))]


def check_training(net: nn.Module, x: Tensor, expected: list[Tensor], idle: tuple[str, ...]) -> None:
    """A gradient for every pool but the idle ones; then other outputs with other pools."""
    sum(out.float().square().mean() for out in flatten(net.train()(x))).backward()
    with torch.no_grad():
        for swap in list_swaps(net):
            for parameter in swap.new.parameters():
                is_finite = parameter.grad is not None and bool(parameter.grad.isfinite().all())
                require(is_finite or swap.name.startswith(idle), f"a finite gradient for {swap.name}")
                parameter.add_(0.1)
    for buffer in net.buffers():
        require(not buffer.is_floating_point() or bool(buffer.isfinite().all()), "finite statistics")
    require(not are_equal(run(net.eval(), x, False), expected), "other outputs with other pools")


def check_compiled(name: str, net: nn.Module, x: Tensor) -> str:
    backend = COMPILED_PLACES.get(name, "")
    if backend:
        torch._dynamo.reset()
        with torch.no_grad():
            torch.testing.assert_close(run_compiled(net, x, backend), flatten(net(x)), rtol=1e-3, atol=1e-4)
    return backend


def check_exported(name: str, net: nn.Module, x: Tensor) -> str:
    if name not in EXPORTED_PLACES:
        return ""
    with torch.no_grad():
        torch.testing.assert_close(run_onnx(net, x), flatten(net(x)), rtol=1e-3, atol=1e-4)
    return "yes"
