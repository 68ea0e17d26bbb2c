"""The paper's networks, as lists of layers to be read from top to bottom."""

from .dsn import DSN, Table, Votes, dsn

__all__ = ["DSN", "Table", "Votes", "dsn"]
