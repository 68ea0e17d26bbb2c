"""A classifier of 3-D volumes, balls against cubes: a tree in the first pool, a gated pool in the second."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from learnpool import GatedPool3d, TreePool3d, parameter_groups


def make_volumes(count, size):
    """A ball or a cube of about the same volume in noise, [N, 1, D, H, W]: your own volumes go here."""
    classes = torch.randint(2, (count,))
    at = torch.arange(size, dtype=torch.float32)
    middle = (torch.rand(count, 3) * 0.4 + 0.3) * size
    axes = [(at - middle[:, i : i + 1]).abs() for i in range(3)]
    offsets = torch.stack([axes[0][:, :, None, None].expand(-1, -1, size, size),
                           axes[1][:, None, :, None].expand(-1, size, -1, size),
                           axes[2][:, None, None, :].expand(-1, size, size, -1)])  # fmt: skip
    ball, cube = offsets.norm(dim=0) < size / 4, offsets.amax(0) < size / 5
    shape = torch.where(classes[:, None, None, None] == 0, ball, cube)
    return shape[:, None] + 0.1 * torch.randn(count, 1, size, size, size), classes


def make_network():
    return nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(),
        TreePool3d(2, start="spread"),  # was nn.MaxPool3d(2); one set of parameters for all channels
        nn.Conv3d(8, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(),
        GatedPool3d(2, start="neutral", share="channel", channels=16),  # a mask for each channel
        nn.Conv3d(16, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip


def main(steps=60, size=16):
    torch.manual_seed(0)
    net = make_network()
    optimizer = torch.optim.AdamW(parameter_groups(net, lr=0.02), lr=0.005)
    for _ in range(steps):
        volumes, classes = make_volumes(16, size)
        optimizer.zero_grad()
        cross_entropy(net(volumes), classes).backward()
        optimizer.step()
    volumes, classes = make_volumes(64, size)
    with torch.no_grad():
        right = (net.eval()(volumes).argmax(1) == classes).float().mean().item()
    print(f"{right:.1%} of 64 new volumes are right")
    return right


if __name__ == "__main__":
    main()
