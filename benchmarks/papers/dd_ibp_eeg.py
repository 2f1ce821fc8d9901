"""EEG with missing channels: does it help that near moments share features? (Gershman et al. 2015, supplement 3)

    python benchmarks/papers/dd_ibp_eeg.py [--data FOLDER] [--quick] [--restarts 10] [--rows 200] [--json PATH]

The report's recordings (EPFL) are replaced by those of the BCI competition of 2003 (`eeg_p300_bci2003.npz`, with 64
channels): `--rows` moments, one every 1/48 s, z-scored; of ten of them two channels are hidden, others in each restart.
Distances are differences of time in moments, decays exponential. 1500 sweeps as in the report, one chain. Errors are
squared ones of the hidden cells, with standard errors over restarts: of the draw with the highest log joint (as the
report has it) and of the mean over the last 500 draws. "by dim" predicts each channel's mean. The report finds the IBP
best. The folder may also be given by THALI_DATA. See benchmarks/README.md.
"""

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tables import machine, show_table
from thali import (
    IBP,
    CollapsedGibbs,
    DistanceDependentGibbs,
    DistanceDependentIBP,
    ExponentialDecay,
    LatentFeatures,
)
from thali.core.protocols.engines.predictions import Predictions

FILE = "eeg_p300_bci2003.npz"
STEP = 5  # samples of 1/240 s
RATES = (0.01, 0.1, 0.5, 1.0, 2.0)
N_ROWS_HIT, N_HIDDEN = 10, 2
Array = np.ndarray
Entry = dict[str, Any]


def moments(path: Path, n_rows: int) -> Array:
    """The first so many moments, each channel with mean 0 and variance 1."""
    with np.load(path, allow_pickle=False) as file:
        X = file["signal"][: n_rows * STEP : STEP].astype(float)
    return (X - X.mean(axis=0)) / X.std(axis=0)


def hide(X: Array, seed: int) -> Array:
    """Two channels of each of ten moments."""
    rng = np.random.default_rng(seed)
    hidden = np.zeros(X.shape, dtype=bool)
    for row in rng.choice(len(X), N_ROWS_HIT, replace=False):
        hidden[row, rng.choice(X.shape[1], N_HIDDEN, replace=False)] = True
    return hidden


def errors(fit: LatentFeatures, X: Array, hidden: Array) -> Entry:
    """Squared errors of the hidden cells, by the best draw and by the mean of the draws."""
    posterior = fit.posterior_
    chain, draw = np.unravel_index(np.argmax(posterior.draws["log_joint"]), posterior.draws["log_joint"].shape)
    engine = posterior.concrete(int(chain), int(draw)).observation.engine(Predictions)
    best = engine.means(posterior.codes(int(chain), int(draw)), posterior.codebook(int(chain), int(draw)))
    origin = posterior.model.observation.engine(Predictions).origin
    best = best if origin is None else best + origin
    mean = fit.impute(np.where(hidden, np.nan, X))
    return {
        "best_draw": float(np.mean((best - X)[hidden] ** 2)),
        "mean": float(np.mean((mean - X)[hidden] ** 2)),
        "features": float(posterior.draws["n_features"].mean()),
    }


def priors() -> dict[str, Any]:
    return {"IBP": IBP()} | {
        f"dd-IBP, rate {rate:g}": DistanceDependentIBP(decay=ExponentialDecay(rate)) for rate in RATES
    }


def one_fit(name: str, prior: Any, X: Array, seed: int, length: Entry) -> Entry:
    hidden = hide(X, seed)
    near = {} if isinstance(prior, IBP) else {"times": np.arange(float(len(X)))}
    inference = CollapsedGibbs(**length) if isinstance(prior, IBP) else DistanceDependentGibbs(**length)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not converged|not judged")
        fit = LatentFeatures(prior=prior, inference=inference, n_chains=1, random_state=seed, verbose=False)
        fit.fit(np.where(hidden, np.nan, X), **near)
    by_dim = float(np.mean((np.nanmean(np.where(hidden, np.nan, X), axis=0) - X)[hidden] ** 2))
    return {"prior": name, "restart": seed, "seconds": time.process_time() - begin, "by_dim": by_dim,
            **errors(fit, X, hidden)}  # fmt: skip


def show(entries: list[Entry], n_rows: int) -> None:
    lines = []
    for name in dict.fromkeys(entry["prior"] for entry in entries):
        mine = [entry for entry in entries if entry["prior"] == name]
        cells = []
        for key in ("best_draw", "mean"):
            values = np.array([entry[key] for entry in mine])
            cells.append(f"{values.mean():.3f} +- {values.std(ddof=1) / np.sqrt(len(values)):.3f}" if len(mine) > 1
                         else f"{values.mean():.3f}")  # fmt: skip
        lines.append([name, *cells, f"{np.mean([e['features'] for e in mine]):.0f}",
                      f"{np.mean([e['seconds'] for e in mine]):.0f}"])  # fmt: skip
    first = entries[0]["prior"]
    by_dim = np.mean([entry["by_dim"] for entry in entries if entry["prior"] == first])
    lines.append(["by dim", "", f"{by_dim:.3f}", "", ""])
    n = len([entry for entry in entries if entry["prior"] == first])
    title = f"EEG: {n_rows} moments, 64 channels, {n} restarts; squared error of the hidden cells"
    show_table(title, ["prior", "best draw", "mean of draws", "features", "s"], lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="one restart of 40 moments, 40 sweeps")
    parser.add_argument("--restarts", type=int, default=10, metavar="N")
    parser.add_argument("--rows", type=int, default=200, metavar="N", help="moments taken")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    if folder is None or not (folder / FILE).exists():
        print(f"left out: give the folder of {FILE} by --data or THALI_DATA")
        return 0
    n_rows = 40 if options.quick else options.rows
    length = {"n_warmup": 20, "n_draws": 20} if options.quick else {"n_warmup": 1000, "n_draws": 500}
    X = moments(folder / FILE, n_rows)
    entries: list[Entry] = []
    for restart in range(1 if options.quick else options.restarts):
        for name, prior in priors().items():
            entries.append(one_fit(name, prior, X, restart, length))
            print(f"restart {restart}, {name}: {entries[-1]['mean']:.3f}", file=sys.stderr, flush=True)
            if options.json is not None:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                report = {"machine": machine(), "rows": n_rows, "entries": entries}
                options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(entries, n_rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
