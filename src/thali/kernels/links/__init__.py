"""Kernels of features that are handed on along links between rows."""
