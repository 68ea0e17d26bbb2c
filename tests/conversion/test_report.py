"""The report shows its table wherever it is looked at."""

from learnpool import convert
from learnpool.conversion.report import Report, Row
from networks import modules


def test_a_terminal_and_print_show_the_table():
    report = convert(modules(), "gated")
    assert repr(report) == str(report)
    assert repr(report).splitlines()[1].split()[-2:] == ["gated", "9"]


def test_a_notebook_shows_the_same_cells():
    report = convert(modules(), "mixed", start="same")
    html = report._repr_html_()
    for row in report.rows:
        assert all(f">{cell}</td>" in html for cell in (row.name, row.was, row.window))
    assert html.count("<tr>") == 1 + len(report.rows)
    assert ">same as before</th>" in html
    assert f"<p>{report.summary}</p>" in html


def test_names_are_escaped():
    report = Report((Row("<b>", "A&B", "", "left", reason="\x1b[2J"),), ("1 < 2",))
    assert ">&lt;b&gt;</td>" in report._repr_html_()
    assert "<p>1 &lt; 2</p>" in report._repr_html_()
    assert "\x1b" not in repr(report)


def test_kinds_and_costs_are_shown_where_they_say_something():
    def heads(*rows):
        return repr(Report(rows)).splitlines()[0]

    plain = Row("1", "nn.MaxPool2d", "2×2", "replaced", "mixed", 1, kind="max", multiply_adds_before=0, multiply_adds=0)
    whole = Row("2", "nn.AdaptiveAvgPool2d", "the whole map", "left", kind="global")
    gated = Row("3", "nn.MaxPool2d", "2×2", "replaced", "gated", 4, kind="max", multiply_adds_before=0, multiply_adds=9)
    assert "kind" not in heads(plain, gated)
    assert "kind" in heads(plain, whole)
    assert "multiply-adds" not in heads(plain, whole)
    assert "multiply-adds" in heads(plain, gated)
