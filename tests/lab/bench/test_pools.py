"""The benchmark of pools: contestants do what they claim, turns are interleaved, and the numbers are those measured."""

import json
import statistics
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from learnpool import make_pool
from learnpool.lab import hardware
from learnpool.lab.bench import contestants, pools
from learnpool.lab.bench.by_hand import FORMULAS, HandWrittenGate, write_by_hand
from learnpool.lab.bench.contestants import (
    BOTH,
    FLOAT32,
    FORWARD,
    Contestant,
    ReferenceLayer,
    build_contestants,
)
from learnpool.lab.bench.options import parse_options
from learnpool.lab.bench.report import ContestantSummary, Timing, draw_chart, summarize
from learnpool.names import split_names
from learnpool.ops.window import Window


def tiny(shapes="2x3x8x8", window="3,2,1", names="mixed,gated", layout="nchw", dtype="float32", share=None, **options):
    return parse_options(shapes, window, names, layout, dtype, share, rounds=options.pop("rounds", 2), **options)


def test_commas_within_a_tree_do_not_split():
    assert split_names("gated, Gate(Filter, Mix(Max, Avg, a=0.3)),tree2") == [
        "gated",
        "Gate(Filter, Mix(Max, Avg, a=0.3))",
        "tree2",
    ]


def test_options_become_a_benchmark():
    made = tiny("2x3x9,2x3x9x9,2x3x9x9", "5,3,0,2", "gated,gated,Gate(Filter(),Max)", share="channel", threads=2)
    assert made.shapes == ((2, 3, 9), (2, 3, 9, 9))
    assert made.window == (5, 3, 0, 2)
    assert made.pools == ("gated:channel", "Gate(Filter, Max):channel")
    assert str(made) == "window 5, stride 3, padding 0, dilation 2; nchw, float32, threads: 2"
    assert tiny().threads == torch.get_num_threads()


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 10), (2, 3, 10, 7), (2, 3, 4, 6, 5)], ids=str)
@pytest.mark.parametrize("window", [(3, 2, 1), (3, 2, 0), (2, 2, 0), (3, 1, 1)], ids=str)
def test_the_pool_by_hand_is_the_gated_pool(window, shape, ceil_mode):
    dims = len(shape) - 2
    by_hand = HandWrittenGate(Window.of("test", dims, *window, ceil_mode=ceil_mode), torch.float64)
    ours = make_pool("gated", *window, dims=dims, ceil_mode=ceil_mode, dtype=torch.float64)
    with torch.no_grad():
        ours.weight.copy_(by_hand.mask)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y, expected = by_hand(x), ours(x)
    grad = torch.randn_like(y)
    assert_close(y, expected)
    theirs = torch.autograd.grad(y, [x, by_hand.mask], grad)
    mine = torch.autograd.grad(expected, [x, ours.weight], grad)
    assert_close(theirs[0], mine[0])
    assert_close(theirs[1], mine[1].reshape(by_hand.mask.shape))


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_by_hand_are_the_pools(name):
    window = Window.of("test", 2, 3, 2, 0 if name in ("rank", "blur") else 1)  # these two have zeros outside
    by_hand, ours = (
        write_by_hand(name, window, torch.float64),
        make_pool(name, 3, 2, window.padding, dtype=torch.float64),
    )
    x = torch.rand(2, 3, 9, 8, dtype=torch.float64, requires_grad=True)
    y, expected = by_hand(x), ours(x)
    assert_close(y, expected)
    grad = torch.randn_like(y)
    theirs, mine = ([x, *layer.parameters()] for layer in (by_hand, ours))
    pairs = zip(torch.autograd.grad(y, theirs, grad), torch.autograd.grad(expected, mine, grad), strict=True)
    for one, other in pairs:
        assert_close(one, other.reshape(one.shape))


def test_every_pool_with_a_formula_meets_it():
    names = [c.name for c in build_contestants(tiny(names="soft,median,gem"), (2, 3, 8, 8))]
    assert names[2:] == ["soft", "median", "gem", "gated by hand", "soft by hand", "gem by hand", "copy", "clone"]


def test_everyone_takes_part():
    names = [c.name for c in build_contestants(tiny(), (2, 3, 8, 8))]
    assert names == ["max", "avg", "mixed", "gated", "gated by hand", "copy", "clone"]
    names = [c.name for c in build_contestants(tiny(window="3,2,1,2"), (2, 3, 8, 8))]
    assert names == ["max", "mixed", "gated", "copy", "clone"]  # nn.AvgPool2d has no dilation


