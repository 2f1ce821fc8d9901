"""The filter as the noise vanishes, and BP-means: where they are the same and where not (Prop. 4.1, Theorem C.1).

    python benchmarks/papers/recursive_zero_noise.py [--quick] [--sets 500] [--seed 0] [--json PATH]

Schaeffer, Du, Liu & Fiete (2022), Section 4 and Appendix C: with alpha = exp(-penalty / (2 sigma^2)), one pass of the
filter is said to fill Z and A as one pass of BP-means does, and to minimise |X - Z A|^2 + penalty K. What the filter
becomes, with new features at what is left of a row, is a recursion: bits by the current features, a new feature where
more than the penalty is left, then each used feature the running mean of what others leave of its rows. BP-means
refits all features by least squares after the pass. Both start without features and are written out here.

Part 1 compares one pass of either over random sets (20 to 40 rows, 3 dims, 2 or 3 features, with and without noise):
how often Z and A agree; Z with a single sweep over the bits of a row, as BP-means has, in place of sweeps until nothing
changes (`one sweep`), and with features that stay within the pass (`A stays`); only with both it must be the same. Then
which has the lower objective, and how often `BPMeans`, which passes until nothing changes, is lower than both. Part 2
runs RecursiveIBP from the first row at falling noise variances: how many features it ends with, those of the recursion,
and the largest difference of a feature from the nearest of the recursion. Part 3: started at its prior, as printed, the
new feature of the first row gets q / sigma^2 as its pull, and q = 1 - exp(-alpha) vanishes faster than sigma^2: the
series of the proof diverges and no feature is ever made.
See benchmarks/README.md.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.recursive_parts import Method, Problem, fit, recursive
from benchmarks.tables import machine, show_table
from thali import IBP, BPMeans

PENALTY = 1.0
NOISES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)  # with less, alpha = exp(-penalty / (2 noise)) is no number any more
STARTS = (0.3, 0.1, 0.03, 0.01)  # noise variances of the last part
CLOSE = 1e-6
Array = np.ndarray
Entry = dict[str, Any]


def objective(X: Array, Z: Array, A: Array) -> float:
    return float(((X - Z @ A) ** 2).sum() + PENALTY * Z.shape[1])


def bits(x: Array, z: Array, A: Array, *, n_sweeps: int) -> Array:
    """Each in turn on where that brings the row closer."""
    for _ in range(n_sweeps):
        before = z.copy()
        for k in range(len(A)):
            left = x - z @ A + z[k] * A[k]
            z[k] = float(left @ A[k] > 0.5 * A[k] @ A[k])
        if np.array_equal(z, before):
            break
    return z


def one_pass(X: Array, *, averages: bool, n_sweeps: int, refit: bool) -> tuple[Array, Array]:
    """Z and A after one pass from no features, which average what is left of their rows, or stay; or are refitted."""
    A, Z, counts = np.zeros((0, X.shape[1])), np.zeros((len(X), 0)), np.zeros(0)
    for n, x in enumerate(X):
        z = bits(x, np.zeros(len(A)), A, n_sweeps=n_sweeps)
        left = x - z @ A
        if left @ left > PENALTY:
            A, counts, z = np.vstack([A, np.zeros_like(x)]), np.append(counts, 0.0), np.append(z, 1.0)
            Z = np.hstack([Z, np.zeros((len(X), 1))])
            A[-1] = left  # its running mean, of one row
            counts[-1] = 0.0
        Z[n] = z
        for k in np.flatnonzero(z):
            if averages:
                A[k] += (x - z @ A) / (counts[k] + 1)  # eq. 11 without noise
            counts[k] += 1
    used = Z.any(axis=0)
    Z, A = Z[:, used], A[used]
    return Z, np.linalg.lstsq(Z, X, rcond=None)[0] if refit else A


def random_set(rng: np.random.Generator, noise_sd: float) -> Array:
    n_rows, n_features = int(rng.integers(20, 41)), int(rng.integers(2, 4))
    Z = (rng.random((n_rows, n_features)) < 0.5).astype(float)
    return Z @ (2.0 * rng.standard_normal((n_features, 3))) + noise_sd * rng.standard_normal((n_rows, 3))


def passes(rng: np.random.Generator, noise_sd: float, n_sets: int) -> Entry:
    same = {name: 0 for name in ("z", "a", "stays", "sweep", "filter_lower", "bp_lower", "passes_lower")}
    excess = []
    for _ in range(n_sets):
        X = random_set(rng, noise_sd)
        bp = one_pass(X, averages=False, n_sweeps=1, refit=True)
        own = one_pass(X, averages=True, n_sweeps=20, refit=False)
        stays = one_pass(X, averages=False, n_sweeps=20, refit=False)
        sweep = one_pass(X, averages=True, n_sweeps=1, refit=False)
        same["stays"] += np.array_equal(stays[0], bp[0])
        same["sweep"] += np.array_equal(sweep[0], bp[0])
        alike = np.array_equal(own[0], bp[0])
        same["z"] += alike
        same["a"] += alike and float(np.abs(own[1] - bp[1]).max(initial=0.0)) < CLOSE
        mine, theirs = objective(X, *own), objective(X, *bp)
        same["filter_lower"] += mine < theirs - CLOSE
        same["bp_lower"] += theirs < mine - CLOSE
        problem = Problem(X, X[:1], 1.0, 1.0, 0.01, 1.0)
        several = fit(problem, Method(lambda p: (IBP(mass=1.0), BPMeans(penalty=PENALTY))), 0)
        Z = several.posterior_.Z(0, 0).astype(float)
        lowest = objective(X, Z, np.linalg.lstsq(Z, X, rcond=None)[0])
        same["passes_lower"] += lowest < min(mine, theirs) - CLOSE
        excess.append(mine - lowest)
    return {"noise": noise_sd, "sets": n_sets, **same, "excess": float(np.mean(excess))}


def limit(X: Array, noise_var: float) -> Entry:
    """The library's filter beside the recursion: features in the order of their birth are matched by nearness."""
    mass = float(np.exp(-PENALTY / (2 * noise_var)))
    problem = Problem(X, X[:1], max(mass, 1e-300), 1.0, noise_var, 1.0)
    method = recursive(n_start=0, births="anchored", tol=1e-10, fade_below=0.0)
    model = fit(problem, method, 0)
    _, A = one_pass(X, averages=True, n_sweeps=20, refit=False)
    found = model.components_
    off = max((float(np.abs(A - f).max(axis=1).min()) for f in found), default=np.nan) if len(A) else np.nan
    return {"noise_var": noise_var, "mass": mass, "k": len(found), "wanted": len(A), "off": off}


