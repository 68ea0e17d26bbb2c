"""``learnpool train``: one network on one data set."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..formatting import escape_control_characters, format_count
from . import options, report_training_errors, report_usage_errors

MAX_NAMED = 20  # skipped images that are named

if TYPE_CHECKING:
    from ..lab.runs.directory import Result
    from ..lab.runs.run import Run


def train(
    data: Annotated[str, typer.Option(help="digits, mnist, cifar10, … or a folder of images.")] = "digits",
    pool: Annotated[str, typer.Option(help="Pools by name, or conv.")] = "max",
    preset: options.Preset = "cpu",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    model: options.Model = "dsn",
    replace: options.Replace = None,
    epochs: options.Epochs = None,
    train_size: options.TrainSize = None,
    augment: Annotated[bool | None, typer.Option(help="Pad, crop, mirror.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16.")] = None,
    channels_last: Annotated[bool | None, typer.Option(help="Memory layout.")] = None,
    compiled: Annotated[bool | None, typer.Option("--compile", help="Use torch.compile.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Change any other field that --dry-run shows."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory of all runs.")] = Path("runs"),
    data_dir: options.DataDir = None,
    threads: options.TorchThreads = None,
    workers: options.Workers = 2,
    device: options.Device = None,
    save_every: Annotated[float, typer.Option(min=0, help="Minutes between checkpoints inside an epoch.")] = 5.0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log for TensorBoard too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show every field of the run; train nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train one network; run it again to resume.

    Example: learnpool train --data cifar10 --pool tree3+gated --preset cpu --data-dir data

    On two processes: torchrun --nproc-per-node 2 -m learnpool train …
    """
    from ..lab.runs.presets import augmentation
    from ..lab.runs.presets import preset as make_preset

    given: dict[str, Any] = {"epochs": epochs, "train_size": train_size, "precision": precision}
    given |= {"replace": replace, "channels_last": channels_last, "compile": compiled}
    changes: dict[str, Any] = {"data": data, "pool": pool, "seed": seed, "net": model}
    with report_usage_errors():
        if augment is not None:
            changes |= augmentation(data) if augment else {"pad": 0, "mirror": False}
        changes |= options.collect_changes(change, **given)
        run = make_preset(preset, **changes)
    first = os.environ.get("RANK", "0") == "0"
    if dry_run:
        if first:
            _print_description(run, out, as_json)
        return
    arguments = {
        "data_dir": data_dir,
        "threads": threads,
        "workers": workers,
        "device": device,
        "tensorboard": tensorboard,
        "save_every": 60 * save_every,
    }
    result = _train_with_progress(run, out, show=first and not quiet and not as_json, **arguments)
    if first and not quiet and not as_json:
        print_remarks(run.batch, result.images["train"], result.skipped)
    if first and as_json:
        print(json.dumps(asdict(result), indent=1))
    elif first and not quiet:
        from ..lab.progress import format_seconds
        from ..lab.runs.errors import describe_chance, is_chance

        error, duration = f"{result.test_error:.2f} % test error", f"{format_seconds(result.seconds)} of training"
        what, where = map(escape_control_characters, (f"{run.data}, {run.pool}, seed {run.seed}", str(out / run.id)))
        print(f"{what}: {error} after {format_count(result.epochs, 'epoch')}, {duration}")
        chance, test_images = result.chance_error, result.images["test"]
        if chance is not None and is_chance(result.test_error, chance, test_images):
            print(f"It did not learn: {describe_chance(result.test_error, chance, test_images)}")
        print(f"{result.parameters:,} parameters, {result.pool_parameters} of them in the pools; {where}")


def print_remarks(batch: int, train_images: int, skipped: Sequence[str]) -> None:
    """Say on stderr what was not as asked for: smaller batches, images that were left out."""
    if train_images < batch:
        reason = f"there are {format_count(train_images, 'training image')}, fewer than a batch of {batch}"
        print(f"learnpool: {reason}: every step took all of them", file=sys.stderr)
    if skipped:
        more = f" and {len(skipped) - MAX_NAMED:,} more, see result.json" if len(skipped) > MAX_NAMED else ""
        message = f"skipped {format_count(len(skipped), 'image')} that cannot be decoded"
        names = escape_control_characters(", ".join(skipped[:MAX_NAMED]))
        print(f"learnpool: {message}: {names}{more}", file=sys.stderr)


def _train_with_progress(run: "Run", out: Path, *, show: bool, **arguments: Any) -> "Result":
    """Train, with a bar on stderr."""
    from rich.console import Console

    from ..lab import progress
    from ..lab.runs import train as lab

    bar = ExitStack()
    update: list[Any] = []  # the bar begins with the first step, so that an error before it stands alone

    def watch(step: lab.Step) -> None:
        if not update:
            update.append(bar.enter_context(progress.show_bar("training", Console(stderr=True))))
        error = f", {step.metrics['validation_error']:.1f} % wrong" if step.metrics else ""
        update[0](step.step, step.steps, f"epoch {step.epoch} of {run.epochs}{error}, rate {step.rate:.2g}")

    # A user's network may print; only the result belongs on stdout.
    with report_training_errors(lambda: _format_interruption(run, out)), redirect_stdout(sys.stderr), bar:
        return lab.train(run, out, watch=watch if show else None, **arguments)


def _format_interruption(run: "Run", out: Path) -> str:
    """What is kept, and how to resume."""
    from ..lab.runs.checkpoint import read_record

    record = read_record(out / run.id)
    if record is None:
        return "interrupted"
    kept = f"{record['epoch']} of {format_count(run.epochs, 'epoch')}"
    kept += f" and {format_count(record['step'], 'step')}" if record.get("step") else ""
    return f"interrupted; {out / run.id} keeps {kept}; run the same command to resume"


def _print_description(run: "Run", out: Path, as_json: bool) -> None:
    """Every field with its value and what it means, and where the run would be."""
    if as_json:
        print(run.model_dump_json(indent=1))
        return
    for name, field in type(run).model_fields.items():
        value = getattr(run, name)
        text = ",".join(f"{v:g}" for v in value) if isinstance(value, tuple) else str(value)
        print(f"{name:<14} {text:<22} {field.description}")
    print(f"\n{escape_control_characters(str(out / run.id))}")
