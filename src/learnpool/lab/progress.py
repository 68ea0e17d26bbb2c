"""Progress bars with the time elapsed and the time left; where there is no terminal, a line every half minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..formatting import format_percent

LINE_EVERY = 30.0  # seconds


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
    """A bar, or a line every half minute in a file; yields ``update(done, steps, text)``."""
    if not (console.is_terminal or console.is_jupyter):
        yield log_progress(label, console)
        return
    columns = TextColumn(label), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("", total=None)
        try:
            yield lambda done, steps, text: bar.update(task, completed=done, total=steps, description=text)
        except BaseException:
            bar.live.transient = bar.disable = True  # an error message stands alone, without an empty line
            bar.live.stop()
            raise


def log_progress(label: str, console: Console) -> Callable[[float, int, str], None]:
    """``update(done, steps, text)`` that prints a line when the last one is ``LINE_EVERY`` seconds old."""
    start = last = time.monotonic()
    first: float | None = None  # what was done before tells nothing about the time left

    def update(done: float, steps: int, text: str) -> None:
        nonlocal first, last
        first = done if first is None else first
        now = time.monotonic()
        if now - last < LINE_EVERY or not steps:
            return
        last = now
        elapsed, left = now - start, "an unknown time"
        if done > first:
            left = format_seconds(elapsed * (steps - done) / (done - first))
        suffix = f"; {text}" if text else ""
        console.out(
            f"{label}: {format_percent(done / steps)}, {format_seconds(elapsed)} gone, {left} left{suffix}",
            highlight=False,
        )

    return update


def format_seconds(seconds: float) -> str:
    """``0:01:30``."""
    return str(timedelta(seconds=round(seconds)))
