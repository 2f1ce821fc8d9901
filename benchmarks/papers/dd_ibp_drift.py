"""Does it help to know when rows were seen? Features that come and go in time, and the same rows in random order.

    python benchmarks/papers/dd_ibp_drift.py [--seeds 10] [--first 0] [--data drifting exchangeable] [--quick]
        [--priors NAME ...] [--json PATH]

200 rows and 20 dims; each of four features is on for one stretch of 40 to 80 rows, cells are those of the features
with noise of variance 1, and a tenth of the cells is hidden. In the exchangeable set the rows of Z are shuffled, so
that times say nothing. All fits have the settings that a user gets; the hidden cells are scored by the root mean square
error of their imputed values and by their log density, one cell at a time. The oracle knows the features, which row has
which, and the noise. "lost" is how much of the way from the dims' means to the oracle a model loses to the IBP. An hour
on one core. See benchmarks/README.md.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tables import machine, show_table
from thali import (
    IBP,
    CollapsedGibbs,
    DistanceDependentGibbs,
    DistanceDependentIBP,
    ExponentialDecay,
    Gamma,
    LatentFeatures,
    WindowDecay,
)
from thali.core.spec import Spec

Array = np.ndarray
Entry = dict[str, Any]
N_ROWS, N_DIMS, N_FEATURES, HIDDEN, NOISE_VAR = 200, 20, 4, 0.1, 1.0
PRIORS: dict[str, Spec] = {
    "IBP": IBP(),
    "exponential, rate 1": DistanceDependentIBP(decay="exponential"),
    "exponential, rate learned": DistanceDependentIBP(decay=ExponentialDecay(rate=Gamma(1.0, N_ROWS / 10))),
    "window of 5": DistanceDependentIBP(decay=WindowDecay(width=5.0)),
}


class Problem(NamedTuple):
    X: Array
    hidden: Array
    mean: Array  # of X given everything
    Z: Array

    @property
    def seen(self) -> Array:
        return np.where(self.hidden, np.nan, self.X)


def problem(seed: int, kind: str) -> Problem:
    rng = np.random.default_rng(seed)
    Z = np.zeros((N_ROWS, N_FEATURES))
    for k in range(N_FEATURES):
        length = int(rng.integers(N_ROWS // 5, 2 * N_ROWS // 5 + 1))
        first = int(rng.integers(0, N_ROWS - length + 1))
        Z[first : first + length, k] = 1.0
    if kind == "exchangeable":
        Z = Z[rng.permutation(N_ROWS)]
    mean = Z @ rng.normal(size=(N_FEATURES, N_DIMS))
    X = mean + np.sqrt(NOISE_VAR) * rng.normal(size=mean.shape)
    return Problem(X, rng.random(X.shape) < HIDDEN, mean, Z)


def scores(given: Problem, mean: Array, log_density: float) -> Entry:
    return {"rmse": float(np.sqrt(np.mean((given.X - mean)[given.hidden] ** 2))), "log_density": log_density}


def normal_score(given: Problem, mean: Array, var: Any) -> Entry:
    """Of hidden cells that are independent and normal."""
    log_density = -0.5 * (np.log(2 * np.pi * var) + (given.X - mean) ** 2 / var)
    return scores(given, mean, float(log_density[given.hidden].mean()))


def fitted_score(given: Problem, prior: Spec, seed: int, length: Entry, n_chains: int) -> Entry:
    near = {} if isinstance(prior, IBP) else {"times": np.arange(float(N_ROWS))}
    start = time.perf_counter()
    how: Any = "auto"  # as a user gets it
    if length:
        how = CollapsedGibbs(**length) if isinstance(prior, IBP) else DistanceDependentGibbs(**length)
    fit = LatentFeatures(prior=prior, inference=how, random_state=seed, verbose=False, n_chains=n_chains, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of convergence are counted below
        fit.fit(given.seen, **near)
    seconds = time.perf_counter() - start
    found = scores(given, fit.impute(given.seen), fit.heldout_score(given.X, given.hidden, by="cell"))
    draws = fit.posterior_.draws
    learned = {name: float(draws[name].mean()) for name in ("mass", "decay_rate") if name in draws}
    return found | learned | {
        "n_components": fit.n_components_, "mean_k": float(draws["n_features"].mean()), "converged": fit.converged_,
        "seconds": seconds,
    }  # fmt: skip


def one_seed(seed: int, kind: str, names: list[str], length: Entry, n_chains: int) -> dict[str, Entry]:
    given = problem(seed, kind)
    found = {
        "oracle": normal_score(given, given.mean, NOISE_VAR),
        "dims' means": normal_score(
            given, np.broadcast_to(np.nanmean(given.seen, axis=0), given.X.shape), np.nanvar(given.seen, axis=0)
        ),
    }
    return found | {name: fitted_score(given, PRIORS[name], seed, length, n_chains) for name in names}


def summary(runs: list[dict[str, Entry]], names: list[str]) -> list[list[str]]:
    """Lines of the table: means over seeds, how often the IBP is beaten, what is lost of the way to the oracle."""
    lines = []
    for name in ("oracle", "dims' means", *names):
        column = {key: np.array([run[name][key] for run in runs]) for key in ("rmse", "log_density")}
        line = [name, f"{column['rmse'].mean():.4f}", f"{column['log_density'].mean():.4f}"]
        if name in names:
            ibp, best, worst = (
                {key: np.array([run[other][key] for run in runs]) for key in column}
                for other in ("IBP", "oracle", "dims' means")
            )
            lost = [f"{100 * np.mean((ibp[key] - column[key]) / (best[key] - worst[key])):+.2f} %" for key in column]
            better = int(np.sum(column["rmse"] < ibp["rmse"])), int(np.sum(column["log_density"] > ibp["log_density"]))
            line += [f"{better[0]} {better[1]}" if name != "IBP" else "", *(lost if name != "IBP" else ["", ""])]
            line += [f"{np.mean([run[name]['n_components'] for run in runs]):.1f}"]
            line += [f"{np.mean([run[name]['mean_k'] for run in runs]):.1f}"]
            line += [f"{np.mean([run[name]['seconds'] for run in runs]):.0f}"]
        lines.append(line + [""] * (9 - len(line)))
    return lines


HEADS = ["model", "RMSE", "log density", "seeds better (RMSE, density)", "lost, RMSE", "lost, density", "persist",
         "mean K", "seconds"]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", nargs="+", choices=("drifting", "exchangeable"), default=["drifting", "exchangeable"])
    parser.add_argument("--priors", nargs="+", choices=list(PRIORS), default=list(PRIORS))
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--quick", action="store_true", help="one seed, one chain, few sweeps")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures of each seed to this file")
    options = parser.parse_args(arguments)
    names = ["IBP", *(name for name in options.priors if name != "IBP")]
    n_seeds = 1 if options.quick else options.seeds
    length = {"n_warmup": 10, "n_draws": 10} if options.quick else {}
    report: Entry = {"machine": machine()}
    for kind in options.data:
        runs = []
        for seed in range(options.first, options.first + n_seeds):
            runs.append(one_seed(seed, kind, names, length, n_chains=1 if options.quick else 4))
            told = ", ".join(f"{name} {found['rmse']:.4f}" for name, found in runs[-1].items())
            print(f"{kind}, seed {seed}: {told}", file=sys.stderr, flush=True)
            report[kind] = runs
            if options.json is not None:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        show_table(f"{kind}, {n_seeds} seeds", HEADS, summary(runs, names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
