"""``learnpool reproduce``: the tables and figures of the paper."""

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options, report_usage_errors


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME…", help="Names from --list; all stands for the paper's but imagenet."),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the experiments and exit.")] = False,
    preset: options.Preset = "cpu",
    seeds: Annotated[int, typer.Option(help="Runs of each network.")] = 3,
    data: Annotated[
        str | None, typer.Option(help="Only these data sets: mnist, cifar10, cifar10+ (augmented), cifar100, svhn …")
    ] = None,
    pools: Annotated[str | None, typer.Option(help="Only these pools, and max, with which they are compared.")] = None,
    epochs: options.Epochs = None,
    train_size: options.TrainSize = None,
    change: options.Changes = None,
    out: Annotated[Path, typer.Option(help="Directory of the runs and the pages.")] = Path("runs/paper"),
    data_dir: options.DataDir = None,
    jobs: options.Jobs = None,
    threads: options.Threads = 1,
    workers: options.RunWorkers = 0,
    device: options.Device = None,
    ray: options.Ray = None,
    pages_only: Annotated[
        bool, typer.Option("--pages-only", help="Write pages of finished runs; train nothing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and their cost, train nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the pages' names.")] = False,
) -> None:
    """Repeat experiments of the paper.

    It trains what is missing and writes a page for each. Several experiments share their runs. Run
    it again to resume after an interruption.

    Example: learnpool reproduce table1 table2 --data cifar10+ --train-size 10000 --epochs 20 --data-dir data
    """
    from rich.console import Console

    from ..lab.comparison import estimate
    from ..lab.experiments import reproduce as lab
    from ..lab.experiments.experiment import Scale
    from ..lab.launch.launching import count_jobs
    from ..names import split_names

    console = Console(stderr=True) if not quiet else None
    if show_list:
        for name in lab.NAMES:
            experiment = lab.find(name)
            print(f"{name:<15} {experiment.SOURCE}: {experiment.TITLE}")
        return
    with report_usage_errors():
        changes = options.collect_changes(change, epochs=epochs, train_size=train_size)
        if not names:
            raise ValueError(f"reproduce: wanted at least one of {', '.join(lab.NAMES)}, or all; see --list")
        selection = lab.choose(names)
        only_data, only_pools = (tuple(split_names(text)) if text else None for text in (data, pools))
        scale = Scale(preset, seeds, only_data, changes, only_pools)
        runs = lab.plan(selection, scale)
    words = ["--preset", preset, "--seeds", str(seeds)]
    given = {"--data": data, "--pools": pools, "--epochs": epochs, "--train-size": train_size}
    words += [word for name, value in given.items() if value for word in (name, str(value))]
    words += [word for text in change or [] for word in ("--set", text)]
    words += ["--data-dir", str(data_dir)] if data_dir else []
    words += ["--threads", str(threads)] if threads != 1 else []
    words += ["--out", str(out)]
    arguments: dict[str, Any] = {"data_dir": data_dir, "threads": threads, "device": device, "workers": workers}
    with options.report_interrupted_runs(out):
        if dry_run:
            missing = lab.plan_missing(selection, scale, out)
            described = estimate.describe_plan(
                missing, out / "runs", count_jobs(jobs, threads, len(missing)), **arguments
            )
            if len(missing) < len(runs):
                described += f" {len(runs) - len(missing)} more are in {out / 'runs.jsonl'}."
            print(f"{', '.join(selection)}:", described, sep="\n")
            return
        if pages_only:
            where: dict[str, Any] = {"words": words, "data_dir": data_dir}
            pages = lab.write_site(selection, scale, out, threads=threads, console=console, **where)
        else:
            more: dict[str, Any] = {"words": words, "console": console, "jobs": jobs, "ray": ray}
            pages = lab.reproduce(selection, scale, out, **more, **arguments)
    print(*(f"Written: {page}" for page in pages), sep="\n")
