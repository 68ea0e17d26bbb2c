"""The tables of third-party networks are of the networks that ``make test-zoo`` converts."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read_names(table):
    tree = ast.parse((ROOT / "tools" / "zoo" / "collection.py").read_text())
    names = (node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.target.id == table)
    return list(ast.literal_eval(next(names).value))


def test_the_tables_have_a_row_for_every_network():
    pools, places, compiled = (ROOT / "docs" / "results" / "zoo.md").read_text().split("\n## ")
    names, more = read_names("NETWORKS"), read_names("SHRINKING")
    for text, wanted in ((pools, names), (places, names + more), (compiled, names + more)):
        assert re.findall(r"^\| (\S+/\S+) \|", text, re.MULTILINE) == wanted
        assert f"{len(wanted)} networks: " in text
    assert len(names) >= 40
    assert len(more) >= 30
