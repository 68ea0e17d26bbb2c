"""Convert the networks of torchvision, timm, segmentation-models-pytorch and pytorchcv, and check each one.

``make test-zoo`` runs this in an environment of its own and writes ``docs/results/zoo.md``; without ``--write`` it only
checks. No weights are downloaded: every network starts from a seed.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import importlib.metadata
import io
import json
import math
import pickle
import platform
import sys
import textwrap
import time
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import compilers
import places
import torch
from checks import are_equal, flatten, require, run
from collection import COMPILED, NETWORKS, SHRINKING, build, sample
from torch import Tensor, nn

import learnpool
from learnpool.conversion.swap import list_swaps
from learnpool.ops import cpu

BOTH: dict[str, Any] = {"replace": ("max", "avg")}
WORD = {True: "train()", False: "eval()"}
HEAD = """# Third-party networks

Written by `make test-zoo`, not by hand. Every network is built from a seed, without pretrained weights, converted by
`learnpool.convert`, and has to pass all of this:

- With `convert(net, "mixed", replace=("max", "avg"), start="same")` its outputs, auxiliary heads included, equal the
  original's to the last bit, in eval() and in train() (same seed, so same dropout), whichever it was converted in.
- With `convert(net, "gated", replace=("max", "avg"))` forward and backward run, every new parameter has a finite
  gradient after a training pass, and the network has exactly as many parameters more as its windows have taps.
- Its state_dict, through a file, gives a second converted network the same outputs; so does a pickle of the whole
  network (where the original can be pickled).
- `learnpool.restore` gives back the original's state_dict and outputs.
- Where a backend is named, `torch.compile(fullgraph=True)` with it agrees with the uncompiled network.

Max and average pools are counted together, as modules and as functional calls; "calls" are those of the replaced that
are functional. Left are adaptive and global pools, and windows of one cell.

