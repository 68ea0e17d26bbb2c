"""MONAI's U-Nets, in two and three dimensions: converted, trained a step, saved, restored."""

import copy
import io
import warnings

import pytest
import torch

from learnpool import Pool2d, Pool3d, convert, restore
from learnpool.conversion.swap import list_swaps
from networks import outputs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MONAI's own, while it is imported
    from monai.networks import nets


def unet(dims, name="BasicUNet"):
    torch.manual_seed(0)
    net = getattr(nets, name)(spatial_dims=dims, in_channels=1, out_channels=2, features=(4, 4, 8, 8, 16, 4))
    return net, torch.randn(2, 1, *(32,) * dims)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", ["BasicUNet", "BasicUNetPlusPlus"])
@pytest.mark.parametrize("dims", [2, 3])
def test_the_same_function_to_the_last_bit(dims, name, train):
    net, x = unet(dims, name)
    expected = outputs(net, x, train)
    report = convert(net, "mixed", start="same")
    assert len(report.replaced) == 4
    assert report.parameters == 4
    got = outputs(net, x, train)
    pairs = zip(got, expected, strict=True) if isinstance(got, list) else [(got, expected)]
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("dims", [2, 3])
def test_a_step_a_file_and_the_way_back(dims):
    net, x = unet(dims)
    original, expected = copy.deepcopy(net), outputs(net, x, False)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    report = convert(net, "tree2+gated", optimizers=optimizer, example=x)
    first, *rest = (swap.new for swap in list_swaps(net))
    assert isinstance(first, (Pool2d, Pool3d)[dims - 2])
    assert report.parameters == (3 * 4 + 3 * 4 if dims == 2 else 3 * 8 + 3 * 8)
    before = [pool.weight.clone() for pool in (first, *rest)]
    net(x).square().mean().backward()
    optimizer.step()
    assert not any(torch.equal(pool.weight, old) for pool, old in zip((first, *rest), before, strict=True))
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = unet(dims)[0]
    convert(other, "tree2+gated", example=x)
    other.load_state_dict(torch.load(file))
    assert torch.equal(outputs(other, x, False), outputs(net, x, False))
    restore(net)
    net.load_state_dict(original.state_dict())
    assert torch.equal(outputs(net, x, False), expected)


def test_a_u_net_that_strides_its_convolutions_has_no_pools():
    net = nets.UNet(2, 1, 2, channels=(4, 8), strides=(2,))
    with pytest.raises(ValueError, match="convert: UNet has no pools"):
        convert(net)
