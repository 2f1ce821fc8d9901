"""Compiled loops. The only folder that imports numba; see `_jit.py`."""
