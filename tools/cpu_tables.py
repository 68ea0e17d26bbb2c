"""Tables of the pools' speed on a CPU, from the files of ``learnpool bench`` in docs/results."""

import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from learnpool.ops.window import format_size

RESULTS = Path(__file__).parents[1] / "docs" / "results"
BOTH, FORWARD = "forward + backward", "forward"
POOLS = ("mixed", "gated", "tree2", "tree3")
GENERAL = "Gate(Gate(Filter, Filter), Mix(Max, Avg))"


class Bench:
    """One file of ``learnpool bench pools``: medians over rounds, in seconds."""

    def __init__(self, name: str) -> None:
        self.record = json.loads((RESULTS / f"cpu-{name}.json").read_text(encoding="utf-8"))
        self.shapes = [tuple(shape) for shape in self.record["settings"]["shapes"]]
        self.medians = {(t["name"], t["mode"], tuple(t["shape"])): t["median"] for t in self.record["timings"]}

    def compute_ratio(self, name: str, to: str = "max", mode: str = BOTH, shapes=None) -> float:
        """Geometric mean over shapes of a contestant's time over another's."""
        pairs = [(self.medians[name, mode, s], self.medians[to, mode, s]) for s in shapes or self.shapes]
        return statistics.geometric_mean(a / b for a, b in pairs)


def iter_table(heads: str | Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """The lines of a table of Markdown; ``heads`` are in a list or between bars."""
    heads = heads.split("|") if isinstance(heads, str) else heads
    yield "|" + "".join(f" {head} |" if head else " |" for head in heads)
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def format_machine(record: dict) -> str:
    """Processor, kernel, versions and date of a result file."""
    hardware = f"{record['hardware']['cpu']}, {record['hardware']['cores']} cores, {record['kernel']['detail']}"
    return f"{hardware}, torch {record['versions']['torch']}, {record['date'][:10]}"


def format_speed_table() -> Iterator[str]:
    """The README's table: forward + backward over nn.MaxPool2d, for both memory layouts, with all vectors and AVX2."""
    layouts = {
        "contiguous": Bench("nchw"),
        "contiguous, AVX2 only": Bench("avx2-nchw"),
        "channels_last": Bench("channels_last"),
        "channels_last, AVX2 only": Bench("avx2-channels_last"),
    }
    columns = [*POOLS, "gated by hand"]
    rows = ([layout, *(f"{bench.compute_ratio(name):.2f}" for name in columns)] for layout, bench in layouts.items())
    yield from iter_table(["memory layout", *columns], rows)
    yield ""
    yield f"{format_machine(layouts['contiguous'].record)}."


def format_cpu_tables() -> Iterator[str]:
    """All figures of docs/results/cpu.md."""
    nchw, last, ceil = Bench("nchw"), Bench("channels_last"), Bench("ceil")
    yield from format_layouts(
        nchw,
        {
            ("forward + backward, contiguous", BOTH): nchw,
            ("the same, padding 0 and ceil mode", BOTH): ceil,
            ("forward + backward, channels_last", BOTH): last,
            ("forward only, contiguous", FORWARD): nchw,
            ("forward only, channels_last", FORWARD): last,
        },
    )
    nchw2, last2 = Bench("avx2-nchw"), Bench("avx2-channels_last")
    yield from format_layouts(
        nchw2,
        {
            ("forward + backward, contiguous", BOTH): nchw2,
            ("forward + backward, channels_last", BOTH): last2,
            ("forward only, contiguous", FORWARD): nchw2,
            ("forward only, channels_last", FORWARD): last2,
        },
    )
    yield from format_leaves()
    others = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("cpu-*.json")]
    days = [record["date"][:10] for record in others if record["kernel"] == nchw.record["kernel"]]
    machine, _, _ = format_machine(nchw.record).rpartition(", ")
    yield f"{machine}, {min(days)} to {max(days)}."
    yield ""
    heads = ["gated, forward + backward, contiguous, unless it says otherwise", ""]
    yield from iter_table(heads, ([label, f"{ratio} ×"] for label, ratio in iter_gated_rows(nchw)))


def format_leaves() -> Iterator[str]:
    """The pools beyond the paper, over max and over the same written in PyTorch's operations."""
    benches = {"contiguous": Bench("leaves"), "channels_last": Bench("leaves-channels_last")}
    pools = benches["contiguous"].record["settings"]["pools"]
    yield f"{format_machine(benches['contiguous'].record)}."
    yield ""
    rows = [
        [f"{layout}, over max", *(f"{b.compute_ratio(pool):.2f}" for pool in pools)] for layout, b in benches.items()
    ]
    for layout, bench in benches.items():
        names = {name for name, _, _ in bench.medians}
        hand = ((pool, f"{pool} by hand") for pool in pools)
        cells = (f"{bench.compute_ratio(name, pool):.0f}" if name in names else "–" for pool, name in hand)
        rows.append([f"{layout}: the same written by hand, over it", *cells])
    yield from iter_table(["forward + backward", *pools], rows)
    yield ""


