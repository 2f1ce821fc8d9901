"""Speed of the uncollapsed Gibbs sweep for the linear-Gaussian model, against its targets.

    python benchmarks/speed/uncollapsed.py [--quick] [--json PATH]

The sweep on one thread, in CPU time, beside two bare products, the sweep row by row, and the same in NumPy; then what
is compiled of it, the sweep, and the whole step of a chain, on one and on two threads, in wall time. Each figure is the
minimum over repeats; what is compared is measured in turn. Nothing is asserted: a figure that misses its target is
marked. See benchmarks/README.md.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import workloads
from benchmarks.speed.rivals import MASS, uncollapsed_rows
from benchmarks.tables import against, machine, show_table
from benchmarks.workloads import Workload
from thali import IBP, Gibbs, LinearGaussian
from thali.core.model import Model
from thali.core.odds import RowOdds
from thali.core.protocols.engines.chains import ChainRows, ConditionalRows, ParallelRows
from thali.inference.samplers.chain import ZState
from thali.observations.gaussian import parallel as _parallel

GEMM_TARGET = 4.0  # sweep / two products, at most, from 1000 rows
THREADS_TARGET = 1.8  # one thread / two, at least, for the rows of 10 000 or more
MANY_THREADS_ROWS = 10_000
ROUNDS = 4
PARTS = {"rows": "what is compiled", "sweep": "a sweep: features and weights, too", "step": "a step of a chain"}
SIZES = (  # n_rows, n_dims, n_features, noise_sd
    (1_000, 100, 15, 0.5),
    (1_000, 100, 15, 3.0),
    (721, 1024, 25, 0.5),
    (10_000, 100, 20, 0.5),
    (10_000, 100, 20, 3.0),
    (10_000, 30, 10, 0.5),
    (100_000, 50, 30, 0.5),
)


def timed(work: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    work()
    return clock() - start


def two_products(X: np.ndarray, Z: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What no sweep can do without."""
    return X @ A.T, Z.T @ X


