import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from learnpool.ops.window import Window, get_memory_format


@st.composite
def axes(draw, dims):
    """Kernel, stride, padding, dilation and size per axis, legal or too small for the input."""
    rows = []
    for _ in range(dims):
        k = draw(st.integers(1, 6))
        rows.append(
            (
                k,
                draw(st.integers(1, 5)),
                draw(st.integers(0, k // 2)),
                draw(st.integers(1, 4)),
                draw(st.integers(1, 19)),
            )
        )
    return [tuple(row) for row in zip(*rows, strict=True)]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_output_size_is_that_of_max_pooling(dims, ceil_mode):
    seen = set()

    @settings(max_examples=1500 if dims == 2 else 500, deadline=None, database=None)
    @given(axes(dims))
    def check(window):
        kernel, stride, padding, dilation, size = window
        ours = Window.of("test", dims, kernel, stride, padding, dilation, ceil_mode).output_size(size)
        theirs = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[dims - 1](
            kernel, stride, padding, dilation, ceil_mode=ceil_mode
        )
        try:
            shape = theirs(torch.zeros(1, 1, *size)).shape[2:]
        except RuntimeError:
            assert min(ours) < 1
            seen.add("refused")
        else:
            assert tuple(shape) == ours
            seen.add("pooled")

    check()
    assert seen == {"refused", "pooled"}


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_counts_are_those_of_average_pooling(include, ceil_mode):
    for k, s, p, n in itertools.product(range(1, 5), range(1, 4), range(3), range(4, 9)):
        if p > k // 2:
            continue
        window = Window.of("test", 2, (k, 2), (s, 1), (p, 1), 1, ceil_mode, include)
        counts = window.count_cells((n, 6), device=torch.device("cpu"), dtype=torch.float64)
        ones = torch.ones(1, 1, n, 6, dtype=torch.float64)
        total = F.avg_pool2d(ones, (k, 2), (s, 1), (p, 1), ceil_mode, include, divisor_override=1)
        torch.testing.assert_close(total / counts, F.avg_pool2d(ones, (k, 2), (s, 1), (p, 1), ceil_mode, include))


def test_taps_cover_each_region_once():
    window = Window.of("test", 2, (3, 2), (2, 3), (1, 0), (2, 1), True)
    size = (9, 7)
    x = torch.arange(63.0).reshape(size)
    gathered = [[] for _ in range(35)]
    grid = torch.arange(window.output_size(size)[0] * window.output_size(size)[1]).reshape(window.output_size(size))
    for tap in window.taps(size):
        for region, cell in zip(grid[tap.regions].flatten().tolist(), x[tap.cells].flatten().tolist(), strict=True):
            gathered[region].append(cell)
    for oh, ow in itertools.product(*map(range, window.output_size(size))):
        rows = [oh * 2 - 1 + 2 * k for k in range(3)]
        columns = [ow * 3 + k for k in range(2)]
        expected = [x[i, j].item() for i in rows for j in columns if 0 <= i < 9 and 0 <= j < 7]
        assert gathered[grid[oh, ow]] == expected


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "name: kernel_size must be at least 1, got 0×0"),
        ((3, 0), ValueError, "name: stride must be at least 1, got 0×0"),
        ((3, 1, -1), ValueError, "name: padding must be at least 0, got -1×-1"),
        ((3, 1, 2), ValueError, "name: padding must be at most half of kernel_size 3×3, got 2×2"),
        ((3, 1, 2, 3), ValueError, "name: padding must be at most half of kernel_size 3×3, got 2×2"),
        ((3, 1, 0, 0), ValueError, "name: dilation must be at least 1, got 0×0"),
        ((2**13,), ValueError, "name: kernel_size must have at most 16777216 taps, got 8192×8192"),
        ((2, 2**31), ValueError, "name: stride must be at most 2147483647, got 2147483648×2147483648"),
        ((2, 1, 0, 2**62), ValueError, f"name: dilation must be at most 2147483647, got {2**62}×{2**62}"),
        (((3, 3, 3),), ValueError, r"name: kernel_size must be one int or 2, got \(3, 3, 3\)"),
        ((3.0,), TypeError, "name: kernel_size must be an int or a tuple of 2 ints, got 3.0"),
        ((True,), TypeError, "name: kernel_size must be an int or a tuple of 2 ints, got True"),
        (("3",), TypeError, "name: kernel_size must be an int or a tuple of 2 ints, got '3'"),
    ],
)
def test_illegal_windows_are_named(arguments, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        Window.of("name", 2, *arguments)


def test_every_way_to_write_a_window_down():
    window = Window((3, 3), (3, 3), (0, 0), (1, 1))
    for kernel, stride in [(3, None), ((3,), None), ([3, 3], ()), ((3, 3), []), (3, 3)]:
        assert Window.of("name", 2, kernel, stride) == window


@pytest.mark.parametrize("dims", [2, 3])
def test_layout_is_the_one_pytorch_chooses(dims):
    pool = F.max_pool2d if dims == 2 else F.max_pool3d
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    for shape in [(2, 3, 5, 6, 7), (2, 1, 5, 6, 7), (1, 3, 5, 6, 7), (1, 1, 5, 6, 7), (2, 3, 4, 4, 4)]:
        shape = shape[: dims + 2]
        whole = torch.randn(shape)
        for x in (whole, whole.to(memory_format=last), whole.to(memory_format=last)[..., 1:], whole.transpose(-1, -2)):
            ours = torch.empty((*x.shape[:2], *[1] * dims), memory_format=get_memory_format(x, dims))
            expected = torch.empty(
                ours.shape,
                memory_format=last
                if pool(x, 2).is_contiguous(memory_format=last) and not pool(x, 2).is_contiguous()
                else torch.contiguous_format,
            )
            if shape[1] > 1:
                assert ours.stride() == expected.stride(), (shape, x.stride())
