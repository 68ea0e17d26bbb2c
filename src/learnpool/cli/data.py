"""``learnpool data``: fetch data sets, verify them, look at them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..formatting import escape_control_characters, format_count
from . import options, report_usage_errors

DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="LEARNPOOL_DATA_DIR", help="Where the files of the data sets are.")
]
DEFAULT_DATA_DIR = Path("data")


@contextmanager
def report_bad_data() -> Iterator[None]:
    """Report an error of the data or the disk in one line, with exit code 2."""
    with report_usage_errors():
        try:
            yield
        except OSError as error:
            raise ValueError(f"{error.strerror}: {error.filename}" if error.filename else str(error)) from None


def build() -> typer.Typer:
    """``learnpool data get``, ``check``, ``show`` and ``clear-cache``."""
    app = options.make_group("Fetch data sets, verify them, look at them.")

    @app.command()
    def get(
        name: Annotated[str, typer.Argument(help="mnist, cifar10, svhn, …; docs/data.md has them all.")],
        data_dir: DataDir = DEFAULT_DATA_DIR,
        mirror: Annotated[str | None, typer.Option(help="Address of a folder with the same files.")] = None,
        extra: Annotated[bool, typer.Option(help="svhn: also its 531,131 extra images, 1.3 GB.")] = True,
        quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    ) -> None:
        """Fetch a data set and verify it.

        An interrupted download is resumed.

        Example: learnpool data get cifar10
        """
        from ..lab.data.fetch import fetch_dataset

        with report_bad_data():
            for path in fetch_dataset(name, data_dir, mirror, extra, quiet):
                print(escape_control_characters(str(path)))

    @app.command()
    def check(
        names: Annotated[
            list[str] | None, typer.Argument(help="Data sets or folders; all that are found if none.")
        ] = None,
        data_dir: DataDir = DEFAULT_DATA_DIR,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """Verify checksums, sizes and images of each class.

        Example: learnpool data check mnist photos/
        """
        from ..lab.data.check import check_all, format_reports

        with report_bad_data():
            reports = check_all(names or [], data_dir)
        as_text = format_reports(reports)
        print(json.dumps([asdict(report) for report in reports], indent=1) if as_json else as_text)
        if any(report.problems for report in reports):
            raise typer.Exit(2)

    @app.command()
    def show(
        name: Annotated[str, typer.Argument(help="A data set, or a folder of images.")],
        data_dir: DataDir = DEFAULT_DATA_DIR,
        out: Annotated[Path | None, typer.Option(help="File to write; NAME.png if not given.")] = None,
        seed: Annotated[int, typer.Option(min=0, help="Another seed shows other images.")] = 0,
    ) -> None:
        """Draw a grid of training images of every class.

        Example: learnpool data show digits
        """
        from ..lab.data import load
        from ..lab.data.show import SUFFIXES, show

        out = out or Path(f"{os.path.basename(os.path.abspath(name)) or 'data'}.png")
        if out.suffix not in SUFFIXES:
            raise typer.BadParameter(f"wanted a .png or .svg file, got {str(out)!r}", param_hint="--out")
        with report_bad_data():
            show(load(name, data_dir), out, seed)
        print(escape_control_characters(str(out)))

    @app.command("clear-cache")
    def clear_cache() -> None:
        """Remove the prepared images kept for later runs.

        Example: learnpool data clear-cache
        """
        from ..lab.data import cache

        with report_bad_data():
            count, size = cache.clear()
        print(f"Removed {format_count(count, 'file')}, {size:,} bytes, from {cache.get_cache_directory()}")

    return app
