"""Speed of the collapsed Gibbs sweep for the linear-Gaussian model, against its targets.

    python benchmarks/speed/collapsed.py [--quick] [--json PATH]

Every figure is process CPU time on one thread, the minimum over repeats. A target is a ratio between two things
measured in turn in the same run, so that it means the same on another machine. Nothing is asserted: a figure that
misses its target is marked, and the exit code is 0. See benchmarks/README.md.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import workloads
from benchmarks.speed.rivals import MASS, naive_rows, rank_one_rows
from benchmarks.tables import against, machine, show_table
from benchmarks.workloads import Workload
from thali import IBP, CollapsedGibbs, LinearGaussian
from thali.core.model import Model
from thali.core.odds import RowOdds
from thali.core.protocols.engines.chains import ChainRows, CollapsedRows
from thali.inference.samplers.chain import ZState
from thali.kernels.bits.feature_gram import rebuild

ROOT = Path(__file__).resolve().parents[2]
N_WARMUP = 6
GEMM_TARGET = {  # sweep time / time of X @ mu.T, at most
    "1000 x 100 sharp": 6.0,
    "1000 x 100 diffuse": 15.0,
    "10000 x 100 sharp": 6.0,
    "10000 x 100 diffuse": 15.0,
    "721 x 1024 sharp": 2.2,
    "721 x 1024 diffuse": 4.0,
}
NAIVE_TARGET = {"bars 500 x 36": 1e3}  # naive time / sweep time, at least; 5e3 for the others
RANK_ONE_TARGET = 60.0  # NumPy rank-one time / sweep time, at least
IMPORT_TARGET = 0.5  # seconds
HELP_TARGET = 0.3


def cpu_time(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


# --- the chain under test -------------------------------------------------------------------------


class Chain:
    """A chain of the library, started at the Z that made the data, with fixed hyperparameters."""

    def __init__(self, workload: Workload, seed: int = 1) -> None:
        self.workload = workload
        self.n_rows = len(workload.X)
        self.rng = np.random.default_rng(seed)
        self.prior = IBP(mass=MASS)
        self.observation = LinearGaussian(noise_var=workload.noise_var, feature_var=workload.feature_var)
        self.model = Model(prior=self.prior, observation=self.observation)
        self.inference = CollapsedGibbs()
        self.data = self.observation.engine(ChainRows).prepare(workload.X)
        self.local = self.observation.engine(ChainRows).place(self.data, workload.Z, workload.X)
        self.log_odds = self.prior.log_odds(self.n_rows)
        self.new_rate = self.prior.new_rate(self.n_rows)
        self.remarks: dict[str, float] = {}

    @property
    def n_features(self) -> int:
        return self.local.z.shape[1]

    def sweep(self) -> None:
        self.local, self.remarks = self.observation.engine(CollapsedRows).sweep(
            self.rng, self.data, self.local, RowOdds(self.log_odds, self.new_rate)
        )

    def step(self) -> None:
        state = ZState(self.prior, self.observation, self.local)
        state, _ = self.inference.step(self.rng, state, self.model, self.data)
        self.local = state.local


# --- what it is compared with ---------------------------------------------------------------------


class Effort(NamedTuple):
    """How long to measure."""

    seconds: float  # of interleaved sweeps and products, per workload
    least: int  # repeats, whatever they take
    naive_rows: int
    rank_one_rows: int
    growth_seconds: float
    n_rows: tuple[int, ...]
    n_dims: tuple[int, ...]
    n_features: tuple[int, ...]
    starts: int


FULL = Effort(
    3.0, 12, 3, 100, 0.6, (500, 1000, 2000, 4000, 8000, 16000, 32000), (25, 50, 100, 200, 400, 800, 1600),
    (5, 10, 15, 20, 30, 40), 5,
)  # fmt: skip
QUICK = Effort(0.5, 5, 1, 20, 0.1, (500, 2000, 8000, 32000), (25, 100, 400, 1600), (5, 10, 20, 40), 2)


def measure_sweep(workload: Workload, effort: Effort) -> dict[str, Any]:
    """Sweeps, steps and bare products in turn, so that all three see the same load of the machine.

    K moves while a diffuse chain runs: times are those at its most frequent value, for sweep, step and product alike.
    """
    chain = Chain(workload)
    for _ in range(N_WARMUP):
        chain.step()
    n_rows, n_dims = workload.X.shape
    features = np.random.default_rng(0).standard_normal((4 * chain.n_features + 8, n_dims))
    times: dict[str, dict[int, list[float]]] = {"gemm": {}, "sweep": {}, "step": {}}
    changed, visited = [], []
    stop = time.monotonic() + effort.seconds
    while len(visited) < effort.least or time.monotonic() < stop:
        K = chain.n_features
        mu = features[:K]
        times["gemm"].setdefault(K, []).extend(cpu_time(lambda mu=mu: workload.X @ mu.T) for _ in range(5))
        times["sweep"].setdefault(K, []).append(cpu_time(chain.sweep))
        visited.append(K)
        changed.append(chain.remarks["changed"])
        K = chain.n_features
        times["step"].setdefault(K, []).append(cpu_time(chain.step))
    K = max(set(visited), key=visited.count)
    sweep, gemm = min(times["sweep"][K]), min(times["gemm"][K])
    return {
        "n_features": K,
        "n_features_range": [min(visited), max(visited)],
        "changed": float(np.mean(changed)),
        "sweep_s": sweep,
        "step_s": min(times["step"].get(K, [math.nan])),
        "flips_per_s": n_rows * K / sweep,
        "gemm_s": gemm,
        "gemm_ratio": sweep / gemm,
        "repeats": len(times["sweep"][K]),
    }


def measure_rivals(workload: Workload, effort: Effort) -> dict[str, float]:
    """Seconds per sweep of the two NumPy samplers, from a few rows."""
    n_rows = len(workload.X)
    times = {}
    for name, sampler, n_timed in (
        ("naive", naive_rows, effort.naive_rows),
        ("rank_one", rank_one_rows, effort.rank_one_rows),
    ):
        set_up = min(cpu_time(lambda s=sampler: s(workload, 0, np.random.default_rng(0))) for _ in range(2))
        timed = min(cpu_time(lambda s=sampler, n=n_timed: s(workload, n, np.random.default_rng(0))) for _ in range(2))
        times[f"{name}_s"] = max(timed - set_up, 1e-9) * n_rows / n_timed
    return times


def slope(x: list[float], y: list[float]) -> float:
    """Of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def measure_growth(effort: Effort) -> list[dict[str, Any]]:
    """Microseconds per row as one size grows, on sharp data, so that K stays where it is.

    The noise grows with the number of dims, so that a row tells as much about its bits at every size.
    """
    tables = []
    for label, sizes, make in (
        ("n_rows", effort.n_rows, lambda n: workloads.linear(n, 100, 15, noise_sd=0.5)),
        ("n_dims", effort.n_dims, lambda d: workloads.linear(1000, d, 15, noise_sd=0.05 * math.sqrt(d))),
        ("n_features", effort.n_features, lambda k: workloads.linear(1000, 100, k, noise_sd=0.5)),
    ):
        per_row, found = [], []
        for size in sizes:
            chain = Chain(make(size))
            for _ in range(3):
                chain.sweep()
            best, n_timed, stop = math.inf, 0, time.monotonic() + effort.growth_seconds
            while n_timed < 3 or time.monotonic() < stop:
                best = min(best, cpu_time(chain.sweep))
                n_timed += 1
            per_row.append(1e6 * best / chain.n_rows)
            found.append(chain.n_features)
        tables.append({
            "vary": label, "sizes": list(sizes), "us_per_row": per_row, "n_features": found,
            "slope": slope(list(sizes), per_row),
        })  # fmt: skip
    return tables


