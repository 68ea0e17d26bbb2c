"""Stochastic pooling on a GPU, in Triton's interpreter: the same picks as the reference, bit for bit."""

import os

import pytest
import torch

from cases import WINDOWS, W, distinct, numbers
from learnpool.ops import stochastic

if os.environ.get("LEARNPOOL_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="triton is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("set TRITON_INTERPRET=1: there is no GPU in these tests", allow_module_level=True)

from test_cpu import lay
from test_stochastic import compare

import triton_interpreter
from learnpool.ops import triton as gpu
from learnpool.ops.triton import calls

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero):RuntimeWarning")  # numpy's
triton_interpreter.register()

SEED = torch.tensor([2**62 + 12345, -7])
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided"])
@pytest.mark.parametrize("window", [*WINDOWS, W(3, 1, 1), W(7, 3, 3)], ids=str)
def test_kernel_agrees_with_the_reference(window, layout):
    dtype = DTYPES[len(str(window)) % len(DTYPES)]
    x = distinct(2, 3, 9, 8)
    for cells in (x.relu(), -x.relu(), x * (torch.rand_like(x) > 0.8)):  # regions without a positive cell, too
        cells = lay(cells.to(dtype), layout, 2)
        compare(cells, SEED, window.of())
        compare(cells, None, window.of())


def test_kernel_agrees_beside_infinity_and_nan():
    for value in (torch.nan, torch.inf, -torch.inf, 1e-30):
        x = distinct(2, 3, 9, 8, dtype=torch.float32)
        x[torch.rand(x.shape) > 0.95] = value
        for cells in (x, x.clamp(max=0)):
            compare(cells, SEED, W(3, 2, 1).of())
            compare(cells, None, W(3, 2, 1).of())


def test_one_and_three_dimensions_no_image_and_no_batch():
    for shape, window in (
        ((2, 3, 31), W(3, 2, 1).of(1)),
        ((2, 2, 5, 6, 7), W(2, 2).of(3)),
        ((0, 3, 9, 8), W(3, 2).of()),
    ):
        compare(distinct(*shape), SEED[: shape[0]], window)
    compare(distinct(3, 9, 8), SEED[:1], W(3, 2, 1).of())


def test_bad_input_is_refused_as_on_a_cpu():
    x, arguments = distinct(2, 3, 9, 8), numbers(W(3, 2, 1).of())[:5]
    with pytest.raises(ValueError, match="seed must have a number for each of 2 images"):
        gpu.stochastic_pool(x, SEED[:1], *arguments)
    with pytest.raises(TypeError, match="seed must be torch.int64"):
        gpu.stochastic_pool(x, SEED.float(), *arguments)


def test_a_kernel_that_does_not_compile_is_replaced_by_the_reference(monkeypatch):
    def fail(self):
        raise RuntimeError("PassManager::run failed")

    monkeypatch.setattr(calls.Launch, "run", fail)
    monkeypatch.setattr(gpu, "failures", {})
    x, arguments = distinct(2, 3, 9, 8), numbers(W(3, 2, 1).of())[:5]
    with pytest.warns(RuntimeWarning, match=r"stochastic pooling for torch.float64 and .*PassManager"):
        y = gpu.stochastic_pool(x, SEED, *arguments)
    assert torch.equal(y, stochastic.pool(x, SEED, *arguments))
    gpu.stochastic_pool(x, SEED, *arguments)  # no second warning: here it would be an error
