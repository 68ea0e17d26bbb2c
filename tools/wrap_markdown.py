"""Wrap the prose of the pages below 120 characters: ``python tools/wrap_markdown.py [PAGE...]``.

Only paragraphs and list items with a longer line, or with a line that ends early for no reason, are wrapped anew. Code,
tables, headings and generated blocks stay.
"""

import itertools
import re
import sys
from pathlib import Path

from generate_docs import list_pages

WIDTH = 119
EARLY = 100
ATOM = re.compile(r"(?:`[^`]*`|\S)+")  # a word; code with spaces in it is one
ITEM = re.compile(r"( *)([-*] |\d+\. )")
KEPT = re.compile(r" *(\||#|<|!!!|!\[|:::|---)")
STARTS_SOMETHING = re.compile(r"([-*+#>|]|\d+[.)])($|\s)|[#>|]")


def wrap(text):
    """The text of a page with its long paragraphs wrapped."""
    groups = ((wrap_paragraph(lines) if prose else lines) for prose, lines in split_paragraphs(text))
    return "".join(line for group in groups for line in group)


def split_paragraphs(text):
    """Groups of lines, and whether they are prose: a paragraph or a list item. Any other line stands alone."""
    group, fenced, generated = [], False, False
    for line in text.splitlines(keepends=True):
        fence = line.lstrip().startswith("```")
        generated = generated or line.startswith("<!-- generated")
        alone = fence or fenced or generated or KEPT.match(line) or not line.strip()
        if group and (alone or ITEM.match(line) or get_indent(line) < get_indent(group[0])):
            yield True, group
            group = []
        if alone:
            yield False, [line]
        else:
            group.append(line)
        fenced = fenced != fence
        generated = generated and not line.startswith("<!-- end")
    if group:
        yield True, group


def get_indent(line):
    return len(line) - len(line.lstrip(" "))


def is_ragged(lines):
    """Whether a line before the last ends early: the next line's first word would fit with room to spare."""
    pairs = ((line.rstrip("\n"), ATOM.match(after.strip())) for line, after in itertools.pairwise(lines))
    return any(len(line) + len(word[0]) < EARLY and not line.endswith(("  ", "\\")) for line, word in pairs)


def wrap_paragraph(lines):
    if max(len(line.rstrip("\n")) for line in lines) <= WIDTH and not is_ragged(lines):
        return lines
    item = ITEM.match(lines[0])
    first = item[0] if item else " " * get_indent(lines[0])
    rest = " " * len(first)
    words = ATOM.findall(" ".join(line.strip() for line in lines)[len(first.strip()) :])
    wrapped, current = [], first
    for word in words:
        joined = current + word if not current.strip() or current == first else f"{current} {word}"
        if len(joined) > WIDTH and current.strip() and current != first and not STARTS_SOMETHING.match(word):
            wrapped.append(current)
            joined = rest + word
        current = joined
    return [f"{line}\n" for line in (*wrapped, current)]


def main(names):
    for page in map(Path, names) if names else list_pages():
        text = page.read_text(encoding="utf-8")
        wrapped = wrap(text)
        assert wrapped.split() == text.split(), page  # nothing but line breaks
        if wrapped != text:
            page.write_text(wrapped, encoding="utf-8")
            print("wrapped:", page)


if __name__ == "__main__":
    main(sys.argv[1:])
