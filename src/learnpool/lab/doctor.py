"""Self-test of a device's kernel: every program × window × dtype against the reference, value and all gradients.

Layouts and sharings take turns, so that each meets each. On a GPU a few checks follow of what only hardware can show:
streams, CUDA graphs, a second device, offsets beyond 2³¹. The result is a table to paste into an issue.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..names import parse
from ..ops import cpu, reference, stochastic, triton
from ..ops.window import Window
from ..program import decode
from ..tree import Max, Tree

STOCHASTIC = "stochastic"
POOLS = (
    "Max", "Min", "Avg", "half", "mixed", "gated", "filter", "tree2", "tree3",
    "Gate(Gate(Filter, Max), Mix(Mix(Avg, Filter), Min))", "Gate(Max, Avg, by=Std)",
    "soft", "lse", "gem", "lp2", "rank", "median", "blur", STOCHASTIC,
)  # fmt: skip
WINDOWS: dict[str, tuple[int, ...]] = {  # kernel, stride, padding, dilation, ceil_mode, count_include_pad
    "2/2": (2, 2, 0, 1, 0, 0),
    "3/2 padded": (3, 2, 1, 1, 0, 0),
    "3/2 ceil": (3, 2, 0, 1, 1, 0),
    "3/1 padded": (3, 1, 1, 1, 0, 1),
    "3/1 dilated": (3, 1, 1, 2, 0, 0),
    "7/3 padded": (7, 3, 3, 1, 1, 1),
}
# relative and absolute, for parameters of x's dtype: sums of thousands of terms that cancel, in another order
TOLERANCES = {
    torch.float32: (1e-4, 1e-4),
    torch.float64: (1e-7, 1e-7),
    torch.bfloat16: (1.6e-2, 8e-2),
    torch.float16: (2e-3, 1e-2),
}
SHARES = ("layer", "channel", "region", "region_channel")
LAYOUTS = ("contiguous", "channels_last", "strided")


@dataclass(frozen=True)
class Case:
    """One call to compare."""

    pool: str
    window: str
    dtype: torch.dtype
    share: str
    layout: str
    dims: int = 2
    size: int = 19

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.pool}, {self.window}, {dtype}, {self.share}, {self.layout}, {self.dims}d"


@dataclass(frozen=True)
class Outcome:
    """A comparison or a check, and what went wrong; nothing if ``problem`` is empty."""

    name: str
    dtype: str
    problem: str


def require_kernel(device: torch.device) -> None:
    """ValueError where the device runs the reference, which would be compared with itself."""
    kernel = triton.GPU if device.type == "cuda" else cpu.CPU
    if not kernel.live:
        raise ValueError(f"--device: wanted one with a kernel, but {device.type} runs the reference ({kernel.detail})")


def list_cases(quick: bool = False) -> list[Case]:
    """Every pool, window and dtype; sharing, layout and dimensions take turns. ``quick``: float32 and two windows."""
    dtypes = [torch.float32] if quick else list(TOLERANCES)
    windows = list(WINDOWS)[1:4:2] if quick else list(WINDOWS)
    turns = zip(itertools.cycle(SHARES), itertools.cycle(LAYOUTS), itertools.cycle((2, 2, 2, 1, 2, 2, 3)), strict=False)
    plan = itertools.product(POOLS, windows, dtypes)
    cases = []
    for (pool, window, dtype), (share, layout, dims) in zip(plan, turns, strict=False):
        cases.append(Case(pool, window, dtype, share, layout, dims, 19 if dims < 3 else 9))
    return cases


def make_inputs(case: Case, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Sequence[int], Window]:
    """x, weight, mix, program and window of a case; no two cells of x are equal."""
    tree = Max() if case.pool == STOCHASTIC else parse(case.pool).part().pool
    assert isinstance(tree, Tree)
    kernel, stride, padding, dilation, ceil_mode, include_pad = WINDOWS[case.window]
    window = Window.of("doctor", case.dims, kernel, stride, padding, dilation, bool(ceil_mode), bool(include_pad))
    shape = (2, 5, *(case.size,) * (case.dims - 1), case.size + 6)
    count = torch.Size(shape).numel()
    generator = torch.Generator().manual_seed(0)
    x = (torch.randperm(count, generator=generator).double() / count * 4 - 2).reshape(shape).to(case.dtype)
    program = tree.fit(window.kernel)
    decoded = decode(program)
    grid = window.output_size(shape[2:]) if "region" in case.share else (1,) * case.dims
    extent = (5 if "channel" in case.share else 1, *grid)
    weight = torch.randn((decoded.weights, *extent, *window.kernel), generator=generator, dtype=torch.float64) / 2
    mix = torch.rand((decoded.mixes, *extent), generator=generator, dtype=torch.float64)
    x, weight, mix = (tensor.to(device, case.dtype) for tensor in (x, weight, mix))
    return arrange(x, case.layout, case.dims), weight, mix, program, window


def arrange(x: Tensor, layout: str, dims: int) -> Tensor:
    """x in a memory layout; ``strided`` is every second cell of something larger, not aligned to 16 bytes."""
    if layout == "strided":
        return torch.cat([x[..., :1], x.repeat_interleave(2, -1)], -1)[..., 1::2]
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims, torch.contiguous_format)
    return x.contiguous(memory_format=last if layout == "channels_last" else torch.contiguous_format)


def _pool_both(case: Case, device: torch.device) -> Iterator[tuple[str, Tensor, Tensor]]:
    """``pool_both`` of a case; of float32 in float64, because its own rounding is as large as a kernel's."""
    return pool_both(*make_inputs(case, device), torch.float64 if case.dtype == torch.float32 else case.dtype)


