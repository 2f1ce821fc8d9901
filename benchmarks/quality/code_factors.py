"""q(z, w) or q(z) q(w)? The factor of a bit and its weight in variational fits of ICA and factor analysis.

    python benchmarks/quality/code_factors.py [--data FOLDER] [--rows 500] [--seeds 2] [--json PATH]

"joint" is one factor of a bit and its weight, "independent" the product that Doshi-Velez et al. (2009) use. Data: rare
sources with a known answer, mixed at random, with Laplace or normal weights; and the speakers of
benchmarks/papers/speakers.py, if their file is at hand (--data or THALI_DATA). A row of the table is the best of
`--restarts` restarts: the bound of log p(X), the number of features, the mean absolute correlation of each true source
with its partner among the expected codes, the time of a fit and that of one pass over the rows.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.speakers import FILE, load, matched
from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import ICA, FactorAnalysis, LatentFeatures, MeanField, StickBreakingIBP
from thali.core.protocols.engines.mean_field import MeanFieldRows

KEY = ("data", "codes", "seed")
CODES = ("joint", "independent")
Array = np.ndarray


class Case(NamedTuple):
    X: Array
    sources: Array
    observation: Any


def sparse_sources(kind: Any, n_rows: int, noise: float, n_sources: int = 4, n_dims: int = 12) -> Case:
    """Each row has each source with probability 0.4."""
    rng = np.random.default_rng(11)
    sources = (rng.random((n_rows, n_sources)) < 0.4) * kind.draw_weights(rng, (n_rows, n_sources))
    mixing = rng.standard_normal((n_sources, n_dims))
    return Case(sources @ mixing + noise * rng.standard_normal((n_rows, n_dims)), sources, kind)


def cases(folder: Path | None, n_rows: int) -> dict[str, Case]:
    found = {
        "Laplace, noise 0.3": sparse_sources(ICA(), n_rows, 0.3),
        "Laplace, noise 1": sparse_sources(ICA(), n_rows, 1.0),
        "normal, noise 0.3": sparse_sources(FactorAnalysis(), n_rows, 0.3),
        "normal, noise 1": sparse_sources(FactorAnalysis(), n_rows, 1.0),
    }
    if folder is not None and (folder / FILE).exists():
        mixture = load(folder / FILE, n_rows, 0.1)
        found["speakers"] = Case(mixture.X, mixture.sources, ICA())
    return found


def measure(case: Case, codes: str, seed: int, n_restarts: int) -> dict[str, Any]:
    inference = MeanField(codes=codes, n_restarts=n_restarts)
    model = LatentFeatures(case.observation, StickBreakingIBP(), inference, random_state=seed)
    start = time.perf_counter()
    posterior = model.fit(case.X).posterior_
    seconds = time.perf_counter() - start
    return {
        "bound": posterior.bound,
        "k": model.n_components_,
        "correlation": float(np.mean(matched(case.sources, posterior.q.codes))),
        "seconds": round(seconds, 2),
        "pass_ms": round(1e3 * pass_time(posterior, case.X), 3),
    }


def pass_time(posterior: Any, X: Array, n_times: int = 20) -> float:
    """Seconds of one pass over the rows, the shortest of several."""
    observation, (local, q, *_) = posterior.model.observation, posterior.factors
    data, odds = observation.engine(MeanFieldRows).row_data(X), np.zeros(q.n_features)
    times = []
    for _ in range(n_times):
        start = time.process_time()
        observation.engine(MeanFieldRows).update_rows(data, q, local, odds)
        times.append(time.process_time() - start)
    return min(times)


def show(entries: list[dict[str, Any]]) -> None:
    heads = ["data", "codes", "seed", "bound", "K", "correlation", "fit s", "pass ms"]
    rows = [
        [
            entry["data"], entry["codes"], str(entry["seed"]), f"{entry['bound']:.1f}", str(entry["k"]),
            f"{entry['correlation']:.3f}", f"{entry['seconds']:.1f}", f"{entry['pass_ms']:.2f}",
        ]
        for entry in sorted(entries, key=lambda entry: (entry["data"], entry["seed"], entry["codes"]))
    ]  # fmt: skip
    show_table("Joint and independent factors of bits and weights", heads, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the speakers are (else THALI_DATA)")
    parser.add_argument("--rows", type=int, default=500, metavar="N", help="rows of each data set")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="fits of each kind")
    parser.add_argument("--restarts", type=int, default=2, metavar="N", help="restarts of each fit")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)

    record = Record(options.json, {"rows": options.rows, "restarts": options.restarts}, KEY)
    record.about = {"machine": machine()}
    for name, case in cases(folder, options.rows).items():
        for codes in CODES:
            for seed in range(options.seeds):
                if not record.has(name, codes, seed):
                    found = measure(case, codes, seed, options.restarts)
                    record.add({"data": name, "codes": codes, "seed": seed, **found})
    show(record.entries)
    return 0


if __name__ == "__main__":
    sys.exit(main())
