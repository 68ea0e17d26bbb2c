"""The GPU kernels compile for real GPUs, with none here, and keep everything in registers (``make test-triton``)."""

import os

import pytest

if os.environ.get("LEARNPOOL_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="triton is not installed")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)

import triton

import gpu_compilation
from gpu_compilation import DTYPES, LAYOUTS, MODES, TARGETS, TREES, WINDOWS, Case
from learnpool.ops.triton import calls
from learnpool.program import Kind, decode

CASES = [
    *(Case(pool, layout=layout, mode=mode) for pool in ("mixed", "tree2") for layout in LAYOUTS for mode in MODES),
    *(Case("gated", window, mode="backward") for window in WINDOWS),
    *(Case("gated", dtype=dtype, mode=mode) for dtype in list(DTYPES)[1:] for mode in MODES),
    *(Case("gated", mode=mode, shape=(32, 64, 112, 112)) for mode in MODES),
    *(Case("tree3", layout=layout, mode="backward") for layout in LAYOUTS),
    Case("tree4", mode="backward"),  # fewer lanes: its numbers would not fit in registers
    Case("gated", "3×3/1", "float16"),
    Case("gated", dtype="float16", layout="channels_last"),
    *(Case("stochastic", mode=mode) for mode in MODES),
    *(Case(pool, layout=layout, mode="backward") for pool in TREES for layout in LAYOUTS),
    *(Case(pool) for pool in TREES),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, vars(case).values())))
def test_nothing_is_spilled(case):
    for resources in gpu_compilation.compile_case(case, "sm_80"):
        assert resources.spills == 0
        assert 0 < resources.registers <= 128


@pytest.mark.parametrize("target", TARGETS)
def test_every_target(target):
    halves = Case("gated", dtype="float16"), Case("tree2", dtype="float16")
    for case in (*halves, Case("gated", dtype="bfloat16"), Case("gated", dtype="bfloat16", mode="backward")):
        assert all(resources.spills == 0 for resources in gpu_compilation.compile_case(case, target))


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("pool", TREES)
def test_every_kind_on_other_targets(pool, target):
    for resources in gpu_compilation.compile_case(Case(pool, dtype="bfloat16", mode="backward"), target):
        assert resources.spills == 0


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize("window", [(5, 2, 2), (5, 5, 0)], ids=str)  # through memory, and on the chip
def test_ranks_of_25_cells_compile(window, target, monkeypatch):
    """Cells, keys and ranks of a region are 75 numbers at once: more than 128 registers, but none is spilled."""
    monkeypatch.setitem(gpu_compilation.WINDOWS, "large", window)
    for mode in MODES:
        for resources in gpu_compilation.compile_case(Case("rank", "large", mode=mode), target):
            assert resources.spills == 0


def test_every_kind_is_compiled():
    assert {Kind.MAX, Kind.AVG, Kind.DOT} | {
        response.kind for tree in TREES.values() for response in decode(tree.fit((3, 3))).responses
    } == set(Kind)


def test_channels_last_is_read_and_written_128_bits_at_a_time():
    (forward,) = gpu_compilation.compile_case(Case("mixed", layout="channels_last"), "sm_80")
    assert forward.accesses["ld 128"] == 9
    assert forward.accesses["st 128"] >= 1


@pytest.mark.parametrize("case", [Case("tree2"), Case("tree2", mode="backward"), Case("stochastic", mode="backward")])
def test_multiplications_and_additions_are_fused_whatever_tritons_default_is(case, monkeypatch):
    monkeypatch.setattr(triton.knobs.language, "default_fp_fusion", False)
    with gpu_compilation.pretend("sm_80"):
        for step in case.plan():
            assert step.kernel.warmup(**step.arguments, grid=(step.programs,)).metadata.enable_fp_fusion


def test_sizes_that_are_no_constants_share_a_kernel(monkeypatch):
    monkeypatch.setattr(calls, "STATIC", 0)
    with gpu_compilation.pretend("sm_80"):
        kernels = []
        for size in (33, 35, 37):  # Triton itself tells apart what is divisible by 16
            (step,) = Case("mixed", shape=(16, 32, size, size)).plan()
            kernels.append(step.kernel.warmup(**step.arguments, grid=(step.programs,)))
    assert kernels[0] is not None
    assert kernels[0].hash == kernels[1].hash == kernels[2].hash


def test_windows_of_many_taps_and_regions_of_their_own_compile(monkeypatch):
    monkeypatch.setitem(gpu_compilation.WINDOWS, "7×7/2", (7, 2, 3))
    for mode in MODES:
        resources = gpu_compilation.compile_case(Case("gated", "7×7/2", mode=mode), "sm_80")
        assert len(resources) == (1 if mode == "forward" else 3)
        assert all(kernel.spills == 0 for kernel in resources)