def started_at_prior(o: Array, noise_var: float) -> Entry:
    """The first row with b at its prior, by the printed updates: covariance, mean, then b, ten times."""
    alpha = np.exp(-PENALTY / (2 * noise_var))
    q = -np.expm1(-alpha)
    b = q
    for _ in range(10):
        v = 1.0 / (1.0 + b / noise_var)
        mu = v * b / noise_var * o
        theta = np.log(q) - np.log1p(-q) - (-2 * mu @ o + len(o) * v + mu @ mu) / (2 * noise_var)
        b = 1.0 / (1.0 + np.exp(-np.clip(theta, -700, 700)))
    return {"noise_var": noise_var, "ratio": float(noise_var / q), "b": float(b), "mu": float(np.abs(mu).max())}


def show(report: Entry) -> None:
    lines = [
        [f"{e['noise']:g}", *(f"{100 * e[name] / e['sets']:.1f} %" for name in
          ("z", "a", "sweep", "stays", "bp_lower", "filter_lower", "passes_lower")), f"{e['excess']:.2f}"]
        for e in report["passes"]
    ]  # fmt: skip
    heads = ["noise sd", "same Z", "same Z and A", "Z, one sweep", "Z, A stays", "BP-means lower", "filter lower"]
    title = f"One pass of the filter's limit and of BP-means, {report['passes'][0]['sets']} random sets a line"
    show_table(title, [*heads, "many passes lower", "filter above those by"], lines)
    lines = [
        [f"{e['noise_var']:g}", f"{e['mass']:.0e}", str(e["k"]), str(e["wanted"]), f"{e['off']:.1e}"]
        for e in report["limit"]
    ]  # fmt: skip
    show_table("RecursiveIBP as the noise vanishes", ["noise variance", "alpha", "K", "K of the limit", "off"], lines)
    lines = [[f"{e['noise_var']:g}", f"{e['ratio']:.2g}", f"{e['b']:.1e}", f"{e['mu']:.1e}"] for e in report["start"]]
    title = "A first row (2, 0), penalty 1, b started at its prior: the limit should be b = 1, mu = 2"
    show_table(title, ["noise variance", "sigma^2 / q", "b", "largest mu"], lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="ten sets")
    parser.add_argument("--sets", type=int, default=500, metavar="N", help="random sets for each noise")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    n_sets = 10 if options.quick else options.sets
    report: Entry = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        report["passes"] = [passes(rng, noise_sd, n_sets) for noise_sd in (0.0, 0.1, 0.3)]
        X = random_set(np.random.default_rng(options.seed + 1), 0.05)
        report["limit"] = [limit(X, noise_var) for noise_var in NOISES]
    report["start"] = [started_at_prior(np.array([2.0, 0.0]), noise_var) for noise_var in STARTS]
    show(report)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
