"""Compile the GPU kernels for GPUs that are not here, and say what the compiler made of them.

Launches are planned on meta tensors by the same code as in real calls; only the driver is replaced, by one that names a
GPU and has none. Registers and spills are read from NVIDIA's binary by its own tool, and from AMD's assembler text.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from learnpool import parse
from learnpool.ops.triton import launch, stochastic_launch
from learnpool.ops.triton.calls import Launch
from learnpool.ops.window import Window
from learnpool.program import decode
from learnpool.tree import Avg, Blur, Gate, LogSumExp, Max, Median, Min, Power, Rank, Soft, Std

TARGETS = {
    "sm_75": GPUTarget("cuda", 75, 32),
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
THREADS = {"sm_75": 1024, "sm_80": 2048, "sm_90": 2048, "sm_100": 2048}  # of a multiprocessor
SHARED = {"sm_75": 64, "sm_80": 164, "sm_90": 228, "sm_100": 228}  # KiB of it
POOLS = ("half", "mixed", "gated", "filter", "tree2", "tree3")
TREES = {  # a kind of response each, and a gate that another tree decides
    "min": Min(),
    "std": Std(),
    "soft": Soft(),
    "lse": LogSumExp(),
    "power": Power(),
    "abs_power": Power(absolute=True),
    "rank": Rank(),
    "median": Median(),
    "blur": Blur(),
    "gate_by": Gate(Max(), Avg(), by=Max(), bias=True),
}
WINDOWS = {"3×3/2": (3, 2, 1), "2×2/2": (2, 2, 0), "3×3/1": (3, 1, 1)}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
MODES = ("forward", "backward")
SHAPE = (64, 128, 32, 32)


@dataclass(frozen=True)
class Case:
    """One kernel to compile."""

    pool: str
    window: str = "3×3/2"
    dtype: str = "float32"
    layout: str = "nchw"
    mode: str = "forward"
    shape: tuple[int, ...] = SHAPE

    def plan(self) -> list[Launch]:
        """The launches of a call with these arguments."""
        window = Window.of("gpu", len(self.shape) - 2, *WINDOWS[self.window])
        x = torch.empty(self.shape, dtype=DTYPES[self.dtype], device="meta").to(memory_format=LAYOUTS[self.layout])
        size = (*self.shape[:2], *window.output_size(self.shape[2:]))
        y = torch.empty(size, dtype=x.dtype, device="meta").to(memory_format=LAYOUTS[self.layout])
        if self.pool == "stochastic":
            return self.plan_picks(x, y, window)
        tree = TREES.get(self.pool) or parse(self.pool).part().pool
        program, grid = tree.fit(window.kernel), (1,) * window.dims
        decoded = decode(program)
        weight = torch.empty((decoded.weights, 1, *grid, *window.kernel), device="meta")
        mix = torch.empty((decoded.mixes, 1, *grid), device="meta")
        if self.mode == "forward":
            return [launch.plan_forward(x, weight, mix, y, program, window)]
        mask = (True, bool(decoded.weights), bool(decoded.mixes))
        return launch.plan_backward(y, x, weight, mix, torch.empty_like(x), program, window, mask).launches

    def plan_picks(self, x: torch.Tensor, y: torch.Tensor, window: Window) -> list[Launch]:
        """The launches of stochastic pooling in training."""
        seed = torch.empty(len(x), dtype=torch.int64, device="meta")
        if self.mode == "forward":
            return [stochastic_launch.plan_forward(x, seed, y, window)]
        return stochastic_launch.plan_backward(y, x, seed, torch.empty_like(x), window)


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes; ``accesses`` counts its loads and stores of global memory by their bits."""

    registers: int
    spills: int  # bytes of a thread, or registers of AMD's
    shared: int  # bytes of a program
    warps: int
    occupancy: float | None  # resident warps over the most there can be
    accesses: dict[str, int]
    instructions: int = 0  # of a warp, all of the kernel: there are no loops in it


