"""``learnpool compare``: one network, several pools."""

import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from ..formatting import escape_control_characters
from . import options, report_usage_errors
from .train import print_remarks

POOLS, REPLACE_POOLS = "max,avg,half,mixed,gated,tree2", "conv,half,mixed,gated"


def compare(
    data: Annotated[
        str, typer.Option(help="digits, mnist, cifar10, … or a folder of images; several with commas.")
    ] = "digits",
    pools: Annotated[
        str | None,
        typer.Option(
            help="Pools by name; the first is what the others are compared with.",
            show_default=f"{POOLS}; with --replace {REPLACE_POOLS}",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each pool; an interval needs two.")] = 3,
    model: options.Model = "dsn",
    preset: options.Preset = "cpu",
    replace: options.Replace = None,
    epochs: options.Epochs = None,
    train_size: options.TrainSize = None,
    change: options.Changes = None,
    out: Annotated[Path, typer.Option(help="Directory of the runs and the report.")] = Path("runs/compare"),
    data_dir: options.DataDir = None,
    jobs: options.Jobs = None,
    threads: options.Threads = 1,
    workers: options.RunWorkers = 0,
    device: options.Device = None,
    ray: options.Ray = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is done, what is left and how long it takes; train nothing.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the answer and the report's name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Find out whether other pools help a network.

    It trains the network with each pool and several seeds, and writes a report. Run it again to resume after an
    interruption, or with more seeds: only what is missing is trained.

    Example: learnpool compare --data cifar10 --pools max,gated,tree2+gated --seeds 5 --data-dir data

    Strided convolutions, without and with pools:
    learnpool compare --model resnet9 --replace strided

    Your network: learnpool compare --model package.module:function --data photos/ --pools max,gated
    """
    from rich.console import Console

    from ..lab.comparison import compare as lab
    from ..lab.comparison import estimate
    from ..lab.launch.launching import count_jobs
    from ..names import split_names

    arguments = {"data_dir": data_dir, "threads": threads, "workers": workers, "device": device}
    console = Console(stderr=True) if not quiet and not as_json else None
    with report_usage_errors():
        given = {"epochs": epochs, "train_size": train_size, "replace": replace}
        changes = {"net": model} | options.collect_changes(change, **given)
        sets = [data] if os.path.isdir(data) else split_names(data) or [data]
        if pools is None:
            pools = POOLS if changes.get("replace", "max") == "max" else REPLACE_POOLS
        runs = lab.plan(preset, sets, split_names(pools), seeds, **changes)
    stdout = sys.stdout
    with options.report_interrupted_runs(out), redirect_stdout(sys.stderr):  # what a user's network prints is no result
        if dry_run:
            at_once = count_jobs(jobs, threads, len(runs))
            print(estimate.describe_plan(runs, out, at_once, **arguments), file=stdout)
            return
        compared = lab.compare(runs, out, jobs=jobs, ray=ray, console=console, **arguments)
    if as_json:
        records = [lab.make_record(one) for one in compared.values()]
        print(json.dumps(records if len(records) > 1 else records[0], indent=1, ensure_ascii=False))
        return
    for page, one in compared.items():
        answer = one.answer
        of_data = f"{escape_control_characters(one.first.run.data)}: " if len(compared) > 1 else ""
        if not quiet:
            print_remarks(one.first.run.batch, one.first.result.images["train"], one.skipped)
            print(lab.format_comparison(one), end="\n\n")
        print(of_data + "\n".join(answer), f"Written: {escape_control_characters(str(page))}", sep="\n")
