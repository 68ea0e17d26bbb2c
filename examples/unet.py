"""A U-Net that segments discs in noise, with learned pools on the way down."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, interpolate

from learnpool import GatedPool2d, parameter_groups


def make_convs(inputs, outputs):
    first = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*first, nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        self.down = nn.ModuleList(make_convs(i, o) for i, o in zip([1, *widths], widths, strict=False))
        self.pools = nn.ModuleList(GatedPool2d(2, start="neutral") for _ in widths[1:])  # was nn.MaxPool2d(2)
        self.up = nn.ModuleList(make_convs(i + o, o) for i, o in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.head = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        x, skips = self.down[0](x), []
        for pool, convs in zip(self.pools, self.down[1:], strict=True):
            skips.append(x)
            x = convs(pool(x))
        for convs, skip in zip(self.up, reversed(skips), strict=True):
            x = convs(torch.cat([interpolate(x, size=skip.shape[-2:]), skip], 1))
        return self.head(x)


def make_discs(count, size):
    """Images of a bright disc in noise, and its mask: your own pairs go here."""
    at = torch.arange(size)
    middle, radius = torch.rand(count, 2, 1, 1) * size, (torch.rand(count, 1, 1) + 0.5) * size / 4
    mask = (at[:, None] - middle[:, 0]) ** 2 + (at - middle[:, 1]) ** 2 < radius**2
    return mask[:, None] + torch.randn(count, 1, size, size), mask[:, None].float()


def main(steps=60, size=32):
    torch.manual_seed(0)
    net = UNet()
    optimizer = torch.optim.AdamW(parameter_groups(net, lr=0.02), lr=0.005)
    for _ in range(steps):
        optimizer.zero_grad()
        images, masks = make_discs(16, size)
        binary_cross_entropy_with_logits(net(images), masks).backward()
        optimizer.step()
    images, masks = make_discs(64, size)
    with torch.no_grad():
        found, masks = net.eval()(images) > 0, masks > 0
    overlap = ((found & masks).sum() / (found | masks).sum()).item()
    print(f"intersection over union {overlap:.2f} on 64 new images")
    return overlap


if __name__ == "__main__":
    main()
