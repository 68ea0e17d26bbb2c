"""A bar in a terminal; elsewhere a line now and then."""

import io

import pytest
from rich.console import Console

from learnpool.lab import progress


@pytest.fixture
def clock(monkeypatch):
    """The time, as the test sets it."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_file_gets_a_line_now_and_then(clock):
    console = Console(file=io.StringIO())
    with progress.show_bar("training", console) as update:
        for step in range(10, 110):  # ten were done before
            clock[0] += 1
            update(step, 110, f"epoch {step // 50}")
    assert console.file.getvalue().splitlines() == [
        "training: 35 %, 0:00:30 gone, 0:01:13 left; epoch 0",
        "training: 63 %, 0:01:00 gone, 0:00:42 left; epoch 1",
        "training: 90 %, 0:01:30 gone, 0:00:11 left; epoch 1",
    ]


def test_nothing_done_yet_says_nothing_about_the_time_left(clock):
    console = Console(file=io.StringIO())
    with progress.show_bar("training", console) as update:
        for _ in range(40):
            clock[0] += 1
            update(0, 10, "")
    assert console.file.getvalue() == "training: 0 %, 0:00:30 gone, an unknown time left\n"


def test_quiet_is_quiet(clock, capsys):
    with progress.show_bar("training", Console(quiet=True)) as update:
        for step in range(100):
            clock[0] += 1
            update(step, 100, "")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress.show_bar("training", console) as update:
        update(3, 4, "epoch 1")
    assert "epoch 1" in console.file.getvalue()
    assert "75 %" in console.file.getvalue()
