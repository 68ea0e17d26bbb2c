"""HTML pages from the templates in the lab's folders; every string is escaped but our own pictures."""

from __future__ import annotations

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..formatting import escape_control_characters


def make_environment(*folders: str) -> Environment:
    """Templates of these folders of the lab, the first one's before those of the next."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(f"learnpool.lab.{folder}", ".") for folder in folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show_control_characters,
    )


def _show_control_characters(value: Any) -> Any:
    """A string from a name or a file with its control characters as text; our own pictures as they are."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\n".join(map(escape_control_characters, value.split("\n")))
