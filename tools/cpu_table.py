"""Writes docs/results/cpu.md from the benchmarks' files beside it: ``python tools/cpu_table.py``."""

import json
import statistics
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "docs" / "results"
BOTH, FORWARD = "forward + backward", "forward"
POOLS = ("mixed", "gated", "tree2", "tree3")
GENERAL = "Gate(Gate(Filter, Filter), Mix(Max, Avg))"


class Bench:
    """One file of ``learnpool bench pools``: medians over rounds, in seconds."""

    def __init__(self, name):
        self.record = json.loads((RESULTS / f"cpu-{name}.json").read_text(encoding="utf-8"))
        self.shapes = [tuple(shape) for shape in self.record["settings"]["shapes"]]
        self.medians = {(t["name"], t["mode"], tuple(t["shape"])): t["median"] for t in self.record["timings"]}

    def ratio(self, name, to="max", mode=BOTH, shapes=None):
        """Geometric mean over shapes of a contestant's time over another's."""
        pairs = [(self.medians[name, mode, s], self.medians[to, mode, s]) for s in shapes or self.shapes]
        return statistics.geometric_mean(a / b for a, b in pairs)


def lines():
    """The lines of the page."""
    nchw, last, ceil = Bench("nchw"), Bench("channels_last"), Bench("ceil")
    yield "# Pools on a CPU"
    yield ""
    yield "Written by `tools/cpu_table.py` from the `cpu-*.json` beside it; a test holds them together. Times are"
    yield "multiples of `nn.MaxPool2d`'s in the same layout, dtype and run: geometric means over 64×128×32×32,"
    yield "64×192×16×16 and 32×64×112×112 of medians over rounds; 3×3 windows of stride 2 and padding 1, float32, two"
    yield "threads, unless a row says otherwise."
    yield ""
    facts = nchw.record
    machine = f"{facts['hardware']['cpu']}, {facts['hardware']['cores']} cores, kernel {facts['kernel']['detail']}"
    yield f"{machine}, torch {facts['versions']['torch']}, {facts['date'][:10]}."
    yield ""
    yield "| | " + " | ".join(POOLS) + " |"
    yield "|---|" + "---|" * len(POOLS)
    for label, bench, mode in (
        ("forward + backward, contiguous", nchw, BOTH),
        ("the same, padding 0 and ceil mode", ceil, BOTH),
        ("forward + backward, channels_last", last, BOTH),
        ("forward only, contiguous", nchw, FORWARD),
        ("forward only, channels_last", last, FORWARD),
    ):
        yield f"| {label} | " + " | ".join(f"{bench.ratio(pool, mode=mode):.3f}" for pool in POOLS) + " |"
    yield ""
    yield "| gated, forward + backward, contiguous | |"
    yield "|---|---|"
    large = [nchw.shapes[0], nchw.shapes[2]]
    for shape in large:
        size = "×".join(map(str, shape))
        copies, clones = (nchw.ratio("gated", to, shapes=[shape]) for to in ("copy", "clone"))
        yield f"| {size}, over two copies of x into memory that exists | {copies:.2f} × |"
        yield f"| {size}, over two clones of x | {clones:.2f} × |"
    compiled = Bench("compiled")
    yield f"| the gated pool by hand over it, on these two shapes | {compiled.ratio('gated by hand', 'gated'):.1f} × |"
    yield f"| the same under torch.compile | {compiled.ratio('gated by hand, compiled', 'gated'):.1f} × |"
    for label, name in (
        ("3×3, stride 1, padding 1", "3x3-1"),
        ("2×2, stride 2", "2x2-2"),
        ("1d, 64×128×1024", "1d"),
        ("3d, 4×32×16×64×64", "3d"),
        ("bfloat16", "bfloat16"),
    ):
        yield f"| {label}: over max | {Bench(name).ratio('gated'):.3f} × |"
    half = Bench("bfloat16")
    for pool in ("mixed", "gated"):
        slower = statistics.geometric_mean(
            half.medians[pool, BOTH, s] / nchw.medians[pool, BOTH, s] for s in half.shapes
        )
        yield f"| {pool}, bfloat16 over float32 (two runs) | {slower:.2f} × |"
    sharing = Bench("sharing")
    for share in ("channel", "region", "region_channel"):
        yield f"| shared by {share} over shared by layer | {sharing.ratio(f'gated:{share}', 'gated'):.2f} × |"
    general = Bench("general")
    yield f"| `{GENERAL}`, 5×5, stride 3, dilation 2: over max | {general.ratio(GENERAL):.2f} × |"
    yield f"| its reference over it | {general.ratio(f'{GENERAL}, reference', GENERAL):.1f} × |"
    net = json.loads((RESULTS / "cpu-net.json").read_text(encoding="utf-8"))
    of, ratio = net["settings"], net["ratio"]["median"]
    said = f"a training step of the paper's CIFAR10 network, {of['pool']} over max, median of {of['pairs']} pairs"
    yield f"| {said} | {ratio:.3f} × |"


if __name__ == "__main__":
    (RESULTS / "cpu.md").write_text("\n".join(lines()) + "\n", encoding="utf-8")
