"""The pages of the documentation, taken apart."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
SPAN = re.compile(r"`([^`\n]+)`")
NUMBER = re.compile(r"[−-]?\d[\d.,]*(?:e[−+-]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``mark`` is the comment on the line before it, ``line`` the number of its first line."""

    language: str
    text: str
    mark: str
    line: int


def read_blocks(page):
    """The fenced blocks of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["text"], m["mark"] or "", text.count("\n", 0, m.start("text")) + 1)
        for m in FENCE.finditer(text)
    ]


def read_prose(page):
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def read_spans(page):
    """What stands between single backquotes in the prose of a page."""
    return SPAN.findall(read_prose(page))


def name_page(page):
    """The name of a page, for a test's id."""
    return str(page.relative_to(ROOT))


def drop_numbers(text):
    """The words of a text, with # for each number."""
    return NUMBER.sub("#", text).split()
