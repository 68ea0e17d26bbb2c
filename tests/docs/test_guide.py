"""The code of every page runs, from top to bottom, and prints what the page says it prints.

Each ``python`` block is run; a ``text`` block is what the block before it prints. On the line before a block,
``<!-- not run: reason -->`` leaves it out, and ``<!-- numbers vary: reason -->`` compares all but the numbers.
"""

import ast
import re

import pytest
from pages import PAGES, drop_numbers, name_page, read_blocks

RUN = [page for page in PAGES if any(block.language == "python" for block in read_blocks(page))]
TRAINING = ("explain", "fine-tune", "predict")  # pages that train a network, and assert something about it


def mark(page):
    return pytest.param(page, marks=pytest.mark.trains if page.stem in TRAINING else (), id=name_page(page))


@pytest.mark.parametrize("page", [mark(page) for page in RUN])
def test_the_code_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # a page may write files
    blocks = read_blocks(page)
    code = [block for block in blocks if block.language == "python" and not block.mark.startswith("not run: ")]
    file = tmp_path / f"{page.stem}.py"  # for code that reads its own source; lines have their numbers in the page
    file.write_text("".join(place_lines(code)), encoding="utf-8")
    names = {"__name__": f"guide_{page.stem.replace('-', '_')}", "__file__": str(file)}
    for block in code:
        exec(compile("\n" * (block.line - 1) + block.text, file, "exec"), names)
        printed = capsys.readouterr().out
        after = blocks[blocks.index(block) + 1 :]
        shown = after[0] if after and after[0].language == "text" else None
        assert bool(printed) == bool(shown), f"line {block.line}: prints {printed!r}, and the page shows {shown}"
        if shown is not None and shown.mark.startswith("numbers vary: "):
            assert drop_numbers(printed) == drop_numbers(shown.text), f"line {shown.line}"
        elif shown is not None:
            assert printed == shown.text, f"line {shown.line}"


def place_lines(blocks):
    """The lines of the blocks, at the line numbers they have in their page."""
    at = 1
    for block in blocks:
        yield "\n" * (block.line - at)
        yield block.text
        at = block.line + block.text.count("\n")


@pytest.mark.parametrize("page", RUN, ids=name_page)
def test_every_block_says_what_it_is(page):
    blocks = read_blocks(page)
    for previous, block in zip([None, *blocks], blocks, strict=False):
        assert block.language in ("python", "text", "sh"), f"line {block.line}"
        assert not block.mark or re.match(r"(not run|numbers vary): \w", block.mark), f"line {block.line}"
        if block.language == "text":
            assert previous is not None, f"line {block.line}: output of nothing"
            assert previous.language == "python", f"line {block.line}: output of nothing"
        if block.language == "python":
            ast.parse(block.text)  # also what is not run


def test_there_are_pages():
    assert {"README", "index", "idea", "convert", "compare", "explain", "train"} <= {page.stem for page in RUN}
