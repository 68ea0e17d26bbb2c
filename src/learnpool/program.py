"""A tree for kernels: a *program*, a short list of ints, and what it decodes to: *responses* and *nodes*.

A program has one int per node, breadth first from the root, and behind it the numbers that node carries (the bits of a
double, as one int each). A node's children follow in the order left, right, by, always behind it. So a walk from the
back evaluates the tree and a walk from the front differentiates it, without recursion or pointers.

Decoding separates what is read from a region from how it is combined. A *response* is a number read from a region: its
kind, and the row of ``weight`` or ``mix`` it is read with; equal responses are read once. A *node* is a response, or
combines others. Rows are numbered in the order of the nodes; constants lie behind the rows that learn, so that kernels
treat a fixed parameter like any other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from .leaves import READINGS as READINGS
from .leaves import Code as Code
from .leaves import Kind as Kind
from .nodes import MAX_NODES as MAX_NODES
from .nodes import OPEN, PROPORTION, decode_value
from .nodes import UNBOUNDED as UNBOUNDED
from .nodes import Domain as Domain

MAX_TAPS = 2**24


class Op(IntEnum):
    """What a node does."""

    LEAF = 0  # is a response
    MIX = 1  # a l + (1 − a) r with a = mix[row]
    GATE = 2  # s l + (1 − s) r with s = σ(response)
    GATE_BY = 3  # the same with s = σ(mix[row] · by + mix[bias])


class Response(NamedTuple):
    """A number read from every region."""

    kind: Kind
    weight: int = -1  # row, or −1
    scalar: int = -1  # row of mix, or −1


class Node(NamedTuple):
    """One node of a decoded program; −1 where it has no such part."""

    op: Op
    response: int = -1  # of a leaf, and of a gate's mask
    row: int = -1  # of mix: a, or g
    bias: int = -1  # of mix: b
    left: int = -1  # places of the children
    right: int = -1
    by: int = -1


class Program(NamedTuple):
    """A decoded, valid program."""

    nodes: tuple[Node, ...]
    responses: tuple[Response, ...]
    weights: int  # rows of weight that learn
    domains: tuple[Domain, ...]  # of the rows of mix that learn
    filters: tuple[tuple[float, ...], ...]  # constant rows of weight, behind those that learn
    scalars: tuple[float, ...]  # constant rows of mix, behind those that learn

    @property
    def mixes(self) -> int:
        """Rows of mix that learn."""
        return len(self.domains)

    @property
    def taps(self) -> int | None:
        """How many taps the constant rows have; None if there are none, 0 if one of them is open."""
        return min(map(len, self.filters)) if self.filters else None

    def get_kind(self, node: Node) -> Kind | None:
        """The kind of a leaf; None for other nodes."""
        return self.responses[node.response].kind if node.op == Op.LEAF else None

    def get_weight_row(self, node: Node) -> int:
        """The row of weight that a leaf or a gate learns; −1 if it has none."""
        row = self.responses[node.response].weight if node.response >= 0 else -1
        return row if row < self.weights else -1

    @property
    def masks(self) -> tuple[int, ...]:
        """The rows of weight that are masks of gates."""
        return tuple(self.responses[node.response].weight for node in self.nodes if node.op == Op.GATE)

    def find_rows(self, kind: Kind) -> tuple[int, ...]:
        """The rows of weight that learn and belong to leaves of this kind: filters (DOT) or ranks."""
        rows = (self.get_weight_row(node) for node in self.nodes if self.get_kind(node) == kind)
        return tuple(row for row in rows if row >= 0)


class _Decoder:
    """Reads a program from front to back."""

    def __init__(self, program: tuple[int, ...]) -> None:
        self.ints: Iterator[int] = iter(program)
        self.responses: dict[Response, int] = {}
        self.weights = 0
        self.domains: list[Domain] = []
        self.filters: dict[tuple[float, ...], int] = {}
        self.scalars: dict[float, int] = {}

    def read(self, what: str) -> int:
        number = next(self.ints, None)
        if number is None:
            raise ValueError(f"invalid program: it ends before {what}")
        return number

    def read_value(self, what: str, domain: Domain) -> float:
        bits = self.read(what)
        try:
            value = decode_value(bits)
        except struct.error:
            raise ValueError(f"invalid program: {bits} is not the bits of a double") from None
        if not domain[0] <= value <= domain[1] or math.isinf(value):
            raise ValueError(f"invalid program: {what} is {value!r}, wanted a number in {list(domain)}")
        return value

    def read_flag(self, what: str) -> bool:
        number = self.read(what)
        if number not in (0, 1):
            raise ValueError(f"invalid program: {what} is {number}, wanted 0 or 1")
        return number == 1

    def add_row(self, domain: Domain) -> int:
        self.domains.append(domain)
        return len(self.domains) - 1

    def add_response(self, response: Response) -> int:
        return self.responses.setdefault(response, len(self.responses))

    def add_weight(self) -> int:
        self.weights += 1
        return self.weights - 1

    def read_filter(self, n: int, place: int) -> int:
        """A constant row of n taps, as −2 − its number until all learned rows are known."""
        if not (0 < n <= MAX_TAPS or n == OPEN):
            raise ValueError(f"invalid program: node {place} has a filter of {n} taps")
        values = tuple(self.read_value(f"tap {k} of node {place}", UNBOUNDED) for k in range(n))
        return -2 - self.filters.setdefault(values, len(self.filters))

    def add_constant(self, value: float) -> int:
        return -2 - self.scalars.setdefault(value, len(self.scalars))

    def read_leaf(self, code: Code, place: int) -> int:
        leaf = READINGS[code]
        weight = scalar = -1
        if leaf.domain is not None:
            learn = self.read_flag(f"node {place}'s switch")
            what = f"the number of node {place}"
            scalar = self.add_row(leaf.domain) if learn else self.add_constant(self.read_value(what, leaf.domain))
        elif leaf.taps:
            n = 0 if code == Code.FILTER else self.read(f"the size of node {place}'s filter")
            learn = n == 0 and code in (Code.FILTER, Code.RANK)
            weight = self.add_weight() if learn else self.read_filter(n, place)
        return self.add_response(Response(leaf.kind, weight, scalar))


@lru_cache(maxsize=256)
def decode(program: tuple[int, ...]) -> Program:
    """Check a program and find its responses, and each node's children and rows; ValueError if it is not a tree."""
    decoder = _Decoder(program)
    nodes: list[Node] = []
    places = 1  # that the nodes so far have given to children, and the root's
    while (number := next(decoder.ints, None)) is not None:
        place = len(nodes)
        try:
            code = Code(number)
        except ValueError:
            raise ValueError(f"invalid program: node {place} has code {number}, known are 0 to {max(Code)}") from None
        if place >= places:
            raise ValueError(f"invalid program: node {place} has no parent")
        if place >= MAX_NODES:
            raise ValueError(f"invalid program: more than {MAX_NODES} nodes")
        if code in READINGS:
            nodes.append(Node(Op.LEAF, decoder.read_leaf(code, place)))
            continue
        node = _read_inner(decoder, code, place)._replace(left=places, right=places + 1)
        places += 2
        if node.op == Op.GATE_BY:
            node, places = node._replace(by=places), places + 1
        nodes.append(node)
    if len(nodes) != places or not nodes:
        raise ValueError(f"invalid program: its nodes need {places} places in all, got {len(nodes)}")
    if len({len(values) for values in decoder.filters if values}) > 1:
        raise ValueError("invalid program: its constant filters differ in size")
    weights, mixes = decoder.weights, len(decoder.domains)

    def settle(row: int, learned: int) -> int:
        return row if row >= -1 else learned - 2 - row

    responses = [
        r._replace(weight=settle(r.weight, weights), scalar=settle(r.scalar, mixes)) for r in decoder.responses
    ]
    nodes = [node._replace(row=settle(node.row, mixes)) for node in nodes]
    domains = tuple(decoder.domains)
    return Program(tuple(nodes), tuple(responses), weights, domains, tuple(decoder.filters), tuple(decoder.scalars))


def _read_inner(decoder: _Decoder, code: Code, place: int) -> Node:
    match code:
        case Code.MIX:
            return Node(Op.MIX, row=decoder.add_row(PROPORTION))
        case Code.FIXED:
            value = decoder.read_value(f"the proportion of node {place}", PROPORTION)
            return Node(Op.MIX, row=decoder.add_constant(value))
        case Code.GATE:
            return Node(Op.GATE, decoder.add_response(Response(Kind.DOT, decoder.add_weight())))
        case Code.GATE_BY:
            bias = decoder.read_flag(f"the bias of node {place}")
            g = decoder.add_row(UNBOUNDED)
            return Node(Op.GATE_BY, row=g, bias=decoder.add_row(UNBOUNDED) if bias else -1)
        case _:
            raise ValueError(f"unknown code {code!r} of a node")
