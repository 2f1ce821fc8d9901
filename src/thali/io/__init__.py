"""Tables in files: one function to read and one to write every format."""

from thali.io.tables import Table, read_table
from thali.io.write import print_rows, print_table, write_table

__all__ = ["Table", "print_rows", "print_table", "read_table", "write_table"]
