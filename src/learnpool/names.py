"""Pools named by strings, as on a command line or in a table of experiments.

======================================  =========================================================================
``max  avg``                            the plain PyTorch layers
``half  mixed  gated  filter``          fixed 50/50, learned mix, gate, one learned filter
``soft  lse  gem  rank``                one learned β, r, p; a learned weight for each place in the order
``blur  maxblur  median  lp2``          fixed: binomial filter, max then binomial filter, median, root mean square
``tree2  tree3  …``                     filters under gates, by levels
``stochastic``                          Zeiler and Fergus (2013)
``Gate(Filter, Mix(Max, Avg, a=0.3))``  any tree, brackets of leaves optional
``mixed:region_channel``                a suffix for the sharing of its part
``tree2+gated``                         tree2 in a network's first pool, gated in all later ones; more parts as well
======================================  =========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from . import layers, named_layers
from .parsing import GRAMMAR, Reader, read_tree, suggest
from .program import MAX_NODES, decode
from .sharing import SHARES
from .tree import Avg, Blur, Filter, Gate, LogSumExp, Max, Median, Mix, Power, Rank, Soft, Tree, make_tree

FIXED_NAMES = ("max", "avg", "stochastic", "maxblur")
TREES: dict[str, Tree] = {
    "half": Mix(Max(), Avg(), learn=False),
    "mixed": Mix(Max(), Avg()),
    "gated": Gate(Max(), Avg()),
    "filter": Filter(),
    "soft": Soft(),
    "lse": LogSumExp(),
    "gem": Power(),
    "rank": Rank(),
    "blur": Blur(),
    "median": Median(),
    "lp2": Power(2.0, learn=False, absolute=True),
}
KNOWN = (
    "max, avg, half, stochastic, mixed, gated, filter, tree2, tree3, …, soft, lse, gem, rank, blur, maxblur, median, "
    "lp2 or a tree such as Gate(Filter, Mix(Max, Avg))"
)
_LAYERS: dict[str, Callable[..., nn.Module]] = {
    name: getattr(module, name) for module in (layers, named_layers) for name in module.__all__
}


@dataclass(frozen=True)
class Part:
    """One pool of a name: ``max``, ``avg``, ``stochastic`` or a tree, and who shares its parameters."""

    pool: str | Tree
    share: str = "layer"

    def __str__(self) -> str:
        if isinstance(self.pool, str):
            return self.pool
        levels = self.pool.size.bit_length()
        names = {tree: name for name, tree in TREES.items()} | (
            {make_tree(levels): f"tree{levels}"} if levels > 1 and self.pool.size == 2**levels - 1 else {}
        )
        return names.get(self.pool, repr(self.pool)) + ("" if self.share == "layer" else f":{self.share}")

    def make_layer(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, *, dims: int = 2, **options: Any
    ) -> nn.Module:
        """This pool over a window; ``options`` are those of ``Pool2d``, as far as the pool has them."""
        window = {key: options.pop(key) for key in ("dilation", "ceil_mode", "return_indices") if key in options}
        known = {"channels", "grid", "count_include_pad", "start", "std", "device", "dtype"}
        if unknown := sorted(set(options) - known):
            raise TypeError(f"pool {str(self)!r}: unknown option {unknown[0]!r}; known: {', '.join(sorted(known))}")
        counts = options.get("count_include_pad", False)
        if dims not in (1, 2, 3):
            raise ValueError(f"pool {str(self)!r}: dims must be 1, 2 or 3, got {dims!r}")
        if isinstance(self.pool, Tree):
            word, own = _name_layer(self.pool)
            arguments = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "share": self.share}
            return _LAYERS[f"{word}{dims}d"](**own, **arguments, **window, **options)
        if self.pool in ("stochastic", "maxblur"):
            word = "StochasticPool" if self.pool == "stochastic" else "MaxBlurPool"
            return _LAYERS[f"{word}{dims}d"](kernel_size, stride, padding, **window)
        if self.pool == "max":
            return (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[dims - 1](kernel_size, stride, padding, **window)
        if window.pop("dilation", 1) not in (1, (1,) * dims, [1] * dims) or window.pop("return_indices", False):
            raise ValueError("pool 'avg': nn.AvgPool has neither dilation nor return_indices")
        average = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[dims - 1]
        return average(kernel_size, stride, padding, count_include_pad=counts, **window)


@dataclass(frozen=True)
class PoolName:
    """A parsed name: the pools of a network in order; the last is that of all later places too."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.parts))

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"

    def part(self, index: int = 0) -> Part:
        """The pool at place ``index`` of a network (0 is its first pool)."""
        return self.parts[min(index, len(self.parts) - 1)]


