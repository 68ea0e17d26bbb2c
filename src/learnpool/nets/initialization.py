"""Start values that the larger networks share."""

from __future__ import annotations

from torch import nn

INITS = ("caffe", "kaiming")


def check_init(net: str, init: str) -> None:
    """ValueError if there are no such start values."""
    if init not in INITS:
        raise ValueError(f"{net}: init must be one of {', '.join(INITS)}, got {init!r}")


def initialize_kaiming(net: nn.Module) -> None:
    """Convolutions and linear layers by Kaiming's rule for ReLU, biases 0."""
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