class Chain:
    """A chain of the library, started at the Z that made the data; its sweeps leave the hyperparameters as they are."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.n_rows = workload, len(workload.X)
        self.rng = np.random.default_rng(1)
        self.prior = IBP(mass=MASS)
        self.observation = LinearGaussian(noise_var=workload.noise_var, feature_var=workload.feature_var)
        self.data = self.observation.engine(ChainRows).prepare(workload.X)
        self.local = self.observation.engine(ChainRows).place(self.data, workload.Z, workload.X)
        self.log_odds, self.new_rate = self.prior.log_odds(self.n_rows), self.prior.new_rate(self.n_rows)
        self.model = Model(IBP(), LinearGaussian().adapt(workload.X))  # for steps, which learn the hyperparameters
        self.state = ZState(self.prior, self.observation, self.local)
        self.rows_s = 0.0  # of wall time in the compiled sweep over the rows

    def draw_weights(self, counts: np.ndarray) -> np.ndarray:
        return self.prior.draw_weights(self.rng, counts, self.n_rows)

    def in_halves(self, n_threads: int = 1) -> None:
        arguments = (self.rng, self.data, self.local, self.draw_weights, self.new_rate, n_threads)
        self.local = self.observation.engine(ParallelRows).parallel_sweep(*arguments)

    def watched(self, n_threads: int) -> None:
        """A sweep that notes how long what is compiled took: everything but features and weights."""
        self.rows_s, together = 0.0, _parallel.together

        def timed_together(*arguments: Any) -> None:
            self.rows_s += timed(partial(together, *arguments), time.perf_counter)

        _parallel.together = timed_together
        try:
            self.in_halves(n_threads)
        finally:
            _parallel.together = together

    def step(self, n_threads: int) -> None:
        """All that happens between two draws: a sweep, the hyperparameters, the log joint density."""
        self.state, _ = Gibbs(moves=0.0, n_threads=n_threads).step(self.rng, self.state, self.model, self.data)

    def by_row(self) -> None:
        arguments = (self.rng, self.data, self.local, RowOdds(self.log_odds, self.new_rate))
        self.local = self.observation.engine(ConditionalRows).conditional_sweep(*arguments)


def measure_sweep(workload: Workload, seconds: float) -> dict[str, Any]:
    """CPU time on one thread: products, sweep in halves, sweep row by row, in turn; all at the most frequent K."""
    chain = Chain(workload)
    for _ in range(3):
        chain.in_halves()
        chain.by_row()
    times: dict[int, list[tuple[float, float, float]]] = {}
    stop = time.monotonic() + seconds
    while sum(map(len, times.values())) < 5 or time.monotonic() < stop:
        Z = chain.local.z.astype(float)
        A = chain.rng.standard_normal((Z.shape[1], workload.X.shape[1]))
        gemms = timed(partial(two_products, workload.X, Z, A))
        times.setdefault(len(A), []).append((gemms, timed(chain.in_halves), timed(chain.by_row)))
    K = max(times, key=lambda n: len(times[n]))
    gemms, halves, by_row = np.min(times[K], axis=0)
    return {"n_features": K, "gemms_s": gemms, "halves_s": halves, "by_row_s": by_row}


def measure_numpy(workload: Workload, n_rows: int) -> float:
    """CPU seconds of a sweep in NumPy, from its first rows."""
    set_up = min(timed(lambda: uncollapsed_rows(workload, 0, np.random.default_rng(0))) for _ in range(2))
    some = min(timed(lambda: uncollapsed_rows(workload, n_rows, np.random.default_rng(0))) for _ in range(2))
    return max(some - set_up, 1e-9) * len(workload.X) / n_rows


def measure_threads(workload: Workload, seconds: float) -> dict[str, float]:
    """Wall time on one thread and on two, in turn: of the compiled part of a sweep, of the sweep, of a step."""
    chain = Chain(workload)
    times: dict[str, list[float]] = {f"{what}_{n}_s": [] for what in PARTS for n in (1, 2)}
    stop = time.monotonic() + seconds
    while len(times["rows_1_s"]) < 5 or time.monotonic() < stop:
        for n in (1, 2):
            times[f"sweep_{n}_s"].append(timed(partial(chain.watched, n), time.perf_counter))
            times[f"rows_{n}_s"].append(chain.rows_s)
            times[f"step_{n}_s"].append(timed(partial(chain.step, n), time.perf_counter))
    return {name: min(values) for name, values in times.items()}


def show(results: dict[str, dict[str, Any]]) -> None:
    heads = ["workload", "K", "GEMMs ms", "sweep ms", "sweep / GEMMs", "row by row / GEMMs", "NumPy / sweep"]
    rows = [
        [
            name, str(r["n_features"]), f"{1e3 * r['gemms_s']:.3f}", f"{1e3 * r['halves_s']:.3f}",
            against(r["halves_s"] / r["gemms_s"], GEMM_TARGET if r["n_rows"] >= 1000 else None, at_most=True),
            f"{r['by_row_s'] / r['gemms_s']:.3g}", f"{r['numpy_s'] / r['halves_s']:.0f}",
        ]
        for name, r in results.items()
    ]  # fmt: skip
    show_table("One sweep on one thread, and the products X A' and Z'X", heads, rows)
    heads = ["workload", "what", "1 thread ms", "2 threads ms", "gain"]
    rows = []
    for name, r in results.items():
        for part, words in PARTS.items() if "rows_1_s" in r else ():
            one, two = r[f"{part}_1_s"], r[f"{part}_2_s"]
            target = THREADS_TARGET if part == "rows" else None
            gain = against(one / two, target, at_most=False, digits=".2f")
            rows.append([name, words, f"{1e3 * one:.3f}", f"{1e3 * two:.3f}", gain])
    show_table("Threads, wall time: needs two idle cores", heads, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats, without the largest data")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    seconds = 0.5 if options.quick else 4.0
    report: dict[str, Any] = {"quick": options.quick, "machine": machine()}
    info = report["machine"]
    print(f"{info['cpu']}, {info['cores']} cores, load {info['load']}; {info['system']}")
    print(f"Python {info['python']}, numpy {info['numpy']}, numba {info['numba']}; BLAS on one thread", flush=True)
    results: dict[str, dict[str, Any]] = {}
    large: list[Workload] = []
    with threadpool_limits(1):
        for n_rows, n_dims, n_features, noise_sd in SIZES[: -1 if options.quick else None]:
            workload = workloads.linear(n_rows, n_dims, n_features, noise_sd=noise_sd)
            result = {"n_rows": n_rows, "n_dims": n_dims, **measure_sweep(workload, seconds)}
            result["numpy_s"] = measure_numpy(workload, 20 if options.quick else 100)
            results[workload.name] = result
            if n_rows >= MANY_THREADS_ROWS and (os.cpu_count() or 1) > 1:
                large.append(workload)
        for _ in range(ROUNDS):  # some time apart, since a core that another machine uses is slow for seconds
            for workload in large:
                for name, value in measure_threads(workload, seconds / 2).items():
                    results[workload.name][name] = min(value, results[workload.name].get(name, value))
    report["sweeps"] = results
    show(results)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(f"\nfigures written to {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
