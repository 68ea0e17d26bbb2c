"""What all nodes of a tree have in common: how they flatten to a program, compare, print and pickle."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from numbers import Real
from typing import Any, ClassVar

MAX_NODES = 4096
OPEN = -1  # in place of a constant filter's size: its values depend on the window, and no kernel takes it

Domain = tuple[float, float]
PROPORTION: Domain = (0.0, 1.0)
UNBOUNDED: Domain = (-math.inf, math.inf)
LARGEST = 3.4028234663852886e38  # of float32, in which parameters and constants are kept


class Tree:
    """A pooling function. Trees are values: never changed, and equal when they compute the same from the same start."""

    __slots__ = ("_fitted", "_flat", "size")
    size: int
    _code: ClassVar[Any]

    def __init__(self, *children: Tree) -> None:
        for child in children:
            if not isinstance(child, Tree):
                raise TypeError(f"{type(self).__name__}: a child must be a tree such as Max(), got {child!r}")
        self.size = 1 + sum(child.size for child in children)
        self._flat: tuple[tuple[int, ...], tuple[float, ...]] | None = None
        self._fitted: dict[tuple[int, ...], tuple[int, ...]] | None = None
        if self.size > MAX_NODES:
            raise ValueError(f"{type(self).__name__}: a tree has at most {MAX_NODES} nodes, got {self.size}")

    def __fx_create_arg__(self, tracer: Any) -> Any:
        """As an argument in the graph of ``torch.fx.symbolic_trace``."""
        from .tree import from_program  # which imports this module

        return tracer.create_node("call_function", from_program, (self.program,), {})

    def _children(self) -> tuple[Tree, ...]:
        return ()

    def _encode(self, kernel: tuple[int, ...] | None) -> Iterable[int]:
        """The ints of this node; ``kernel`` is the window's, if it is known."""
        return (int(self._code),)

    def _starts(self) -> tuple[float, ...]:
        """Where each of this node's rows of ``mix`` begins."""
        return ()

    def _iter_nodes(self) -> Iterable[Tree]:
        queue: list[Tree] = [self]
        for node in queue:  # grows during the loop: breadth first
            queue.extend(node._children())
            yield node

    def _flatten(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        if self._flat is None:
            program = tuple(number for node in self._iter_nodes() for number in node._encode(None))
            self._flat = program, tuple(start for node in self._iter_nodes() for start in node._starts())
            if OPEN in program:
                self._fitted = {}
        return self._flat

    @property
    def program(self) -> tuple[int, ...]:
        """The tree as a list of ints; ``fit`` gives the one for a window."""
        return (self._flat or self._flatten())[0]

    def fit(self, kernel: tuple[int, ...]) -> tuple[int, ...]:
        """The program for windows of this kernel: values that depend on it (``Blur``) are filled in."""
        program = self.program
        if self._fitted is None:
            return program
        if kernel not in self._fitted:
            self._fitted[kernel] = tuple(number for node in self._iter_nodes() for number in node._encode(kernel))
        return self._fitted[kernel]

    def check_shape(self, name: str, kernel: tuple[int, ...]) -> None:
        """Raise ValueError if values were given in rows that are not the window's."""
        for node in self._iter_nodes():
            if (shape := getattr(node, "shape", kernel)) not in (None, kernel):
                wanted, actual = ("×".join(map(str, numbers)) for numbers in (kernel, shape))
                raise ValueError(f"{name}: values of {type(node).__name__} must be {wanted}, got {actual}")

    @property
    def starts(self) -> tuple[float, ...]:
        """Where each row of ``mix`` begins."""
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
            children: list[Tree | str] = [part for child in item._children() for part in (child, ", ")][:-1]
            if len(item._children()) == 3:
                children[-1:-1] = ["by="]
            options = item._options()
            todo += reversed([f"{type(item).__name__}(", *children, f"{options if children else options[2:]})"])
        return "".join(parts)

    def _options(self) -> str:
        """What ``repr`` says behind the children, each beginning with a comma."""
        return ""

    # A tree may be thousands of nodes deep: copying and pickling must not recurse into it.
    def __copy__(self) -> Tree:
        return self

    def __deepcopy__(self, memo: object) -> Tree:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        from .tree import from_program

        return from_program, self._flatten()


class Leaf(Tree):
    """A node without children."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()


def check_number(name: str, what: str, value: Any, domain: Domain) -> float:
    low, high = domain
    wanted = "a finite float32 number" if math.isinf(high) else f"a number in [{low:g}, {high:g}]"
    if isinstance(value, bool) or not isinstance(value, Real):  # numpy's too
        raise TypeError(f"{name}: {what} must be {wanted}, got {value!r}")
    if not max(low, -LARGEST) <= value <= min(high, LARGEST):  # type: ignore[operator]
        raise ValueError(f"{name}: {what} must be {wanted}, got {value!r}")
    return float(value)


def check_switch(name: str, what: str, value: Any, none: bool = False) -> None:
    if not isinstance(value, bool) and not (none and value is None):
        raise TypeError(f"{name}: {what} must be True or False, got {value!r}")


def flatten_values(name: str, values: Any) -> tuple[tuple[float, ...], tuple[int, ...] | None]:
    """Nested lists (or a tensor) of numbers, row by row, and how many rows and columns; None if it is one row."""
    values = values.tolist() if hasattr(values, "tolist") else values
    flat = list(values) if isinstance(values, (list, tuple)) else [values]
    shape = [len(flat)]
    while any(isinstance(value, (list, tuple)) for value in flat):
        if len({len(value) if isinstance(value, (list, tuple)) else -1 for value in flat}) > 1:
            raise ValueError(f"{name}: values must be rows of equal length, got {values!r}")
        shape.append(len(flat[0]))
        flat = [value for row in flat for value in row]
    if not flat:
        raise ValueError(f"{name}: values must have a number for each tap, got none")
    numbers = tuple(check_number(name, "each of values", value, UNBOUNDED) for value in flat)
    return numbers, tuple(shape) if len(shape) > 1 else None


def encode_value(value: float) -> int:
    """A double as the int a program carries."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def encode_values(values: tuple[float, ...]) -> tuple[int, ...]:
    """A constant filter as a program carries it: how many taps, and their values."""
    return len(values), *map(encode_value, values)


def decode_value(bits: int) -> float:
    """The double an int of a program stands for."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
