"""Who shares a parameter: its extent, and what happens on a map of another grid."""

import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import learnpool
from cases import ODD
from learnpool import GatedPool1d, GatedPool2d, GatedPool3d, Pool2d, sharing
from learnpool import functional as LF


@pytest.mark.parametrize(
    ("share", "extent"),
    [
        ("net", (1, 1, 1)),
        ("layer", (1, 1, 1)),
        ("region", (1, 4, 3)),
        ("channel", (5, 1, 1)),
        ("region_channel", (5, 4, 3)),
    ],
)
def test_the_extent_of_each_sharing(share, extent):
    assert sharing.check_share("test", share) == share
    assert sharing.get_extent(share, 5, (4, 3), 2) == extent
    assert (sharing.get_extent(share, None, None, 2) is None) == (extent != (1, 1, 1))


@pytest.mark.parametrize("share", ["room", "Layer", None, 3, ["layer"]])
def test_what_is_no_sharing(share):
    with pytest.raises(ValueError, match="^test: share must be one of layer, region, channel, .*, got "):
        sharing.check_share("test", share)


def test_resampling_twice_as_fine_by_hand():
    """Cells at −1/4, 1/4, 3/4, 5/4 between the values at 0 and 1, held at the ends."""
    parameter = torch.tensor([0.0, 4.0]).reshape(1, 1, 2, 1)  # one row, one channel, a grid of 2, one tap
    assert sharing.resample(parameter, (4,)).flatten().tolist() == [0.0, 1.0, 3.0, 4.0]


@pytest.mark.parametrize(("dims", "mode"), [(1, "linear"), (2, "bilinear"), (3, "trilinear")])
def test_another_grid_resamples_in_that_forward(dims, mode):
    layer = (GatedPool1d, GatedPool2d, GatedPool3d)[dims - 1](2, share="region", grid=3)
    before = layer.weight.detach().clone()
    x = torch.randn(2, 2, *[10] * dims)
    rows = before.reshape(1, *[3] * dims, -1).movedim(-1, 1)
    mask = nn.functional.interpolate(rows, size=[5] * dims, mode=mode, align_corners=False)
    mask = mask[0].movedim(0, -1).reshape(*[5] * dims, *[2] * dims)
    function = (LF.gated_pool1d, LF.gated_pool2d, LF.gated_pool3d)[dims - 1]
    y = layer(x)
    assert_close(y, function(x, mask, 2))
    y.sum().backward()
    assert layer.weight.grad.shape == before.shape
    assert torch.equal(layer.weight, before)


def test_another_grid_says_so_once_per_pool():
    for _ in range(2):  # a second pool says it too
        layer = GatedPool2d(2, share="region", grid=(11, 3))
        with pytest.warns(UserWarning, match="^GatedPool2d: parameters for a grid of 11×3 are resampled to 5×13$"):
            layer(torch.randn(1, 1, 10, 26))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            layer(torch.randn(1, 1, 10, 26))
            layer(torch.randn(1, 1, 20, 20))


def test_another_grid_names_the_pools_of_a_converted_network():
    net = nn.Sequential(nn.MaxPool2d(2), nn.Sequential(nn.MaxPool2d(2)))
    learnpool.convert(net, "gated", share="region", example=torch.randn(1, 1, 8, 8))
    with pytest.warns(UserWarning, match="are resampled to") as said:
        net(torch.randn(1, 1, 12, 12))
    assert [str(warning.message) for warning in said] == [
        "GatedPool2d 0: parameters for a grid of 4×4 are resampled to 6×6",
        "GatedPool2d 1.0: parameters for a grid of 2×2 are resampled to 3×3",
    ]


def test_compiled_code_does_not_say_it():
    layer = GatedPool2d(2, share="region", grid=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        torch.compile(layer, fullgraph=True, backend="eager")(torch.randn(1, 1, 10, 10))
    with pytest.warns(UserWarning, match="resampled to 5×5"):
        layer(torch.randn(1, 1, 10, 10))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_resampled_in_float32(dtype):
    weight = torch.randn(1, 1, 3, 3, 2, 2).to(dtype)
    expected = learnpool.sharing.resample(weight.float(), (7, 5)).to(dtype)
    assert torch.equal(learnpool.sharing.resample(weight, (7, 5)), expected)


def test_an_equal_grid_is_used_as_it_is():
    weight = torch.randn(1, 1, 3, 3, 2, 2)
    assert learnpool.sharing.resample(weight, (3, 3)) is weight


def test_loading_another_grid_resamples_with_a_warning():
    small = Pool2d(ODD, 2, share="region", grid=3)
    large = Pool2d(ODD, 2, share="region", grid=(6, 4))
    saved = small.state_dict()
    with pytest.warns(UserWarning, match=r"^Pool2d: (weight|mix) saved for grid 3×3, resampled to 6×4$"):
        large.load_state_dict(saved)
    assert large.weight.shape == (4, 1, 6, 4, 2, 2)
    assert_close(large.weight, learnpool.sharing.resample(small.weight, (6, 4)))
    assert saved["weight"].shape == (4, 1, 3, 3, 2, 2)
    x = torch.randn(2, 3, 12, 8)
    assert_close(large(x), small(x))
    with pytest.raises(RuntimeError, match="size mismatch"):
        Pool2d(ODD, 3, share="region", grid=3).load_state_dict(saved)
