"""How kernels are compiled. Each kernel is a plain function first, compiled at the bottom of its file.

`reassoc` and `contract` let sums be vectorised without assuming that NaN and infinity never occur; `nogil` lets
chains run in threads. Machine code is kept for the next process where that is possible (`_cache_folders.py`).
"""

from collections.abc import Callable
from typing import Any

import numba

from thali.kernels._cache_folders import folders
from thali.kernels._machine_code import MachineCode, is_storable


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})(function)
    if hasattr(compiled, "_cache") and is_storable(function):  # else compilation is switched off
        compiled._cache = MachineCode(function, folders())
    return compiled


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """For the inner parts of a kernel: a call with a dozen arrays would cost as much as a short loop."""
    return numba.njit(inline="always", nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})(function)
