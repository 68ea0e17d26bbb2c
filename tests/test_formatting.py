"""Numbers, counts and tables as text."""

import json
from importlib import metadata
from types import SimpleNamespace

import pytest

from learnpool.formatting import (
    escape_control_characters,
    format_count,
    format_html_table,
    format_number,
    format_percent,
    format_pip_install,
    format_range,
    format_table,
)


@pytest.mark.parametrize(("value", "text"), [(-0.304, "−0.30"), (-0.001, "0.00"), (0.355, "0.35"), (1, "1.00")])
def test_a_number(value, text):
    assert format_number(value) == text


def test_digits_of_a_number():
    assert [format_number(-12.345, digits) for digits in (0, 1, 3)] == ["−12", "−12.3", "−12.345"]


def test_an_interval_shows_on_which_side_of_zero_it_ends():
    assert format_range(-1.2, 0.4) == "−1.20 … 0.40"
    assert format_range(-1.348, -0.002) == "−1.35 … −0.002"
    assert format_range(0.00031, 2) == "0.0003 … 2.00"
    assert format_range(0, 0) == "0.00 … 0.00"


@pytest.mark.parametrize(
    ("part", "plain", "signed"),
    [(-0.012, "−1 %", "−1 %"), (0.0, "0 %", "0 %"), (-0.001, "0 %", "0 %"), (0.25, "25 %", "+25 %")],
)
def test_a_percentage(part, plain, signed):
    assert (format_percent(part), format_percent(part, sign=True)) == (plain, signed)


def test_digits_of_a_percentage():
    assert (format_percent(0.12345, 2), format_percent(float("inf"), 2)) == ("12.35 %", "inf %")


def test_a_count():
    assert [format_count(n, "image") for n in (0, 1, 2000)] == ["0 images", "1 image", "2,000 images"]


def test_a_table_aligns_its_columns():
    rows = [("pool", "was", "parameters"), ("a.long.name", "max", "1,024"), ("b", "average", "9"), ("c", "", "")]
    assert format_table(rows, right=(2,)).splitlines() == [
        "pool         was      parameters",
        "a.long.name  max           1,024",
        "b            average           9",
        "c",
    ]


def test_the_gap_of_a_table():
    assert format_table([("a", "b"), ("cc", "d")], gap=4) == "a     b\ncc    d"


def test_a_table_for_a_notebook():
    text = format_html_table([("pool", "parameters"), ("<b>&\x1b", "9")], right=(1,))
    assert text.splitlines() == [
        "<table>",
        '<tr><th style="text-align: left">pool</th><th style="text-align: right">parameters</th></tr>',
        '<tr><td style="text-align: left">&lt;b&gt;&amp;\\x1b</td><td style="text-align: right">9</td></tr>',
        "</table>",
    ]


def test_rows_of_another_length_are_no_table():
    with pytest.raises(ValueError, match="zip"):
        format_table([("a", "b"), ("c",)])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain name, 3×3 – ω ü 日本", "plain name, 3×3 – ω ü 日本"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x9b2Jgone", r"\x9b2Jgone"),  # the same in one character
        ("two\nlines\r\t\x00\x7f", r"two\nlines\r\t\x00\x7f"),
        ("left\u202eright\u2066", r"left\u202eright\u2066"),
        ("line\u2028line", r"line\u2028line"),
        (b"caf\xe9".decode("utf-8", "surrogateescape"), r"caf\udce9"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_control_characters_are_shown_not_obeyed(name, shown):
    assert escape_control_characters(name) == shown
    escape_control_characters(name).encode()
    assert format_table([("a", name)]) == f"a  {shown}"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "learnpool[lab]==0.1.0"'),
        (
            {"url": "https://example.org/learnpool", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            'pip install "learnpool[lab] @ git+https://example.org/learnpool@abc"',
        ),
        (
            {"url": "file:///a/learnpool-0.1.0-py3.whl", "archive_info": {}},
            'pip install "learnpool-0.1.0-py3.whl[lab]"',
        ),
        (
            {"url": "file:///a/learnpool", "dir_info": {"editable": True}},
            'pip install ".[lab]"  # in the source of learnpool 0.1.0',
        ),
    ],
)
def test_what_to_install_is_what_was_installed(origin, command, monkeypatch):
    text = None if origin is None else json.dumps(origin)
    distribution = SimpleNamespace(read_text={"direct_url.json": text}.get, version="0.1.0")
    monkeypatch.setattr(metadata, "distribution", lambda name: distribution)
    assert format_pip_install("lab") == command


def test_what_to_install_where_only_the_source_is_on_the_path(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert format_pip_install("ray") == 'pip install ".[ray]"  # in the source of learnpool'
