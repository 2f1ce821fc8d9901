"""How kernels are compiled. Each kernel is a plain function first, compiled at the bottom of its file.

`reassoc` and `contract` let sums be vectorised without assuming that NaN and infinity never occur; `nogil` lets
chains run in threads; `cache` keeps the machine code for the next process.
"""

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """For the inner parts of a kernel: a call with a dozen arrays would cost as much as a short loop."""
    return numba.njit(inline="always", nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})(function)


def _drop_stale_cache(folder: Path) -> None:
    """Delete cached machine code that was compiled from other sources.

    numba's cache key of a kernel covers its own file only: an edit to a kernel that it calls would go unnoticed.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()
    cache = folder / "__pycache__"
    stamp = cache / "kernels.sha256"
    with contextlib.suppress(OSError):  # a read-only installation has no cache here and its sources do not change
        if not stamp.exists() or stamp.read_text() != digest:
            for pattern in ("*.nbi", "*.nbc"):
                for path in cache.glob(pattern):
                    path.unlink(missing_ok=True)
            cache.mkdir(exist_ok=True)
            stamp.write_text(digest)


_drop_stale_cache(Path(__file__).parent)
