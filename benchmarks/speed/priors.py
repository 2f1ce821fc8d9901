"""How long do draws from the priors take, and what is computed from them?

    python benchmarks/speed/priors.py

Best of three after a first call that compiles. A missed target is marked and fails nothing.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tables import machine, show_table
from thali import IBP, BetaProcess, DistanceDependentIBP, StickBreakingIBP, WindowDecay, suggest_truncation


def workloads() -> dict[str, tuple[float, Callable[[], Any]]]:
    """Name -> (target in seconds, what to do)."""
    rng = np.random.default_rng(0)
    times, window = np.arange(10_000.0), WindowDecay(10.0)
    counts = np.linspace(900.0, 0.1, 200)
    rounds = BetaProcess(mass=5.0, concentration=2.0, truncation=200, rounds=50)
    q = rounds.init_weights(1000)
    sticks = StickBreakingIBP(mass=5.0, truncation=200)
    tau = sticks.init_weights(1000)
    return {
        "IBP, a million rows": (2.0, lambda: IBP(mass=5.0).simulate(rng, 10**6)),
        "distance-dependent, 10 000 rows": (
            5.0,
            lambda: DistanceDependentIBP.from_times(times, window, mass=5.0).simulate(rng, 10_000),
        ),
        "marginals, 10 000 rows": (1.0, lambda: IBP(mass=5.0, concentration=2.0).marginals(10_000)),
        "suggest_truncation": (0.05, lambda: suggest_truncation(StickBreakingIBP(mass=5.0), 10_000)),
        "a pass over 200 sticks": (0.05, lambda: sticks.update_weights(tau, counts, 1000)),
        "a pass over 200 atoms, 50 rounds": (0.2, lambda: rounds.update_weights(q, counts, 1000)),
    }


def main() -> int:
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load']}")
    rows = []
    for name, (target, work) in workloads().items():
        work()
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - begin)
        verdict = "" if min(seconds) <= target else "MISSED"
        rows.append([name, f"{min(seconds):.3g}", f"{target:g}", verdict])
    show_table("Seconds", ["what", "best of three", "target", ""], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
