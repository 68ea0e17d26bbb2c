"""The grammar: every pool of the paper is a small binary tree, evaluated on each region **x** of N cells.

=================  ==========================  ==============================
``Max()``          max x_i
``Min()``          min x_i
``Avg()``          mean x_i
``Filter()``       v · x                       v learned
``Mix(l, r)``      a l + (1 − a) r             a in [0, 1], learned or fixed
``Gate(l, r)``     s l + (1 − s) r             s = σ(ω · x), ω learned
=================  ==========================  ==============================

For kernels a tree flattens to a *program*: one int per node, breadth first from the root. The order alone locates the
children: the j-th inner node (from 0) has them at places 2j + 1 and 2j + 2, always behind it. So a walk from the back
evaluates the tree and a walk from the front differentiates it, without recursion or pointers. Parameters are
numbered in the same order: the d-th Filter or Gate owns ``weight[d]``, the m-th learned Mix owns ``mix[m]``. A fixed
Mix carries the bits of its ``a`` (a double) as one more int.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, NoReturn

MAX_NODES = 4096


def reject_code(code: NoReturn) -> NoReturn:
    """End a dispatch over codes: mypy reports a code that was forgotten, and at run time it is a ValueError."""
    raise ValueError(f"unknown code {code!r} of a node")


class Code(IntEnum):
    """The kind of a node in a program; kernels in other languages use the same numbers."""

    MAX = 0
    AVG = 1
    FILTER = 2
    MIX = 3
    GATE = 4
    FIXED = 5  # a Mix that does not learn; the bits of its a follow
    MIN = 6

    @property
    def has_weight(self) -> bool:
        """Whether it has an inner product, and so a row of weight."""
        match self:
            case Code.FILTER | Code.GATE:
                return True
            case Code.MAX | Code.MIN | Code.AVG | Code.MIX | Code.FIXED:
                return False
            case _:
                reject_code(self)

    @property
    def has_children(self) -> bool:
        match self:
            case Code.MIX | Code.GATE | Code.FIXED:
                return True
            case Code.MAX | Code.MIN | Code.AVG | Code.FILTER:
                return False
            case _:
                reject_code(self)


class Tree:
    """A pooling function. Trees are values: never changed, and equal when they compute the same from the same start."""

    __slots__ = ("_flat", "size")
    size: int
    _code: Code

    def __init__(self, *children: Tree) -> None:
        for child in children:
            if not isinstance(child, Tree):
                raise TypeError(f"{type(self).__name__}: a child must be a tree such as Max(), got {child!r}")
        self.size = 1 + sum(child.size for child in children)
        self._flat: tuple[tuple[int, ...], tuple[float, ...]] | None = None
        if self.size > MAX_NODES:
            raise ValueError(f"{type(self).__name__}: a tree has at most {MAX_NODES} nodes, got {self.size}")

    def _children(self) -> tuple[Tree, ...]:
        return ()

    def _flatten(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        if self._flat is None:
            program: list[int] = []
            starts: list[float] = []
            queue: list[Tree] = [self]
            for node in queue:  # grows during the loop: breadth first
                queue.extend(node._children())
                if not isinstance(node, Mix):
                    program.append(int(node._code))
                elif node.learn:
                    program.append(int(Code.MIX))
                    starts.append(node.a)
                else:
                    program += (int(Code.FIXED), _double_to_bits(node.a))
            self._flat = tuple(program), tuple(starts)
        return self._flat

    @property
    def program(self) -> tuple[int, ...]:
        """The tree for a kernel, breadth first."""
        return (self._flat or self._flatten())[0]

    @property
    def starts(self) -> tuple[float, ...]:
        """Where each learned ``a`` begins."""
        return self._flatten()[1]

    def __eq__(self, other: object) -> bool:
        return self._flatten() == other._flatten() if isinstance(other, Tree) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._flatten())

    def __repr__(self) -> str:
        parts: list[str] = []
        todo: list[Tree | str] = [self]
        while todo:
            item = todo.pop()
            if isinstance(item, str):
                parts.append(item)
                continue
            children = [part for child in item._children() for part in (child, ", ")][:-1]
            todo += reversed([f"{type(item).__name__}(", *children, f"{item._options()})"])
        return "".join(parts)

    def _options(self) -> str:
        return ""

    # A tree may be thousands of nodes deep: copying and pickling must not recurse into it.
    def __copy__(self) -> Tree:
        return self

    def __deepcopy__(self, memo: object) -> Tree:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return from_program, self._flatten()


class _Leaf(Tree):
    """A node without children."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()


class Max(_Leaf):
    """``max x_i``."""

    __slots__ = ()
    _code = Code.MAX


class Min(_Leaf):
    """``min x_i``."""

    __slots__ = ()
    _code = Code.MIN


class Avg(_Leaf):
    """``mean x_i``."""

    __slots__ = ()
    _code = Code.AVG


class Filter(_Leaf):
    """``v · x`` with a learned filter ``v``."""

    __slots__ = ()
    _code = Code.FILTER


class _Inner(Tree):
    """A node with two children."""

    __slots__ = ("left", "right")

    def __init__(self, left: Tree, right: Tree) -> None:
        super().__init__(left, right)
        self.left, self.right = left, right

    def _children(self) -> tuple[Tree, ...]:
        return self.left, self.right


