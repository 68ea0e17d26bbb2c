"""Progress bars with the time gone and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def count_steps(label: str, steps: int, console: Console) -> Iterator[Callable[[], None]]:
    """A bar over a known number of steps; yields ``advance()``, to be called after each of them."""
    done = 0
    with show_bar(label, console) as update:
        update(0, steps, "")

        def advance() -> None:
            nonlocal done
            done += 1
            update(done, steps, "")

        yield advance


@contextmanager
def show_bar(label: str, console: Console) -> Iterator[Callable[[float, int, str], None]]:
    """A bar; yields ``update(done, steps, text)``."""
    columns = TextColumn(label), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("", total=None)
        try:
            yield lambda done, steps, text: bar.update(task, completed=done, total=steps, description=text)
        except BaseException:
            bar.live.transient = bar.disable = True  # an error message stands alone, without an empty line
            bar.live.stop()
            raise
