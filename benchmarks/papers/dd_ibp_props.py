"""How many features rows share under the dd-IBP and the dHBP: the propositions of Gershman, Frazier & Blei (2015).

    python benchmarks/papers/dd_ibp_props.py [--quick] [--draws 50000] [--seed 0] [--json PATH]

Propositions 1 and 3 give the law of the number of features of a row, and of those that two rows share: Poisson, with
these rates. Printed are means and variances of draws beside the rates, with z-scores. Where the rows of the dHBP mix
groups, one group for each row makes the shared number a mixture of two Poisson laws, one for each feature makes it
Poisson again. Propositions 2 and 4 say what the share R_ij / R_i tends to as the mass grows: they are shown as limits.
Two minutes on one core. See benchmarks/README.md.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tables import machine, show_table
from thali import DistanceDependentIBP, ExponentialDecay, HierarchicalBetaProcess

Array = np.ndarray
Entry = dict[str, Any]
N_ROWS, MASS, RATE = 4, 2.5, 0.5
PAIRS = [(0, 0), (2, 2), (0, 1), (0, 3), (1, 2)]
MASSES = (10.0, 100.0, 1000.0)
C0, C1 = 2.0, 3.0  # concentrations of the dHBP
MIXED = [[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]  # P(group) of two rows


def linked(mass: float, sequential: bool) -> DistanceDependentIBP:
    return DistanceDependentIBP.from_times(
        np.arange(float(N_ROWS)), ExponentialDecay(RATE), mass=mass, sequential=sequential
    )


def shared_counts(prior: DistanceDependentIBP, rng: np.random.Generator, n_draws: int) -> Array:
    """ZZ' of each draw."""
    draws = (prior.simulate(rng, N_ROWS).astype(np.int64) for _ in range(n_draws))
    return np.array([Z @ Z.T for Z in draws])


def proposition_1(rng: np.random.Generator, n_draws: int) -> list[Entry]:
    rows = []
    for sequential in (False, True):
        prior = linked(MASS, sequential)
        counts, rates = shared_counts(prior, rng, n_draws), prior.expected_shared()
        for i, j in PAIRS:
            x, rate = counts[:, i, j].astype(float), float(rates[i, j])
            spread = np.var((x - x.mean()) ** 2)  # of the sample variance
            rows.append(
                {
                    "sequential": sequential, "i": i + 1, "j": j + 1, "rate": rate, "mean": float(x.mean()),
                    "z_mean": float((x.mean() - rate) / np.sqrt(rate / n_draws)), "variance": float(x.var()),
                    "z_variance": float((x.var() - rate) / np.sqrt(spread / n_draws)),
                }
            )  # fmt: skip
    return rows


def proposition_2(rng: np.random.Generator, n_draws: int) -> list[Entry]:
    """R_41 / R_4 of sequential distances as the mass grows: a number that no longer varies."""
    rows = []
    for mass in MASSES:
        prior = linked(mass, sequential=True)
        counts, rates = shared_counts(prior, rng, n_draws), prior.expected_shared()
        share = counts[:, 3, 0] / np.maximum(counts[:, 3, 3], 1)
        limit = float(rates[3, 0] / rates[3, 3])
        rows.append({"mass": mass, "limit": limit, "mean": float(share.mean()), "sd": float(share.std())})
    return rows


def rows_of_groups(case: str, mass: float) -> HierarchicalBetaProcess:
    """Two rows: of one group, of two groups, or with weights of three groups."""
    weights = {"the same": [[1.0, 0.0], [1.0, 0.0]], "two": [[1.0, 0.0], [0.0, 1.0]]}.get(case, MIXED)
    mixing = "feature" if case == "mixed by feature" else "row"
    return HierarchicalBetaProcess(mass, C0, C1, weights=weights, mixing=mixing)


def two_rows(rng: np.random.Generator, case: str, mass: float, n_draws: int) -> tuple[Array, Array]:
    """(features of the first row, those that the second has, too)."""
    prior = rows_of_groups(case, mass)
    draws = (prior.simulate(rng, 2).astype(np.int64) for _ in range(n_draws))
    counts = np.array([(Z[0].sum(), (Z[0] & Z[1]).sum()) for Z in draws], dtype=float)
    return counts[:, 0], counts[:, 1]


