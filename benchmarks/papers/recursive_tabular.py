"""Hospital stays and gene expression: a sweep over hyperparameters, and what a row costs (Figure 8).

    python benchmarks/papers/recursive_tabular.py [--data FOLDER] [--quick] [--rows 1000] [--json PATH]

Schaeffer, Du, Liu & Fiete (2022), Section 5.4. Diabetes patients (`diabetes130.csv.gz`, the paper's own set; 60 dims or
so as encoded here, one stay a patient), and leukaemia (`gene_leukemia_golub.npz`, 72 samples, the 200 genes that vary
most) as a stand-in for the paper's 801 tumours of 20 000 genes, which could not be had. Each dim has mean 0 and
variance 1 among the training rows; 300 further patients, or 22 samples, are predicted.

The paper sweeps alpha, beta, sigma_A and sigma_o and does not say over which values; here alpha and beta are 1 or 5,
feature variances .1 or 1, noise variances .3, .6 or 1. Scores are mean log densities of a test row by the library's
estimator, as in `recursive_synthetic.py`: quartiles and the best over the sweep; `learned` is one fit with a learned
mass and noise variance. Mean field has no beta and runs with beta 1 only; `independent dims` is the standard normal.

The second part: seconds of one pass of R-IBP against alpha, beta and N, the others at 2, 1 and 2000, noise variance .6,
beside the features in use and those expected by the prior, alpha beta (digamma(beta + N) - digamma(beta)), which is
concave in beta. The data decide how many features there are as soon as there are enough. See benchmarks/README.md.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.recursive_parts import (
    DIABETES,
    LEUKAEMIA,
    RECIPE,
    RIBP,
    Method,
    Problem,
    data_folder,
    diabetes,
    fit,
    found_files,
    leukaemia,
    measured,
    recursive_methods,
    standardised,
)
from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import IBP, BetaBernoulli, LinearGaussian, MeanField, StickBreakingIBP, StreamingMeanField

ALPHAS, BETAS, FEATURE_VARS, NOISES = (1.0, 5.0), (1.0, 5.0), (0.1, 1.0), (0.3, 0.6, 1.0)
TIMED = {"alpha": (1, 2, 4, 8, 16), "beta": (1, 2, 4, 8, 16), "N": (500, 1000, 2000, 4000, 8000)}
N_TEST, N_GENES, N_SAMPLES = 300, 200, 50
SLOTS = 20  # of mean field
KEY = ("part", "set", "method", "alpha", "beta", "feature_var", "noise_var", "rows")
NOTHING = dict.fromkeys(("alpha", "beta", "feature_var", "noise_var"))
Array = np.ndarray
Entry = dict[str, Any]


def methods() -> dict[str, Method]:
    own = recursive_methods()
    plain = MeanField(n_restarts=1, start="random", moves=False)
    one_pass = StreamingMeanField(batch_size=10, start="uniform", features="independent", n_inner=20)
    return {
        RIBP: own[RIBP],
        RECIPE: own[RECIPE],
        "streaming finite, rho = 1": Method(lambda p: (BetaBernoulli(p.mass, SLOTS), one_pass)),
        "streaming infinite, rho = 1": Method(lambda p: (StickBreakingIBP(p.mass, SLOTS), one_pass)),
        "finite mean field": Method(lambda p: (BetaBernoulli(p.mass, SLOTS), plain)),
        "infinite mean field": Method(lambda p: (StickBreakingIBP(p.mass, SLOTS), plain)),
    }


def sweep(name: str, X: Array, n_train: int, record: Record, *, quick: bool) -> None:
    X = standardised(X, n_train)
    train, test = X[:n_train], X[n_train : n_train + N_TEST]
    grid = list(itertools.product(ALPHAS, BETAS, FEATURE_VARS, NOISES))
    for alpha, beta, feature_var, noise_var in grid[:2] if quick else grid:
        problem = Problem(train, test, alpha, beta, noise_var, feature_var)
        for method_name, method in methods().items():
            if beta != 1.0 and not method.two_parameters:
                continue
            if record.has("sweep", name, method_name, alpha, beta, feature_var, noise_var, n_train):
                continue
            entry = {"part": "sweep", "set": name, "alpha": alpha, "beta": beta, "rows": n_train}
            entry |= {"feature_var": feature_var, "noise_var": noise_var}
            record.add({**entry, **measured(method_name, problem, method, 0)})
    if not record.has("sweep", name, "independent dims", None, None, None, None, n_train):
        score = float(norm.logpdf(test).sum(axis=1).mean())
        record.add({
            "part": "sweep", "set": name, "method": "independent dims", **NOTHING, "rows": n_train, "seconds": 0.0,
            "k": 0, "score": score,
        })  # fmt: skip
    if not record.has("sweep", name, "learned", None, None, None, None, n_train):
        problem = Problem(train, test, 1.0, 1.0, 1.0, 1.0)
        _, inference = methods()[RIBP].make(problem)
        start = time.perf_counter()
        model = fit(problem, Method(lambda p: (IBP(), inference)), 0, LinearGaussian())
        seconds = time.perf_counter() - start
        record.add({
            "part": "sweep", "set": name, "method": "learned", **NOTHING, "rows": n_train, "seconds": seconds,
            "k": model.n_components_, "score": float(model.score(test)),
        })  # fmt: skip


def times(X: Array, record: Record, *, quick: bool) -> None:
    method = recursive_methods()[RIBP]
    for what, values in TIMED.items():
        for value in values[:2] if quick else values:
            at = {"alpha": 2.0, "beta": 1.0, "N": 200 if quick else 2000} | {what: value}
            n = int(at["N"])
            if n > len(X) or record.has("time", what, RIBP, at["alpha"], at["beta"], 1.0, 0.6, n):
                continue
            problem = Problem(standardised(X[:n], n), X[:1], float(at["alpha"]), float(at["beta"]), 0.6, 1.0)
            start = time.perf_counter()
            model = fit(problem, method, 0)
            record.add({
                "part": "time", "set": what, "method": RIBP, "alpha": at["alpha"], "beta": at["beta"],
                "feature_var": 1.0, "noise_var": 0.6, "rows": n, "seconds": time.perf_counter() - start,
                "k": model.n_components_, "expected": problem.ibp().expected_features(n),
            })  # fmt: skip


# --- what it says ---------------------------------------------------------------------------------


def show_sweep(name: str, entries: list[Entry]) -> None:
    cells = []
    for method in dict.fromkeys(e["method"] for e in entries):
        runs = [e for e in entries if e["method"] == method]
        scores = np.array([e["score"] for e in runs])
        best = runs[int(np.argmax(scores))]
        low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
        at = "" if best["alpha"] is None else (
            f"alpha {best['alpha']:g}, beta {best['beta']:g}, "
            f"features {best['feature_var']:g}, noise {best['noise_var']:g}"
        )  # fmt: skip
        cells.append([
            method, str(len(runs)), f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}", f"{scores.max():.2f}", str(best["k"]),
            at, f"{np.median([e['seconds'] for e in runs]):.2f}",
        ])  # fmt: skip
    heads = ["method", "fits", "lower quartile", "median", "upper quartile", "best", "its K", "at", "s, median"]
    show_table(f"{name}: {entries[0]['rows']} rows", heads, cells)


def show_times(entries: list[Entry]) -> None:
    for what in TIMED:
        mine = [e for e in entries if e["set"] == what]
        if not mine:
            continue
        values = [e["rows"] if what == "N" else e[what] for e in mine]
        lines = [
            [
                f"{v:g}",
                f"{e['seconds']:.2f}",
                f"{1e6 * e['seconds'] / e['rows']:.0f}",
                str(e["k"]),
                f"{e['expected']:.1f}",
            ]
            for v, e in zip(values, mine, strict=True)
        ]
        show_table(f"One pass against {what}", [what, "s", "us a row", "K", "expected by the prior"], lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the files are (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="100 patients, two settings, two times each")
    parser.add_argument("--rows", type=int, default=1000, metavar="N", help="patients to learn from")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    there = found_files(data_folder(options.data), [DIABETES, LEUKAEMIA])
    n_rows = 100 if options.quick else options.rows

    record = Record(options.json, {"genes": N_GENES}, KEY)
    record.about = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        if DIABETES in there:
            X = diabetes(there[DIABETES], 600 if options.quick else max(n_rows + N_TEST, TIMED["N"][-1]))
            first = Problem(standardised(X[:20], 20), X[:1], 2.0, 1.0, 0.6, 1.0)
            for method in methods().values():  # compiles
                fit(first, method, 0)
            sweep("diabetes", X, n_rows, record, quick=options.quick)
            times(X, record, quick=options.quick)
        if LEUKAEMIA in there:
            genes = leukaemia(there[LEUKAEMIA], 40 if options.quick else N_GENES)
            sweep("leukaemia", genes, N_SAMPLES, record, quick=options.quick)
    for name in ("diabetes", "leukaemia"):
        mine = [e for e in record.entries if e["part"] == "sweep" and e["set"] == name]
        if mine:
            show_sweep(name, mine)
    show_times([e for e in record.entries if e["part"] == "time"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
