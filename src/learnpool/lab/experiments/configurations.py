"""Table A1: the networks' layers, shapes and parameter counts, read from the networks themselves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...formatting import format_count
from ...nets.dsn import TABLES, dsn
from ...parameters import TreeParameters
from ..paper import PAPER, SETS
from ..runs.run import Run
from .experiment import LABELS, VARIANTS, Cell, Figure, Page, Scale, Table
from .results import Results

TITLE = "The networks"
SOURCE = "Table A1"
CLAIM = "Six 3×3 and four 1×1 convolutions, two pools, and a vote of the last map's cells."
POOLS = ("max", "mixed", "gated", "tree2+max", "tree3+max", "tree+gated")


def plan(scale: Scale) -> list[Run]:
    """Nothing to train."""
    return []


def build_page(scale: Scale, results: Results) -> Page:
    """A table of layers for each data set, and one of parameter counts for every pool."""
    parts: list[Table | Figure] = []
    answer = []
    record: dict[str, dict[str, int]] = {}
    names = list(dict.fromkeys(VARIANTS[data][0] for data in scale.choose(SETS)))
    counts: list[list[Cell]] = []
    for data in names:
        net = dsn(data, "max", supervise=False).eval()
        total = sum(p.numel() for p in net.parameters())
        parts.append(_list_layers(data, net))
        answer.append(f"{LABELS[data]}: {_count_layers(net)}, {total:,} parameters with max pools.")
        record[data] = {pool: _count_pool_parameters(data, pool) for pool in POOLS}
        counts.append([Cell(LABELS[data]), Cell(f"{total:,}"), *(Cell(f"{n:,}") for n in record[data].values())])
    heads = ["Parameters", "of the network with max", *(f"more, {pool}" for pool in POOLS)]
    parts.append(Table(heads, counts, "Without the heads of deep supervision, which are removed in training."))
    return Page(answer, parts, (), record)


def _count_layers(net: nn.Module) -> str:
    """``6 3×3 and 4 1×1 convolutions, 2 pools``."""
    sizes = [layer.kernel_size[0] for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    pools = format_count(sum(isinstance(layer, nn.MaxPool2d) for layer in net.modules()), "pool")
    return f"{sizes.count(3)} 3×3 and {sizes.count(1)} 1×1 convolutions, {pools}"


def _count_pool_parameters(data: str, pool: str) -> int:
    name = PAPER["tree+gated"].get(data, "tree2+gated") if pool == "tree+gated" else pool
    net = dsn(data, name, supervise=False)
    return sum(p.numel() for m in net.modules() if isinstance(m, TreeParameters) for p in m.parameters())


@torch.no_grad()
def _list_layers(data: str, net: nn.Module) -> Table:
    """Every layer in the order of the forward pass."""
    table = TABLES[data]
    rows: list[list[Cell]] = []

    def note(name: str, layer: nn.Module, output: Tensor) -> None:
        shape = " × ".join(map(str, output.shape[1:]))
        count = sum(p.numel() for p in layer.parameters())
        rows.append([Cell(name), Cell(_describe(layer)), Cell(shape), Cell(f"{count:,}" if count else "–")])

    for name, layer in net.named_children():
        if isinstance(layer, (nn.Conv2d, nn.MaxPool2d)) or name.startswith("pool"):
            layer.register_forward_hook(lambda m, _x, y, name=name: note(name, m, y))
    votes = net(torch.zeros(1, table.channels, *table.image))
    rows.append([Cell("vote"), Cell("mean over the map"), Cell(str(votes.shape[1])), Cell("–")])
    return Table([LABELS[data], "layer", "output, channels × height × width", "parameters"], rows)


def _describe(layer: nn.Module) -> str:
    if isinstance(layer, nn.Conv2d):
        return f"{layer.kernel_size[0]}×{layer.kernel_size[1]} convolution"
    size = getattr(layer, "kernel_size", 0)
    size = size[0] if isinstance(size, tuple) else size
    return f"{size}×{size} pool, stride 2, ceil mode"
