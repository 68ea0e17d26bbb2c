"""Table 4: all published rows, the paper's two, and ours."""

from ..paper import PAPER, SETS, format_value, read_value
from ..runs.run import Run
from .error_table import ErrorTable, Row
from .experiment import LABELS, Cell, Page, Scale, Table
from .results import Results

TITLE = "Against everything published then"
SOURCE = "Table 4"
CLAIM = "Tree + gated pooling sets the state of the art of its day on all data sets but CIFAR100."


def _make_row(label: str, pool: str) -> Row:
    entry = PAPER["table2"][pool]
    return Row(label, pool, paper={data: v for data in SETS if (v := read_value(entry.get(data)))})


TABLE = ErrorTable([_make_row("Baseline", "max"), _make_row("Tree + gated", "tree+gated")], SETS)


def plan(scale: Scale) -> list[Run]:
    """Baseline and tree + gated on every data set."""
    return TABLE.plan(scale)


def build_page(scale: Scale, results: Results) -> Page:
    """The published rows as they stand, then the paper's and ours."""
    page = TABLE.build_page(scale, results)
    rows = [
        [Cell(label), *(Cell(format_value(read_value(row.get(data)))) for data in SETS)]
        for label, row in PAPER["table4"].items()
    ]
    rows += [
        [Cell(f"{row.label}, the paper's"), *(Cell(format_value(row.paper.get(data))) for data in SETS)]
        for row in TABLE.rows
    ]
    published = Table(["Published, %", *(LABELS[data] for data in SETS)], rows, "As the paper's Table 4 has them.")
    return Page(page.answer, [published, *page.parts], page.notes, page.data)
