"""Twins of the kernels in the folder of the same name."""