class NamedDriver:
    """A driver that says which GPU there is, and has none."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def pretend(target: str) -> Iterator[None]:
    """Inside, Triton compiles for ``target``; nothing can be launched."""
    old = driver._active
    driver.set_active(NamedDriver(TARGETS[target]))
    try:
        yield
    finally:
        driver._active = old
        for kernel in (*vars(launch.kernels).values(), *vars(stochastic_launch.picks).values()):
            if isinstance(kernel, triton.JITFunction):
                kernel.device_caches.clear()  # they are kept by device, and every target is device 0


def compile_case(case: Case, target: str) -> list[Resources]:
    """What each launch of the case takes on the target."""
    with pretend(target):
        return [measure(step, target) for step in case.plan()]


def measure(step: Launch, target: str) -> Resources:
    """Compile one launch."""
    kernel = step.kernel.warmup(**step.arguments, grid=(step.programs,))
    shared, warps = kernel.metadata.shared, kernel.metadata.num_warps
    if target.startswith("gfx"):
        text = kernel.asm["amdgcn"]
        registers, spills = (_find(text, rf"\.{name}:\s+(\d+)") for name in ("vgpr_count", "vgpr_spill_count"))
        occupancy = _find(text, r"; Occupancy: (\d+)") / 8  # waves of a SIMD, of at most eight
        accesses = Counter(re.findall(r"\b(?:global|buffer|flat)_(?:load|store)_\w+", text))
        return Resources(registers, spills, shared, warps, occupancy, dict(accesses))
    usage = read_cubin(kernel.asm["cubin"])
    registers, spills = usage["REG"], usage["STACK"] + usage["LOCAL"]
    widths = Counter(
        f"{kind} {int(bits) * (int(vector[1:]) if vector else 1)}"
        for kind, vector, bits in re.findall(r"\b(ld|st)\.global\S*?(?:\.(v\d))?\.b(\d+)", kernel.asm["ptx"])
    )
    occupancy = find_occupancy(target, registers, shared, warps)
    instructions = count_instructions(kernel.asm["cubin"])
    return Resources(registers, spills, shared, warps, occupancy, dict(widths), instructions)


def read_cubin(binary: bytes) -> dict[str, int]:
    """``REG``, ``STACK``, ``SHARED`` and ``LOCAL`` of a kernel."""
    text = run_tool("-res-usage", binary)
    return {name: _find(text, rf"\b{name}:(\d+)") for name in ("REG", "STACK", "SHARED", "LOCAL")}


def count_instructions(binary: bytes) -> int:
    """Machine instructions of a kernel, without the padding behind its end."""
    lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+([^;]+);", run_tool("-sass", binary))
    return sum(not line.startswith("NOP") for line in lines)


def run_tool(option: str, binary: bytes) -> str:
    """What cuobjdump, which comes with triton, says of a binary."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout


def find_occupancy(target: str, registers: int, shared: int, warps: int) -> float:
    """Resident warps over the most a multiprocessor has: registers come in eights, shared memory in KiB plus one."""
    threads = THREADS[target]
    limits = (
        65536 // (-(-registers // 8) * 8 * 32 * warps),
        threads // (32 * warps),
        (SHARED[target] * 1024) // (-(-shared // 1024) * 1024 + 1024),
        16 if target == "sm_75" else 32,
    )
    return min(limits) * warps * 32 / threads


def _find(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"no {pattern!r} in the compiler's output")
    return int(found[1])


def list_cases(target: str, every: bool) -> list[Case]:
    """Every common pool, window, dtype, layout, forward and backward; or a choice that compiles in minutes."""
    full = itertools.product(POOLS, WINDOWS, DTYPES, LAYOUTS, MODES)
    if every:
        return [Case(*fields) for fields in full]
    first, gated = ("3×3/2", "float32"), "gated"
    return [
        Case(pool, window, dtype, layout, mode)
        for pool, window, dtype, layout, mode in full
        if (target == "sm_80" and ((window, dtype) == first or (pool == gated and layout == "nchw")))
        or (pool == gated and (window, dtype) == first)
    ]
