"""Lines of pages are shorter than 120 characters, but for tables and what a program printed."""

import re

import pytest
from pages import PAGES, name_page

import wrap_markdown

LONG = "word " * 30


def test_prose_is_wrapped():
    wrapped = wrap_markdown.wrap(f"- {LONG}\n  more\n\n{LONG}`a b`\n")
    assert max(map(len, wrapped.splitlines())) < 120
    assert wrapped.splitlines()[1].startswith("  word")
    assert wrapped.endswith(" `a b`\n")


def test_a_line_that_ends_early_is_filled():
    assert wrap_markdown.wrap(f"{'word ' * 10}\nword\nword\n") == "word " * 11 + "word\n"
    for text in ("word " * 22 + "\nword\n", "word  \nword\n"):  # full, and a break that is meant
        assert wrap_markdown.wrap(text) == text


def test_code_tables_headings_and_generated_blocks_stay():
    for text in (
        f"```sh\n{LONG}\n```\n",
        f"| {LONG} |\n",
        f"# {LONG}\n",
        f"<!-- generated: x -->\n{LONG}\n<!-- end -->\n",
    ):
        assert wrap_markdown.wrap(text) == text


def test_no_line_begins_with_what_would_make_it_a_list():
    wrapped = wrap_markdown.wrap("a" * 117 + " - b # c\n")
    assert len(wrapped.splitlines()) == 1 or not wrapped.splitlines()[1].startswith(("-", "#"))


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_lines_are_short(page):
    printed = re.compile(r"^```text\n.*?^```$|^<!-- generated.*?^<!-- end -->$", re.M | re.S)
    text = printed.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in text.splitlines() if len(line) >= 120 and not line.startswith("|")] == []
