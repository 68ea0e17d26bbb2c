"""What the pages name exists: links, files, folders, functions, tests, commands and their options."""

import functools
import importlib
import re
import shlex

import pytest
from pages import PAGES, ROOT, name_page, read_blocks, read_prose, read_spans

import learnpool

SOURCE = ROOT / "src" / "learnpool"
CODE = (".py", ".cpp", ".h", ".md", ".cff", ".toml", ".sh")
LINK = re.compile(r"\]\(([^)\s]+)\)")
DOTTED = re.compile(r"([a-z_]\w*(?:\.\w+)+)(?:\(.*\))?")
TEST = re.compile(r"def (test_\w+)|class (Test\w+)")


@functools.cache
def list_modules():
    """Every module of the package by its last name: ``{"reference": ["learnpool.ops.reference"], ...}``."""
    modules = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("learnpool", *path.relative_to(SOURCE).with_suffix("").parts)
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        modules.setdefault(parts[-1], []).append(".".join(parts))
    return modules


@functools.cache
def list_tests():
    return {a or b for path in (ROOT / "tests").rglob("*.py") for a, b in TEST.findall(path.read_text("utf-8"))}


def make_anchor(heading):
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def find_path(page, name):
    """The file or folder a page means by ``name``: from the root, from the source or from the page."""
    return next((at / name for at in (ROOT, SOURCE, page.parent) if (at / name).exists()), None)


def resolve(names):
    """Whether ``reference.forward`` or ``learnpool.functional.pool2d`` exists."""
    first, *rest = names.split(".")
    for module in list_modules().get(first, []):
        found = importlib.import_module(module)
        for name in rest:
            if not hasattr(found, name):
                try:
                    importlib.import_module(f"{found.__name__}.{name}")
                except (ImportError, AttributeError):
                    break
            found = getattr(found, name)
        else:
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_links_lead_somewhere(page):
    for link in LINK.findall(read_prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert anchor in map(make_anchor, headings), link


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_files_and_folders_exist(page):
    for span in read_spans(page):
        name = span.partition(" ")[0]
        if re.fullmatch(r"[\w./*-]+", name) and (name.endswith(CODE) or name.startswith(("src/", "docs/", "tests/"))):
            exists = any(ROOT.glob(name)) if "*" in name else find_path(page, name)
            assert exists, f"{span} is neither in the project, nor in src/learnpool, nor beside the page"


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_functions_exist(page):
    for span in read_spans(page):
        match = DOTTED.fullmatch(span)
        if match is None or match[1].endswith((*CODE, ".json", ".html", ".png", ".safetensors", ".jsonl", ".pt")):
            continue
        first = match[1].partition(".")[0]
        # In the guide and at its start a name may be a variable of the page, such as `report.replaced`.
        if first == "learnpool" or (page.parent.name != "guide" and page.stem != "index" and first in list_modules()):
            assert resolve(match[1]), span


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_tests_exist(page):
    for span in read_spans(page):
        if re.fullmatch(r"[Tt]est_\w+", span):
            assert span in list_tests(), span


@functools.cache
def build_commands():
    from typer.main import get_command

    from learnpool.cli import build

    return get_command(build())


def read_commands(page):
    """Every line of a shell block, and every `learnpool …` in the prose, as words."""
    blocks = [block.text.replace("\\\n", "") for block in read_blocks(page) if block.language == "sh"]
    lines = [line for text in blocks for line in text.splitlines()]
    lines += [span for span in read_spans(page) if re.match(r"(learnpool|make) [a-z]", span)]
    for line in lines:
        words = shlex.split(line.replace("…", ""), comments=True)
        if words:
            yield words


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_commands_and_their_options_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for words in read_commands(page):
        if words[0] == "make":
            assert re.search(rf"^{re.escape(words[1])}:", makefile, re.M), words
        if "learnpool" not in words:
            continue
        command, rest = build_commands(), words[words.index("learnpool") + 1 :]
        while rest and hasattr(command, "commands"):
            if rest[0].startswith("-"):
                break
            assert rest[0] in command.commands, f"{words}: no command {rest[0]}"
            command, rest = command.commands[rest[0]], rest[1:]
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for word in rest:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, f"{words}: no option {word}"


def test_what_does_not_exist_is_found():
    assert resolve("reference.forward")
    assert resolve("learnpool.functional.pool2d")
    assert not resolve("reference.forwards")
    assert not resolve("learnpool.functional.pool4d")
    assert find_path(ROOT / "README.md", "ops/reference.py")
    assert not find_path(ROOT / "README.md", "ops/references.py")
    assert learnpool.__all__
