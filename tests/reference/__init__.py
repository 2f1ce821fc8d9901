"""NumPy twins of the compiled kernels: slow, and meant to be read beside the formulas."""
