"""Table 4: all published rows, the paper's two, and ours."""

from ..paper import SETS, format_value, read_table
from ..runs.run import Run
from .error_table import ErrorTable, Row
from .experiment import LABELS, Cell, Page, Scale, Table
from .results import Results

TITLE = "Against everything published then"
SOURCE = "Table 4"
CLAIM = "Tree + gated pooling sets the state of the art of its day on all data sets but CIFAR100."

ROWS = {"Baseline": "max", "Tree + gated": "tree+gated"}
TABLE = ErrorTable([Row(label, pool, paper=read_table("table2")[pool]) for label, pool in ROWS.items()], SETS)


def plan(scale: Scale) -> list[Run]:
    """Baseline and tree + gated on every data set."""
    return TABLE.plan(scale)


def build_page(scale: Scale, results: Results) -> Page:
    """The published rows as they stand, then the paper's and ours."""
    page = TABLE.build_page(scale, results)
    rows = [
        [Cell(label), *(Cell(format_value(errors.get(data))) for data in SETS)]
        for label, errors in read_table("table4").items()
    ]
    rows += [
        [Cell(f"{row.label}, the paper's"), *(Cell(format_value(row.paper.get(data))) for data in SETS)]
        for row in TABLE.rows
    ]
    published = Table(["Published, %", *(LABELS[data] for data in SETS)], rows, "As the paper's Table 4 has them.")
    return Page(page.answer, [published, *page.parts], page.notes, page.data)
