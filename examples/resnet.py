"""A ResNet with learned pools, trained on handwritten digits.

With timm installed it is timm's ResNet-18 (``pip install timm``), otherwise a small one written here.
Needs scikit-learn, for the digits: pip install scikit-learn.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, interpolate

import learnpool


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers = [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.body(x))


def make_network(classes):
    try:
        import timm
    except ImportError:
        stem = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes)]
        return nn.Sequential(*stem, Block(16), nn.MaxPool2d(3, 2, 1), Block(16), *head)
    return timm.create_model("resnet18", in_chans=1, num_classes=classes)


def main(epochs=4, images=1500, size=32):
    torch.manual_seed(0)
    digits = load_digits()  # your own images go here: [N, C, H, W], and labels [N]
    x = interpolate(torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], size=size)
    y = torch.tensor(digits.target)

    net = make_network(classes=10)
    print(learnpool.convert(net, "gated", example=x[:2]))  # every max pool becomes a gated pool
    optimizer = torch.optim.AdamW(learnpool.parameter_groups(net, lr=0.01), lr=0.003)
    for _ in range(epochs):
        for batch in torch.randperm(images).split(50):
            optimizer.zero_grad()
            cross_entropy(net.train()(x[batch]), y[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        right = (net.eval()(x[images:]).argmax(1) == y[images:]).float().mean().item()
    print(f"{right:.1%} of {len(x) - images} test images are right")
    return right


if __name__ == "__main__":
    main()
