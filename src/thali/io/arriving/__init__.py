"""Rows that arrive as text, a piece at a time: from bytes to matrices, every line that is no row with its number."""
