"""Networks as lists of layers to be read from top to bottom: the paper's, and other well-known ones."""

from .alexnet import alexnet
from .dsn import DSN, Table, Votes, dsn
from .fast import fast
from .googlenet import GoogLeNet, googlenet
from .resnet9 import resnet9
from .small import small

__all__ = ["DSN", "GoogLeNet", "Table", "Votes", "alexnet", "dsn", "fast", "googlenet", "resnet9", "small"]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
