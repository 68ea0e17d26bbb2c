"""The benchmark of growth: every point is what its sweep says, and times are divided by the right work."""

import json
import math

import pytest

from learnpool.lab.bench import scaling
from learnpool.lab.bench.scaling import PointTimes, ScalingBenchmark

TINY = {"cells": 10_000, "kernel": 3, "levels": 2, "threads": 1, "rounds": 1}


def list_sweep(sweep, **settings):
    return [point for point in ScalingBenchmark(**TINY | settings).list_points() if point.sweep == sweep]


def test_inputs_grow_by_half_decades_and_no_further():
    points = list_sweep("cells", cells=10**8)
    wanted = [10 ** (4 + step / 2) for step in range(9)]
    assert [point.value for point in points] == pytest.approx(wanted, rel=0.05)
    assert [math.prod(point.benchmark.shapes[0]) for point in points] == [point.value for point in points]


def test_windows_tile_their_input():
    points = list_sweep("kernel size", kernel=70)
    assert [point.value for point in points] == list(range(2, 71))
    for point in points:
        (shape,), (kernel, stride, padding, _) = point.benchmark.shapes, point.benchmark.window
        assert (kernel, stride, padding) == (point.value, point.value, 0)
        assert shape[2] % kernel == shape[3] % kernel == 0


def test_threads_and_trees_go_to_their_largest():
    assert [point.benchmark.threads for point in list_sweep("threads", threads=3)] == [1, 2, 3]
    points = list_sweep("nodes", levels=7)
    assert [point.value for point in points] == [3, 7, 15, 31, 63, 127]
    assert [point.benchmark.pools for point in points] == [(f"tree{levels}",) for levels in range(2, 8)]


def test_work_is_what_the_time_should_grow_with():
    tree = list_sweep("nodes", levels=3)[-1]
    assert tree.work == 16 * 64 * 32 * 32 * 7
    threads = list_sweep("threads", threads=2)[-1]
    assert threads.work == 64 * 128 * 32 * 32 / 2
    kernel = list_sweep("kernel size")[-1]
    assert kernel.work == 114 * 8 * 48 * 48


def test_points_take_turns_and_costs_are_of_the_fastest_round(monkeypatch):
    points = ScalingBenchmark(**TINY).list_points()
    called, steps = [], []

    def time(point):
        called.append(point)
        return point.work * (3e-9, 5e-9, 2e-9)[(len(called) - 1) // len(points)]

    monkeypatch.setattr(scaling.Point, "time", time)
    times = scaling.measure(points, 3, lambda: steps.append(1))
    rounds = [called[k : k + len(points)] for k in range(0, len(called), len(points))]
    assert len(steps) == len(called) == 3 * len(points)
    assert all(sorted(map(points.index, turn)) == list(range(len(points))) for turn in rounds)
    assert rounds[0] != rounds[1]
    assert [point.cost for point in times] == pytest.approx([2] * len(points))
    assert [len(point.seconds) for point in times] == [3] * len(points)


def test_table_compares_with_the_cheapest_of_a_sweep():
    times = [PointTimes("cells", 10, (1,), [0.5], 2.0), PointTimes("cells", 20, (2,), [0.1], 4.0)]
    table = scaling.build_table([*times, PointTimes("nodes", 3, (1,), [1.0], 8.0)])
    assert list(table.columns[0].cells) == ["cells: ns per cell", "  10", "  20", "nodes: ns per cell and node", "  3"]
    assert list(table.columns[3].cells) == ["", "1.00", "2.00", "", "1.00"]


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_bench_writes_every_point(tmp_path, capsys, monkeypatch, layout):
    monkeypatch.setattr(scaling, "count_repeats", lambda call: 1)
    scaling.bench(ScalingBenchmark(**TINY, layout=layout), tmp_path)
    record = json.loads((tmp_path / "scaling.json").read_text(encoding="utf-8"))
    assert [(point["sweep"], point["value"]) for point in record["points"]] == [
        ("cells", 10240),
        ("kernel size", 2),
        ("kernel size", 3),
        ("threads", 1),
        ("nodes", 3),
    ]
    assert all(point["cost"] > 0 for point in record["points"])
    assert record["settings"]["layout"] == layout
    assert record["hardware"]
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    assert "scaling.json" in capsys.readouterr().out
