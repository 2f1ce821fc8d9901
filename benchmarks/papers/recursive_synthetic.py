"""Streams, batches and samplers on linear-Gaussian data with known hyperparameters (Figures 5 and 6).

    python benchmarks/papers/recursive_synthetic.py [--quick] [--sets 4] [--rows 200] [--dims 25] [--noise 1.0]
                                                    [--parts recursive,streams,batches,recovery] [--alphas A,B]
                                                    [--json PATH]

Schaeffer, Du, Liu & Fiete (2022), Section 5.2. Z ~ IBP(alpha, beta), features and noise normal; all methods know all
hyperparameters. The score is the mean log density of 100 further rows of the same restaurant, each given the training
rows alone. The paper gives no sizes, so its levels cannot be compared. All methods are
scored by the library's estimator (`score`), the features integrated out: patterns of bits that a Gibbs scan visits are
summed, the others estimated by importance sampling. With many more features than dims and little noise (alpha = 10.78,
10 dims, noise variance .25) no estimator of ours is reliable, so the noise variance is 1 and there are 25 dims.

Methods: `R-IBP` is RecursiveIBP from the first row on; as it comes it keeps 100 rows first, half of these data, and
begins with a mean field of them (with small alpha only: that takes long). `R-IBP, the paper's recipe` starts rows at
the prior, does a fixed number of sweeps and averages features as printed. `streaming` are those of Widjaja &
Doshi-Velez (`StreamingMeanField`, uniform start) in the setting with which the authors ran them, which forgets
everything at each row, and with rho = 1 in batches of ten, as they declare. Batch methods see all rows at once, again
and again. Mean field has no concentration: with beta other than 1 it is left out. HMC within Gibbs is NumPyro's, where
it is installed (two data sets, small alpha). `features known` is told the features, 60 at most. `minus R-IBP` is the
mean difference over the data sets with its standard error; seconds are wall time of a fit on one thread, compiled
before.

The last part is Figure 6: number of features found by R-IBP in one pass, and how many of those that the rows so far
have are matched by a cosine above .95, by number of dims. See benchmarks/README.md.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers import recursive_hmc
from benchmarks.papers.recursive_parts import (
    KEPT,
    RECIPE,
    RIBP,
    Method,
    Problem,
    batch_methods,
    fit,
    measured,
    ordinary,
    recursive_methods,
    stream_methods,
    synthetic,
    truth_known,
)
from benchmarks.quality.record import Record, listed
from benchmarks.tables import machine, show_table

ONE = [(alpha, 1.0) for alpha in (1.1, 2.0, 5.0, 10.78)]  # beta that all methods know
NINE = list(itertools.product((1.1, 10.78, 15.37), (2.3, 5.6, 12.9)))  # those of Section 5.1
N_TEST, KNOWN = 100, "features known"
N_SWEEPS, N_HMC, HMC_SETS = 400, (200, 200), 2
MOST_KNOWN = 60  # features for which the estimator serves who knows them exactly
FEW = 2.0  # alpha up to which slow methods take part
RECOVERY_DIMS, CHECKPOINTS = (5, 10, 25, 50, 100), (50, 100, 200, 500, 1000)
RECOVERY_MASS, RECOVERY_NOISE, MATCHED = 2.0, 0.25, 0.95
PARTS = ["recursive", "streams", "batches", "recovery"]
Array = np.ndarray
Entry = dict[str, Any]


def is_stream(name: str) -> bool:
    return name in (recursive_methods() | stream_methods()) or name in (KEPT, "particle filter")


def run_methods(problem: Problem, methods: dict[str, Method], seed: int, record: Record, key: tuple[Any, ...]) -> None:
    for name, method in methods.items():
        if (problem.concentration != 1.0 and not method.two_parameters) or (name == KEPT and max(key) > FEW):
            continue
        if not record.has("score", *key, seed, name):
            record.add({**_named("score", key), **measured(name, problem, method, seed)})


def run_references(problem: Problem, seed: int, record: Record, key: tuple[Any, ...], *, batches: bool) -> None:
    assert problem.Z is not None
    used = int(problem.Z.any(axis=0).sum())
    references: dict[str, Callable[[], tuple[float, float]]] = {}
    if used <= MOST_KNOWN:
        references[KNOWN] = lambda: (truth_known(problem), used)
    if batches:
        references |= ordinary(problem, seed)
        if recursive_hmc.INSTALLED and problem.mass <= FEW and seed < HMC_SETS:
            references["HMC within Gibbs (NumPyro)"] = lambda: recursive_hmc.score_bits(
                problem, recursive_hmc.sample_bits(problem, seed, *N_HMC)[:: N_HMC[1] // 20]
            )
    for name, method in references.items():
        if not record.has("score", *key, seed, name):
            start = time.perf_counter()
            score, k = method()
            seconds = time.perf_counter() - start
            record.add({
                **_named("score", key), "method": name, "seed": seed, "k": k, "score": score, "seconds": seconds
            })  # fmt: skip


def _named(part: str, key: tuple[Any, ...]) -> Entry:
    return {"part": part, "alpha": key[0], "beta": key[1]}


# --- Figure 6 -------------------------------------------------------------------------------------


def n_matched(found: Array, wanted: Array) -> int:
    """How many of the wanted features have one of the found to themselves, with a cosine above the limit."""
    if not len(found) or not len(wanted):
        return 0
    sizes = np.maximum(np.linalg.norm(found, axis=1), 1e-12)[:, None] * np.linalg.norm(wanted, axis=1)
    cosine = found @ wanted.T / sizes
    rows, columns = linear_sum_assignment(cosine, maximize=True)
    return int((cosine[rows, columns] > MATCHED).sum())


def recover(n_dims: int, seed: int, checkpoints: tuple[int, ...], record: Record) -> None:
    problem = synthetic(seed, checkpoints[-1], 1, n_dims, RECOVERY_MASS, noise_var=RECOVERY_NOISE)
    assert problem.Z is not None
    assert problem.features is not None
    for n in checkpoints:
        if not record.has("recovery", n_dims, n, seed, RIBP):
            model = fit(problem._replace(train=problem.train[:n]), recursive_methods()[RIBP], seed)
            used = problem.Z[:n].any(axis=0)
            record.add({
                "part": "recovery", "alpha": n_dims, "beta": n, "method": RIBP, "seed": seed,
                "true": int(used.sum()), "k": model.n_components_,
                "matched": n_matched(model.components_, problem.features[used]),
            })  # fmt: skip


# --- what it says ---------------------------------------------------------------------------------


def mean_error(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def differences(entries: list[Entry], name: str, other: str) -> list[float]:
    """Score of a method minus that of another, by data set."""
    mine, theirs = ({e["seed"]: e["score"] for e in entries if e["method"] == method} for method in (name, other))
    return [mine[seed] - theirs[seed] for seed in mine if seed in theirs]


def show_scores(key: tuple[float, float], entries: list[Entry]) -> None:
    cells = []
    for name in dict.fromkeys(e["method"] for e in entries):
        runs = [e for e in entries if e["method"] == name]
        off, error = mean_error(differences(entries, name, RIBP))
        cells.append([
            name, f"{np.mean([e['score'] for e in runs]):.3f}", "" if name == RIBP else f"{off:+.3f} +- {error:.3f}",
            f"{np.mean([e['k'] for e in runs]):.1f}",
            "" if name == KNOWN else f"{np.mean([e['seconds'] for e in runs]):.2f}",
        ])  # fmt: skip
    show_table(f"alpha {key[0]:g}, beta {key[1]:g}", ["method", "score", f"minus {RIBP}", "K", "s"], cells)


def show_summary(entries: list[Entry]) -> None:
    """By (alpha, beta): ours against the recipe, and the best batch method against ours."""
    cells = []
    for key in dict.fromkeys((e["alpha"], e["beta"]) for e in entries):
        mine = [e for e in entries if (e["alpha"], e["beta"]) == key]
        names = [name for name in dict.fromkeys(e["method"] for e in mine) if name not in (RIBP, KNOWN)]
        off = {name: mean_error(differences(mine, name, RIBP)) for name in names}
        recipe = off.get(RECIPE, (np.nan, np.nan))
        line = [f"{key[0]:g}, {key[1]:g}", f"{-recipe[0]:+.3f} +- {recipe[1]:.3f}"]
        for group in ([n for n in names if is_stream(n) and n != RECIPE], [n for n in names if not is_stream(n)]):
            best = max(group, key=lambda name: off[name][0], default=None)
            line.append("" if best is None else f"{best}: {off[best][0]:+.3f} +- {off[best][1]:.3f}")
        cells.append(line)
    heads = ["alpha, beta", f"{RIBP} minus the recipe", f"best other stream minus {RIBP}", f"best batch minus {RIBP}"]
    show_table("Who predicts better", heads, cells)


def show_recovery(entries: list[Entry]) -> None:
    rows = sorted({e["beta"] for e in entries})
    cells = []
    for n_dims in sorted({e["alpha"] for e in entries}):
        line = [str(n_dims)]
        for n in rows:
            mine = [e for e in entries if (e["alpha"], e["beta"]) == (n_dims, n)]
            line.append(" / ".join(f"{np.mean([e[name] for e in mine]):.1f}" for name in ("true", "k", "matched")))
        cells.append(line)
    title = f"Features of the rows so far / found / matched; alpha {RECOVERY_MASS:g}, noise variance {RECOVERY_NOISE:g}"
    show_table(title, ["dims", *(f"{n} rows" for n in rows)], cells)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one data set of 60 rows, two alphas, 20 sweeps")
    parser.add_argument("--sets", type=int, default=4, metavar="N", help="data sets for each (alpha, beta)")
    parser.add_argument("--rows", type=int, default=200, metavar="N", help="training rows")
    parser.add_argument("--dims", type=int, default=25, metavar="N")
    parser.add_argument("--noise", type=float, default=1.0, metavar="VARIANCE")
    parser.add_argument(
        "--alphas", type=lambda text: [float(a) for a in text.split(",")], metavar="A,B",
        help=f"with beta 1, some of {', '.join(f'{alpha:g}' for alpha, _ in ONE)}; without it beta 2.3 to 12.9, too",
    )  # fmt: skip
    parser.add_argument("--parts", type=lambda text: listed(text, PARTS), default=PARTS, metavar="A,B")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    n_sets, n_rows, n_sweeps = (1, 60, 20) if options.quick else (options.sets, options.rows, N_SWEEPS)
    one, nine = (ONE[:2], NINE[:1]) if options.quick else (ONE, NINE)
    if options.alphas is not None:
        one, nine = [key for key in one if key[0] in options.alphas], []

    conditions = {"rows": n_rows, "dims": options.dims, "noise": options.noise, "sweeps": n_sweeps}
    record = Record(options.json, conditions, ("part", "alpha", "beta", "seed", "method"))
    record.about = {"machine": machine()}
    if not recursive_hmc.INSTALLED and "batches" in options.parts:
        print("HMC within Gibbs is left out: numpyro is not installed")
    with threadpool_limits(1, "blas"):
        groups = {"recursive": recursive_methods(), "streams": stream_methods(), "batches": batch_methods(n_sweeps)}
        chosen = {name: method for part in options.parts for name, method in groups.get(part, {}).items()}
        for method in chosen.values():  # compiles
            fit(synthetic(0, 20, 1, options.dims, *one[0]), method, 0)
        for seed, key in itertools.product(range(n_sets if chosen else 0), [*one, *nine]):
            problem = synthetic(seed, n_rows, N_TEST, options.dims, *key, noise_var=options.noise)
            run_references(problem, seed, record, key, batches=key in one and "batches" in options.parts)
            run_methods(
                problem, {n: m for n, m in chosen.items() if key in one or n in (RIBP, RECIPE)}, seed, record, key
            )
        if "recovery" in options.parts:
            dims, checkpoints = (RECOVERY_DIMS[:2], CHECKPOINTS[:2]) if options.quick else (RECOVERY_DIMS, CHECKPOINTS)
            for n_dims, seed in itertools.product(dims, range(n_sets)):
                recover(n_dims, seed, checkpoints, record)
    scores = [e for e in record.entries if e["part"] == "score"]
    for key in dict.fromkeys((e["alpha"], e["beta"]) for e in scores):
        show_scores(key, [e for e in scores if (e["alpha"], e["beta"]) == key])
    if scores:
        show_summary(scores)
    if "recovery" in options.parts:
        show_recovery([e for e in record.entries if e["part"] == "recovery"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
