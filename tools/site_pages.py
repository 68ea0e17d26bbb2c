"""A hook of mkdocs: pages that live outside docs/ become pages of the site, and docstrings its API reference.

CONTRIBUTING.md and CHANGELOG.md are taken from the root; the page of examples is made from examples/. A link to a
source file has no page to lead to, so the site shows its name alone. A line ``::: learnpool.GatedPool2d`` becomes the
signature and the docstring of that name; the package is imported for it, because signatures are made at run time. A
drawing links to its own file.
"""

import ast
import importlib
import inspect
import os
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}  # by place
NAME = re.compile(r"^::: (\S+)$", re.M)
EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?!>>>)\S.*\n?|^\.\.\. .*\n?)*)+", re.M)
FIGURE = re.compile(r"^!\[[^\]]+\]\((\S+\.svg)\)$", re.M)
COMMAND = re.compile(r'<div class="language-sh.*?</div>', re.S)
OPTION = re.compile(r"(?<=>)--[\w-]+")
INTERVAL = re.compile(r"(?<=\d) ([±…]) (?=[−\d])")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config):
    """The footer links to the source, where the environment says its address (setup.py reads the same variable)."""
    if repository := os.environ.get("LEARNPOOL_REPOSITORY"):
        config.copyright = f'<a href="{repository}">Source code</a>'
    return config


def on_files(files, config):
    """Add the pages from outside docs/."""
    from mkdocs.structure.files import File

    for place, page in PAGES.items():
        if page != "index.md":
            text = move_links((ROOT / place).read_text(encoding="utf-8"), "")
            files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "examples.md", content="\n".join(list_examples())))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links out of docs/, as they are written for readers of the repository, in the site."""
    if page.file.generated_by:
        return markdown
    markdown = NAME.sub(lambda match: describe(match[1]), markdown)
    markdown = move_links(markdown, str(PurePosixPath("docs", page.file.src_uri).parent))
    return FIGURE.sub(r"[\g<0>](\1)", markdown)  # a figure opens by itself: on a phone its text is small


def on_page_content(html, page, config, files):
    """A command breaks between its options, not behind their hyphens; a cell not inside 1 ± 2 or 1 … 2."""
    html = COMMAND.sub(lambda match: OPTION.sub(r'<span class="option">\g<0></span>', match[0]), html)
    return INTERVAL.sub("\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", html)


def describe(name):
    """A public name as a section: its signature without annotations, and its docstring."""
    module, _, last = name.rpartition(".")
    value = getattr(importlib.import_module(module), last)
    signature = inspect.signature(value)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    call = f"{last}{signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"
    if len(call) > 80:
        call = f"{last}(\n    " + ",\n    ".join(split_arguments(call[len(last) + 1 : -1])) + ",\n)"
    text = EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", (inspect.getdoc(value) or "") + "\n")
    return f"### {last}\n\n```python\n{call}\n```\n\n{text}"


def split_arguments(text):
    """The arguments of a signature; a comma inside brackets or quotes separates none."""
    return re.split(r", (?=[\w*/]+(?:=|,|$))", text)


def move_links(text, folder):
    """Links relative to ``folder`` of the repository, as links between pages of the site; those to source are text."""

    def move(match):
        words, link, anchor = match[1], match[2], match[3] or ""
        if "://" in link or link.startswith("mailto:"):
            return match[0]
        place = normpath(str(PurePosixPath(folder, link)))
        here = relpath(folder or "docs", "docs") if folder.startswith("docs") else "."
        if place in PAGES:
            return f"[{words}]({relpath(PAGES[place], here)}{anchor})"
        if place.startswith("examples"):
            return f"[{words}]({relpath('examples.md', here)})"
        if place == "docs" or place.startswith("docs/"):
            return f"[{words}]({relpath(place, f'docs/{here}')}{anchor})"
        return words

    return LINK.sub(move, text)


def list_examples():
    """The page of examples: what each says of itself, and its code."""
    yield "# Examples\n"
    yield (ROOT / "examples" / "README.md").read_text(encoding="utf-8").partition("\n")[2]
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        module = ast.parse(source)
        first = module.body[1].lineno - 1  # behind the docstring
        yield f"## {ast.get_docstring(module).splitlines()[0].rstrip('.')}\n"
        yield f"`examples/{path.name}`\n"
        yield f"```python\n{''.join(source.splitlines(True)[first:])}```\n"