def measure_guard(effort: Effort) -> dict[str, Any]:
    """What the rebuilds of ill-conditioned rows cost, and the drift that is left."""
    chain = Chain(workloads.small_ratio())
    for _ in range(N_WARMUP):
        chain.sweep()
    times, rebuilt, drift, changed, n_features = [], [], [], [], []
    stop = time.monotonic() + effort.seconds
    while len(times) < effort.least or time.monotonic() < stop:
        times.append(cpu_time(chain.sweep))
        for values, name in ((rebuilt, "rebuilt"), (drift, "drift"), (changed, "changed")):
            values.append(chain.remarks[name])
        n_features.append(chain.n_features)
    K = chain.n_features
    ridge = chain.workload.noise_var / chain.workload.feature_var
    P, G = np.zeros((K, K)), np.zeros((K, K))
    gram, cross = np.ascontiguousarray(chain.local.gram), np.ascontiguousarray(chain.local.cross)
    one = min(cpu_time(lambda: rebuild(gram, cross, K, ridge, P, G)) for _ in range(200))
    per_sweep = float(np.mean(rebuilt)) * chain.n_rows * one
    return {
        "workload": chain.workload.name,
        "n_features": [min(n_features), max(n_features)],
        "changed": float(np.mean(changed)),
        "rebuilt": float(np.mean(rebuilt)),
        "drift": float(np.max(drift)),
        "sweeps": len(times),
        "sweep_s": min(times),
        "rebuild_s": one,
        "cost_share": per_sweep / float(np.median(times)),
    }


