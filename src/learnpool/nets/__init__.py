"""Networks as lists of layers to be read from top to bottom: the paper's, and a small one of the usual kind."""

from .dsn import DSN, Table, Votes, dsn
from .small import small

__all__ = ["DSN", "Table", "Votes", "dsn", "small"]
