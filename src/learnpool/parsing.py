"""Trees as text, ``Gate(Filter, Mix(Max, Avg, a=0.3))``: read without recursion, with errors that name the column."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from . import tree as grammar
from .program import MAX_NODES
from .tree import Tree

_TOKEN = re.compile(r"\s*(?:(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<word>[A-Za-z_]\w*)|(?P<mark>\S))")
_INNER = ("Mix", "Gate")
LEAVES = tuple(name for name in grammar.__all__ if name not in (*_INNER, "Tree"))
GRAMMAR = (*LEAVES, *_INNER)
# What may follow a node's children, in this order by position.
_OPTIONS = {
    name: tuple(inspect.signature(getattr(grammar, name)).parameters)[2 * (name in _INNER) :] for name in GRAMMAR
}
_SWITCHES = ("learn", "bias", "absolute")


class Reader:
    """The tokens of a name, one at a time, with their positions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._rest = self._iter_tokens()
        self.next()

    def _iter_tokens(self) -> Iterator[tuple[str, str, int]]:
        for match in _TOKEN.finditer(self.text):
            kind = match.lastgroup or "mark"
            yield kind, match[kind], match.start(kind)
        while True:
            yield "end", "the end", len(self.text)

    def next(self) -> None:
        self.kind, self.token, self.at = next(self._rest)

    def take(self, token: str) -> bool:
        """Step over ``token`` if it is next."""
        if self.kind == "end" or self.token != token:
            return False
        self.next()
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            self.fail(f"unexpected {self.token!r}" if self.kind != "end" else "unfinished", f"wanted {token!r}")

    def fail(self, problem: str, hint: str, at: int | None = None) -> NoReturn:
        column = (self.at if at is None else at) + 1
        raise ValueError(f"pool {self.text!r}: {problem} at column {column}; {hint}") from None


class _Open(NamedTuple):
    """A Mix or Gate whose closing bracket has not been read."""

    name: str
    at: int
    children: list[Tree]
    options: dict[str, Any]


def read_tree(reader: Reader) -> Tree:
    """A grammar expression, without recursion: it may be thousands deep."""
    open_nodes: list[_Open] = []
    while True:
        word, at = reader.token, reader.at
        if reader.kind != "word" or word not in GRAMMAR:
            problem = "unfinished" if reader.kind == "end" else f"unexpected {word!r}{suggest(word, GRAMMAR)}"
            reader.fail(problem, f"wanted {', '.join(LEAVES)}, Mix(…) or Gate(…)")
        reader.next()
        if word in _INNER:
            reader.expect("(")
            open_nodes.append(_Open(word, at, [], {}))
            continue
        options: dict[str, Any] = {}
        if reader.take("(") and not reader.take(")"):
            _read_options(reader, word, options, first=True)
            reader.expect(")")
        tree = _make(reader, word, at, [], options)
        while open_nodes:
            node = open_nodes[-1]
            if len(node.children) < 2:
                node.children.append(tree)
            else:
                node.options["by"] = tree
            if len(node.children) == 1:
                reader.expect(",")
                break
            if _read_options(reader, node.name, node.options):
                break  # a tree that decides follows
            reader.expect(")")
            open_nodes.pop()
            tree = _make(reader, node.name, node.at, node.children, node.options)
        else:
            return tree


def _make(reader: Reader, name: str, at: int, children: Sequence[Tree], options: dict[str, Any]) -> Tree:
    if sum(child.size for child in (*children, *(v for v in options.values() if isinstance(v, Tree)))) >= MAX_NODES:
        reader.fail("the tree is too large", f"at most {MAX_NODES} nodes", at)
    try:
        return getattr(grammar, name)(*children, **options)  # type: ignore[no-any-return]
    except (TypeError, ValueError) as error:
        reader.fail(f"bad {name}", str(error), at)


def _read_options(reader: Reader, node: str, options: dict[str, Any], first: bool = False) -> bool:
    """``, a=0.3, learn=False`` in any order, or by position; True if ``by=`` was read, and its tree follows."""
    names = _OPTIONS[node]
    while first or reader.take(","):
        first = False
        key = next((name for name in names[len(options) :] if name not in options), "")
        if reader.kind == "word" and reader.token not in ("True", "False"):
            key = reader.token
            if key not in names or key in options:
                known = " and ".join(names)
                reader.fail(
                    f"unexpected {key!r}", f"{node} has the options {known}, once each" if known else "wanted ')'"
                )
            reader.next()
            reader.expect("=")
        if key == "by":
            return True
        options[key] = _read_value(reader, key, names)
    return False


def _read_value(reader: Reader, key: str, names: Sequence[str]) -> Any:
    if key in _SWITCHES and reader.token in ("True", "False"):
        value: Any = reader.token == "True"
    elif key == "values" and reader.token == "[":
        value = []
        while not value or reader.token == ",":
            reader.next()
            if reader.kind != "number":
                reader.fail(f"unexpected {reader.token!r}", "wanted a number")
            value.append(float(reader.token))
            reader.next()
        if reader.token != "]":
            reader.fail(f"unexpected {reader.token!r}", "wanted ',' or ']'")
    elif key and key not in (*_SWITCHES, "values") and reader.kind == "number":
        value = float(reader.token)
        if key == "a" and not 0 <= value <= 1:
            reader.fail(f"a={reader.token}", "a lies in [0, 1]")
    else:
        forms = {"values": "values=[NUMBER, …]"} | {name: f"{name}=True or {name}=False" for name in _SWITCHES}
        wanted = " or ".join(forms.get(name, f"{name}=NUMBER") for name in names if name != "by")
        reader.fail(f"unexpected {reader.token!r}", f"wanted {wanted}" if wanted else "wanted ')'")
    reader.next()
    return value


def suggest(word: str, known: Sequence[str]) -> str:
    """`` (did you mean 'gated'?)`` for 'Gated': the same word in other letters, else the nearest; else nothing."""
    same = [name for name in known if name.lower() == word.lower()]
    near = same or difflib.get_close_matches(word, known, 1)
    near = near or [name for name in known if difflib.get_close_matches(word.lower(), [name.lower()], 1)][:1]
    return f" (did you mean {near[0]!r}?)" if near else ""