_COMPILE = """
import time
import numpy as np
from thali import IBP, LinearGaussian
from thali.core.odds import RowOdds
from thali.core.protocols.engines.chains import ChainRows, CollapsedRows
import thali.kernels.bits.collapsed_rows
rng = np.random.default_rng(0)
Z = (rng.random((64, 3)) < 0.5).astype(np.uint8)
observation = LinearGaussian(noise_var=1.0, feature_var=1.0)
X = rng.standard_normal((64, 5))
data = observation.engine(ChainRows).prepare(X)
local = observation.engine(ChainRows).place(data, Z, X)
start = time.process_time()
observation.engine(CollapsedRows).sweep(rng, data, local, RowOdds(IBP(mass=1.0).log_odds(64), 0.01))
print(time.process_time() - start)
"""


def measure_starts(effort: Effort, cold: bool) -> dict[str, Any]:
    """Seconds until the kernel has run, cold and from the cache, and of `import thali` and `thali --help` (wall)."""
    times: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for name in ("compile_cold_s", "compile_warm_s") if cold else ():
            output = _output([sys.executable, "-c", _COMPILE], environment)
            times[name] = float(output) if output is not None else None
    for name, command in (
        ("python_s", [sys.executable, "-c", "pass"]),
        ("import_s", [sys.executable, "-c", "import thali"]),
        ("help_s", [str(Path(sys.executable).with_name("thali")), "--help"]),
    ):
        taken = []
        for _ in range(effort.starts):
            start = time.perf_counter()
            if _output(command, dict(os.environ)) is None:
                break
            taken.append(time.perf_counter() - start)
        times[name] = min(taken) if taken else None
    return times


def _output(command: list[str], environment: dict[str, str]) -> str | None:
    """What it prints; None if it cannot be run or fails."""
    try:
        child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return child.stdout


def show_sweeps(results: dict[str, dict[str, Any]]) -> None:
    heads = ["workload", "K", "rows changed", "sweep ms", "step ms", "us/row", "M flips/s", "GEMM ms", "sweep / GEMM"]
    rows = []
    for name, r in results.items():
        low, high = r["n_features_range"]
        rows.append([
            name, f"{r['n_features']} ({low}..{high})", f"{r['changed']:.1%}",
            f"{1e3 * r['sweep_s']:.3f}", f"{1e3 * r['step_s']:.3f}",
            f"{1e6 * r['sweep_s'] / r['n_rows']:.2f}", f"{r['flips_per_s'] / 1e6:.1f}", f"{1e3 * r['gemm_s']:.3f}",
            against(r["gemm_ratio"], GEMM_TARGET.get(name), at_most=True),
        ])  # fmt: skip
    show_table("One sweep, and the bare product X @ mu.T of the same shape", heads, rows)