def proposition_3(rng: np.random.Generator, n_draws: int, mass: float = 4.0) -> list[Entry]:
    rows = []
    for case in ("the same", "two", "mixed by row", "mixed by feature"):
        prior = rows_of_groups(case, mass)
        shared, variance = float(prior.expected_shared()[0, 1]), float(prior.shared_variance()[0, 1])
        own, both = two_rows(rng, case, mass, n_draws)
        for what, x, rate, spread in (("own", own, mass, mass), ("shared", both, shared, variance)):
            rows.append(
                {
                    "groups": case, "what": what, "rate": rate, "mean": float(x.mean()),
                    "z_mean": float((x.mean() - rate) / np.sqrt(spread / n_draws)), "wanted": spread,
                    "variance": float(x.var()),
                }
            )  # fmt: skip
    return rows


def proposition_4(rng: np.random.Generator, n_draws: int) -> list[Entry]:
    """The share as the mass grows: a number that no longer varies."""
    rows = []
    for mass in MASSES:
        for case in ("the same", "two"):
            own, both = two_rows(rng, case, mass, n_draws)
            share = both / np.maximum(own, 1)
            limit = float(rows_of_groups(case, mass).expected_shared()[0, 1]) / mass
            rows.append(
                {"mass": mass, "groups": case, "limit": limit, "mean": float(share.mean()), "sd": float(share.std())}
            )
    return rows


def show(report: Entry) -> None:
    heads = ["distances, i, j", "rate", "mean", "z", "variance", "z"]
    rows = [
        [f"{'sequential' if e['sequential'] else 'both ways'}, {e['i']}, {e['j']}", f"{e['rate']:.4f}",
         f"{e['mean']:.4f}", f"{e['z_mean']:+.1f}", f"{e['variance']:.4f}", f"{e['z_variance']:+.1f}"]
        for e in report["proposition_1"]
    ]  # fmt: skip
    show_table(f"Proposition 1: features that rows i and j share, {report['draws']} draws, mass {MASS}", heads, rows)
    rows = [[f"{e['mass']:g}", f"{e['limit']:.4f}", f"{e['mean']:.4f}", f"{e['sd']:.4f}"]
            for e in report["proposition_2"]]  # fmt: skip
    show_table("Proposition 2: share of row 4's features that row 1 has", ["mass", "limit", "mean", "sd"], rows)
    heads = ["groups", "rate", "mean", "z", "variance by law", "variance"]
    rows = [[f"{e['groups']}, {e['what']}", f"{e['rate']:.4f}", f"{e['mean']:.4f}", f"{e['z_mean']:+.1f}",
             f"{e['wanted']:.4f}", f"{e['variance']:.4f}"] for e in report["proposition_3"]]  # fmt: skip
    show_table("Proposition 3: dHBP, features of a row, and those that two rows share", heads, rows)
    rows = [[f"{e['mass']:g}, {e['groups']}", f"{e['limit']:.4f}", f"{e['mean']:.4f}", f"{e['sd']:.4f}"]
            for e in report["proposition_4"]]  # fmt: skip
    heads = ["mass, groups", "limit", "mean", "sd"]
    show_table("Proposition 4: share of a row's features that another has", heads, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="300 draws")
    parser.add_argument("--draws", type=int, default=50_000, metavar="N", help="for the means, at least 100")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    if options.draws < 100:
        parser.error("--draws must be 100 or more")
    n_draws, rng = 300 if options.quick else options.draws, np.random.default_rng(options.seed)
    n_few = min(n_draws, 2000)
    report: Entry = {"machine": machine(), "draws": n_draws}
    report["proposition_1"] = proposition_1(rng, n_draws)
    report["proposition_2"] = proposition_2(rng, n_few)
    report["proposition_3"] = proposition_3(rng, n_draws)
    report["proposition_4"] = proposition_4(rng, n_few)
    show(report)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
