"""Every guide page runs, top to bottom: ``python`` blocks are run, blocks without a language are what they print."""

import re
from pathlib import Path

import pytest

import learnpool

GUIDE = sorted((Path(learnpool.__file__).parents[2] / "docs" / "guide").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # a page may write files
    text = page.read_text()
    blocks = [match for match in FENCE.finditer(text) if match[1] == "python"]
    assert blocks, f"{page.name} has no code"
    file = tmp_path / f"{page.stem}.py"  # where the code comes from, for what reads its own source
    # Lines keep their numbers, so that a traceback points into the page.
    code = "".join(line if inside else "\n" for line, inside in _lines(text, blocks))
    file.write_text(code)
    exec(compile(code, file, "exec"), {"__name__": f"guide_{page.stem}", "__file__": str(file)})
    printed = capsys.readouterr().out
    for match in FENCE.finditer(text):
        assert match[1] or match[2] in printed


def _lines(text, blocks):
    spans = [match.span(2) for match in blocks]
    at = 0
    for line in text.splitlines(keepends=True):
        yield line, any(begin <= at < end for begin, end in spans)
        at += len(line)


def test_there_is_a_page():
    assert "convert" in [page.stem for page in GUIDE]
