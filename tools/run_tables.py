"""Tables of training runs, from the run directories kept in docs/results."""

import json
from collections.abc import Iterator
from pathlib import Path

from cpu_tables import RESULTS


def read(directory: Path, name: str) -> dict:
    """A file of a run directory."""
    return json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))


def baseline() -> Iterator[str]:
    """The `cpu` preset with max pools on CIFAR10."""
    directory = RESULTS / "baseline"
    result, start = read(directory, "result"), read(directory, "env")["starts"][0]
    yield "| | |"
    yield "|---|---|"
    yield f"| test error after the last epoch | {result['test_error']:.2f} % |"
    yield f"| training error | {result['train_error']:.2f} % |"
    yield f"| parameters | {result['parameters']:,} |"
    yield f"| epochs | {result['epochs']} |"
    yield f"| CPU time of training (evaluation not included) | {result['cpu_seconds'] / 60:.1f} minutes |"
    yield f"| CPU time of an epoch | {result['cpu_seconds'] / result['epochs']:.0f} s |"
    yield f"| machine | {format_start(start)} |"


def pool_rate() -> Iterator[str]:
    """How far gates move at the pools' learning rate: two runs that differ in `pool_rate` alone."""
    yield "| `pool_rate` | entropy of each pool's gates, in bits | test error |"
    yield "|---|---|---|"
    directories = sorted((RESULTS / "pool-rate").iterdir(), key=lambda path: read(path, "run")["pool_rate"])
    for directory in directories:
        run, result = read(directory, "run"), read(directory, "result")
        entropies = ", ".join(f"{v:.2f}" for k, v in result["pools"].items() if k.endswith(".entropy"))
        yield f"| {run['pool_rate']:g} | {entropies} | {result['test_error']:.2f} % |"
    yield ""
    images = f"{result['images']['train']:,} {run['data'].upper()} images"
    start = format_start(read(directory, "env")["starts"][0])
    yield f"{run['epochs']} epochs of {images}, preset `cpu`, seed {run['seed']}; {start}."


def format_start(start: dict) -> str:
    """Where and when a run was started."""
    hardware, versions = start["hardware"], start["versions"]
    thread = "thread" if start["threads"] == 1 else "threads"
    return (
        f"{start['threads']} {thread} of {hardware['cpu']} ({start['kernel']['detail']}), torch {versions['torch']}, "
        f"{start['date'][:10]}"
    )
