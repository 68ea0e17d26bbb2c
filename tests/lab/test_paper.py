"""The paper's numbers, down the columns of its tables."""

import pytest

from learnpool.lab.paper import PAPER, SETS, find_error, format_value, read_table

POOLS = (*read_table("table1"), "tree2+max", "tree3+max", "tree2+gated", "tree3+gated", "conv")
COLUMNS = {
    "mnist": "0.39 0.38 0.34 0.33 0.30 0.29 0.35 0.37 0.31",
    "cifar10": "9.10 8.50 8.11 8.09 8.05 7.90 8.25 8.22 7.62 8.77",
    "cifar10+": "7.32 7.30 6.78 6.62 6.58 6.36 6.88 6.67 6.05",
    "cifar100": "34.21 33.48 33.53 33.51 33.35 33.22 33.53 33.13 32.37",
    "svhn": "1.91 1.84 1.76 1.64 1.74 1.80 1.70 1.69",
}


@pytest.mark.parametrize("data", SETS)
def test_columns_of_tables_1_and_2_and_the_text(data):
    name, augmented = data.removesuffix("+"), data.endswith("+")
    column = {pool: found for pool in POOLS if (found := find_error(name, pool, augmented=augmented))}
    assert " ".join(f"{error:.2f}" for error, _ in column.values()) == COLUMNS[data]
    # As the paper says of every data set, each of its pools beats max.
    assert all(error < column["max"][0] for pool, (error, _) in column.items() if pool != "max")


SPREADS = {
    "mnist": "0.04 0.012 0.018 0.012 0.016",
    "cifar10": "0.05 0.10 0.19 0.16 0.07",
    "cifar10+": "0.07 0.17 0.21 0.30 0.28",
    "cifar100": "0.27 0.16 0.11 0.19 0.16",
}


@pytest.mark.parametrize("data", SPREADS)
def test_spreads_of_table_1(data):
    shown = [format_value(errors[data]).partition(" ± ")[2] for errors in read_table("table1").values()]
    assert " ".join(shown[1:]) == SPREADS[data]
    assert shown[0] == ""


PUBLISHED = {  # Table 4, down its columns
    "mnist": "0.53 0.47 0.45 – – 0.57 0.51 0.47 0.39 – – – 0.31",
    "cifar10": "– 15.13 11.68 11.35 – 9.41 – 10.41 9.69 9.59 9.22 9.08 8.69",
    "cifar10+": "– – 9.38 9.39 – 9.32 8.39 8.81 7.97 7.51 – 7.25 7.09",
    "cifar100": "– 42.51 38.57 38.14 36.85 – 35.04 35.68 34.57 34.40 33.78 33.71 31.75",
    "svhn": "– 2.80 2.47 2.39 – 1.94 2.42 2.35 1.92 – – – 1.77",
}


@pytest.mark.parametrize("data", PUBLISHED)
def test_columns_of_table_4(data):
    shown = [format_value(errors.get(data)) for errors in read_table("table4").values()]
    assert " ".join(shown) == PUBLISHED[data]


def test_table_5_and_timing():
    columns = {
        "top-1 s-view": [43.1, 41.4, None, 28.68, 28.02],
        "top-5 s-view": [19.9, 18.7, 10.07, 9.53, 9.16],
        "top-1 m-view": [40.7, 39.3, None, 27.81, 27.6],
        "top-5 m-view": [18.2, 17.3, 9.15, 9.09, 8.93],
    }
    assert {name: [row.get(name) for row in PAPER["table5"].values()] for name in columns} == columns
    assert [row["ms"] for row in PAPER["timing"].values()] == [3.90, 4.10, 4.16, 4.25, 4.46]


def test_values_and_spreads():
    assert find_error("cifar10", "gated") == (7.90, 0.07)
    assert find_error("cifar10", "gated", augmented=True) == (6.36, 0.28)
    assert find_error("mnist", "max", augmented=True) == (0.39, None)
    assert find_error("svhn", "mixed:region_channel") == (1.64, None)
    assert find_error("cifar100", "tree2+gated") == (32.37, None)
    assert find_error("cifar10", "tree2+gated") is None  # 3 levels there


def test_where_the_paper_has_nothing():
    assert find_error("cifar10", "tree3") is find_error("digits", "max") is None
    assert find_error("cifar10", "max", net="my:net") is None


def test_deeper_networks():
    errors = [find_error("cifar10", "max", extra_convs=k) for k in range(4)]
    assert errors == [(9.10, None), (9.08, None), (9.17, None), None]
    assert find_error("cifar10", "gated", extra_convs=1) is None
    assert find_error("cifar10", "max", augmented=True, extra_convs=1) is None
    assert find_error("mnist", "max", extra_convs=1) is None
    assert find_error("cifar10", "max", extra_convs=2) == (9.17, None)


def test_only_known_data_sets_are_named():
    for table in ("table1", "table1_text", "table2", "table4"):
        for row in PAPER[table].values():
            assert set(row) <= {*SETS, "label"}


def test_a_value_with_and_without_its_spread():
    assert format_value((9.17, None)) == "9.17"
    assert format_value((6.62, 0.21)) == "6.62 ± 0.21"
    assert format_value(None) == "–"
