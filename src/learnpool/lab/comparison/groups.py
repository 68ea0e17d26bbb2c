"""Pools in groups, so that a long table can be read: fixed ones, the paper's, and others that learn."""

from __future__ import annotations

from collections.abc import Iterable

from ...names import Part, parse
from ...nets.dsn import STRIDED
from ...nodes import Tree
from ...program import Kind, Op, decode

FIXED, PAPER, OTHER, CONVOLUTION = "Nothing to learn", "The paper's", "Others that learn", "No pool"
PAPER_KINDS = {Kind.MAX, Kind.AVG, Kind.DOT}


def find_group(name: str) -> str:
    """The group of a pool's name; of two parts the later in the order above counts: ``gem+max`` learns."""
    if name == STRIDED:
        return CONVOLUTION
    groups = [_find_part_group(part) for part in parse(name).parts]
    return max(groups, key=(FIXED, PAPER, OTHER).index)


def _find_part_group(part: Part) -> str:
    """The paper's trees have maxima, means and filters under mixes and gates that learn."""
    if not isinstance(part.pool, Tree):
        return FIXED
    program = decode(part.pool.program)
    if not program.weights and not program.mixes:
        return FIXED
    kinds = {response.kind for response in program.responses}
    gates_by = any(node.op == Op.GATE_BY for node in program.nodes)
    return OTHER if gates_by or not kinds <= PAPER_KINDS else PAPER


def group_names(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by group; the first name's group comes first, since it is the baseline's."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(find_group(name), []).append(name)
    return groups
