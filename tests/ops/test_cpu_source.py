"""The C++ source beside the Python one: the same geometry and grammar, and headers that stand on their own."""

import ctypes
import itertools
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths

from cases import TREES
from learnpool import Avg, Blur, Filter, Gate, LogSumExp, Max, Min, Mix, Power, Rank, Soft
from learnpool.ops import cpu
from learnpool.ops.window import Window, get_memory_format
from learnpool.program import decode
from learnpool.tree import make_tree

FOLDER = Path(cpu.__file__).parent
COMPILE = ["-std=c++17", "-fsyntax-only", "-Werror=switch", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
COMPILE += [f"-I{path}" for path in include_paths()]


@pytest.fixture(scope="module")
def library(kernel):
    return ctypes.CDLL(str(cpu.find_library()))


def test_output_size_is_pythons(library):
    library.learnpool_output_size.restype = ctypes.c_int64
    cases = 0
    for k, s, d, n, ceil_mode in itertools.product(range(1, 7), range(1, 6), range(1, 5), range(1, 20), (False, True)):
        for p in range(k // 2 + 1):
            (ours,) = Window((k,), (s,), (p,), (d,), ceil_mode).output_size((n,))
            theirs = library.learnpool_output_size(*map(ctypes.c_int64, (n, k, s, p, d)), ceil_mode)
            assert theirs == ours, (n, k, s, p, d, ceil_mode)
            cases += 1
    assert cases > 10_000


def test_layout_is_pythons(library):
    library.learnpool_is_channels_last.restype = ctypes.c_bool
    generator, seen = random.Random(0), {True: 0, False: 0}
    for _ in range(20_000):
        dims = generator.choice((1, 2, 3))
        ndim = dims + generator.choice((1, 2, 2, 2))
        shape = [generator.choice((1, 1, 2, 3)) for _ in range(ndim)]
        if generator.random() < 0.02:
            shape[0] = 0
        order = [0, *range(2, ndim), 1] if generator.random() < 0.5 else generator.sample(range(ndim), ndim)
        stride, step = [0] * ndim, 1
        for axis in reversed(order):  # axes by distance in memory, with a gap now and then
            stride[axis] = step if generator.random() < 0.95 else 0
            step *= max(shape[axis], 1) * generator.choice((1, 1, 1, 2))
        x = torch.empty_strided(shape, stride, device="meta")
        numbers = [(ctypes.c_int64 * ndim)(*values) for values in (shape, stride)]
        theirs = library.learnpool_is_channels_last(ctypes.c_int64(dims), ctypes.c_int64(ndim), *numbers)
        assert theirs == (get_memory_format(x, dims) != torch.contiguous_format), (shape, stride)
        seen[theirs] += 1
    assert min(seen.values()) > 1_000


LEAVES = [Max, Min, Avg, Filter, Soft, LogSumExp, Power, Rank]
LEAVES += [lambda: Soft(0.5, learn=False), lambda: Power(2.0, learn=False, absolute=True), lambda: Blur([1, 2, 1, 3])]
LEAVES += [lambda: Filter([1, 2, 1, 3], learn=False), lambda: Rank([0, 1, 0, 0], learn=False)]


def grow_tree(generator, depth):
    """A random tree."""
    if depth == 0 or generator.random() < 0.3:
        return generator.choice(LEAVES)()
    left, right = grow_tree(generator, depth - 1), grow_tree(generator, depth - 1)
    if generator.random() < 0.4:
        by = grow_tree(generator, depth - 1) if generator.random() < 0.5 else None
        return Gate(left, right, by=by, bias=by is not None and generator.random() < 0.5)
    return Mix(left, right, a=generator.random(), learn=generator.random() < 0.5)


def decode_in_library(library, program):
    """Responses and nodes as lists of ints; None if the library refuses the program."""
    out, responses = (ctypes.c_int64 * (20 * len(program) + 20))(), ctypes.c_int64()
    numbers = (ctypes.c_int64 * len(program))(*program)
    nodes = library.learnpool_decode(numbers, ctypes.c_int64(len(program)), out, ctypes.byref(responses))
    if nodes < 0:
        return None
    numbers, split = iter(out), responses.value
    rows = [[next(numbers) for _ in range(3 if i < split else 7)] for i in range(split + nodes)]
    return rows[:split], rows[split:]


def test_programs_are_decoded_as_in_python(library):
    library.learnpool_decode.restype = ctypes.c_int64
    generator = random.Random(0)
    programs = [tree.program for tree in (*TREES, make_tree(9))]
    programs += [grow_tree(generator, 5).program for _ in range(1_000)]
    programs += [tuple(generator.randrange(-2, 17) for _ in range(generator.randrange(7))) for _ in range(5_000)]
    programs += [program[:-1] for program in programs] + [(*program, 0) for program in programs]
    refused = 0
    for program in programs:
        ours = decode_in_library(library, program)
        try:
            expected = decode(program)
        except ValueError:
            assert ours is None, program
            refused += 1
            continue
        if any(not values for values in expected.filters):  # open: its filters depend on the window
            assert ours is None, program
            continue
        assert ours == ([*map(list, expected.responses)], [*map(list, expected.nodes)]), program
    assert 2_000 < refused < len(programs) - 1_000


def syntax_check(compiler, *arguments):
    done = subprocess.run([compiler, *COMPILE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_every_header_parses_alone():
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    for header in sorted(FOLDER.glob("*.h")):
        syntax_check(compiler, "-x", "c++", "-include", str(header), "/dev/null")


def test_source_compiles_for_aarch64():
    """Compiled only: ``make test-aarch64`` runs it."""
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None:
        pytest.skip("no aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu)")
    syntax_check(compiler, str(FOLDER / "baseline.cpp"))
