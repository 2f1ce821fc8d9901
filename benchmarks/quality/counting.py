"""How often the number of features is right and its interval covers the truth, and whether presence is calibrated.

    python benchmarks/quality/counting.py --seeds 1      # a minute or two of CPU time; all of it: ten

Sets of 150 rows and 16 dims, noise sd .5, 1 and 1.8: features of shares .1 to .5, Z from the IBP, and features with
normal weights.
"""

import argparse
import warnings
from typing import NamedTuple

import numpy as np

import thali
from thali import IBP, CollapsedGibbs, FactorAnalysis, Gibbs, LatentFeatures

DESIGNS = ("balanced", "ibp", "weights")
NOISE = (0.5, 1.0, 1.8)
N_ROWS, N_DIMS = 150, 16


class Found(NamedTuple):
    """What one fit said, beside the truth."""

    truth: int
    how_many: thali.HowMany
    n_persistent: int
    own: np.ndarray  # presence of fitted rows
    encoded: np.ndarray  # by the encoder, as for new rows
    has: np.ndarray  # the true bits, of features that were found


def simulate(design: str, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, Z, features)."""
    rng = np.random.default_rng([seed, DESIGNS.index(design), int(10 * noise)])
    if design == "ibp":
        Z = IBP(mass=2.0).simulate(rng, N_ROWS)
    else:
        n_features = int(rng.integers(3, 9))
        Z = (rng.random((N_ROWS, n_features)) < rng.uniform(0.1, 0.5, n_features)).astype(np.uint8)
    features = rng.standard_normal((Z.shape[1], N_DIMS))
    codes = Z * (rng.standard_normal(Z.shape) if design == "weights" else 1.0)
    return codes @ features + noise * rng.standard_normal((N_ROWS, N_DIMS)), Z, features


def run(design: str, noise: float, seed: int, n_draws: int) -> Found:
    from thali.counting import count

    X, Z, features = simulate(design, noise, seed)
    weighted = design == "weights"
    sampler = (Gibbs if weighted else CollapsedGibbs)(n_warmup=n_draws, n_draws=n_draws)
    model = LatentFeatures(FactorAnalysis() if weighted else None, inference=sampler, n_chains=2, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    size = np.linalg.norm(features, axis=1)[:, None] * np.linalg.norm(model.components_, axis=1)
    alike = np.abs(features @ model.components_.T) / np.maximum(size, 1e-300)
    found = np.flatnonzero(alike.max(axis=0, initial=0.0) > 0.8)
    encoded = model.posterior_.encoder.encode(X).presence
    return Found(
        Z.shape[1],
        count(model),
        model.n_components_,
        model.presence(X)[:, found].ravel(),
        encoded[:, found].ravel(),
        Z[:, alike[:, found].argmax(axis=0)].ravel() if len(found) else np.zeros(0),
    )


def calibration_error(p: np.ndarray, truth: np.ndarray, n_bins: int = 10) -> float:
    """Mean over cells of |predicted - observed|, by bins of the prediction."""
    which = np.minimum((p * n_bins).astype(int), n_bins - 1)
    gaps = [abs(np.sum(p[which == b] - truth[which == b])) for b in range(n_bins)]
    return float(sum(gaps) / max(len(p), 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=6, help="data sets of each kind")
    parser.add_argument("--draws", type=int, default=200, help="warm-up sweeps and draws of each of two chains")
    parser.add_argument("--designs", default=",".join(DESIGNS))
    args = parser.parse_args()
    print("design    noise  covers  k inside  right: k  persists   error: k  persists   ECE: fitted  encoded")
    for design in args.designs.split(","):
        for noise in NOISE:
            fits = [run(design, noise, seed, args.draws) for seed in range(args.seeds)]
            rows = [
                (
                    low <= f.truth <= high,
                    low <= k <= high,
                    k == f.truth,
                    f.n_persistent == f.truth,
                    abs(k - f.truth),
                    abs(f.n_persistent - f.truth),
                )
                for f in fits
                for k, (low, high) in [f.how_many[:2]]
            ]
            covers, inside, right, persists, error, other = np.mean(np.array(rows, dtype=float), axis=0)
            own, encoded, has = (np.concatenate([getattr(f, n) for f in fits]) for n in ("own", "encoded", "has"))
            print(
                f"{design:9} {noise:5.1f}  {covers:6.2f}  {inside:8.2f}  {right:8.2f}  {persists:8.2f}   {error:8.2f}"
                f"  {other:8.2f}   {calibration_error(own, has):11.3f}  {calibration_error(encoded, has):7.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
