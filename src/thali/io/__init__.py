"""Readers of data files: one function, `read_table`, for every format."""

from thali.io.tables import Table, read_table

__all__ = ["Table", "read_table"]