def test_the_reference_takes_part_and_is_the_same_function():
    made = {c.name: c for c in build_contestants(tiny(names="mixed,tree2:channel", reference=True), (2, 3, 8, 8))}
    assert [name for name in made if "reference" in name] == ["mixed, reference", "tree2:channel, reference"]
    for name in ("mixed", "tree2:channel"):
        ours, plain = made[name], made[f"{name}, reference"]
        assert_close(plain.calls[FORWARD](), ours.calls[FORWARD]())
    layer, x = make_pool("gated", 3, 2), torch.randn(2, 3, 8, 8, requires_grad=True)
    grads = [torch.autograd.grad(net(x).square().sum(), [x, layer.weight]) for net in (layer, ReferenceLayer(layer))]
    assert_close(*grads)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", ["2x3x8", "2x3x8x8", "2x3x4x4x4"])
def test_calls_return_output_and_gradients_of_the_asked_kind(shape, dtype):
    sizes = tuple(map(int, shape.split("x")))
    made = build_contestants(tiny(shape, dtype=dtype, share="region_channel"), sizes)
    names = {"max", "mixed:region_channel", "gated:region_channel"}
    assert names <= {c.name for c in made}
    floats = {c.name for c in made if c.name.endswith(FLOAT32)}
    assert floats == (set() if dtype == "float32" else {name + FLOAT32 for name in names - {"max"}})
    out = (*sizes[:2], *(n // 2 for n in sizes[2:]))
    for c in made[:-2]:
        y, (dx, *rest) = c.calls[FORWARD](), c.calls[BOTH]()
        wanted = torch.float32 if c.name in floats else getattr(torch, dtype)
        assert (y.shape, y.dtype, y.requires_grad) == (out, wanted, False), c.name
        assert (dx.shape, dx.dtype) == (sizes, y.dtype)
        assert [g.numel() for g in rest] == {
            "mixed:region_channel": [y[0].numel()],
            "gated:region_channel": [y[0].numel() * 3 ** (len(sizes) - 2)],
            "gated by hand": [3 ** (len(sizes) - 2)],
        }.get(c.name.removesuffix(FLOAT32), [])


@pytest.mark.parametrize(("shape", "form"), [((2, 3, 8, 8), "channels_last"), ((2, 3, 4, 4, 4), "channels_last_3d")])
def test_layout_is_the_asked_one(shape, form):
    for c in build_contestants(tiny("x".join(map(str, shape)), layout="channels_last"), shape):
        if len(shape) == 5 and c.name in ("avg", "gated by hand"):
            continue  # nn.AvgPool3d does not keep it
        y = c.calls[FORWARD]()
        assert y.is_contiguous(memory_format=getattr(torch, form)), c.name
        assert not y.is_contiguous(), c.name


def test_copies_are_copies():
    *_, copy, clone = build_contestants(tiny(), (2, 3, 8, 8))
    assert_close(copy.calls[FORWARD](), clone.calls[FORWARD]())
    assert copy.calls[FORWARD]().data_ptr() == copy.calls[FORWARD]().data_ptr()  # memory that exists
    first, second = clone.calls[BOTH]()
    assert first.data_ptr() != second.data_ptr()
    assert first.shape == (2, 3, 8, 8)


def test_what_is_kept_for_backward():
    kept = {c.name: c.kept for c in build_contestants(tiny(names="mixed,gated,tree3"), (2, 3, 8, 8))}
    # Max pooling keeps an int64 for each of a quarter as many outputs: 8 / 4 / 4 of x's bytes; ours keep nothing.
    assert (kept["max"], kept["avg"], kept["copy"]) == (0.5, 0, None)
    assert (kept["mixed"], kept["gated"], kept["tree3"]) == (0, 0, 0)
    # By hand: max's indices, s, 1 - s and both sides of the blend.
    assert kept["gated by hand"] == pytest.approx(0.5 + 4 * 0.25)


def test_too_large_a_shape_is_one_line():
    with pytest.raises(OSError, match="^not enough memory for the shape 9999999×9999999×99×99$"):
        build_contestants(tiny("9999999x9999999x99x99"), (9999999, 9999999, 99, 99))


def test_turns_are_interleaved_and_every_time_is_kept_where_it_belongs(monkeypatch):
    called = []

    def time_call(call, calls=1, device="cpu"):
        called.append(call)
        return identity[call] if call in identity else identity.setdefault(call, 1.0 + len(identity))

    identity = {}
    monkeypatch.setattr(pools, "time_call", time_call)
    rounds, steps = 3, []
    timings = pools.measure(tiny("2x3x8x8,2x3x8", rounds=rounds), lambda: steps.append(1))
    turns = 7 * 2
    assert len(steps) == 2 * rounds
    assert len(called) == 2 * turns * (1 + rounds)  # once to find out how often to repeat
    for start in (0, turns * (1 + rounds)):
        orders = [called[start + turns * k : start + turns * (k + 1)] for k in range(1, 1 + rounds)]
        assert all(set(order) == set(orders[0]) and len(set(order)) == turns for order in orders)
        assert orders[0] != orders[1] != orders[2]
    assert [t.seconds for t in timings] == [[float(k)] * rounds for k in range(1, 1 + 2 * turns)]
    assert [(t.name, t.mode, t.shape) for t in timings[:2]] == [("max", m, (2, 3, 8, 8)) for m in (BOTH, FORWARD)]
    assert (timings[-1].name, timings[-1].shape) == ("clone", (2, 3, 8))


def test_the_first_call_of_a_turn_is_not_timed(monkeypatch):
    seen = []
    made = Contestant("max", {BOTH: lambda: seen.append("call")})
    monkeypatch.setattr(pools, "build_contestants", lambda benchmark, shape: [made])
    monkeypatch.setattr(pools, "time_call", lambda call, calls=1, device="cpu": seen.append("clock") or 1.0)
    pools.measure(tiny(rounds=2), lambda: None)
    assert seen == ["clock", "call", "clock", "call", "clock"]


def test_short_calls_are_repeated(monkeypatch):
    calls = []
    assert pools.time_call(lambda: calls.append(1), 5) > 0
    assert len(calls) == 5
    monkeypatch.setattr(pools, "time_call", lambda call, calls=1, device="cpu": 1e-6 * calls)
    assert all(t.calls > 1 for t in pools.measure(tiny(rounds=1), lambda: None) if t.name == "copy")


def test_ratios_by_hand():
    shapes = (1, 1, 4), (1, 1, 8)
    seconds = {"max": ([4, 2, 6], [10, 20, 30]), "gated": ([1, 1, 9], [80, 40, 45])}
    timings = [
        Timing(name, mode, shape, 1, times, 0.5 if name == "max" else 0.0)
        for mode in (BOTH, FORWARD)
        for name, of_name in seconds.items()
        for shape, times in zip(shapes, of_name, strict=True)
    ]
    summaries = summarize(timings)
    assert [(summary.name, summary.mode) for summary in summaries] == [
        (n, m) for m in (BOTH, FORWARD) for n in ("max", "gated")
    ]
    # Medians 1 / 4 and 45 / 20, √(0.25 · 2.25) = 0.75; best 1 / 2 and 40 / 10, √(0.5 · 4) = √2.
    assert summaries[1].ratios == {"1×1×4": 0.25, "1×1×8": 2.25}
    assert (summaries[1].mean, summaries[1].best) == pytest.approx((0.75, 2**0.5))
    assert (summaries[0].mean, summaries[0].best, summaries[0].kept) == pytest.approx((1, 1, 0.5))
    assert summaries[2].kept is None


def test_chart_has_every_number_and_cuts_what_runs_off():
    ratios = {"max": 1.0, "avg": 0.6, "tree3": 0.4, "gated by hand": 4.4, "copy": 0.1}
    summaries = [
        ContestantSummary(name, mode, {"1×1×4": r}, r, r, None)
        for mode in (BOTH, FORWARD)
        for name, r in ratios.items()
    ]
    drawn = draw_chart(summaries, "measured somewhere")
    assert "measured somewhere" in [text.get_text() for text in drawn.texts]
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["avg", "tree3", "gated by hand"]
    for axes in drawn.axes:
        assert [text.get_text() for text in axes.texts] == ["0.60", "0.40", "4.40 ▸", "max", "copy"]
        assert [bar.get_width() for bar in axes.patches] == [0.6, 0.4, 4.4]
        assert [summary.get_xdata()[0] for summary in axes.lines] == [1, 0.1]
        assert axes.get_xlim() == (0, pytest.approx(1.2))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "new" / "directory"
    before = torch.get_num_threads()
    asked = tiny("2x3x8x8,2x3x9", names="gated,Gate(Filter,Mix(Max,Avg))", threads=before + 1)
    pools.bench(asked, out)
    assert torch.get_num_threads() == before  # as the caller had it
    return out, json.loads((out / "pools.json").read_text(encoding="utf-8"))


def test_files_are_complete(measured):
    out, record = measured
    assert sorted(path.name for path in out.iterdir()) == ["pools.json", "pools.png"]
    assert (out / "pools.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert record["settings"]["shapes"] == [[2, 3, 8, 8], [2, 3, 9]]
    assert record["settings"]["threads"] == torch.get_num_threads() + 1
    assert record["versions"]["torch"] == torch.__version__
    assert record["hardware"]["cpu"]
    assert record["kernel"].keys() == {"live", "detail"}
    assert record["date"].endswith("+00:00")


def test_record_holds_every_timing_and_agrees_with_its_summary(measured):
    _, record = measured
    assert len(record["timings"]) == 7 * 2 * 2
    assert all(len(t["seconds"]) == 2 and min(t["seconds"]) > 0 for t in record["timings"])
    assert all(t["median"] == statistics.median(t["seconds"]) for t in record["timings"])
    keys = ("name", "mode", "calls", "seconds", "kept")
    timings = [Timing(shape=tuple(t["shape"]), **{key: t[key] for key in keys}) for t in record["timings"]]
    assert [vars(summary) for summary in summarize(timings)] == record["summary"]


def test_tables_are_printed(monkeypatch, capsys, tmp_path):
    def measure(benchmark, advance):
        return [
            Timing(name, mode, shape, 1, [k * 1e-3, k * 1e-3], 0.5 if name == "max" else None)
            for k, name in ((4, "max"), (1, "gated"), (2, "copy"), (8, "gated by hand"))
            for mode in (BOTH, FORWARD)
            for shape in benchmark.shapes
        ]

    monkeypatch.setattr(pools, "measure", measure)
    monkeypatch.setattr(hardware.os, "getloadavg", lambda: (99.0, 0, 0))
    monkeypatch.setenv("COLUMNS", "110")
    pools.bench(tiny(), tmp_path)
    text = " ".join(capsys.readouterr().out.split())
    for row in ("max │ 4.00 1.000 │ 1.000 │ 1.000 │ 0.50 │", "gated │ 1.00 0.250 │ 0.250 │ 0.250 │", "2×3×8×8"):
        assert row in text
    assert "window 3, stride 2, padding 1; nchw, float32, threads: 1, median of 2 rounds" in text
    assert "The machine was busy before the start (load 99.0" in text


def test_a_stopped_measurement_leaves_no_result(monkeypatch, tmp_path):
    def stopped(benchmark, advance):
        raise KeyboardInterrupt

    monkeypatch.setattr(pools, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        pools.bench(tiny(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_compiled_pool_takes_part():
    made = build_contestants(tiny("2x3x8x8", compiled=True), (2, 3, 8, 8))
    assert [c.name for c in made][-4:] == ["gated by hand", "gated by hand, compiled", "copy", "clone"]
    assert made[-3].calls[FORWARD]().shape == (2, 3, 4, 4)


def test_a_compiler_that_fails_is_one_line(monkeypatch):
    def broken(module, dynamic):
        def fail(x):
            raise RuntimeError("InvalidCxxCompiler: none found\nand many summaries more")

        module.forward = fail
        return module

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(OSError, match="^torch.compile fails here: InvalidCxxCompiler: none found$"):
        build_contestants(tiny(compiled=True), (2, 3, 8, 8))
    assert contestants.COMPILED not in [c.name for c in build_contestants(tiny(), (2, 3, 8, 8))]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line_that_names_the_chart(learnpool, tmp_path):
    (tmp_path / "pools.png.part").symlink_to("/dev/full")
    words = ["--shapes", "1x1x4x4", "--rounds", "1", "--pools", "half", "--out", str(tmp_path)]
    status, _, error = learnpool("bench", "pools", *words)
    assert (status, error) == (2, f"learnpool: No space left on device: {tmp_path / 'pools.png'}\n")
    assert list(tmp_path.iterdir()) == []
