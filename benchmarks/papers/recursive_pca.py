"""PCA needs more components as rows come, of characters and of noise alike (Figure 1).

    python benchmarks/papers/recursive_pca.py [--data FOLDER] [--quick] [--json PATH]

Schaeffer, Du, Liu & Fiete (2022), Section 1. Components that hold 95 % of the variance of the first n rows, and the
share that 20 of them hold: Omniglot characters (`omniglot_small1.npz`, 28 x 28, alphabet by alphabet, as they might
come), the same in random order, and three simulated sets of as many rows, with 196 dims, of which the right answer is
known: five binary features with noise, noise alone, and an IBP whose number of features grows. `features` is how many
there are in those n rows. So many components for so much of the variance grow with n whatever the data are, until n is
much larger than the number of dims: the figure alone does not tell new features from a share that is counted better.
`R-IBP` is the number of features that one pass of RecursiveIBP finds in the simulated sets, variances known; sets with
noise alone have none. See benchmarks/README.md.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.recursive_parts import OMNIGLOT, Problem, data_folder, fit, found_files, omniglot, recursive
from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import IBP, BetaBernoulli

SIZES = (25, 50, 100, 200, 400, 800, 1600, 2720)
SHARE, HELD, N_DIMS = 0.95, 20, 196
Array = np.ndarray
Entry = dict[str, Any]


def components(X: Array) -> tuple[int, float]:
    """How many hold 95 % of the variance, and the share of it that 20 hold."""
    variance = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    share = np.cumsum(variance) / variance.sum()
    return int(np.searchsorted(share, SHARE) + 1), float(share[min(HELD, len(share)) - 1])


def simulated(name: str, n_rows: int) -> Problem:
    """Rows of which the number of features is known: five, none, or as many as an IBP has."""
    rng = np.random.default_rng(1)
    if name == "an IBP of mass 2":
        Z = IBP(mass=2.0).simulate(rng, n_rows)
    else:
        Z = BetaBernoulli(mass=2.5, n_features=5).simulate(rng, n_rows) if name == "five features" else None
    Z = np.zeros((n_rows, 0), dtype=np.uint8) if Z is None else Z
    A = rng.standard_normal((Z.shape[1], N_DIMS))
    X = Z @ A + rng.standard_normal((n_rows, N_DIMS)) * 0.5
    return Problem(X, X[:1], 2.0, 1.0, 0.25, 1.0, Z, A)


SIMULATED = ("five features", "an IBP of mass 2", "noise alone")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="at most 100 rows")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    sizes = SIZES[:3] if options.quick else SIZES

    sets: dict[str, Array] = {}
    there = found_files(data_folder(options.data), [OMNIGLOT])
    if there:
        sets["Omniglot"] = omniglot(there[OMNIGLOT])
        sets["Omniglot, random order"] = sets["Omniglot"][np.random.default_rng(5).permutation(len(sets["Omniglot"]))]
    problems = {name: simulated(name, sizes[-1]) for name in SIMULATED}
    sets |= {name: problem.train for name, problem in problems.items()}

    record = Record(options.json, {}, ("set", "rows"))
    record.about = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        for name, X in sets.items():
            for n in (n for n in sizes if n <= len(X) and not record.has(name, n)):
                needed, held = components(X[:n])
                entry: Entry = {"set": name, "rows": n, "needed": needed, "held": held}
                if name in problems:
                    problem = problems[name]
                    assert problem.Z is not None
                    entry["features"] = int(problem.Z[:n].any(axis=0).sum())
                    entry["found"] = fit(problem._replace(train=X[:n]), recursive(n_start=0), 0).n_components_
                record.add(entry)
    lines = []
    for name in sets:
        mine = {e["rows"]: e for e in record.entries if e["set"] == name}
        lines.append([name, "PCA, 95 %", *(str(mine[n]["needed"]) for n in mine)])
        lines.append(["", f"held by {HELD}", *(f"{mine[n]['held']:.2f}" for n in mine)])
        if name in problems:
            lines.append(["", "features", *(str(mine[n]["features"]) for n in mine)])
            lines.append(["", "R-IBP", *(str(mine[n]["found"]) for n in mine)])
    show_table("The first n rows", ["", "n", *map(str, sizes)], lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
