"""Marginals of the Indian buffet process by recursion, and what a filter makes of them (Figures 3 and 4).

    python benchmarks/papers/recursive_marginals.py [--quick] [--draws 5000] [--rows 50] [--seed 0] [--json PATH]

Schaeffer, Du, Liu & Fiete (2022), Section 5.1. P(z_nk = 1), features numbered in order of appearance, by Eq. 4
(`thali.priors.recursion.marginals`) against matrices drawn row by row from the conditional (Eq. 2), at the paper's nine
(alpha, beta) and 5000 draws; the paper does not say how many rows. Exact marginals leave a mean squared error of
p (1 - p) / draws: `by expected` is the error over that, `power` its exponent in the number of draws (-1 if exact),
`largest z` that of all cells, beside what the largest of so many independent normals is like.

The second table is about the filter (Eq. 5), which the recursion becomes with data. It must know how many features
there are so far: the paper takes a Poisson variable. Here rows say nothing, so that the filter's P(z_nk = 1) should
stay the marginals: `features` is what it expects after 200 rows, `off` the largest difference of a marginal. Births:
`poisson` (printed), `independent` (exact law of independent features), `comonotone` (a feature exists only if those
before it do), each with existence as printed, 1 - prod (1 - b), or by Bayes' rule. (`anchored`, which takes all
features that it knows for certain, is for rows that do say something.) `recursion.absorb` has some of the pairs, the
others are here.

The third: the law of the number of features for independent ones of probability e, against a Poisson law: total
variation, and the bound of Le Cam, sum e^2, which is none as soon as features are established. See
benchmarks/README.md.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import digamma
from scipy.stats import binom, norm, poisson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tables import machine, show_table
from thali.priors import recursion
from thali.priors.recursion import Running

ALPHAS, BETAS = (1.1, 10.78, 15.37), (2.3, 5.6, 12.9)
FILTERS = [(2.0, 1.0), (3.0, 2.5), (10.78, 5.6)]
FILTERED_ROWS = 200
VARIANTS = [(how, rule) for how in ("poisson", "independent", "comonotone") for rule in ("product", "Bayes")]
OWN = {("poisson", "product"), ("independent", "product"), ("comonotone", "Bayes")}  # of the library
SURE = (0.05, 0.3, 0.9, 0.99)
BATCH = 250
Array = np.ndarray
Entry = dict[str, Any]


def draw_counts(rng: np.random.Generator, mass: float, beta: float, n_rows: int, K: int, n_draws: int) -> Array:
    """How many of n_draws matrices have a one in each cell, (n_rows, K); features beyond K are not counted."""
    taken = np.zeros((n_rows, K))
    counts, n_features = np.zeros((n_draws, K)), np.zeros(n_draws, dtype=int)
    k = np.arange(K)
    for n in range(n_rows):
        rate = beta + n
        z = rng.random((n_draws, K)) * rate < counts
        after = n_features + rng.poisson(mass * beta / rate, n_draws)
        z |= (k >= n_features[:, None]) & (k < after[:, None])
        counts, n_features = counts + z, after
        taken[n] = z.sum(axis=0)
    return taken


def exactness(mass: float, beta: float, n_rows: int, n_draws: int, rng: np.random.Generator) -> Entry:
    P = recursion.marginals(mass, beta, n_rows, None)
    sizes = np.unique(np.rint(np.geomspace(10, n_draws, 8)).astype(int))
    total, done, errors = np.zeros(P.shape), 0, []
    for size in sizes:
        while done < size:
            n = min(BATCH, size - done)
            total += draw_counts(rng, mass, beta, n_rows, P.shape[1], n)
            done += n
        errors.append(float(np.mean((total / done - P) ** 2)))
    var = P * (1 - P) / n_draws
    plain = var * n_draws**2 > 25  # enough ones, and zeros, for a normal law
    z = (total[plain] / n_draws - P[plain]) / np.sqrt(var[plain])
    return {
        "alpha": mass, "beta": beta, "features": P.shape[1],
        "row_sum": float(np.abs(P.sum(axis=1) - mass).max()),
        "mse": errors[-1], "by_expected": errors[-1] / float(np.mean(var)),
        "power": float(np.polyfit(np.log(sizes), np.log(errors), 1)[0]),
        "rms_z": float(np.sqrt(np.mean(z**2))), "largest_z": float(np.abs(z).max()),
        "usual_z": float(norm.isf(0.5 / z.size)), "sizes": sizes.tolist(), "errors": errors,
    }  # fmt: skip


# --- the filter -----------------------------------------------------------------------------------


def absorb(running: Running, b: Array, mass: float, beta: float, how: str, rule: str) -> Running:
    """One more row with probabilities b; existence by either rule, whatever the births are."""
    grown = len(b) - len(running.counts)
    counts, exists = (np.concatenate([x, np.zeros(grown)]) for x in (running.counts, running.exists))
    before = beta + running.n_rows
    if rule == "product":
        after = 1 - (1 - exists) * (1 - b)
    else:
        held = counts / before
        births = recursion.birth_probs(Running(running.n_rows, counts, exists), mass * beta / before, how, len(b))
        q = np.minimum(held + births, 1.0)
        after = b + (1 - b) * np.where(q < 1, (exists - held) / np.maximum(1 - q, 1e-300), 1.0)
        after = np.clip(np.maximum(after, (counts + b) / (before + 1)), 0.0, 1.0)
    return Running(running.n_rows + 1, counts + b, after)


def without_data(mass: float, beta: float, how: str, rule: str, n_rows: int) -> Entry:
    """A filter whose rows say nothing, beside the exact marginals."""
    P = recursion.marginals(mass, beta, n_rows, None)
    running, off = recursion.start_running(), 0.0
    for n in range(n_rows):
        b = recursion.next_row(running, mass, beta, how)[: P.shape[1]]
        off = max(off, float(np.abs(b - P[n, : len(b)]).max()), float(P[n, len(b) :].max(initial=0.0)))
        if (how, rule) in OWN:
            running = recursion.absorb(running, b, mass, beta, how)
        else:
            running = absorb(running, b, mass, beta, how, rule)
    exact = mass * beta * float(digamma(beta + n_rows) - digamma(beta))
    return {
        "alpha": mass, "beta": beta, "births": how, "existence": rule,
        "features": float(running.exists.sum()), "exact": exact, "off": off,
    }  # fmt: skip


def le_cam(e: float, n_features: int) -> Entry:
    k = np.arange(20 * n_features)
    law = binom.pmf(k, n_features, e)
    distance = 0.5 * float(np.abs(law - poisson.pmf(k, n_features * e)).sum())
    return {"e": e, "features": n_features, "distance": distance, "bound": n_features * e**2}


# --- what it says ---------------------------------------------------------------------------------


def show(report: Entry) -> None:
    heads = ["alpha, beta", "features", "row sum off by", "MSE", "by expected", "power", "rms z", "largest z", "usual"]
    rows = [
        [f"{e['alpha']}, {e['beta']}", str(e["features"]), f"{e['row_sum']:.0e}", f"{e['mse']:.2e}",
         f"{e['by_expected']:.2f}", f"{e['power']:.2f}", f"{e['rms_z']:.2f}", f"{e['largest_z']:.1f}",
         f"{e['usual_z']:.1f}"] for e in report["marginals"]
    ]  # fmt: skip
    title = f"Marginals by recursion against {report['draws']} drawn matrices of {report['rows']} rows"
    show_table(title, heads, rows)
    rows = []
    for how, rule in VARIANTS:
        mine = [e for e in report["filter"] if (e["births"], e["existence"]) == (how, rule)]
        cells = [cell for e in mine for cell in (f"{e['features']:.2f}", f"{e['off']:.1e}")]
        rows.append([how, rule, *cells])
    exact = [cell for e in mine for cell in (f"{e['exact']:.2f}", "0")]
    heads = ["births", "existence", *(h for a, b in FILTERS for h in (f"features ({a:g}, {b:g})", "off"))]
    title = f"The filter on {report['filtered_rows']} rows that say nothing"
    show_table(title, heads, [["exact marginals", "", *exact], *rows])
    rows = [[f"{e['e']:g}", f"{e['distance']:.3f}", f"{e['bound']:.3g}"] for e in report["le_cam"]]
    show_table("Six independent features against a Poisson law", ["e", "total variation", "sum e^2"], rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="500 draws of 15 rows, 50 filtered rows")
    parser.add_argument("--draws", type=int, default=5000, metavar="N", help="matrices, at least 100")
    parser.add_argument("--rows", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    if options.draws < 100 or options.rows < 1:
        parser.error("--draws must be 100 or more and --rows 1 or more")
    n_draws, n_rows, n_filtered = (500, 15, 50) if options.quick else (options.draws, options.rows, FILTERED_ROWS)

    rng = np.random.default_rng(options.seed)
    report: Entry = {"machine": machine(), "draws": n_draws, "rows": n_rows, "filtered_rows": n_filtered}
    pairs = itertools.product(ALPHAS, BETAS)
    report["marginals"] = [exactness(mass, beta, n_rows, n_draws, rng) for mass, beta in pairs]
    report["filter"] = [
        without_data(mass, beta, how, rule, n_filtered) for mass, beta in FILTERS for how, rule in VARIANTS
    ]
    report["le_cam"] = [le_cam(e, 6) for e in SURE]
    show(report)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
