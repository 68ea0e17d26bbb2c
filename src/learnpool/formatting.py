"""Numbers, counts and tables as plain text, in one way everywhere."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Sequence
from html import escape
from importlib import metadata
from pathlib import PurePosixPath
from unicodedata import category
from urllib.parse import unquote, urlsplit

UNSAFE = ("Cc", "Cs", "Zl", "Zp")  # control characters, bytes that are no UTF-8, separators of lines and paragraphs
BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # reorder the text around them


def format_number(value: float, digits: int = 2) -> str:
    """``-0.304`` as ``−0.30``: with a real minus sign and never a negative zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def format_range(low: float, high: float) -> str:
    """``−1.20 … 0.40``; an end close to zero has more digits, such as ``−0.002``, so that its side of zero shows."""
    ends = [next((digits for digits in range(2, 7) if round(end, digits)), 2) for end in (low, high)]
    return f"{format_number(low, ends[0])} … {format_number(high, ends[1])}"


def format_mean(values: Sequence[float]) -> str:
    """``8.13 ± 0.25``: the mean and, of several values, their standard deviation."""
    spread = f" ± {format_number(statistics.stdev(values), 2)}" if len(values) > 1 else ""
    return f"{format_number(statistics.fmean(values), 2)}{spread}"


def format_percent(part: float, digits: int = 0, *, sign: bool = False) -> str:
    """``0.123`` as ``12 %``; with ``sign``, ``+12 %``."""
    text = format_number(100 * part, digits)
    return f"{'+' * (sign and round(100 * part, digits) > 0)}{text} %"


def format_count(number: int, noun: str) -> str:
    """``1 image``, ``2,000 images``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def join_words(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def format_large(number: float) -> str:
    """``118,013,952`` as ``118 M``: three digits and a unit."""
    units = ["", " k", " M", " G", " T"]
    while abs(number) >= 999.5 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.3g}{units[0]}"


def format_table(rows: Sequence[Sequence[str]], right: Collection[int] = (), gap: int = 2) -> str:
    """Rows as lines of aligned columns, ``right`` the columns of numbers; no line ends in spaces."""
    safe = [[escape_control_characters(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    lines = (
        (" " * gap).join(
            f"{cell:{'>' if place in right else '<'}{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in safe
    )
    return "\n".join(line.rstrip() for line in lines)


def format_html_table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """The same rows for a notebook; the first holds the heads."""
    lines: list[str] = []
    for row in rows:
        tag = "td" if lines else "th"
        cells = (
            f'<{tag} style="text-align: {"right" if place in right else "left"}">'
            f"{escape(escape_control_characters(cell))}</{tag}>"
            for place, cell in enumerate(row)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join(["<table>", *lines, "</table>"])


def is_utf8(text: str) -> bool:
    """Whether a text can be written in UTF-8; Python keeps other bytes of a file's name as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def escape_control_characters(text: str) -> str:
    r"""``\x1b[2J`` for what would clear a terminal: names from files and directories are shown, never obeyed."""
    return "".join(c.encode("unicode_escape").decode() if category(c) in UNSAFE or c in BIDI else c for c in text)


def format_pip_install(extra: str) -> str:
    """The ``pip install`` that adds an extra to this version: by its number only if that is where it came from."""
    try:
        distribution = metadata.distribution("learnpool")
    except metadata.PackageNotFoundError:  # a source that is on the path and not installed
        return f'pip install ".[{extra}]"  # in the source of learnpool'
    text = distribution.read_text("direct_url.json")
    origin = json.loads(text) if text else {}
    url, commit = origin.get("url", ""), origin.get("vcs_info", {}).get("commit_id")
    if commit:
        return f'pip install "learnpool[{extra}] @ git+{url}@{commit}"'
    if "archive_info" in origin:
        return f'pip install "{PurePosixPath(unquote(urlsplit(url).path)).name}[{extra}]"'
    if url:
        return f'pip install ".[{extra}]"  # in the source of learnpool {distribution.version}'
    return f'pip install "learnpool[{extra}]=={distribution.version}"'