def show_rivals(results: dict[str, dict[str, Any]]) -> None:
    heads = ["workload", "naive s", "naive / sweep", "rank-one s", "rank-one / sweep"]
    rows = []
    for name, r in results.items():
        rows.append([
            name, f"{r['naive_s']:.3g}",
            against(r["naive_s"] / r["sweep_s"], NAIVE_TARGET.get(name, 5e3), at_most=False),
            f"{r['rank_one_s']:.3g}", against(r["rank_one_s"] / r["sweep_s"], RANK_ONE_TARGET, at_most=False),
        ])  # fmt: skip
    show_table("Against NumPy: seconds per sweep, extrapolated to all rows from the first few", heads, rows)


def show_growth(tables: list[dict[str, Any]]) -> None:
    fixed = {
        "n_rows": "100 dims, 15 features",
        "n_dims": "1000 rows, 15 features",
        "n_features": "1000 rows, 100 dims",
    }
    for table in tables:
        heads = [table["vary"], *map(str, table["sizes"])]
        rows = [["us/row", *(f"{t:.2f}" for t in table["us_per_row"])]]
        if table["vary"] != "n_features":
            rows.append(["K", *map(str, table["n_features"])])
        show_table(f"Growth ({fixed[table['vary']]}, sharp): log-log slope {table['slope']:.2f}", heads, rows)


def show_guard(guard: dict[str, Any]) -> None:
    low, high = guard["n_features"]
    rows = [
        ["rows whose removal was ill-conditioned", f"{guard['rebuilt']:.2%}"],
        ["share of the time spent in their rebuilds", f"{guard['cost_share']:.1%}"],
        ["one rebuild", f"{1e6 * guard['rebuild_s']:.1f} us"],
        [f"largest drift |P (Z'Z + r I) - I| in {guard['sweeps']} sweeps", f"{guard['drift']:.1e}"],
        ["K", f"{low}..{high}"],
        ["rows changed", f"{guard['changed']:.1%}"],
    ]
    show_table(f"Drift guard: {guard['workload']}", ["", ""], rows)


def show_starts(starts: dict[str, Any]) -> None:
    rows = [
        [label, against(starts.get(name), target, at_most=True, digits=".2f")]
        for label, name, target in (
            ("first sweep, empty kernel cache (CPU)", "compile_cold_s", None),
            ("first sweep, kernels from the cache (CPU)", "compile_warm_s", None),
            ("python -c pass (wall)", "python_s", None),
            ("import thali (wall)", "import_s", IMPORT_TARGET),
            ("thali --help (wall)", "help_s", HELP_TARGET),
        )
    ]
    show_table("Start-up, seconds", ["", ""], rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats and sizes, no cold compilation")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL

    started = time.monotonic()
    report: dict[str, Any] = {"quick": options.quick, "machine": machine()}
    info = report["machine"]
    print(f"{info['cpu']}, {info['cores']} cores, load {info['load']}; {info['system']}")
    print(f"Python {info['python']}, numpy {info['numpy']}, scipy {info['scipy']}, numba {info['numba']}")
    print(f"BLAS {', '.join(info['blas'])}; one thread", flush=True)

    with threadpool_limits(1):
        Chain(workloads.linear(64, 5, 3, noise_sd=1.0)).sweep()  # compiles, or loads from the cache
        results = {}
        for name in workloads.NAMES:
            workload = workloads.make(name)
            n_rows, n_dims = workload.X.shape
            results[name] = {
                "n_rows": n_rows,
                "n_dims": n_dims,
                **measure_sweep(workload, effort),
                **measure_rivals(workload, effort),
            }
        report["sweeps"] = results
        show_sweeps(results)
        show_rivals(results)
        report["growth"] = measure_growth(effort)
        show_growth(report["growth"])
        report["guard"] = measure_guard(effort)
        show_guard(report["guard"])
    report["starts"] = measure_starts(effort, cold=not options.quick)
    show_starts(report["starts"])
    report["seconds"] = round(time.monotonic() - started, 1)
    print(f"\n{report['seconds']:.0f} s in all")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(f"figures written to {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
