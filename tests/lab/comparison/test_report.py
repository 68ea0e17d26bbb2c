"""The report: complete, self-contained, safe with hostile names, and right in a real browser, light and dark."""

import html
import json
import re
import shutil

import pytest

from browser import render
from learnpool.formatting import format_range
from learnpool.lab.comparison import charts, report
from learnpool.lab.comparison.comparison import read_comparison
from learnpool.lab.runs.run import RunError

SECTIONS = ("answer", "results", "curves", "learned", "cost", "reproduce", "environment")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"&'{{ 7 * 7 }}$x$"


@pytest.fixture(scope="module")
def written(comparison, tmp_path_factory):
    out, runs = comparison
    path = tmp_path_factory.mktemp("report") / "report.html"
    compared = report.write([out / run.id for run in runs], path)
    return path, compared


def visible(text):
    """What a page says, without its marks."""
    text = re.sub(r"<(style|svg).*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def test_the_answer_comes_first_and_is_that_of_the_numbers(written):
    path, compared = written
    text = visible(path.read_text())
    places = [text.index(sentence) for sentence in compared.answer]
    assert places == sorted(places)
    assert places[0] < text.index("Results") < text.index("Learning curves") < text.index("What the pools learned")


def test_every_number_of_the_table(written):
    path, compared = written
    text = visible(path.read_text())
    for line in compared.pools[1:]:
        difference, test = line.difference, line.difference.test
        row = f"{line.pool} {line.mean:.2f} ± {line.spread:.2f} {difference.mean:.2f} ".replace("-", "−")
        assert row + format_range(test.low, test.high) in text
        assert f"{line.pool} {line.pool_parameters:,} {line.extra_parameters:+,} {line.seconds:.2f}" in text
    assert "max 0 – " in text


def test_nothing_is_fetched_and_nothing_runs(written):
    text = written[0].read_text()
    assert "<script" not in text
    linked = re.findall(r'(?:href|src)="([^"#][^"]*)"', text)
    assert linked
    assert all(link.startswith("data:") for link in linked)
    assert "url(http" not in text
    assert "@import" not in text


def test_pictures_take_the_colours_of_the_page(written):
    text = written[0].read_text()
    svgs = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    masks = [svg for svg in svgs if re.search(r'aria-label="(gate|filter|mix)\d of ', svg)]
    assert len(svgs) == 4 + 2 + 2 + 3  # charts; two proportions of mixed; two masks of gated; three of the tree
    assert len(masks) == 7
    for svg in svgs:
        used = set(re.findall(r"#[0-9a-f]{6}", re.sub(r'href="[^"]*"', "", svg)))
        assert used <= {charts.ON_CELLS, "#ffffff"}, used
        assert "var(--" in svg
    for name in charts.PAGE.values():
        assert text.count(f"{name}:") == 2  # a value on light and one on dark


def test_masks_are_those_of_the_checkpoint(comparison, written):
    import learnpool

    out, runs = comparison
    gated = next(run for run in runs if run.pool == "gated")
    mask = learnpool.explain(learnpool.load(out / gated.id))["pool1"].gates[0].weight.flatten().tolist()
    drawn = re.search(r'<svg role="img" aria-label="gate0 of pool1".*?</svg>', written[0].read_text(), re.DOTALL)[0]
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert texts[:9] == [f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−") for value in mask]


def test_it_reads_directories_only_and_names_each_start(comparison, written, tmp_path):
    out, runs = comparison
    for run in runs:
        shutil.copytree(out / run.id, tmp_path / run.id)
    again = report.render(read_comparison([tmp_path / run.id for run in runs]))
    assert again == written[0].read_text()
    assert f"{len(runs) + 1} times, " in visible(again)  # one was interrupted


def test_the_papers_value_stands_beside_ours(written, comparison, monkeypatch, tmp_path):
    assert "paper, %" not in visible(written[0].read_text())
    out, runs = comparison
    paths = pretend(out, runs, tmp_path, lambda run: run | {"data": "cifar10", "pad": 4})
    monkeypatch.setattr(report, "describe_learned", lambda c: [])  # the weights are those of digits
    text = visible(report.render(read_comparison(paths)))
    assert "paper, %" in text
    assert "None of these pools has anything to learn." in text
    assert re.search(r"mixed \d+\.\d+ ± \d+\.\d+ 6\.62 ± 0\.21 ", text)
    assert re.search(r"tree2:channel\+max \d+\.\d+ ± \d+\.\d+ – ", text)
    assert "learnpool data get cifar10" in text


def test_lines_of_chance_and_paper_where_they_fit(comparison):
    out, runs = comparison
    compared = read_comparison([out / run.id for run in runs])
    assert ">chance<" in charts.draw_errors(compared, {})  # this network guesses
    assert ">chance<" in charts.draw_curves(
        compared, "validation_error", "validation error, %", 0.1, compared.chance_error
    )
    assert ">chance<" not in charts.draw_curves(compared, "train_loss", "training loss", 1e-6)
    near, far = (charts.draw_errors(compared, {"gated": error}) for error in (compared.pools[0].mean, 7.9))
    assert near != far == charts.draw_errors(compared, {})  # a diamond, or nothing
    assert charts.fits_axis(92, [8, 9]) is charts.fits_axis(0.4, [8, 9]) is False
    assert charts.fits_axis(7.3, [8, 9]) is charts.fits_axis(90, [60, 85]) is True


def test_the_command_names_the_directories(comparison, monkeypatch, tmp_path):
    out, runs = comparison
    paths = pretend(out, runs, tmp_path, lambda run: run | {"data": "cifar10"})

    def elsewhere(record):
        record["starts"][-1] |= {"out": "runs/mine", "data_dir": "my data"}
        return record

    for path in paths:
        rewritten(path / "env.json", elsewhere)
    fetch, compare = report.format_commands(read_comparison(paths))[1:]
    assert fetch == "learnpool data get cifar10 --data-dir 'my data'"
    assert compare.endswith("--data-dir 'my data' --out runs/mine")


def pretend(out, runs, where, change, classes=None, cpu=None):
    """The directories of other runs with the same results."""
    paths = []
    for run in runs:
        path = where / f"copy-{run.pool}-{run.seed}"
        shutil.copytree(out / run.id, path)
        (path / "run.json").write_text(json.dumps(change(json.loads((path / "run.json").read_text()))))
        last = json.loads((path / "last.json").read_text())
        last |= {} if classes is None else {"classes": classes}
        (path / "last.json").write_text(json.dumps({k: v for k, v in last.items() if k not in ("run", "digest")}))
        if cpu is not None:
            record = json.loads((path / "env.json").read_text())
            record["starts"][0]["hardware"]["cpu"] = cpu
            del record["digest"]
            (path / "env.json").write_text(json.dumps(record))
        paths.append(path)
    return paths


@pytest.fixture
def hostile(comparison, tmp_path):
    out, runs = comparison
    names = [f"{HOSTILE}{k}" for k in range(10)]
    paths = pretend(out, runs, tmp_path, lambda run: run | {"data": HOSTILE}, classes=names, cpu=HOSTILE)
    report.write(paths, tmp_path / "report.html")
    return tmp_path / "report.html"


def test_every_string_is_escaped(hostile):
    text = hostile.read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert "onerror=alert(2)>" not in text
    assert HOSTILE in visible(text)
    assert visible(text).count("{{ 7 * 7 }}") >= 12  # title, heading, command, data, processor, and ten classes
    assert 'aria-label="a &lt;b&gt; &quot;c&quot;' in charts.render_svg(charts.Figure(), 'a <b> "c"')


def test_control_characters_in_names_are_text(comparison, tmp_path):
    out, runs = comparison
    names = [f"\x1b[31m{k}" for k in range(10)]
    paths = pretend(out, runs, tmp_path, lambda run: run | {"data": "photos\x1b]0;title\x07"}, classes=names)
    text = report.render(read_comparison(paths))
    assert not {"\x1b", "\x07"} & set(text)
    assert "\\x1b[31m7" in visible(text)
    assert "photos\\x1b]0;title\\x07" in visible(text)


def test_what_is_no_comparison(comparison, tmp_path):
    out, runs = comparison
    with pytest.raises(RunError, match="is not the directory of a run that is done"):
        report.write([out / run.id for run in runs] + [tmp_path], tmp_path / "report.html")
    paths = pretend(out, runs[:1], tmp_path, lambda run: run | {"epochs": 3})
    with pytest.raises(RunError, match="^compare: the runs differ in more than pool and seed$"):
        report.write([*paths, *(out / run.id for run in runs)], tmp_path / "report.html")
    with pytest.raises(RunError, match=r"^compare: tree2:channel\+max wants the seeds of max, \[0, 1\], got \[0\]$"):
        report.write([out / run.id for run in runs[:-1]], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def rewritten(path, change):
    record = {name: value for name, value in json.loads(path.read_text()).items() if name != "digest"}
    path.write_text(json.dumps(change(record)))


def test_runs_on_other_images_are_not_compared(comparison, tmp_path):
    out, runs = comparison
    paths = pretend(out, runs, tmp_path, lambda run: run)
    rewritten(paths[3] / "last.json", lambda state: state | {"data": "other"})
    with pytest.raises(RunError, match=r"^compare: .*copy-half-1 was trained on other images than .*copy-max-0; give"):
        read_comparison(paths)


def test_runs_of_several_versions_are_mentioned(comparison, tmp_path):
    """An update between two runs may be what is seen; it is no reason to throw them away."""
    out, runs = comparison
    paths = pretend(out, runs, tmp_path, lambda run: run)
    before = read_comparison(paths).answer

    def older(record):
        record["starts"][0]["versions"]["learnpool"] = "0.0.9"
        return record

    rewritten(paths[3] / "env.json", older)
    *same, last = read_comparison(paths).answer
    assert tuple(same) == before
    assert last.startswith("Not all else was equal: these runs are of learnpool 0.0.9 with torch ")
    assert last in visible(report.render(read_comparison(paths)))


MEASURED = """<script>
document.body.dataset.wide = document.documentElement.scrollWidth;
document.body.dataset.page = getComputedStyle(document.body).backgroundColor;
document.body.dataset.ink = getComputedStyle(document.querySelector("svg text")).fill;
const drawn = [...document.querySelectorAll("section, svg")];
document.body.dataset.flat = drawn.filter(e => !e.getBoundingClientRect().height).length;
</script>"""


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_in_a_real_browser(width, dark, written, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(written[0].read_text().replace("</body>", MEASURED + "</body>"))
    dom, console = render(page, tmp_path / "profile", width=width, dark=dark)
    assert console == []
    for section in SECTIONS:
        assert f'<section id="{section}"' in dom
    seen = dict(re.findall(r'data-(\w+)="([^"]*)"', dom))
    assert int(seen["wide"]) <= max(width, 500)  # nothing sticks out; some browsers are never narrower than 500
    assert seen["flat"] == "0"
    assert seen["page"] == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
    assert seen["ink"] in (
        ("rgb(240, 246, 252)", "rgb(145, 152, 161)") if dark else ("rgb(31, 35, 40)", "rgb(89, 99, 110)")
    )


@pytest.mark.slow
def test_hostile_names_do_nothing_in_a_real_browser(hostile, tmp_path):
    dom, console = render(hostile, tmp_path / "profile")
    assert console == []
    assert "<img" not in dom
    assert "<script" not in dom
    assert HOSTILE in visible(dom)


@pytest.mark.slow
def test_the_browser_would_have_complained(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<body><script>nowhere()</script><img src=http://nowhere.invalid/x.png>")
    _, console = render(page, tmp_path / "profile")
    assert any("nowhere is not defined" in line for line in console)
