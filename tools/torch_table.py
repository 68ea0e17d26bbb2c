"""Writes docs/results/torch.md from a test run: ``pytest tests/ops/test_torch*.py --torch-table FILE``."""

from pathlib import Path

import pytest
import torch

HEAD = """# What PyTorch does with a layer, and whether it does it with ours

Written by a run of the tests, one line for each `row` in `tests/ops/test_torch*.py`:
`python -m pytest tests/ops/test_torch*.py --torch-table docs/results/torch.md`. torch {torch}, {date}.

| what | tests | result |
|---|---|---|
"""


class Table:
    """A pytest plugin: the outcome of every test that has a ``row``."""

    def __init__(self, path):
        self.path = Path(path)
        self.rows = {}  # name -> outcomes, in the order of the files
        self.names = {}  # test -> name

    @pytest.hookimpl(trylast=True)  # after -k and -m
    def pytest_collection_modifyitems(self, items):
        for item in items:
            for mark in item.iter_markers("row"):
                self.names[item.nodeid] = mark.args[0]
                self.rows.setdefault(mark.args[0], [])

    def pytest_runtest_logreport(self, report):
        name = self.names.get(report.nodeid)
        if name is not None and (report.when == "call" or report.outcome != "passed"):
            why = report.longrepr[2].removeprefix("Skipped: ") if report.outcome == "skipped" else ""
            self.rows[name].append((report.outcome, why))

    def pytest_sessionfinish(self):
        from learnpool.lab import hardware

        date = hardware.describe_machine()["date"][:10]
        self.path.write_text(
            HEAD.format(torch=torch.__version__, date=date) + "".join(map(self._format_line, self.rows))
        )

    def _format_line(self, name):
        outcomes = self.rows[name]
        skipped = [why for outcome, why in outcomes if outcome == "skipped"]
        failed = any(outcome == "failed" for outcome, _ in outcomes) or not outcomes
        return f"| {name} | {len(outcomes)} | {'fails' if failed else '; '.join(skipped) or 'works'} |\n"


def list_rows(modules):
    """The names of all rows in test modules, in their order."""
    names = []
    for module in modules:
        for name, test in vars(module).items():
            if name.startswith("test_") and callable(test):
                names += [mark.args[0] for mark in getattr(test, "pytestmark", []) if mark.name == "row"]
    return list(dict.fromkeys(names))
