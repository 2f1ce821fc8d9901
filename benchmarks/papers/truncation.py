"""Truncation bounds of the papers against the exact value and simulation.

    python benchmarks/papers/truncation.py [--draws 200000] [--seed 0] [--json PATH]

Doshi-Velez et al. (2009), Section 6 and Appendix F: sticks of the one-parameter IBP, cut after K features (their
Figure 3 is N = 30, mass 5). Paisley et al. (2011), Theorem 1: the beta process, cut after R rounds (their Figure 2 is
N = 5000, mass 3, concentration 2). Simulated values are means of 0 and 1 over draws of the weights and of the rows.
Below each table stands what it shows, checked over a grid. Takes half a minute. See benchmarks/README.md.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tables import show_table
from thali.truncation import LABELS, rounds, sticks

STICKS = [(30, 5.0, 20), (30, 5.0, 30), (30, 5.0, 40), (30, 5.0, 60), (10, 1.0, 3), (500, 3.0, 20)]  # N, mass, K
ROUNDS = [(5000, 3.0, 2.0, 20), (5000, 3.0, 2.0, 25), (5000, 3.0, 2.0, 30), (5, 1.5, 2.0, 5), (100, 3.0, 0.5, 4)]
STICK_COLUMNS = ("exact", "eq_12", "taylor", "appendix_f")
ROUND_COLUMNS = ("exact", "simple", "eq_25", "eq_26", "pi_squared", "theorem_1")
VALIDITY = [(3.0, 30, 100), (2.0, 3, 8), (1.0, 2, 2)]  # mass, R, K
BATCH = 10_000
Entry = dict[str, Any]
Array = np.ndarray


def simulate_sticks(n_rows: int, mass: float, truncation: int, rng: np.random.Generator, n_draws: int) -> Array:
    """Whether some row has a feature beyond the truncation; sticks are broken until they are worth nothing."""
    weights = np.cumprod(rng.beta(mass, 1.0, size=(n_draws, truncation + int(25 * (1 + mass)))), axis=1)
    log_unused = n_rows * np.log1p(-weights[:, truncation:]).sum(axis=1)
    return rng.random(n_draws) > np.exp(log_unused)


def simulate_rounds(
    n_rows: int, mass: float, concentration: float, n_rounds: int, rng: np.random.Generator, n_draws: int
) -> Array:
    """Whether some row has a feature of a later round; features are drawn round by round."""
    index = np.arange(n_rounds + 1, n_rounds + int(25 * (1 + concentration)))
    counts = rng.poisson(mass, size=(n_draws, len(index)))
    owner = np.repeat(np.repeat(np.arange(n_draws), len(index)), counts.ravel())
    before = rng.gamma(np.repeat(np.tile(index - 1, n_draws), counts.ravel())) / concentration
    weights = rng.beta(1.0, concentration, size=len(owner)) * np.exp(-before)
    log_unused = n_rows * np.bincount(owner, np.log1p(-weights), minlength=n_draws)
    return rng.random(n_draws) > np.exp(log_unused)


def estimate(simulate: Callable[[int], Array], n_draws: int) -> tuple[float, float]:
    """Mean and standard error, in batches that fit the memory."""
    sizes = [min(BATCH, n_draws - start) for start in range(0, n_draws, BATCH)]
    share = sum(int(simulate(size).sum()) for size in sizes) / n_draws
    return share, float(np.sqrt(max(share * (1 - share), 1 / n_draws) / n_draws))


def stick_rows(rng: np.random.Generator, n_draws: int) -> list[Entry]:
    rows = []
    for n_rows, mass, truncation in STICKS:
        simulated, error = estimate(partial(simulate_sticks, n_rows, mass, truncation, rng), n_draws)
        row = {"n_rows": n_rows, "mass": mass, "truncation": truncation, "simulated": simulated, "error": error}
        rows.append(row | sticks.bounds(mass, n_rows, truncation))
    return rows


def round_rows(rng: np.random.Generator, n_draws: int) -> list[Entry]:
    rows = []
    for n_rows, mass, concentration, n_rounds in ROUNDS:
        simulated, error = estimate(partial(simulate_rounds, n_rows, mass, concentration, n_rounds, rng), n_draws)
        row = {"n_rows": n_rows, "mass": mass, "concentration": concentration, "rounds": n_rounds}
        row |= {"simulated": simulated, "error": error}
        rows.append(row | rounds.bounds(mass, concentration, n_rows, n_rounds))
    return rows


def validity_rows(rng: np.random.Generator, n_draws: int) -> list[Entry]:
    """P(K features hold R rounds), where the printed theorem has a wrong parameter."""
    rows = []
    for mass, n_rounds, n_features in VALIDITY:
        held = rng.poisson(mass, size=(n_draws, n_rounds)).sum(axis=1) <= n_features
        rows.append(
            {
                "mass": mass,
                "rounds": n_rounds,
                "n_features": n_features,
                "simulated": float(held.mean()),
                "error": float(held.std() / np.sqrt(n_draws)),
                "validity": rounds.validity(mass, n_rounds, n_features),
                "validity_printed": rounds.validity_printed(mass, n_rounds, n_features),
            }
        )
    return rows


def statements() -> dict[str, bool]:
    """What the tables show, checked over a grid."""
    few = 1 + 1e-9  # rounding
    stick_grid = [
        sticks.bounds(mass, n_rows, truncation)
        for mass, n_rows, truncation in itertools.product((0.1, 1.0, 5.0, 20.0), (1, 10, 1000, 10**6), (1, 5, 20, 80))
    ]
    round_grid = [
        rounds.bounds(2.0, concentration, n_rows, n_rounds)
        for concentration, n_rows, n_rounds in itertools.product((0.2, 1.0, 5.0), (1, 10, 1000, 10**6), (1, 5, 20, 80))
    ]
    chain = ("exact", "linear", "row_by_row", "eq_12", "taylor", "appendix_f")
    return {
        "the exact value is below every bound": all(
            found["exact"] <= value * few for found in stick_grid + round_grid for value in found.values()
        ),
        "sticks: exact <= linear <= rows apart <= Eq. 12 <= Taylor <= Appendix F": all(
            found[a] <= found[b] * few for found in stick_grid for a, b in itertools.pairwise(chain)
        ),
        "sticks: the Taylor bound is never tighter than Eq. 12": all(
            found["eq_12"] <= found["taylor"] * few for found in stick_grid
        ),
        "rounds: exact <= simple <= (25) <= (26) <= pi^2/6 <= Theorem 1": all(
            found[a] <= found[b] * few for found in round_grid for a, b in itertools.pairwise(ROUND_COLUMNS)
        ),
    }


def show(report: Entry) -> None:
    rows = [
        [f"{row['n_rows']}, {row['mass']:g}, {row['truncation']}", _with_error(row)]
        + [f"{row[name]:.6f}" for name in STICK_COLUMNS]
        for row in report["sticks"]
    ]
    heads = ["N, mass, K", "simulated", *(LABELS[name] for name in STICK_COLUMNS)]
    show_table("Sticks: P(some row has a feature beyond the K-th)", heads, rows)
    rows = [
        [f"{row['n_rows']}, {row['mass']:g}, {row['concentration']:g}, {row['rounds']}", _with_error(row)]
        + [f"{row[name]:.6f}" for name in ROUND_COLUMNS]
        for row in report["rounds"]
    ]
    heads = ["N, mass, concentration, R", "simulated", "exact", "N x", "(25)", "(26)", "pi^2/6", "Theorem 1"]
    show_table("Beta process: P(some row has a feature beyond round R)", heads, rows)
    rows = [
        [f"{row['mass']:g}, {row['rounds']}, {row['n_features']}", _with_error(row)]
        + [f"{row[name]:.6f}" for name in ("validity", "validity_printed")]
        for row in report["validity"]
    ]
    show_table("P(K features hold R rounds)", ["mass, R, K", "simulated", "exact", "as printed"], rows)
    lines = [[text, "holds" if true else "FAILS"] for text, true in report["statements"].items()]
    show_table("Over a grid", ["", ""], lines)
    print(f"\nlargest |z| of simulated against exact: {report['largest_z']:.1f}")


def _with_error(row: Entry) -> str:
    return f"{row['simulated']:.4f} +- {row['error']:.4f}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=200_000, metavar="N", help="simulated matrices per line")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    if options.draws < 2:
        parser.error("--draws must be 2 or more")

    rng = np.random.default_rng(options.seed)
    report: Entry = {"draws": options.draws, "seed": options.seed}
    report["sticks"] = stick_rows(rng, options.draws)
    report["rounds"] = round_rows(rng, options.draws)
    report["validity"] = validity_rows(rng, options.draws)
    report["statements"] = statements()
    pairs = [(row, row["exact"]) for row in report["sticks"] + report["rounds"]]
    pairs += [(row, row["validity"]) for row in report["validity"]]
    report["largest_z"] = max(abs(row["simulated"] - exact) / row["error"] for row, exact in pairs)
    show(report)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if all(report["statements"].values()) and report["largest_z"] < 5 else 1


if __name__ == "__main__":
    sys.exit(main())