"""


def check(name: str) -> dict[str, Any]:
    """One network; its row of the table. AssertionError says what does not hold."""
    original, x = build(name), sample(name)
    expected = {train: run(original, x, train) for train in (True, False)}
    for train in (True, False):
        net = copy.deepcopy(original).train(train)
        report = learnpool.convert(net, "mixed", start="same", example=x, **BOTH)
        require({row.exact for row in report.replaced} == {"to the last bit"}, "start=same is exact")
        for mode in (True, False):
            what = f"the same outputs, converted in {WORD[train]} and run in {WORD[mode]}"
            require(are_equal(run(net, x, mode), expected[mode]), what)
    row = {
        "parameters": sum(p.numel() for p in original.parameters()),
        "found": len(report.rows),
        "replaced": len(report.replaced),
        "calls": sum(row.was.startswith("F.") for row in report.replaced),
        "left": len(report.left),
        "not reachable": len(report.unreachable),
    }
    return row | {"gated adds": check_gated(original, x, expected), "compiled": check_compiled(name, x)}


def check_gated(original: nn.Module, x: Tensor, expected: dict[bool, list[Tensor]]) -> int:
    """Convert for good, train a step, save, load, restore; the parameters added."""
    net = copy.deepcopy(original)
    report = learnpool.convert(net, "gated", example=x, **BOTH)
    more = sum(p.numel() for p in net.parameters()) - sum(p.numel() for p in original.parameters())
    taps = sum(math.prod(swap.new.window.kernel) for swap in list_swaps(net))
    require(more == report.parameters == taps, f"{taps} more parameters; they are {more}, reported {report.parameters}")
    out = run(net, x, False)
    require(not are_equal(out, expected[False]), "other outputs than the original's")
    second = copy.deepcopy(original)
    learnpool.convert(second, "gated", example=x, **BOTH)
    for tensor in second.state_dict().values():
        tensor.zero_()
    second.load_state_dict(torch.load(save(net.state_dict())))
    require(are_equal(run(second, x, False), out), "the same outputs from a state_dict")
    train_step(second.train(), x)
    loaded = load_pickled(net, original)
    require(loaded is None or are_equal(run(loaded, x, False), out), "the same outputs from a pickle")
    learnpool.restore(net)
    require(list(net.state_dict()) == list(original.state_dict()), "the state_dict's keys after restore")
    require(all(are_equal(run(net, x, mode), expected[mode]) for mode in (True, False)), "the outputs after restore")
    return more


def train_step(net: nn.Module, x: Tensor) -> None:
    """Forward and backward in training, to every new pool."""
    sum(out.float().square().mean() for out in flatten(net(x))).backward()
    for swap in list_swaps(net):
        grad = swap.new.weight.grad
        is_finite = grad is not None and bool(grad.isfinite().all())
        require(is_finite, f"a finite gradient for {swap.name}")


def save(thing: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


def load_pickled(net: nn.Module, original: nn.Module) -> nn.Module | None:
    """A network through a pickle; None if its original cannot be pickled either."""
    refusals = (AttributeError, TypeError, pickle.PicklingError)
    try:
        file = save(net)
    except refusals:
        try:
            save(original)
        except refusals:
            return None
        raise
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return]


def check_compiled(name: str, x: Tensor) -> str:
    backend = COMPILED.get(name)
    if backend is None:
        return ""
    net = build(name).eval()
    learnpool.convert(net, "gated", example=x, **BOTH)
    torch._dynamo.reset()
    with torch.no_grad():
        # Fused and reordered sums of a whole network, so wider than one operator's tolerance.
        torch.testing.assert_close(compilers.run_compiled(net, x, backend), flatten(net(x)), rtol=1e-3, atol=1e-4)
    return backend


def describe_versions() -> str:
    packages = ("torch", "torchvision", "timm", "segmentation-models-pytorch", "pytorchcv", "onnxruntime")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    kernel = "compiled kernel" if cpu.CPU.live else "reference"
    date = datetime.now(timezone.utc).date().isoformat()
    text = f"learnpool {learnpool.__version__} ({kernel}), {versions}, Python {platform.python_version()}; {date}"
    return textwrap.fill(text, 118, break_on_hyphens=False)


def format_rows(rows: dict[str, dict[str, Any]], counted: tuple[str, ...]) -> str:
    columns = [*next(iter(rows.values()))]
    lines = ["| network | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for name, row in rows.items():
        cells = (f"{value:,}" if isinstance(value, int) else value for value in row.values())
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    totals = {key: sum(row[key] for row in rows.values()) for key in counted}
    text = ", ".join(f"{count:,} {key}" for key, count in totals.items())
    return "\n".join([*lines, "", f"{len(rows)} networks: {text}."])


def read_sections(path: Path) -> dict[str, str]:
    """The tables that are in a file, with their heads."""
    first, *others = path.read_text().split("\n## ")
    return dict(zip(CHECKS, [first, *(f"\n## {text}" for text in others)], strict=False))


class Progress:
    """What passed already: an interrupted run goes on where it was. Rows of other code or versions are dropped."""

    def __init__(self, path: Path) -> None:
        sources = [*sorted(Path(learnpool.__file__).parent.rglob("*.py")), *sorted(Path(__file__).parent.glob("*.py"))]
        digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
        self.path, self.made_by = path, [describe_versions(), digest]
        record = json.loads(path.read_text()) if path.exists() else {}
        self.rows: dict[str, dict[str, Any]] = record.get("rows", {}) if record.get("made_by") == self.made_by else {}

    def write(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({"made_by": self.made_by, "rows": self.rows}))


CHECKS = {"pools": check, "places": places.check_places, "compilers": compilers.check_compilers}
HEADS = {"pools": HEAD, "places": places.HEAD, "compilers": compilers.HEAD}
COUNTED = {
    "pools": ("found", "replaced", "calls", "left", "not reachable"),
    "places": ("strided", "shortcut", "global", "left", "not reachable"),
    "compilers": ("pools",),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="where the table goes, if every network passes")
    parser.add_argument("--table", choices=(*CHECKS,), help="this table only; the others in the file stay")
    parser.add_argument("names", nargs="*", help="some networks only (parts of their names)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the libraries
    chosen = [name for name in (*NETWORKS, *SHRINKING) if any(part in name for part in options.names or [""])]
    tables = [options.table] if options.table else [*CHECKS]
    jobs = [(table, name) for table in tables for name in chosen if table != "pools" or name in NETWORKS]
    progress = Progress(Path("runs/zoo.json"))
    failed = []
    for table, name in jobs:
        start, key = time.perf_counter(), f"{table} {name}"
        try:
            checked = progress.rows.get(key) or CHECKS[table](name)
            progress.rows[key] = row = checked
            progress.write()
            verdict = ", ".join(f"{count} {what}" for what, count in row.items() if what != "parameters")
        except Exception as error:
            failed.append(key)
            verdict = f"FAILED, wanted {error}" if isinstance(error, AssertionError) else f"FAILED: {error!r}"
        print(f"{key}: {verdict} ({time.perf_counter() - start:.0f} s)", flush=True)
    if failed:
        print(f"{len(failed)} of {len(jobs)} checks failed: {', '.join(failed)}")
        return 1
    if options.write is not None:
        sections = read_sections(options.write) if options.write.exists() else {}
        for table in tables:
            rows = {name: progress.rows[f"{table} {name}"] for other, name in jobs if other == table}
            sections[table] = f"{HEADS[table]}{describe_versions()}.\n\n{format_rows(rows, COUNTED[table])}\n"
        options.write.write_text("".join(sections[table] for table in CHECKS if table in sections))
        print(f"{len(chosen)} networks passed; the tables are in {options.write}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
