"""Fine-tune a pretrained network: swap its pools, fit them to the old ones, train on.

The network is trained on the spot; ``torchvision.models.resnet18(weights="DEFAULT")`` or any other goes in its place.
Needs scikit-learn, for the digits: pip install scikit-learn.
"""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import learnpool


def make_network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 2 * 2, 10),
    )  # fmt: skip


def train(net, optimizer, images, labels, epochs):
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            cross_entropy(net.train()(images[batch]), labels[batch]).backward()
            optimizer.step()
    return net.eval()


def main(epochs=4):
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], torch.tensor(digits.target)
    seen, new = slice(0, 1300), slice(1300, None)
    pretrained = make_network()
    optimizer = torch.optim.AdamW(pretrained.parameters(), lr=0.01)
    train(pretrained, optimizer, images[seen], labels[seen], epochs)

    net = copy.deepcopy(pretrained)
    learnpool.convert(net, "gated")
    print(learnpool.calibrate(net, images[:256].split(64)))  # as close to the old pools as gates come
    optimizer = torch.optim.AdamW(learnpool.parameter_groups(net, lr=0.01), lr=0.001)
    train(net, optimizer, images[seen], labels[seen], max(1, epochs // 2))
    with torch.no_grad():
        errors = [(n(images[new]).argmax(1) != labels[new]).float().mean().item() for n in (pretrained, net)]
    print(f"test error before {errors[0]:.1%}, after fine-tuning {errors[1]:.1%}")
    return errors


if __name__ == "__main__":
    main()
