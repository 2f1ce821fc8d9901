"""Speech: Gibbs against variational inference for infinite ICA (Doshi-Velez et al. 2009, Table 2).

    python benchmarks/papers/doshi_velez_speech.py [--data FOLDER] [--quick] [--restarts 3] [--rows 245] [--noise 0.3]
                                                   [--json PATH]

245 moments of five speakers in ten microphones (`audio_speakers_fsdd.npz`, mixed as in speakers.py, with as much noise
as puts the scores about where the report's are). In the last half of the rows a third of the microphones is hidden.
Noise and feature variance are those that a first run of infinite Gibbs learns, and the same for all methods, as in the
report. Scores are means per hidden cell; the report does not say what its unit is, nor had it these recordings: compare
the order. The sources are known here, so a last column has the mean correlation of each with what a method found, one
to one. FastICA learns from the rows without hidden cells, and predicts by a normal law of its sources. The folder may
also be given by THALI_DATA. See benchmarks/README.md.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.heldout_cells import (
    Entry,
    HiddenCells,
    column_means,
    factor_analysis,
    factor_rows,
    hide_a_third,
    measured,
)
from benchmarks.papers.speakers import FILE, load, matched
from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import IBP, ICA, BetaBernoulli, Gibbs, LatentFeatures, MeanField, StickBreakingIBP
from thali.inference.calibration.factor_em import FactorFit

SIZES, RANKS = (2, 5, 9), tuple(range(1, 10))
CHAIN = {"n_warmup": 100, "n_draws": 100}  # 200 sweeps, as in the report
KEY = ("method", "size", "restart")
PRINTED = {  # seconds and test log-likelihood in the report's Table 2
    ("finite Gibbs", 2): (56, -0.7444), ("finite Gibbs", 5): (120, -0.4220), ("finite Gibbs", 9): (201, -0.4205),
    ("infinite Gibbs", None): (186, -0.4257),
    ("finite variational", 2): (2477, -0.8455), ("finite variational", 5): (8129, -0.5082),
    ("finite variational", 9): (8539, -0.4551),
    ("infinite variational", 2): (2702, -0.8810), ("infinite variational", 5): (6065, -0.5000),
    ("infinite variational", 9): (8491, -0.5486),
}  # fmt: skip
Array = np.ndarray
Method = Callable[[Any, HiddenCells, int], LatentFeatures]


def prepared(path: Path, n_rows: int, noise: float) -> tuple[HiddenCells, Array]:
    """Microphones in units in which their mean variance is 1, and the sources behind them."""
    mixture = load(path, n_rows, noise)
    return hide_a_third(mixture.X / np.sqrt(mixture.X.var(axis=0).mean())), mixture.sources


def learned_variances(cells: HiddenCells) -> ICA:
    """A model with the variances that infinite Gibbs finds, one noise level for all microphones."""
    first = LatentFeatures(ICA(noise_var=_common_noise()), IBP(), Gibbs(**CHAIN), n_chains=1, random_state=1)
    draws = first.fit(cells.seen).posterior_.draws
    return ICA(noise_var=float(draws["noise_var"].mean()), feature_var=float(draws["feature_var"].mean()), offset=None)


def _common_noise() -> Any:
    from thali import InverseGamma

    return InverseGamma(1.0, 0.1, relative=True)


def fit(prior: Any, inference: Any) -> Method:
    return lambda model, cells, seed: LatentFeatures(
        model, prior, inference, n_chains=1, random_state=seed
    ).fit(cells.seen)  # fmt: skip


def methods() -> dict[tuple[str, int | None], Method]:
    found: dict[tuple[str, int | None], Method] = {}
    plain = {"n_restarts": 1, "start": "random", "moves": False}
    for size in SIZES:
        found["finite Gibbs", size] = fit(BetaBernoulli(n_features=size), Gibbs(**CHAIN))
    found["infinite Gibbs", None] = fit(IBP(), Gibbs(**CHAIN))
    for codes in ("independent", "joint"):  # the first is the report's
        more = "" if codes == "independent" else ", q(z, w) joint"
        for size in SIZES:
            found[f"finite variational{more}", size] = fit(
                BetaBernoulli(n_features=size), MeanField(codes=codes, **plain)
            )
        for size in SIZES:
            found[f"infinite variational{more}", size] = fit(
                StickBreakingIBP(truncation=size), MeanField(codes=codes, **plain)
            )
    found["infinite variational, K found", None] = fit(IBP(), MeanField())
    return found


def fast_ica(cells: HiddenCells, sources: Array) -> tuple[Array, int, float]:
    """Scores, the number of sources that a part of the complete rows asks for, and the match of five sources."""
    from sklearn.decomposition import FastICA

    complete = cells.X[~cells.hidden.any(axis=1)]
    half = len(complete) // 2

    def law(rows: Array, n: int) -> FactorFit:
        ica = FastICA(n, whiten="unit-variance", random_state=0, max_iter=2000).fit(rows)
        left = rows - ica.inverse_transform(ica.transform(rows))
        noise_var = np.full(rows.shape[1], max(np.sum(left**2) / (len(rows) * (rows.shape[1] - n)), 1e-3))
        return FactorFit(ica.mean_, ica.mixing_.T, noise_var)

    def score(n: int) -> float:
        inner = hide_a_third(complete[half:], seed=78)
        return float(factor_rows(inner, law(complete[:half], n)).sum())

    n = max(RANKS, key=score)
    found = FastICA(5, whiten="unit-variance", random_state=0, max_iter=2000).fit(complete).transform(cells.X)
    return factor_rows(cells, law(complete, n)), n, float(np.mean(matched(sources, found)))


# --- what it says ---------------------------------------------------------------------------------


def run(method: Method, model: ICA, cells: HiddenCells, sources: Array, name: str, seed: int) -> Entry:
    fitted: list[LatentFeatures] = []

    def scored() -> tuple[Array, int]:
        fitted.append(method(model, cells, seed))
        return np.array([fitted[0].heldout_score(cells.X, cells.hidden) * cells.n_hidden]), fitted[0].n_components_

    entry = measured(name, scored, cells.n_hidden)
    codes = fitted[0].transform(cells.seen)
    return {**entry, "match": float(np.mean(matched(sources, codes))) if np.ptp(codes) > 0 else 0.0}


def ordinary(cells: HiddenCells, sources: Array) -> list[Entry]:
    match: list[float] = []

    def ica() -> tuple[Array, int]:
        rows, n, found = fast_ica(cells, sources)
        match.append(found)
        return rows, n

    lines: dict[str, Callable[[], tuple[Array, int]]] = {
        "column means": lambda: column_means(cells),
        "FA, K validated": lambda: factor_analysis(cells, per_dim=True, grid=RANKS),
        "PCA, K validated": lambda: factor_analysis(cells, per_dim=False, grid=RANKS),
        "FastICA, K validated": ica,
    }
    entries = [measured(name, line, cells.n_hidden) for name, line in lines.items()]
    entries[-1]["match"] = match[0]
    return [{"size": None, "restart": 0, "match": None, **entry} for entry in entries]


def show(cells: HiddenCells, entries: list[Entry], model: ICA) -> None:
    lines = []
    for key in dict.fromkeys((e["method"], e["size"]) for e in entries):
        runs = [e for e in entries if (e["method"], e["size"]) == key]
        then = PRINTED.get(key)
        spread = f" +- {np.std([e['per_cell'] for e in runs]):.3f}" if len(runs) > 1 else ""
        match = "" if runs[0]["match"] is None else f"{np.mean([e['match'] for e in runs]):.3f}"
        lines.append([
            key[0] + ("" if key[1] is None else f", {key[1]}"), f"{np.mean([e['k'] for e in runs]):.1f}",
            f"{np.mean([e['seconds'] for e in runs]):.2f}", f"{np.mean([e['tll'] for e in runs]):.1f}",
            f"{np.mean([e['per_cell'] for e in runs]):.4f}{spread}", match,
            *(("", "") if then is None else (f"{then[0]:.0f}", f"{then[1]:.4f}")),
        ])  # fmt: skip
    known = f"noise {model.noise_var:.4f}, features {model.feature_var:.3f}"
    title = f"Speech: {len(cells.X)} rows, {cells.n_hidden} hidden cells, variances for all: {known} (Table 2)"
    heads = ["method", "K", "s", "TLL", "per hidden cell", "match", "printed s", "printed TLL"]
    show_table(title, heads, lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="one restart")
    parser.add_argument("--restarts", type=int, default=3, metavar="N")
    parser.add_argument("--rows", type=int, default=245, metavar="N", help="moments taken")
    parser.add_argument("--noise", type=float, default=0.3, metavar="SHARE", help="sd, in sds of a microphone")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    if folder is None or not (folder / FILE).exists():
        print(f"left out: give the folder of {FILE} by --data or THALI_DATA")
        return 0

    cells, sources = prepared(folder / FILE, options.rows, options.noise)
    record = Record(options.json, {"rows": options.rows, "noise": options.noise}, KEY)
    record.about = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        model = learned_variances(cells)
        if not record.has("FastICA, K validated", None, 0):
            for entry in ordinary(cells, sources):
                record.add(entry)
        tiny = hide_a_third(cells.X[:20])
        for (name, size), method in methods().items():
            method(model, tiny, 0)  # compiles, or loads from the cache
            for restart in range(1 if options.quick else options.restarts):
                if not record.has(name, size, restart):
                    entry = run(method, model, cells, sources, name, restart)
                    record.add({"size": size, "restart": restart, **entry})
    show(cells, record.entries, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
