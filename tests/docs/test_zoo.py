"""The table of third-party networks is of the networks that ``make test-zoo`` converts."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_has_a_row_for_every_network():
    tree = ast.parse((ROOT / "tools" / "zoo" / "collection.py").read_text())
    networks = next(node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.target.id == "NETWORKS")
    names = list(ast.literal_eval(networks.value))
    text = (ROOT / "docs" / "results" / "zoo.md").read_text()
    assert re.findall(r"^\| (\S+/\S+) \|", text, re.MULTILINE) == names
    assert len(names) >= 40
    assert f"{len(names)} networks: " in text
