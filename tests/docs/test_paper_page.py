"""docs/paper.md has every equation of the paper, and every test of one."""

import re

from pages import ROOT

PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
TESTS = (ROOT / "tests" / "ops" / "test_paper.py").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\(\d+\).*?) \|.*\| (`test_.*) \|$", PAGE, re.M)


def test_all_fifteen_equations_are_there():
    numbers = [int(number) for numbers, _ in ROWS for number in re.findall(r"\d+", numbers)]
    assert numbers == list(range(1, 16))


def test_every_equation_names_its_own_test():
    for numbers, tests in ROWS:
        for test in re.findall(r"`(.*?)`", tests):
            assert re.match(r"test_equation_(\d+)_", test)[1] in re.findall(r"\d+", numbers)


def test_every_test_of_an_equation_is_named():
    assert all(f"`{name}`" in PAGE for name in re.findall(r"^def (test_\w+)", TESTS, re.M))
