"""The cells of a table of errors, worked out by hand from runs that were never trained."""

import json

import pytest

from learnpool.lab.comparison.summary import RunScore
from learnpool.lab.experiments import beyond, depth, reproduce
from learnpool.lab.experiments.error_table import ErrorTable, Row
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.results import Results

SCALE = Scale("cpu", 3, ("cifar10",))
TABLE = ErrorTable(
    [
        Row("Baseline", "max", paper={"cifar10": (9.1, None)}),
        Row("Ours", "gated", paper={"cifar10": (7.9, 0.07)}, paper_parameters="18"),
        Row("Other", "half"),
    ],
    ("cifar10", "mnist"),
)


class FakeResult(dict):
    __getattr__ = dict.__getitem__


class FakeResults(Results):
    """Errors by pool and seed in place of finished runs."""

    def __init__(self, errors, tmp_path):
        super().__init__(tmp_path)
        self.errors = errors

    def _read(self, run):
        error = self.errors.get(run.pool, {}).get(run.seed)
        if error is None:
            return None
        parameters = {"max": 100, "gated": 118, "half": 100}[run.pool]
        result = FakeResult(test_error=error, images={"test": 10_000})
        return FakeResult(run=run, result=result, score=RunScore(error, 1.0, parameters - 100, parameters))

    def list_caveats(self, groups):
        return []


@pytest.fixture
def results(tmp_path):
    errors = {"max": {0: 20.0, 1: 22.0, 2: 24.0}, "gated": {0: 19.0, 1: 21.0, 2: 23.0}, "half": {1: 23.0}}
    return FakeResults(errors, tmp_path)


def test_every_cell(results):
    page = TABLE.build_page(SCALE, results)
    table = page.parts[0]
    assert list(table.heads) == [
        "CIFAR10", "paper, %", "ours, %", "difference to Baseline", "extra parameters", "seeds",
    ]  # fmt: skip
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts == [
        ["Baseline", "9.10", "22.00 ± 2.00", "baseline", "0", "3"],
        ["Ours", "7.90 ± 0.07", "21.00 ± 2.00", "−1.00", "18", "3"],
        ["Other", "–", "23.00", "1.00", "0", "1"],
    ]
    ours, other = table.rows[1:]
    assert ours[3].kind == "better"  # one point in every seed
    assert (ours[4].note, other[3].note, other[3].kind) == ("paper: 18", "one seed", "")
    assert "for the 1 row tested here" in table.caption
    verdicts = "better than Baseline: “Ours”; not to be judged by one seed against Baseline: “Other”"
    assert page.answer == [f"CIFAR10 (Baseline 22.00 % over 3 seeds): {verdicts}."]
    assert len(page.parts) == 2  # with its chart: the paper has nothing on MNIST to add


def test_a_chart_shows_differences_and_cuts_intervals_that_are_much_wider(tmp_path):
    errors = {"max": {0: 20.0, 1: 22.0}, "gated": {0: 19.0, 1: 23.0}}  # −1 and +1: an interval of ± 13 points
    chart = TABLE.build_page(SCALE, FakeResults(errors, tmp_path)).parts[1]
    assert "intervals that reach the edge go on" in chart.caption
    assert ">Ours<" in chart.svg
    assert ">Other<" not in chart.svg  # neither ours nor the paper's
    errors["gated"] = {0: 19.0, 1: 21.1}
    chart = TABLE.build_page(SCALE, FakeResults(errors, tmp_path)).parts[1]
    assert "edge" not in chart.caption


def test_the_papers_numbers_are_not_set_beside_another_network(results):
    scale = Scale("cpu", 3, ("cifar10",), {"net": "learnpool.nets:small"})
    page = TABLE.build_page(scale, results)
    assert "paper, %" not in page.parts[0].heads
    assert "paper" not in json.dumps([[cell.text + cell.note for cell in row] for row in page.parts[0].rows])


def test_pages_about_parameters_show_the_papers():
    assert [row.paper_parameters for row in depth.TABLE.rows] == ["0", "0.6M", "1.2M", "72"]


def test_what_the_paper_gives_as_a_difference_is_said_to_be_one(tmp_path):
    page = reproduce.find("filter").build_page(SCALE, Results(tmp_path))
    assert "the paper's text has no error of the filter, but 0.3 points less than the baseline's 9.10" in page.notes


def test_a_table_with_other_pools_has_groups(results):
    table = ErrorTable([*TABLE.rows, Row("GeM", "gem")], ("cifar10",))
    texts = [row[0].text for row in table.build_page(SCALE, results).parts[0].rows]
    assert texts == [
        "— Nothing to learn", "Baseline", "Other", "— The paper's", "Ours", "— Others that learn", "GeM",
    ]  # fmt: skip
    others = {"soft", "lse", "gem", "rank", "blur", "maxblur", "median", "lp2"}
    assert {row.pool for row in beyond.TABLE.rows} & others == others
