"""Where cells of a map lie in the image, against what reaches them: a NaN in the image spreads to whoever reads it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from learnpool import GatedPool2d, StochasticPool2d
from learnpool.explanation.positions import PIXELS, Grid, PositionTracker


def reached(net, height, width):
    """For every row and column of the output the first and last pixel that reaches it, ``[(low, high)]`` per axis."""
    found = []
    for axis, size in enumerate((height, width)):
        hits = []
        for place in range(size):
            x = torch.zeros(1, 1, height, width)
            x.select(2 + axis, place).fill_(torch.nan)
            with torch.no_grad():
                y = net(x)
            hits.append(y[0, 0].isnan().any(1 - axis))
        table = torch.stack(hits)  # [pixel, cell]
        found.append([(min(at), max(at)) for column in table.T if (at := column.nonzero().flatten().tolist())])
    return found


def followed(net, height, width):
    x = torch.zeros(1, 1, height, width)
    follow = PositionTracker(x)
    with torch.no_grad(), follow:
        y = net(x)
    return follow.get_grid(y)


def conv(*args, **options):
    return nn.Conv2d(1, 1, *args, **options).eval()


NETS = {
    "same": [conv(3, padding=1), nn.ReLU()],
    "valid": [conv(5), conv(3)],
    "stem": [conv(7, stride=2, padding=3), nn.MaxPool2d(3, 2, 1)],
    "ceil": [conv(3, padding=1), GatedPool2d(3, 2, ceil_mode=True), conv(3, padding=1), GatedPool2d(2, 2)],
    "uneven": [conv((3, 5), stride=(1, 2), padding=(1, 0)), nn.AvgPool2d((2, 3), (2, 1))],
    "dilated": [conv(3, dilation=2), StochasticPool2d(2), nn.MaxPool2d(2, 1, dilation=2)],
    "padded": [nn.ZeroPad2d((3, 0, 1, 0)), conv(3), nn.ReflectionPad2d((0, 2, 0, 2)), conv(3, stride=2)],
    "transposed": [conv(3, stride=2), nn.ConvTranspose2d(1, 1, 3, stride=2)],
    "in place": [conv(3, stride=2), nn.ReLU(inplace=True), nn.Dropout(inplace=True).eval()],
}


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS)
def test_the_centre_of_what_reaches_a_cell(layers):
    net, size = nn.Sequential(*layers), (25, 31)
    grid = followed(net, *size)
    for axis, spans in enumerate(reached(net, *size)):
        widest = max(high - low for low, high in spans)
        inner = [(i, low, high) for i, (low, high) in enumerate(spans) if high - low == widest]
        whole = [(i, low, high) for i, low, high in inner if low > 0 and high < size[axis] - 1]
        assert len(whole) > 2, "too few cells read a whole window"
        for i, low, high in whole:
            assert grid.start[axis] + grid.step[axis] * i == pytest.approx((low + high + 1) / 2)


def test_what_keeps_the_size_keeps_the_grid():
    class Many(nn.Module):
        def forward(self, x):
            x = x[:, :, ::1].expand(-1, 4, -1, -1).contiguous()
            x = F.max_pool2d(x, 3, 2)
            scale = F.adaptive_avg_pool2d(x, 1).sigmoid()
            x = scale * x  # the small one first
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)  # as in ShuffleNet
            return torch.cat([x, x * 2], 1) + torch.zeros(8, 1, 1)

    assert followed(Many(), 11, 11) == Grid((1.5, 1.5), (2.0, 2.0))


def test_other_sizes_cover_what_was_covered():
    up = nn.Upsample(scale_factor=2)
    assert followed(up, 4, 4) == Grid((0.25, 0.25), (0.5, 0.5))
    assert followed(nn.AdaptiveAvgPool2d(2), 8, 12) == Grid((2.0, 3.0), (4.0, 6.0))
    lost = followed(lambda x: x.flatten().reshape(1, 4, 4, 4), 8, 8)  # no map in between
    assert lost == PIXELS.resize((8, 8), (4, 4)) == Grid((1.0, 1.0), (2.0, 2.0))
