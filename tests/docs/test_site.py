"""The site builds without a warning, and every link in it leads somewhere."""

import importlib.util
import logging
import re

import pytest
from pages import ROOT

import check_site
import learnpool
import site_pages

if importlib.util.find_spec("material") is None:
    pytest.skip("needs mkdocs-material (the extra docs)", allow_module_level=True)


@pytest.mark.filterwarnings("ignore")  # of mkdocs's own plugins
def test_the_site_builds_without_warnings(tmp_path, monkeypatch, caplog):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(ROOT)
    with caplog.at_level(logging.WARNING, "mkdocs"):
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=False))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert list(check_site.find_problems(tmp_path)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    text = '<a href="b.html">1</a><a href="#no">2</a><a href="#yes">3</a><i id="yes"></i><script src="https://a.b/c"></script>'
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    assert list(check_site.find_problems(tmp_path)) == [
        "a.html: b.html leads nowhere",
        "a.html: #no has no such anchor",
        "a.html: fetches https://a.b/c",
    ]


def test_a_name_is_described_by_signature_and_docstring():
    text = site_pages.describe("learnpool.GatedPool2d")
    assert text.startswith("### GatedPool2d\n\n```python\nGatedPool2d(\n    kernel_size,\n    stride=None,\n")
    assert (
        "\n```pycon\n>>> GatedPool2d(3, stride=2)(torch.randn(8, 96, 15, 15)).shape\ntorch.Size([8, 96, 7, 7])\n```"
        in text
    )


def test_lines_break_between_options_and_not_inside_an_interval():
    command = '<div class="language-sh highlight"><pre>train<span> </span>--train-size<span> </span>9</pre></div>'
    assert '<span class="option">--train-size</span>' in site_pages.on_page_content(command, None, None, None)
    cells = "<td>23.15 ± 0.71</td><td>0.66 (−0.62 … 1.95)</td>"
    joined = "<td>23.15\xa0±\xa00.71</td><td>0.66 (−0.62\xa0…\xa01.95)</td>"
    assert site_pages.on_page_content(cells, None, None, None) == joined


def test_every_public_name_has_its_place_in_the_reference():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    named = {re.sub(r"[13]d$", "2d", name) for name in learnpool.__all__}
    results = {"Calibration", "Explanation", "Report", "Tree"}  # described by what gives or takes them
    missing = {
        name for name in named - results - {"__version__", "functional"} if f"::: learnpool.{name}\n" not in pages
    }
    assert not missing
