"""``learnpool reproduce``: plan the runs of some experiments, train what is missing, write a page for each."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from markupsafe import Markup
from rich.console import Console

from ... import __version__
from ...parsing import suggest
from .. import files, hardware, progress
from ..launch.launching import train_missing
from ..paper import PAPER
from ..runs.run import Run, RunError, standardize_pool
from ..templates import make_environment
from .experiment import Experiment, Figure, Scale
from .results import Results

IN_PAPER = (
    "table1", "table2", "filter", "depth", "alternatives", "table4", "sharing", "invariance", "tsne", "timing",
    "configurations",
)  # fmt: skip
LARGE = ("imagenet",)  # in the paper too, but on data that few have: asked for by name
NAMES = (*IN_PAPER, *LARGE, "beyond", "starts", "consistency", "strided", "screening", "confirmation", "why")


def find(name: str) -> Experiment:
    """An experiment by name."""
    if name not in NAMES:
        raise RunError(f"reproduce: wanted some of {', '.join(NAMES)} or all, got {name!r}{suggest(name, NAMES)}")
    return cast(Experiment, importlib.import_module(f"{__package__}.{name}"))


def choose(names: Sequence[str]) -> list[str]:
    """The experiments asked for, each once; ``all`` is all of the paper's."""
    experiments = [each for name in names for each in (IN_PAPER if name == "all" else (name,))]
    for name in experiments:
        find(name)
    return list(dict.fromkeys(experiments))


def plan(names: Sequence[str], scale: Scale) -> list[Run]:
    """The runs of all experiments, each once: several experiments share theirs."""
    runs = list(dict.fromkeys(run for name in names for run in find(name).plan(scale)))
    planned = {run.pool for run in runs}
    if odd := next((pool for pool in scale.pools or () if standardize_pool(pool) not in planned), None):
        every = dict.fromkeys(run.pool for name in names for run in find(name).plan(replace(scale, pools=None)))
        wanted = f"some of {', '.join(every)}" if every else "none"
        raise RunError(f"--pools: wanted {wanted}, the pools of {', '.join(names)}, got {odd!r}")
    return runs


def plan_missing(names: Sequence[str], scale: Scale, out: Path) -> list[Run]:
    """The planned runs that are not in the study ``out/runs.jsonl``: a study goes on where it was published."""
    study = Results(out / "runs").study
    return [run for run in plan(names, scale) if run.id not in study]


def reproduce(
    names: Sequence[str],
    scale: Scale,
    out: Path,
    *,
    words: Sequence[str] = (),
    console: Console | None = None,
    **options: Any,
) -> list[Path]:
    """Train what is missing in ``out/runs`` and its study, then write ``index.html`` and a page for each experiment.

    ``words`` are the options of the command line, to be shown on the pages.
    """
    runs = plan_missing(names, scale, out)
    if runs:
        train_missing(runs, out / "runs", console=console, **options)
    shared = {name: options[name] for name in ("data_dir", "threads") if name in options}
    return write_site(names, scale, out, words=words, console=console, **shared)


def write_site(
    names: Sequence[str],
    scale: Scale,
    out: Path,
    *,
    words: Sequence[str] = (),
    data_dir: Path | None = None,
    threads: int = 1,
    console: Console | None = None,
) -> list[Path]:
    """The pages of these experiments, from what is finished; networks are measured where a page needs it."""
    files.make_directory(out / "runs")
    pages = []
    with hardware.use_threads(threads), progress.show_bar("pages", console or Console(quiet=True)) as show:
        # the callback is used within the loop alone, where it finds its variables
        results = Results(out / "runs", data_dir, lambda run: show(done, len(names), f"{name}: measuring {run}"))
        for done, name in enumerate(names):
            show(done, len(names), name)
            experiment = find(name)
            page = experiment.build_page(scale, results)
            contradictions = [entry["text"] for entry in PAPER["disagreements"] if name in entry["pages"]]
            about = {
                "experiment": experiment,
                "in_paper": name in (*IN_PAPER, *LARGE),
                "contradictions": contradictions,
            }
            described = scale.describe() if experiment.plan(scale) else ""  # where nothing is trained it has no say
            record = {"answer": list(page.answer), "scale": described, "options": list(words)}
            content = render("page.html", page=page, record=record, command=format_command([name], words), **about)
            pages.append(out / f"{name}.html")
            files.write_bytes(pages[-1], content.encode())
            files.write_json(out / f"{name}.json", {**record, **page.data})
        show(len(names), len(names), "")
    return [write_index(out), *pages]


def write_index(out: Path) -> Path:
    """The list of all pages in ``out``, which may have been written at several scales, and of sites below it."""
    records = {name: files.read_json(out / f"{name}.json") for name in NAMES if (out / f"{name}.html").exists()}
    commands: dict[tuple[str, ...], list[str]] = {}
    for name, record in records.items():
        commands.setdefault(tuple(record["options"]), []).append(name)
    scales = list(dict.fromkeys(record["scale"] for record in records.values() if record["scale"]))
    files.write_json(out / "index.json", {"scales": scales})
    content = render(
        "index.html",
        experiments=[(name, find(name), record) for name, record in records.items()],
        scales=scales,
        has_parent=(out.parent / "index.json").exists(),
        others={path.parent.name: files.read_json(path)["scales"] for path in sorted(out.glob("*/index.json"))},
        commands=[format_command(names, words) for words, names in commands.items()],
    )
    files.write_bytes(out / "index.html", content.encode())
    return out / "index.html"


def format_command(names: Sequence[str], words: Sequence[str]) -> str:
    """The command line that repeats some experiments."""
    return shlex.join(["learnpool", "reproduce", *names, *words])


def render(template: str, **values: Any) -> str:
    """A page of the site."""
    environment = make_environment("experiments", "comparison")
    environment.filters["picture"] = lambda figure: Markup(figure.svg)
    environment.tests["figure"] = lambda part: isinstance(part, Figure)
    return environment.get_template(template).render(version=__version__, **values)