def pool_both(
    x: Tensor, weight: Tensor, mix: Tensor, program: Sequence[int], window: Window, exact: torch.dtype
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Value and gradients of a tree, by the operator and by the reference in the dtype ``exact``."""
    known = x.to(exact), weight.to(exact), mix.to(exact)
    y = torch.ops.learnpool.pool(x, weight, mix, program, *window.arguments)
    yield "y", y, reference.forward(*known, program, window).to(y)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
    ours = torch.ops.learnpool.pool_backward(grad, x, weight, mix, program, *window.arguments, [True] * 3)
    theirs = reference.backward(grad.to(exact), *known, program, window)
    for name, mine, wanted in zip(("dx", "dweight", "dmix"), ours, theirs, strict=True):
        assert wanted is not None
        yield name, mine, wanted.to(mine)


def _pick_both(case: Case, device: torch.device) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Value and gradient of stochastic pooling in training and in evaluation, by the operator and by the reference."""
    x, *_, window = make_inputs(case, device)
    arguments = window.arguments[:5]
    for name, seed in (("picked", torch.tensor([2**40 + 1, -3], device=device)), ("expected", None)):
        y = torch.ops.learnpool.stochastic_pool(x, seed, *arguments)
        yield f"{name} y", y, stochastic.pool(x, seed, *arguments)
        grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
        dx = torch.ops.learnpool.stochastic_pool_backward(grad, x, seed, *arguments)
        yield f"{name} dx", dx, stochastic.pool_backward(grad, x, seed, *arguments)


def compare(case: Case, device: torch.device) -> str:
    """What differs between the operator and the reference, or nothing."""
    rtol, atol = TOLERANCES[case.dtype]
    for name, mine, wanted in (_pick_both if case.pool == STOCHASTIC else _pool_both)(case, device):
        if not torch.allclose(mine, wanted, rtol=rtol, atol=atol, equal_nan=True):
            return f"{name} differs by up to {(mine - wanted).abs().max().item():.2g}"
    return ""


def examine(device: torch.device, quick: bool, advance: Callable[[], None]) -> list[Outcome]:
    """Compare all cases, then check the hardware; ``advance`` is called after each."""
    outcomes = []
    for case in list_cases(quick):
        dtype = str(case.dtype).removeprefix("torch.")
        try:
            problem = compare(case, device)
        except Exception as error:  # whatever a device does not have is a line of the table, not the end
            problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        outcomes.append(Outcome(case.pool, dtype, f"{case}: {problem}" if problem else ""))
        advance()
    if device.type == "cuda":
        outcomes += [Outcome(name, "", problem) for name, problem in check_hardware(device)]
        outcomes += [Outcome("compilation", "", f"{key[:2]}: {why}") for key, why in triton.failures.items()]
    return outcomes


def check_hardware(device: torch.device) -> Iterator[tuple[str, str]]:
    """The checks that need a GPU: name, and what went wrong or why it could not be made."""
    from .hardware_checks import CHECKS

    for name, check in CHECKS.items():
        try:
            yield name, check(device) or ""
        except Exception as error:
            yield name, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def format_table(outcomes: list[Outcome]) -> str:
    """Passed over all, pool by pool and dtype by dtype, in Markdown; then what went wrong, one line each."""
    dtypes = list(dict.fromkeys(outcome.dtype for outcome in outcomes if outcome.dtype))
    lines = [f"| | {' | '.join(dtypes)} |", "|---" * (len(dtypes) + 1) + "|"]
    for name in dict.fromkeys(outcome.name for outcome in outcomes if outcome.dtype):
        cells = []
        for dtype in dtypes:
            group = [outcome for outcome in outcomes if (outcome.name, outcome.dtype) == (name, dtype)]
            cells.append(f"{sum(not outcome.problem for outcome in group)}/{len(group)}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [f"- {outcome.name}: {outcome.problem or 'ok'}" for outcome in outcomes if not outcome.dtype]
    lines += [f"- {outcome.problem}" for outcome in outcomes if outcome.dtype and outcome.problem]
    return "\n".join(lines)


def describe_windows(quick: bool) -> str:
    """The windows by their names, for the reader of a table."""
    tried = {case.window: WINDOWS[case.window] for case in list_cases(quick)}
    return "; ".join(
        f"{name}: kernel {k}, stride {s}, padding {p}, dilation {d}" for name, (k, s, p, d, *_) in tried.items()
    )
