"""Tables of docs/results/gpu.md, from what ``gpu_measurements.py`` wrote: resources, bytes, least times."""

import json
import math
from collections.abc import Iterator
from typing import NamedTuple

from cpu_tables import RESULTS, iter_table
from learnpool.ops.window import format_size

LAUNCH = 3e-6  # seconds a kernel takes to start and to end
REACHED = 0.85  # the part of the peak bandwidth that a copy reaches
# FlagGems, pull request 5159: max_pool2d_with_indices_backward on an H20, float32, by the size of grad: PyTorch, Triton
PUBLISHED = {
    (16, 64, 28, 28): (0.0979, 0.0682),
    (32, 128, 14, 14): (0.1001, 0.0680),
    (4, 3, 112, 112): (0.0277, 0.0214),
}


class Gpu(NamedTuple):
    """A GPU by its data sheet."""

    name: str
    target: str
    multiprocessors: int
    clock: float
    bandwidth: float


A100 = Gpu("A100 40 GB", "sm_80", 108, 1.41e9, 1555e9)
H100 = Gpu("H100 SXM", "sm_90", 132, 1.755e9, 3350e9)
H20 = Gpu("H20", "sm_90", 78, 1.755e9, 4000e9)


def read(name: str) -> list[dict]:
    return json.loads((RESULTS / f"gpu-{name}.json").read_text(encoding="utf-8"))


def format_compilation_table() -> Iterator[str]:
    """Registers, spills, occupancy and shared memory of all kernels, by target, pool and direction."""
    groups: dict[tuple[str, str, str], list[dict]] = {}
    for record in read("compilation"):
        case = record["case"]
        groups.setdefault((record["target"], case["pool"], case["mode"]), []).extend(record["kernels"])
    kernels = [kernel for group in groups.values() for kernel in group]
    spilled = [kernel["spills"] for kernel in kernels if kernel["spills"]]
    yield f"{len(kernels)} kernels; {len(spilled)} of them spill" + (f", at most {max(spilled)}." if spilled else ".")
    yield ""
    heads = "target|pool||kernels|registers|occupancy|shared, bytes at most|spills at most"
    rows = []
    for names, members in sorted(groups.items(), key=lambda item: item[0][0]):
        registers = [kernel["registers"] for kernel in members]
        occupancy = [kernel["occupancy"] for kernel in members]
        most = [max(kernel[name] for kernel in members) for name in ("shared", "spills")]
        ranges = f"{min(registers)} … {max(registers)}", f"{min(occupancy):.0%} … {max(occupancy):.0%}"
        rows.append([*names, len(members), *ranges, *most])
    yield from iter_table(heads, rows)


def format_loads_table() -> Iterator[str]:
    """How wide global memory is read: every pool for one target, window and dtype."""
    rows = []
    for record in read("compilation"):
        case = record["case"]
        if (record["target"], case["window"], case["dtype"]) != ("sm_80", "3×3/2", "float32"):
            continue
        for kernel in record["kernels"]:
            loads = {name.removeprefix("ld "): n for name, n in kernel["accesses"].items() if name.startswith("ld ")}
            widths = ", ".join(f"{n} of {bits}" for bits, n in sorted(loads.items(), key=lambda item: -int(item[0])))
            rows.append([case["pool"], case["layout"], case["mode"], kernel["warps"], kernel["registers"], widths])
    yield from iter_table(["pool", "layout", "", "warps", "registers", "loads, bits"], rows)


def format_traffic_table() -> Iterator[str]:
    """Bytes moved over the least possible, and over what PyTorch's max pooling has to move."""
    heads = "shape|pool|dtype|layout||moved, MB|over the least|over max pooling's least"
    rows = []
    for record in read("traffic"):
        size = 4 if record["dtype"] == "float32" else 2
        theirs = count_max_pool_bytes(record["shape"], size)
        cells = [format_size(record["shape"]), record["pool"], record["dtype"], record["layout"], record["mode"]]
        moved, least = record["moved"], record["least"]
        rows.append([*cells, f"{moved / 1e6:.1f}", f"{moved / least:.3f}", f"{moved / theirs:.2f}"])
    yield from iter_table(heads, rows)


def count_max_pool_bytes(shape: list[int], size: int) -> int:
    """The least PyTorch's max pooling, 3×3, stride 2, padding 1, moves in either direction: x, y, int64 indices."""
    x = math.prod(shape)
    y = math.prod(shape[:2]) * math.prod(-(-n // 2) for n in shape[2:])
    return (x + y) * size + 8 * y


def predict_time(gpu: Gpu, moved: int, instructions: int = 0) -> tuple[float, str]:
    """Seconds of a kernel at least, and what it waits for: memory, or four instructions a cycle and multiprocessor."""
    memory = moved / (REACHED * gpu.bandwidth)
    issue = instructions / (4 * gpu.multiprocessors * gpu.clock)
    return LAUNCH + max(memory, issue), "memory" if memory >= issue else "instructions"


def format_model_table() -> Iterator[str]:
    """Least times of contiguous float32, beside those of max pooling by the same model."""
    bytes_moved = {
        (record["pool"], record["mode"], tuple(record["shape"])): record["moved"]
        for record in read("traffic")
        if (record["dtype"], record["layout"]) == ("float32", "nchw")
    }
    counted = {
        (record["target"], record["pool"], record["mode"], tuple(record["shape"])): record["instructions"]
        * record["warps"]
        * record["programs"]
        for record in read("instructions")
    }
    rows = []
    for gpu in (A100, H100):
        for (pool, mode, shape), moved in bytes_moved.items():
            if (gpu.target, pool, mode, shape) not in counted:
                continue
            seconds, bound = predict_time(gpu, moved, counted[gpu.target, pool, mode, shape])
            theirs, _ = predict_time(gpu, count_max_pool_bytes(list(shape), 4))
            times = f"{1e6 * seconds:.0f}", bound, f"{1e6 * theirs:.0f}"
            rows.append([gpu.name, format_size(list(shape)), pool, mode, *times])
    yield from iter_table("GPU|shape|pool||µs at least|bound by|max pooling, µs at least", rows)


def format_check_table() -> Iterator[str]:
    """The model on PyTorch's own max pooling, against published times on an H20."""
    heads = "gradient of|model, µs at least|PyTorch, µs|a Triton kernel, µs|PyTorch over the model"
    rows = []
    for grad, (torch_ms, triton_ms) in PUBLISHED.items():
        shape = [*grad[:2], *(2 * n for n in grad[2:])]
        seconds, _ = predict_time(H20, count_max_pool_bytes(shape, 4))
        times = 1e6 * seconds, 1e3 * torch_ms, 1e3 * triton_ms, torch_ms / 1e3 / seconds
        rows.append([format_size(shape), *(f"{time:.1f}" for time in times)])
    yield from iter_table(heads, rows)
