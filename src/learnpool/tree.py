"""The grammar: every pool is a small tree, evaluated on each region **x** of N cells.

======================  ===================  ====================================
leaf                    a number             ``leaves.py`` lists them
``Mix(l, r)``           a l + (1 − a) r      a in [0, 1], learned or fixed
``Gate(l, r)``          s l + (1 − s) r      s = σ(ω · x), ω learned
``Gate(l, r, by=t)``    s l + (1 − s) r      s = σ(g t + b), g and b learned
======================  ===================  ====================================

For kernels a tree flattens to a *program*; ``program.py`` says how.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from . import leaves
from .leaves import *  # noqa: F403
from .leaves import READINGS, Blur, Code, Filter, Power, Rank
from .nodes import MAX_NODES, Tree, check_number, check_switch, decode_value, encode_value

__all__ = [*leaves.__all__, "Gate", "Mix", "Tree"]


class _Inner(Tree):
    """A node that combines two others."""

    __slots__ = ("left", "right")

    def __init__(self, left: Tree, right: Tree, *more: Tree) -> None:
        super().__init__(left, right, *more)
        self.left, self.right = left, right

    def _children(self) -> tuple[Tree, ...]:
        return self.left, self.right


class Mix(_Inner):
    """``a * left + (1 - a) * right``: one learned proportion, or a fixed one with ``learn=False``."""

    __slots__ = ("a", "learn")
    _code = Code.MIX

    def __init__(self, left: Tree, right: Tree, a: float = 0.5, learn: bool = True) -> None:
        super().__init__(left, right)
        self.a = check_number("Mix", "a", a, (0, 1))
        check_switch("Mix", "learn", learn)
        self.learn = learn

    def _encode(self, kernel: tuple[int, ...] | None) -> Iterable[int]:
        return (Code.MIX,) if self.learn else (Code.FIXED, encode_value(self.a))

    def _starts(self) -> tuple[float, ...]:
        return (self.a,) if self.learn else ()

    def _options(self) -> str:
        return ("" if self.a == 0.5 else f", a={self.a!r}") + ("" if self.learn else ", learn=False")


class Gate(_Inner):
    """``s * left + (1 - s) * right`` with ``s = sigmoid(ω · x)``: the region itself decides.

    With ``by``, another tree decides instead of the raw cells: ``s = sigmoid(g * by + b)``, with a learned gain ``g``
    that starts at 1 and, with ``bias=True``, a learned ``b`` that starts at 0.
    """

    __slots__ = ("bias", "by")

    def __init__(self, left: Tree, right: Tree, by: Tree | None = None, bias: bool = False) -> None:
        if by is not None and not isinstance(by, Tree):
            raise TypeError(f"Gate: by must be a tree such as Std(), got {by!r}")
        super().__init__(left, right, *(() if by is None else (by,)))
        check_switch("Gate", "bias", bias)
        if bias and by is None:
            raise ValueError("Gate: bias=True needs a tree that decides, by=…; a mask ω has no bias")
        self.by, self.bias = by, bias

    def _children(self) -> tuple[Tree, ...]:
        return (self.left, self.right) if self.by is None else (self.left, self.right, self.by)

    def _encode(self, kernel: tuple[int, ...] | None) -> Iterable[int]:
        return (Code.GATE,) if self.by is None else (Code.GATE_BY, int(self.bias))

    def _starts(self) -> tuple[float, ...]:
        return () if self.by is None else (1.0, 0.0)[: 1 + self.bias]

    def _options(self) -> str:
        return ", bias=True" if self.bias else ""


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


def from_program(program: Sequence[int], starts: Sequence[float] = ()) -> Tree:
    """The tree of a program; ``starts`` are the first values of its rows of ``mix`` (their usual ones if not given)."""
    ints, rows = iter(program), iter(starts)
    makers = [_read_node(Code(number), ints, rows) for number in ints]
    trees: deque[Tree] = deque()
    for count, make in reversed(makers):  # its children are the first of those built and not yet used
        trees.append(make(*[trees.popleft() for _ in range(count)][::-1]))
    return trees[0]


def _read_node(code: Code, ints: Iterator[int], rows: Iterator[float]) -> tuple[int, Callable[..., Tree]]:
    """How many children a node has, and what makes it of them."""
    match code:
        case Code.MIX:
            return 2, partial(Mix, a=next(rows, 0.5))
        case Code.FIXED:
            return 2, partial(Mix, a=decode_value(next(ints)), learn=False)
        case Code.GATE:
            return 2, Gate
        case Code.GATE_BY:
            bias = next(ints) == 1
            for _ in range(1 + bias):
                next(rows, None)  # a gate's gain and bias always start alike
            return 3, partial(Gate, bias=bias)
        case Code.RANK | Code.CONSTANT_FILTER | Code.BLUR:
            if (n := next(ints)) <= 0:
                return 0, Blur if code == Code.BLUR else Rank
            values = [decode_value(next(ints)) for _ in range(n)]
            fixed = partial(Filter if code == Code.CONSTANT_FILTER else Rank, values, learn=False)
            return 0, partial(Blur, values) if code == Code.BLUR else fixed
        case _ if READINGS[code].domain is None:
            return 0, _LEAVES[code]
        case _:
            learn = next(ints) == 1
            theta = next(rows, None) if learn else decode_value(next(ints))
            return 0, partial(_LEAVES[code], *() if theta is None else (theta,), learn=learn)


_LEAVES: dict[Code, Callable[..., Tree]] = {
    Code.ABS_POWER: partial(Power, absolute=True),
    **{leaf._code: leaf for leaf in (getattr(leaves, name) for name in leaves.__all__)},
}
