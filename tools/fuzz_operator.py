"""``fuzz_operator.py CALLS [SEED]``: random calls of the operator, value and gradients, against the reference.

Trees of any leaves, windows in one to three dimensions, sharings, memory layouts and dtypes are drawn anew for each
call; a third of the calls has equal, large and infinite cells or NaN among the others. A call that differs is printed
with its seed, which alone repeats it: ``fuzz_operator.py 1 SEED``.
"""

from __future__ import annotations

import math
import random
import sys

import torch

from learnpool.lab.doctor import TOLERANCES, arrange, pool_both
from learnpool.names import parse
from learnpool.ops import cpu
from learnpool.ops.window import Window
from learnpool.parsing import LEAVES
from learnpool.program import decode

SHARES = ("layer", "region", "channel", "region_channel")


def draw_tree(chance: random.Random, depth: int) -> str:
    """A tree in the words of its grammar."""
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(sorted(LEAVES))
    left, right = draw_tree(chance, depth - 1), draw_tree(chance, depth - 1)
    fixed = ", a=0.3, learn=False" if chance.random() < 0.3 else ""
    return f"Gate({left}, {right})" if chance.random() < 0.6 else f"Mix({left}, {right}{fixed})"


def draw_window(chance: random.Random, dims: int) -> tuple[Window, list[int]]:
    """A window and an input it fits into; half of the inputs are hardly larger than the window."""
    kernel, stride, padding, dilation, size = [], [], [], [], []
    ceil_mode = chance.random() < 0.5
    for _ in range(dims):
        k, s, d = chance.randint(1, 6 if dims < 3 else 3), chance.randint(1, 3), chance.randint(1, 2)
        p = chance.randint(0, k // 2)
        least = max(1, d * (k - 1) + 1 - 2 * p)
        kernel, stride, padding, dilation = [*kernel, k], [*stride, s], [*padding, p], [*dilation, d]
        size.append(least + chance.randint(0, 2 if chance.random() < 0.5 else 24 // dims))
    include = chance.random() < 0.5
    return Window.of("fuzz", dims, kernel, stride, padding, dilation, ceil_mode, include), size


def draw_cells(chance: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers in [−2, 2) that all differ; in a third of the calls with others among them."""
    cells = torch.randperm(torch.Size(shape).numel()).double()
    cells = cells / len(cells) * 4 - 2
    if chance.random() < 1 / 3:
        others = [chance.choice((0.0, 1.0, -0.0, math.inf, -math.inf, math.nan, 1e4, -1e4)) for _ in range(2)]
        some = torch.rand(len(cells)) < chance.choice((0.02, 0.3, 1.0))
        cells = torch.where(some, torch.tensor(others).double()[torch.randint(2, (len(cells),))], cells)
    return cells.reshape(shape).to(dtype)


def compare_call(seed: int) -> str:
    """What differs in one call, or nothing."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    text, dims = draw_tree(chance, chance.randint(0, 3)), chance.choice((1, 2, 2, 2, 3))
    tree = parse(text).part().pool
    window, size = draw_window(chance, dims)
    shape = (chance.randint(1, 3), chance.choice((1, 3, 8, 17, 32)), *size)
    dtype, share = chance.choice(list(TOLERANCES)), chance.choice(SHARES)
    layout = chance.choice(("contiguous", "channels_last", "strided"))
    x = arrange(draw_cells(chance, shape, dtype), layout, dims)
    assert not isinstance(tree, str)
    program = tree.fit(window.kernel)
    decoded = decode(program)
    grid = window.output_size(size) if "region" in share else (1,) * dims
    extent = (shape[1] if "channel" in share else 1, *grid)
    weight = (torch.randn((decoded.weights, *extent, *window.kernel)) / 2).to(dtype)
    mix = (3 * torch.rand((decoded.mixes, *extent))).to(dtype)  # beyond some borders too
    rtol, atol = TOLERANCES[dtype]
    for name, *both in pool_both(x, weight, mix, program, window, dtype):
        # where cells are not finite, a result that is not either may be infinite or NaN
        mine, wanted = (torch.where(t.isfinite(), t, math.nan).double() for t in both)
        if name in ("dweight", "dmix"):  # of a side that is not read: the reference has 0 · inf, the kernel 0
            wanted = torch.where(wanted.isnan() & (mine == 0), 0, wanted)
        scale = max(1.0, float(wanted.abs().nan_to_num().max()) if wanted.numel() else 1.0)
        if not torch.allclose(mine, wanted, rtol=rtol, atol=atol * scale, equal_nan=True):
            worst = (mine - wanted).abs().max().item()
            return f"{name} differs by {worst:.2g}: {text}, {window}, {shape}, {dtype}, {share}, {layout}"
    return ""


def main() -> int:
    """Exit status 1 if any call differs."""
    calls, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    torch.set_num_threads(1)
    print(f"{calls:,} calls from seed {first}; kernel: {cpu.CPU.detail}{'' if cpu.CPU.live else ' (not live)'}")
    problems = [(seed, problem) for seed in range(first, first + calls) if (problem := compare_call(seed))]
    for seed, problem in problems[:20]:
        print(f"seed {seed}: {problem}")
    print(f"{len(problems)} of {calls:,} differ")
    return 1 if problems or not cpu.CPU.live else 0


if __name__ == "__main__":
    sys.exit(main())
