"""Tables of training runs, from the studies kept in docs/results."""

import statistics
from collections.abc import Iterator
from pathlib import Path

from cpu_tables import RESULTS, iter_table
from learnpool.lab.runs.studies import read_study


def list_runs(path: Path) -> list[dict]:
    """The lines of a study that are runs."""
    return [line for line in read_study(path).values() if "run" in line]


def format_baseline_table() -> Iterator[str]:
    """The `cpu` preset with max pools on CIFAR10."""
    (line,) = list_runs(RESULTS / "baseline.jsonl")
    result, start = line["result"], line["starts"][0]
    rows = {
        "test error after the last epoch": f"{result['test_error']:.2f} %",
        "training error": f"{result['train_error']:.2f} %",
        "parameters": f"{result['parameters']:,}",
        "epochs": result["epochs"],
        "CPU time of training (evaluation not included)": f"{result['cpu_seconds'] / 60:.1f} minutes",
        "CPU time of an epoch": f"{result['cpu_seconds'] / result['epochs']:.0f} s",
        "machine": format_start(start),
    }
    yield from iter_table(["", ""], rows.items())


def format_pool_rate_table() -> Iterator[str]:
    """How far gates move at the pools' own learning rate: runs that differ in `pool_rate` and seed alone."""
    lines = list_runs(RESULTS / "pool-rate.jsonl")
    results = [(line["run"], line["result"]) for line in lines]
    gates = [name for name in results[0][1]["pools"] if name.endswith(".entropy")]
    rows = []
    for rate in sorted({run["pool_rate"] for run, _ in results}):
        members = [result for run, result in results if run["pool_rate"] == rate]
        entropies = (f"{statistics.fmean(result['pools'][name] for result in members):.2f}" for name in gates)
        rows.append([f"{rate:g}", *entropies, f"{statistics.fmean(result['test_error'] for result in members):.2f} %"])
    yield from iter_table(["`pool_rate`", *(f"`{name}`" for name in gates), "test error"], rows)
    yield ""
    run, seeds = results[0][0], {run["seed"] for run, _ in results}
    start = format_start(lines[0]["starts"][0])
    settings = f"{run['data']}, `{run['net']}`, start `{run['start']}`, {run['epochs']} epochs"
    yield f"{settings}, means over {len(seeds)} seeds;"
    yield f"{start}."


def format_start(start: dict) -> str:
    """Where and when a run was started."""
    hardware, versions = start["hardware"], start["versions"]
    thread = "thread" if start["threads"] == 1 else "threads"
    return (
        f"{start['threads']} {thread} of {hardware['cpu']} ({start['kernel']['detail']}), torch {versions['torch']}, "
        f"{start['date'][:10]}"
    )
