"""A classifier of 1-D signals: is there a short burst in the noise, and of which frequency?"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from learnpool import AdaptivePool1d, Avg, GatedPool1d, Max, Mix, explain, parameter_groups

FREQUENCIES = (0.0, 0.05, 0.12, 0.25)  # cycles a sample; the first class has no burst


def make_signals(count, length):
    """Noise with a burst at a random place, and its class: your own [N, channels, length] goes here."""
    classes = torch.randint(len(FREQUENCIES), (count,))
    time = torch.arange(length, dtype=torch.float32)
    place = torch.rand(count, 1) * 0.6 * length + 0.2 * length
    envelope = torch.exp(-(((time - place) / 12) ** 2))
    wave = torch.sin(2 * torch.pi * torch.tensor(FREQUENCIES)[classes][:, None] * time)
    return (2 * envelope * wave + 0.5 * torch.randn(count, length))[:, None], classes


def make_network():
    def stage(inputs, outputs):
        return [nn.Conv1d(inputs, outputs, 7, padding=3), nn.BatchNorm1d(outputs), nn.ReLU()]

    return nn.Sequential(
        *stage(1, 16), GatedPool1d(4, start="neutral"),  # was nn.MaxPool1d(4)
        *stage(16, 32), GatedPool1d(4, start="neutral"),
        *stage(32, 32), AdaptivePool1d(Mix(Max(), Avg())), nn.Flatten(), nn.Linear(32, len(FREQUENCIES)),
    )  # fmt: skip


def main(steps=80, length=256):
    torch.manual_seed(0)
    net = make_network()
    optimizer = torch.optim.AdamW(parameter_groups(net, lr=0.02), lr=0.005)
    for _ in range(steps):
        signals, classes = make_signals(64, length)
        optimizer.zero_grad()
        cross_entropy(net(signals), classes).backward()
        optimizer.step()
    signals, classes = make_signals(256, length)
    with torch.no_grad():
        right = (net.eval()(signals).argmax(1) == classes).float().mean().item()
    print(f"{right:.1%} of 256 new signals are right")
    print(explain(net, signals[:64]))  # what the pools learned
    return right


if __name__ == "__main__":
    main()
