"""Pools with names of their own: what they add to a tree over a window."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from learnpool import BlurPool1d, BlurPool2d, MaxBlurPool1d, MaxBlurPool2d, MedianPool1d

WINDOWS = list(itertools.product((2, 3, 4, 5), (1, 2, 3), (0, 1, 2), (1, 2), (False, True), (7, 8, 11)))


@pytest.mark.parametrize("border", ["existing", "zeros", "reflect"])
@pytest.mark.parametrize("layer", [BlurPool1d, MaxBlurPool1d])
def test_the_output_is_as_large_as_that_of_max_pooling(layer, border):
    for kernel, stride, padding, dilation, ceil, size in WINDOWS:
        if padding <= kernel // 2 and dilation * (kernel - 1) + 1 < size + 2 * padding:  # two windows
            x, window = torch.randn(1, 1, size), (kernel, stride, padding, dilation)
            expected = nn.MaxPool1d(*window, ceil_mode=ceil)(x).shape
            assert layer(*window, ceil_mode=ceil, border=border)(x).shape == expected, (window, ceil, size)


@pytest.mark.parametrize("size", [7, 8, 9])
@pytest.mark.parametrize("taps", [3, 4, 5])
def test_a_reflected_border_is_a_padded_convolution(taps, size):
    x = torch.randn(2, 3, size, size + 1, dtype=torch.float64)
    row = torch.tensor([[1, 2, 1], [1, 3, 3, 1], [1, 4, 6, 4, 1]][taps - 3], dtype=torch.float64)
    filters = (torch.outer(row, row) / row.sum() ** 2).expand(3, 1, taps, taps)
    before, behind = (taps - 1) // 2, taps // 2
    expected = F.conv2d(F.pad(x, (before, behind) * 2, mode="reflect"), filters, stride=2, groups=3)
    layer = BlurPool2d(taps, 2, before, ceil_mode=taps == 4, border="reflect")
    assert_close(layer(x), expected)


@pytest.mark.parametrize("layer", [BlurPool2d, MaxBlurPool2d])
def test_a_reflected_border_is_exported_for_any_size(layer):
    pool, size = layer(3, 2, 1, border="reflect"), {axis: torch.export.Dim(f"s{axis}", min=4) for axis in (2, 3)}
    program = torch.export.export(pool, (torch.randn(2, 3, 9, 8),), dynamic_shapes=(size,))
    for shape in ((2, 3, 9, 8), (2, 3, 12, 7)):
        x = torch.randn(shape)
        assert_close(program.module()(x), pool(x))


@pytest.mark.parametrize("border", ["existing", "zeros", "reflect"])
def test_max_blur_is_a_maximum_at_stride_1_and_then_a_blur(border):
    x = torch.randn(2, 3, 9, 8)
    expected = BlurPool2d(3, 2, 1, border=border)(F.max_pool2d(x, 2, 1))
    assert torch.equal(MaxBlurPool2d(2, border=border)(x), expected)


@pytest.mark.parametrize("layer", [BlurPool2d, MaxBlurPool2d])
@pytest.mark.parametrize("border", ["existing", "zeros", "reflect"])
def test_the_output_has_the_dtype_of_the_input_under_autocast(layer, border):
    pool, x = layer(3, 2, 1, border=border), torch.randn(1, 2, 7, 7, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(pool(x), pool(x.float()).bfloat16())
        assert pool(x).dtype == torch.bfloat16


def test_a_border_is_part_of_the_repr():
    assert "border" not in repr(MaxBlurPool2d(2))
    assert "border='zeros'" in repr(MaxBlurPool2d(2, border="zeros"))


def test_the_median_of_fewer_cells_than_taps_is_exact():
    x = torch.tensor([[[0.0, 1.0, 10.0, 20.0, 30.0]]])
    assert MedianPool1d(4, 1, 2)(x).tolist() == [[[0.5, 1.0, 5.5, 15.0, 20.0, 25.0]]]  # of 2, 3, 4, 4, 3 and 2 cells
