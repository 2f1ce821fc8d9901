"""Speed of a mean-field iteration for the linear-Gaussian model, against its targets.

    python benchmarks/speed/mean_field.py [--quick] [--json PATH]

An iteration is one pass over the bits of all rows with their sums (`update_rows`), and the features given these
(`update_features`, hyperparameters fixed). It is measured in CPU time on one thread, in double and in single precision,
beside the two products X A' and V'X of the same shape and precision; then in wall time on one and on two threads.
Each figure is the minimum over repeats; what is compared is measured in turn. Nothing is asserted: a figure that
misses its target is marked. See benchmarks/README.md.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import workloads
from benchmarks.tables import against, machine, show_table
from benchmarks.workloads import Workload
from thali import LinearGaussian
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows

TARGETS = {  # workload: iteration / two products, at most, in double precision
    (100_000, 50, 30): 1.6,
    (1_000_000, 50, 30): 1.6,
    (721, 1024, 25): 1.6,
    (500, 500, 30): 2.0,
}
SINGLE_TARGET = 1.4  # double / single precision, at least
MISSING = 0.1  # of the cells, in the table of missing cells
THREAD_ROWS = 10_000
GROWTH = {  # what grows: sizes
    "rows": [(n, 50, 30) for n in (1_000, 10_000, 100_000)],
    "dims": [(5_000, d, 20) for d in (25, 100, 400)],
    "features": [(5_000, 100, k) for k in (5, 20, 80)],
}


class Fit:
    """Coordinate ascent that starts at the Z that made the data, softened, with fixed hyperparameters."""

    def __init__(self, workload: Workload, precision: str, missing: float = 0.0) -> None:
        rng = np.random.default_rng(1)
        X = np.where(rng.random(workload.X.shape) < missing, np.nan, workload.X) if missing else workload.X
        model = LinearGaussian(noise_var=workload.noise_var, feature_var=workload.feature_var)
        self.model, K = model.adapt(X), workload.Z.shape[1]
        self.data, self.odds = self.model.engine(MeanFieldRows).row_data(X), np.full(K, -1.0)
        self.q = self.model.engine(MeanFieldRows).init_features(self.data, K, Family(precision=precision))
        self.X = self.data.single if precision == "single" else self.data.double
        self.local = self.model.engine(MeanFieldRows).init_rows(self.data, 0.1 + 0.8 * workload.Z)
        self.local, sums = self.model.engine(MeanFieldRows).update_rows(self.data, self.q, self.local, self.odds, 0)
        self.q = self.model.engine(MeanFieldRows).update_features(self.q, sums, learn=False)
        self.V, self.A = np.asarray(self.local.z_prob, self.X.dtype), self.q.mean.astype(self.X.dtype)

    def iterate(self, n_threads: int = 1) -> None:
        self.local, sums = self.model.engine(MeanFieldRows).update_rows(
            self.data, self.q, self.local, self.odds, 1, n_threads
        )
        self.q = self.model.engine(MeanFieldRows).update_features(self.q, sums, learn=False)

    def two_products(self) -> None:
        """What no iteration can do without."""
        np.matmul(self.X, self.A.T)
        np.matmul(self.V.T, self.X)


def least(works: dict[str, Callable[[], Any]], seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """The least time of each, measured in turn."""
    times: dict[str, list[float]] = {name: [] for name in works}
    stop = time.monotonic() + seconds
    while len(next(iter(times.values()))) < 3 or time.monotonic() < stop:
        for name, work in works.items():
            start = clock()
            work()
            times[name].append(clock() - start)
    return {name: min(values) for name, values in times.items()}


def workload_of(size: tuple[int, int, int]) -> Workload:
    n_rows, n_dims, n_features = size
    return workloads.linear(n_rows, n_dims, n_features, noise_sd=0.5, name=f"{n_rows} x {n_dims} K {n_features}")


def measure(size: tuple[int, int, int], seconds: float, missing: float = 0.0) -> dict[str, float]:
    workload = workload_of(size)
    works: dict[str, Callable[[], Any]] = {}
    for precision in ("double", "single"):
        fit = Fit(workload, precision, missing)
        works |= {f"{precision}_gemms_s": fit.two_products, f"{precision}_s": fit.iterate}
    result = least(works, seconds, time.process_time)
    if size[0] >= THREAD_ROWS and (os.cpu_count() or 1) > 1:
        fit = Fit(workload, "double", missing)
        result |= least({f"threads_{n}_s": lambda n=n: fit.iterate(n) for n in (1, 2)}, seconds, time.perf_counter)
    return result


def show(results: dict[str, dict[str, Any]], title: str) -> None:
    heads = ["workload", "GEMMs ms", "iteration ms", "/ GEMMs", "f32 GEMMs ms", "f32 ms", "/ GEMMs", "f64 / f32"]
    rows = [
        [
            name, f"{1e3 * r['double_gemms_s']:.3f}", f"{1e3 * r['double_s']:.3f}",
            against(r["double_s"] / r["double_gemms_s"], r["target"], at_most=True, digits=".2f"),
            f"{1e3 * r['single_gemms_s']:.3f}", f"{1e3 * r['single_s']:.3f}",
            f"{r['single_s'] / r['single_gemms_s']:.2f}",
            against(
                r["double_s"] / r["single_s"], SINGLE_TARGET if r["target"] else None, at_most=False, digits=".2f"
            ),
        ]
        for name, r in results.items()
    ]  # fmt: skip
    show_table(title, heads, rows)


def show_growth(results: dict[str, dict[str, dict[str, Any]]]) -> None:
    heads = ["what grows", "sizes", "ns per cell and feature", "slope"]
    rows = []
    for what, by_size in results.items():
        sizes, times = zip(*((r["size"], r["double_s"]) for r in by_size.values()), strict=True)
        axis = list(GROWTH).index(what)
        slope = np.polyfit(np.log([size[axis] for size in sizes]), np.log(times), 1)[0]
        each = [1e9 * t / np.prod(size) for size, t in zip(sizes, times, strict=True)]
        grown = ", ".join(str(size[axis]) for size in sizes)
        rows.append([what, grown, ", ".join(f"{value:.3g}" for value in each), f"{slope:.2f}"])
    show_table("Growth of an iteration: slope in log-log coordinates, 1 is proportional", heads, rows)


def show_threads(results: dict[str, dict[str, Any]]) -> None:
    heads = ["workload", "1 thread ms", "2 threads ms", "gain"]
    rows = [
        [
            name, f"{1e3 * r['threads_1_s']:.3f}", f"{1e3 * r['threads_2_s']:.3f}",
            f"{r['threads_1_s'] / r['threads_2_s']:.2f}",
        ]
        for name, r in results.items() if "threads_1_s" in r
    ]  # fmt: skip
    show_table("Threads, wall time: needs two idle cores", heads, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats, without the largest data")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    seconds = 0.3 if options.quick else 3.0
    report: dict[str, Any] = {"quick": options.quick, "machine": machine()}
    info = report["machine"]
    print(f"{info['cpu']}, {info['cores']} cores, load {info['load']}; {info['system']}")
    print(f"Python {info['python']}, numpy {info['numpy']}, numba {info['numba']}; BLAS on one thread", flush=True)
    with threadpool_limits(1):
        sizes = [size for size in TARGETS if size[0] < 1_000_000 or not options.quick]
        report["iterations"] = {
            workload_of(size).name: {"target": TARGETS[size], **measure(size, seconds)} for size in sizes
        }
        show(report["iterations"], "One iteration on one thread, and the products X A' and V'X")
        some = [(20_000, 50, 30), (500, 500, 30)]
        report["missing"] = {
            f"{workload_of(size).name}, {MISSING:.0%}": {"target": None, **measure(size, seconds, MISSING)}
            for size in some
        }
        show(report["missing"], "With missing cells")
        report["growth"] = {
            what: {workload_of(size).name: {"size": size, **measure(size, seconds / 3)} for size in sizes}
            for what, sizes in GROWTH.items()
        }
        show_growth(report["growth"])
        show_threads(report["iterations"] | report["missing"])
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(f"\nfigures written to {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