def parse(text: str, share: str | None = None) -> PoolName:
    """Read a pool's name; ValueError points at the place that is wrong and lists what is known.

    ``share`` is for parts without a suffix; one that differs from a part's suffix is an error.

    >>> parse("tree2+gated:channel").part(1)
    Part(pool=Gate(Max(), Avg()), share='channel')
    """
    if not isinstance(text, str):
        raise TypeError(f"parse: a pool's name must be a string, got {text!r}")
    reader = Reader(text)
    if share is not None and share not in SHARES:
        guess = suggest(share, SHARES) if isinstance(share, str) else ""
        raise ValueError(f"pool {text!r}: unknown share {share!r}{guess}; known: {', '.join(SHARES)}")
    parts = [_read_part(reader, share)]
    while reader.take("+"):
        parts.append(_read_part(reader, share))
    if reader.kind != "end":
        reader.fail(f"unexpected {reader.token!r}", "wanted ':', '+' or the end")
    return PoolName(tuple(parts))


def make_pool(
    name: str,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    *,
    index: int = 0,
    share: str | None = None,
    **options: Any,
) -> nn.Module:
    """The layer a name means at place ``index`` of a network, over a window (``dims``: 1, 2 or 3 spatial axes).

    >>> make_pool("tree2+gated", 3, 2, index=1)
    GatedPool2d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False)
    """
    return parse(name, share).part(index).make_layer(kernel_size, stride, padding, **options)


def _read_part(reader: Reader, share: str | None) -> Part:
    if reader.kind != "word":
        reader.fail("no pool" if reader.kind == "end" else f"unexpected {reader.token!r}", f"known: {KNOWN}")
    word, at = reader.token, reader.at
    pool: str | Tree
    levels = re.fullmatch(r"tree([1-9]\d{0,3})", word)
    if word in GRAMMAR:
        pool = read_tree(reader)
    else:
        reader.next()
        if word in FIXED_NAMES:
            pool = word
        elif word in TREES:
            pool = TREES[word]
        elif levels is not None:
            if 2 ** int(levels[1]) > MAX_NODES:
                reader.fail(f"{word!r} is too deep", f"a tree has at most {MAX_NODES.bit_length() - 1} levels", at)
            pool = make_tree(int(levels[1]))
        else:
            known = (*FIXED_NAMES, *TREES, "tree2", "tree3", *GRAMMAR)
            reader.fail(f"unknown pool {word!r}{suggest(word, known)}", f"known: {KNOWN}", at)
    if reader.take(":"):
        suffix, at = reader.token, reader.at
        if suffix not in SHARES:
            reader.fail(f"unknown share {suffix!r}{suggest(suffix, SHARES)}", f"known: {', '.join(SHARES)}")
        if isinstance(pool, str) or not _learns(pool):
            reader.fail(f"{word!r} has no parameters to share", "remove the suffix")
        if share is not None and share != suffix:
            reader.fail(f"share {suffix!r} differs from share={share!r}", "give one of them")
        reader.next()
        return Part(pool, suffix)
    return Part(pool, "layer" if share is None or isinstance(pool, str) else share)


def split_names(text: str) -> list[str]:
    """The names in ``text``, none empty; commas inside a tree's brackets do not separate names."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    names = [part.strip() for part in parts]
    if not all(names) and any(names):
        raise ValueError(f"wanted names with one comma between them, got {text!r}")
    return [name for name in names if name]


def _learns(tree: Tree) -> bool:
    """Whether a tree has parameters."""
    program = decode(tree.program)
    return program.weights + program.mixes > 0


def _name_layer(tree: Tree) -> tuple[str, dict[str, Any]]:
    """The layer named after a tree, or ``Pool``, and the arguments that make it this one."""
    match tree:
        case Mix() if (tree.left, tree.right) == (Max(), Avg()):
            return "MixedPool", {"a": tree.a, "learn": tree.learn}
        case Gate() if tree == Gate(Max(), Avg()):
            return "GatedPool", {}
        case Soft():
            return "SoftPool", {"beta": tree.theta, "learn": tree.learn}
        case LogSumExp():
            return "LogSumExpPool", {"r": tree.theta, "learn": tree.learn}
        case Power():
            return "GeMPool", {"p": tree.theta, "learn": tree.learn, "absolute": tree.absolute}
        case Rank() if tree.values is None:
            return "RankPool", {}
        case Median():
            return "MedianPool", {}
        case Blur() if tree.values is None:
            return "BlurPool", {}
    levels = tree.size.bit_length()
    if tree.size == 2**levels - 1 and tree == make_tree(levels):
        return "TreePool", {"levels": levels}
    return "Pool", {"tree": tree}