class Mix(_Inner):
    """``a * left + (1 - a) * right``: one learned proportion, or a fixed one with ``learn=False``."""

    __slots__ = ("a", "learn")
    _code = Code.MIX

    def __init__(self, left: Tree, right: Tree, a: float = 0.5, learn: bool = True) -> None:
        super().__init__(left, right)
        if isinstance(a, bool) or not isinstance(a, (int, float)):
            raise TypeError(f"Mix: a must be a number in [0, 1], got {a!r}")
        if not 0 <= a <= 1:
            raise ValueError(f"Mix: a must lie in [0, 1], got {a!r}")
        if not isinstance(learn, bool):
            raise TypeError(f"Mix: learn must be True or False, got {learn!r}")
        self.a, self.learn = float(a), learn

    def _options(self) -> str:
        return ("" if self.a == 0.5 else f", a={self.a!r}") + ("" if self.learn else ", learn=False")


class Gate(_Inner):
    """``s * left + (1 - s) * right`` with ``s = sigmoid(ω · x)``: the region itself decides."""

    __slots__ = ()
    _code = Code.GATE


def make_tree(levels: int, name: str = "make_tree") -> Tree:
    """The paper's tree of ``levels`` levels: gates over 2^(levels − 1) filters; 1 level is one learned filter."""
    if isinstance(levels, bool) or not isinstance(levels, int):
        raise TypeError(f"{name}: levels must be an int, got {levels!r}")
    if levels < 1:
        raise ValueError(f"{name}: levels must be at least 1, got {levels}")
    if 2**levels - 1 > MAX_NODES:
        raise ValueError(
            f"{name}: levels must be at most {MAX_NODES.bit_length() - 1} ({MAX_NODES} nodes), got {levels}"
        )
    tree: Tree = Filter()
    for _ in range(levels - 1):
        tree = Gate(tree, tree)
    return tree


class Node(NamedTuple):
    """One node of a decoded program."""

    code: Code
    parameter: int  # row of weight (Filter, Gate) or mix (Mix); −1 for the others
    a: float  # of a fixed Mix
    left: int  # places of the children; −1 for a leaf
    right: int


class Program(NamedTuple):
    """A decoded, valid program and what it needs from a region."""

    nodes: tuple[Node, ...]
    weights: int  # rows of weight: inner products
    mixes: int  # rows of mix
    has_max: bool
    has_min: bool
    has_avg: bool

    def split_weight_rows(self) -> tuple[list[int], list[int]]:
        """The rows of weight that are filters, and those that are masks of gates."""
        filters, gates = [], []
        for node in self.nodes:
            match node.code:
                case Code.FILTER:
                    filters.append(node.parameter)
                case Code.GATE:
                    gates.append(node.parameter)
                case Code.MAX | Code.MIN | Code.AVG | Code.MIX | Code.FIXED:
                    pass
                case _:
                    reject_code(node.code)
        return filters, gates


@lru_cache(maxsize=256)
def decode(program: tuple[int, ...]) -> Program:
    """Check a program and find each node's children and parameter; ValueError if it is not a tree."""
    nodes: list[Node] = []
    inner = weights = mixes = 0
    ints = iter(program)
    for number in ints:
        place = len(nodes)
        try:
            code = Code(number)
        except ValueError:
            raise ValueError(f"invalid program: node {place} has code {number}, known are 0 to {max(Code)}") from None
        if place > 2 * inner:
            raise ValueError(f"invalid program: node {place} has no parent")
        if place >= MAX_NODES:
            raise ValueError(f"invalid program: more than {MAX_NODES} nodes")
        a, row = 0.0, -1
        if code.has_weight:
            row, weights = weights, weights + 1
        elif code == Code.MIX:
            row, mixes = mixes, mixes + 1
        elif code == Code.FIXED:
            a = _read_proportion(next(ints, None))
        left = right = -1
        if code.has_children:
            left, right = 2 * inner + 1, 2 * inner + 2
            inner += 1
        nodes.append(Node(code, row, a, left, right))
    if len(nodes) != 2 * inner + 1:
        raise ValueError(f"invalid program: {inner} inner nodes need {2 * inner + 1} nodes in all, got {len(nodes)}")
    codes = {node.code for node in nodes}
    return Program(tuple(nodes), weights, mixes, Code.MAX in codes, Code.MIN in codes, Code.AVG in codes)


def from_program(program: Sequence[int], starts: Sequence[float] = ()) -> Tree:
    """The tree of a program; ``starts`` are the first values of its learned mixes (one half if not given)."""
    nodes = decode(tuple(program)).nodes
    trees: list[Tree] = [Max()] * len(nodes)
    for place in reversed(range(len(nodes))):
        node = nodes[place]
        left, right = trees[node.left], trees[node.right]
        match node.code:
            case Code.MAX:
                trees[place] = Max()
            case Code.MIN:
                trees[place] = Min()
            case Code.AVG:
                trees[place] = Avg()
            case Code.FILTER:
                trees[place] = Filter()
            case Code.GATE:
                trees[place] = Gate(left, right)
            case Code.MIX:
                trees[place] = Mix(left, right, starts[node.parameter] if starts else 0.5)
            case Code.FIXED:
                trees[place] = Mix(left, right, node.a, learn=False)
            case _:
                reject_code(node.code)
    return trees[0]


def _read_proportion(bits: int | None) -> float:
    if bits is None:
        raise ValueError("invalid program: a fixed mix without its proportion")
    try:
        a = float(struct.unpack("<d", struct.pack("<q", bits))[0])
    except struct.error:
        raise ValueError(f"invalid program: {bits} is not the bits of a double") from None
    if not 0 <= a <= 1:
        raise ValueError(f"invalid program: a fixed mix of {a!r}, wanted a number in [0, 1]")
    return a


def _double_to_bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])
