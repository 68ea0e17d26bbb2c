"""Networks as lists of layers to be read from top to bottom: the paper's, and a small one of the usual kind."""

from .alexnet import alexnet
from .dsn import DSN, Table, Votes, dsn
from .googlenet import GoogLeNet, googlenet
from .small import small

__all__ = ["DSN", "GoogLeNet", "Table", "Votes", "alexnet", "dsn", "googlenet", "small"]
