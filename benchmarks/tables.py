"""What every benchmark prints: the machine, and tables."""

import math
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info


def machine() -> dict[str, Any]:
    import numba
    import scipy

    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    load = os.getloadavg() if hasattr(os, "getloadavg") else (math.nan,) * 3
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": round(load[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "blas": sorted({
            f"{i['internal_api']} {i['version']} {i.get('architecture', '')}".strip()
            for i in threadpool_info() if i["user_api"] == "blas"
        }),
    }  # fmt: skip


# --- the printed tables ---------------------------------------------------------------------------


def show_table(title: str, heads: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    print(f"\n{title}\n")
    top = [heads, ["-" * width for width in widths]] if any(heads) else []
    for row in [*top, *rows]:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())
    sys.stdout.flush()


def against(value: float | None, target: float | None, *, at_most: bool, digits: str = ".3g") -> str:
    """The figure, its target and whether it is met."""
    if value is None:
        return "not measured"
    if target is None:
        return f"{value:{digits}}"
    met = value <= target if at_most else value >= target
    return f"{value:{digits}} ({'<=' if at_most else '>='} {target:g}: {'met' if met else 'MISSED'})"
