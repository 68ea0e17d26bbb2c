"""Tables of the protocol's runs (validation errors of screening, what confirmation found) and of exploratory ones."""

import statistics
import textwrap
from collections.abc import Iterator, Sequence

from cpu_tables import RESULTS, iter_table
from learnpool.formatting import format_mean, format_number
from learnpool.lab.comparison.comparison import FinishedRun
from learnpool.lab.experiments import confirmation, consistency, figure_networks, invariance, screening, strided, why
from learnpool.lab.experiments.error_table import ErrorTable
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.results import Results
from paper_tables import format_machines, format_verdict

SCREENED = Results(RESULTS / "screening" / "runs")
CONFIRMED = Results(RESULTS / "confirmation" / "runs")
STRIDED = Results(RESULTS / "strided" / "runs")
SEEDS = 2


def format_screening_table(net: str) -> Iterator[str]:
    """Validation errors at every rate, seed by seed; pools that were not run are left out."""
    runs = screening.list_runs(Scale("cpu", SEEDS), net, "cifar10+")
    errors, rates = screening.read_errors(runs, SCREENED), sorted({run.rate[0] for run in runs})
    rows = [
        [f"`{pool}`", *(" / ".join(map(format_number, of[rate].values())) if rate in of else "–" for rate in rates)]
        for pool, of in errors.items()
    ]
    yield from iter_table(["pools", *(f"rate {rate:g}" for rate in rates)], rows)
    yield ""
    yield f"Trained on {format_machines(entry.starts for entry in SCREENED.find_all(runs))}."


def format_confirmation() -> Iterator[str]:
    """Every block that is finished: what its family says, errors of its pools, and the differences."""
    blocks = [(block, confirmation.read_block(Scale(), block, CONFIRMED)) for block in confirmation.BLOCKS]
    for block, family in blocks:
        if family is None:
            yield f"{confirmation.describe_block(block)}: not finished, and nobody has looked."
        else:
            yield f"{confirmation.describe_block(block)}. {confirmation.describe_family(family)}"
        yield ""
    heads = "network|pools|parameters in them|rate|seeds|test error, %|difference to max|difference to half"
    starts, rows = [], []
    for block, family in blocks:
        for pool, runs in confirmation.group_runs(Scale(), block).items() if family else ():
            entries = CONFIRMED.find_all(runs)
            starts += [entry.starts for entry in entries]
            found = (family.differences.get((pool, baseline)) for baseline in confirmation.BASELINES)
            names = f"`{block.net}`", f"`{pool}`", f"{entries[0].result.pool_parameters:,}", f"{block.rates[pool]:g}"
            error = format_mean([entry.result.test_error for entry in entries])
            rows.append([*names, len(entries), error, *map(format_verdict, found)])
    yield from iter_table(heads, rows)
    yield ""
    yield f"Trained on {format_machines(starts)}." if starts else "No block is finished."


def format_rows(table: ErrorTable, results: Results, seeds: int, head: str, baselines: Sequence[str]) -> Iterator[str]:
    """The finished rows of an experiment in `resnet9`, each beside every baseline."""
    scale = Scale("cpu", seeds, ("cifar10+",), {"net": "resnet9"})
    groups = {row.label: table.list_runs(scale, "cifar10+", row) for row in table.rows}
    beside = []
    for i, baseline in enumerate(baselines):  # a difference between two of them is shown once
        others = {label: runs for label, runs in groups.items() if label not in baselines[: i + 1]}
        beside.append(results.summarize({baseline: groups[baseline], **others}))
    heads = [head, "parameters in pools", "seeds", "test error, %"]
    starts, rows = [], []
    for label, entries in ((label, results.find_all(runs)) for label, runs in groups.items()):
        if entries:
            starts += [entry.starts for entry in entries]
            found = (by_label[label].difference if label in by_label else None for by_label in beside)
            numbers = f"{entries[0].result.pool_parameters:,}", len(entries)
            error = format_mean([entry.result.test_error for entry in entries])
            rows.append([label, *numbers, error, *map(format_verdict, found)])
    yield from iter_table([*heads, *(f"difference to {label.lower()}" for label in baselines)], rows)
    yield ""
    yield f"Trained on {format_machines(starts)}." if starts else "No run is finished."


def format_strided_table() -> Iterator[str]:
    """Max pools, strided convolutions, and pools behind these."""
    yield from format_rows(strided.TABLE, STRIDED, 3, "maps shrunk by", ["Max pools", "Strided convolutions"])


def format_why_table() -> Iterator[str]:
    """Gated pools and what is left of them."""
    yield from format_rows(why.TABLE, CONFIRMED, 4, "pools", ["Max", "Gated"])


def format_robustness_table() -> Iterator[str]:
    """Errors on changed images and answers that one pixel changes: the pools of the first block and those beside it."""
    groups = figure_networks.list_networks(Scale("cpu", 5, ("cifar10+",), {"net": "resnet9"}), "cifar10+")
    entries = [entry for runs in groups.values() for entry in CONFIRMED.find_all(runs)]
    if not entries or not all({"invariance", "consistency"} <= entry.measured.keys() for entry in entries):
        yield "Not measured."
        return
    networks, moved = (CONFIRMED.measure_groups(groups, name, make=refuse) for name in ("invariance", "consistency"))
    step = 100 / entries[0].result.images["test"]
    compared = invariance.compare_networks({label: list(seeds.values()) for label, seeds in networks.items()}, step)
    answers = {label: [statistics.fmean(one.values()) for one in seeds.values()] for label, seeds in moved.items()}
    changed = consistency.compare_pools(answers, step)
    heads = "pools", "seeds", *(f"error, {kind}, %" for kind in invariance.CHANGES), "answers that change, %"
    rows = []
    for label, seeds in networks.items():
        errors = {kind: compared.errors[label, kind] for kind in invariance.CHANGES}
        found = {kind: compared.differences.get((label, kind)) for kind in errors}
        cells = [f"{format_mean(errors[kind])}<br>{format_verdict(found[kind])}" for kind in errors]
        cells.append(f"{format_mean(answers[label])}<br>{format_verdict(changed.get(label))}")
        rows.append([f"`{label}`", len(seeds), *cells])
    yield from iter_table(heads, rows)
    yield ""
    yield f"Trained on {format_machines(entry.starts for entry in entries)}."


def refuse(entry: FinishedRun) -> None:
    """Tables are written from what a study has."""
    raise ValueError(f"{entry.run.id} has not been measured")


def format_confirmed_errors() -> Iterator[str]:
    """The README's sentence: mean test errors of the first block."""
    block = confirmation.BLOCKS[0]
    errors = {
        pool: statistics.fmean(entry.result.test_error for entry in CONFIRMED.find_all(runs))
        for pool, runs in confirmation.group_runs(Scale(), block).items()
    }
    ranked = [f"{format_number(errors[pool])} % (`{pool}`)" for pool in sorted(errors, key=lambda pool: errors[pool])]
    seeds = f"means over {len(block.seeds)} seeds, each pool at its own learning rate"
    yield from textwrap.wrap(f"Test errors: {', '.join(ranked)}; {seeds}.", 118, break_on_hyphens=False)