def format_layouts(first: Bench, rows: dict[tuple[str, str], Bench]) -> Iterator[str]:
    """Every pool over max, a row for each label and mode, under the machine they were measured on."""
    yield f"{format_machine(first.record)}."
    yield ""
    ratios = {row: [f"{bench.compute_ratio(pool, mode=row[1]):.3f}" for pool in POOLS] for row, bench in rows.items()}
    yield from iter_table(["", *POOLS], ([label, *cells] for (label, _), cells in ratios.items()))
    yield ""


def iter_gated_rows(nchw: Bench) -> Iterator[tuple[str, str]]:
    """Label and ratio of each row about the gated pool."""
    for shape in (nchw.shapes[0], nchw.shapes[2]):
        size = format_size(shape)
        copies, clones = (nchw.compute_ratio("gated", to, shapes=[shape]) for to in ("copy", "clone"))
        yield f"{size}, over two copies of x into allocated memory", f"{copies:.2f}"
        yield f"{size}, over two clones of x", f"{clones:.2f}"
    compiled = Bench("compiled")
    yield (
        "a gated pool of PyTorch operations over it, on these two shapes",
        f"{compiled.compute_ratio('gated by hand', 'gated'):.1f}",
    )
    yield "the same under torch.compile", f"{compiled.compute_ratio('gated by hand, compiled', 'gated'):.1f}"
    for label, name in (
        ("3×3, stride 1, padding 1", "3x3-1"),
        ("2×2, stride 2", "2x2-2"),
        ("1d, 64×128×1024", "1d"),
        ("3d, 4×32×16×64×64", "3d"),
        ("bfloat16", "bfloat16"),
    ):
        yield f"{label}: over max", f"{Bench(name).compute_ratio('gated'):.3f}"
    for dtype, layout in itertools.product(("bfloat16", "float64"), ("contiguous", "channels_last")):
        bench = Bench(dtype if layout == "contiguous" else f"{dtype}-{layout}")
        ratios = (f"{bench.compute_ratio(pool, f'{pool}, float32'):.2f}" for pool in POOLS)
        yield f"{', '.join(POOLS)}, {layout}: {dtype} over float32", ", ".join(ratios)
    odd = Bench("odd-channels")
    counts = " and ".join((", ".join(f"{shape[1]}" for shape in odd.shapes[:-1]), f"{odd.shapes[-1][1]}"))
    yield f"channels_last, {counts} channels, which fill no vectors: over max", f"{odd.compute_ratio('gated'):.2f}"
    sharing = Bench("sharing")
    for share in ("channel", "region", "region_channel"):
        yield f"shared by {share} over shared by layer", f"{sharing.compute_ratio(f'gated:{share}', 'gated'):.2f}"
    general = Bench("general")
    yield f"`{GENERAL}`, 5×5, stride 3, dilation 2: over max", f"{general.compute_ratio(GENERAL):.2f}"
    yield "its reference over it", f"{general.compute_ratio(f'{GENERAL}, reference', GENERAL):.1f}"
    net = json.loads((RESULTS / "cpu-net.json").read_text(encoding="utf-8"))
    pool, pairs = net["settings"]["pool"], net["settings"]["pairs"]
    step = f"a training step of the paper's CIFAR10 network, {pool} over max, median of {pairs} pairs"
    yield step, f"{net['ratio']['median']:.3f}"
    small = Bench("small")
    for pool in ("mixed", "gated"):
        ratios = small.compute_ratio(pool, mode=FORWARD), small.compute_ratio(pool)
        yield f"{pool}, 1×1×8×8, one thread: over max, forward and forward + backward", "{:.1f}, {:.1f}".format(*ratios)
    for name, label in (("resnet18", "ResNet-18"), ("shufflenet", "ShuffleNet v2 ×0.5")):
        net = json.loads((RESULTS / f"cpu-inference-{name}.json").read_text(encoding="utf-8"))
        settings = net["settings"]
        what = f"inference of {label}, {settings['batch']} image of {settings['size']}×{settings['size']}"
        yield (
            f"{what}, {settings['pool']} over max, median of {settings['pairs']} pairs",
            f"{net['ratio']['median']:.3f}",
        )
