"""Infinite factor analysis of handwritten characters in one pass, beside finite factor analysis (Figure 9).

    python benchmarks/papers/recursive_omniglot.py [--data FOLDER] [--quick] [--rows 2000] [--json PATH]

Schaeffer, Du, Liu & Fiete (2022), Section 5.5. Omniglot (`omniglot_small1.npz`: 136 characters of 5 alphabets by
20 drawers), in random order. The paper gives them to a pretrained variational autoencoder and fits its latent means;
here the scores on 40 principal components (of the training rows), divided by one number and turned by a random
rotation, take their place, as there is no autoencoder without a further dependency. Without the rotation the dims
would be uncorrelated, and factor analysis with a noise variance for each dim would have nothing to find.

R-IBP is RecursiveIBP of `FactorAnalysis` from the first row, alpha = 2, beta = 1, weights of variance 1, feature
variance the mean variance of a dim, for each noise variance (in units of that); with learned variances as the last
line. Finite factor analysis is scikit-learn's (it learns a noise variance for each dim) with 1 to 32 components; PCA
likewise, with one noise variance. `score` is the mean log density of 500 further rows, `error` the root mean square
of what their reconstruction misses, in standard deviations. NMF is left out: scores are negative.
See benchmarks/README.md.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import decomposition
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.recursive_parts import (
    OMNIGLOT,
    RECIPE,
    RIBP,
    Problem,
    data_folder,
    fit,
    found_files,
    omniglot,
    recursive_methods,
)
from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import FactorAnalysis

N_LATENT, N_TEST, MASS = 40, 500, 2.0
NOISES, COMPONENTS = (0.1, 0.2, 0.4, 0.7, 1.0), (1, 2, 4, 8, 16, 32)
WARM = FactorAnalysis(noise_var=0.5, feature_var=1.0, offset=None, noise_floor=0.0)
Array = np.ndarray
Entry = dict[str, Any]


def latents(X: Array, n_rows: int, n_test: int) -> tuple[Array, Array]:
    """Training and test rows in random order: principal scores of mean variance one, rotated."""
    X = X[np.random.default_rng(5).permutation(len(X))]
    train, test = X[:n_rows], X[n_rows : n_rows + n_test]
    pca = decomposition.PCA(min(N_LATENT, n_rows - 1), random_state=0).fit(train)
    size = float(np.sqrt(pca.transform(train).var(axis=0).mean()))
    rotation = np.linalg.qr(np.random.default_rng(6).standard_normal(2 * [pca.n_components_]))[0] / size
    return pca.transform(train) @ rotation, pca.transform(test) @ rotation


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def ours(problem: Problem, name: str, noise_var: float | None) -> Entry:
    law = {} if noise_var is None else {"noise_var": noise_var, "feature_var": problem.feature_var}
    observation = FactorAnalysis(**law, offset=None, noise_floor=0.0)
    start = time.perf_counter()
    model = fit(problem, recursive_methods()[name], 0, observation)
    seconds = time.perf_counter() - start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = model.inverse_transform(model.transform(problem.test))
    return {
        "k": model.n_components_, "seconds": seconds, "score": float(model.score(problem.test)),
        "error": rms(problem.test - told),
    }  # fmt: skip


def finite(problem: Problem, kind: Any, k: int) -> Entry:
    start = time.perf_counter()
    model = kind(k).fit(problem.train)
    seconds = time.perf_counter() - start
    told = model.transform(problem.test) @ model.components_ + model.mean_
    return {"k": k, "seconds": seconds, "score": float(model.score(problem.test)), "error": rms(problem.test - told)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="150 rows, 50 tested, two settings")
    parser.add_argument("--rows", type=int, default=2000, metavar="N", help="rows to learn from, at most 2200")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    there = found_files(data_folder(options.data), [OMNIGLOT])
    if not there:
        return 0
    n_rows, n_test = (150, 50) if options.quick else (min(options.rows, 2200), N_TEST)
    noises, components = (NOISES[2:4], COMPONENTS[:2]) if options.quick else (NOISES, COMPONENTS)

    train, test = latents(omniglot(there[OMNIGLOT]), n_rows, n_test)
    problem = Problem(train, test, MASS, 1.0, 1.0, 1.0)
    record = Record(options.json, {"rows": n_rows}, ("method", "setting"))
    record.about = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        fit(problem._replace(train=train[:20]), recursive_methods()[RIBP], 0, WARM)  # compiles
        for name, kind in {"finite FA": decomposition.FactorAnalysis, "PCA": decomposition.PCA}.items():
            for k in components:
                if not record.has(name, f"K {k}"):
                    record.add({"method": name, "setting": f"K {k}", **finite(problem, kind, k)})
        for name in (RIBP, RECIPE):
            for noise_var in (*noises, *([None] if name == RIBP else [])):
                setting = "learned" if noise_var is None else f"noise {noise_var:g}"
                if not record.has(name, setting):
                    record.add({"method": name, "setting": setting, **ours(problem, name, noise_var)})
    cells = [
        [e["method"], e["setting"], str(e["k"]), f"{e['score']:.2f}", f"{e['error']:.3f}", f"{e['seconds']:.2f}"]
        for e in record.entries
    ]
    show_table(f"{n_rows} characters, {train.shape[1]} dims", ["method", "", "K", "score", "error", "s"], cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
