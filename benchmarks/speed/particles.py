"""How much faster is the compiled particle filter than the same one in plain NumPy? What do learned values cost?

    python benchmarks/speed/particles.py [--rows 40] [--particles 100]

CPU time per row and particle; the first rows of the bars are taken in before, so that there are features to look at.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from reference.bits import particles as plain

from benchmarks.tables import machine, show_table
from thali import IBP, Gamma, InverseGamma, LinearGaussian, ParticleFilter, datasets
from thali.core.model import Model
from thali.observations.gaussian import particles as _particles

FIXED = Model(IBP(mass=1.0), LinearGaussian(noise_var=0.25, feature_var=0.5))
MODELS = {
    "fixed": FIXED,
    "learned mass": Model(IBP(mass=Gamma(1.0, 1.0)), FIXED.observation),
    "all learned": Model(
        IBP(mass=Gamma(1.0, 1.0)), LinearGaussian(noise_var=InverseGamma(2.0, 0.5), feature_var=InverseGamma(2.0, 0.5))
    ),
}
BEFORE = 100  # rows


def seconds(inference: ParticleFilter, model: Model, X: np.ndarray, n_rows: int, repeats: int) -> float:
    """CPU time of `n_rows` rows after the first ones, the best of several."""
    best = np.inf
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        adapted = Model(model.prior, model.observation.adapt(X))
        state: Any = inference.begin(rng, adapted, X.shape[1])
        state, _ = inference.absorb(rng, state, adapted, X[:BEFORE])
        begin = time.process_time()
        inference.absorb(rng, state, adapted, X[BEFORE : BEFORE + n_rows])
        best = min(best, time.process_time() - begin)
    return best


def in_numpy(inference: ParticleFilter, X: np.ndarray, n_rows: int) -> float:
    """The same rows by the twin, from the same state."""
    rng = np.random.default_rng(0)
    adapted = Model(FIXED.prior, FIXED.observation.adapt(X))
    state: Any = inference.begin(rng, adapted, X.shape[1])
    state, _ = inference.absorb(rng, state, adapted, X[:BEFORE])
    compiled = _particles.filter_rows
    try:
        _particles.filter_rows = plain.filter_rows
        begin = time.process_time()
        inference.absorb(rng, state, adapted, X[BEFORE : BEFORE + n_rows])
        return time.process_time() - begin
    finally:
        _particles.filter_rows = compiled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40, help="rows that the plain version takes in")
    parser.add_argument("--particles", type=int, default=100)
    options = parser.parse_args()
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load']}")
    X = datasets.bars().X
    n, many = options.particles, len(X) - BEFORE
    with threadpool_limits(1, "blas"):
        rows = []
        for proposal in ("gibbs", "prior"):
            inference = ParticleFilter(n_particles=n, proposal=proposal, n_sweeps=0)
            fast = seconds(inference, FIXED, X, many, 3) / many / n * 1e6
            slow = in_numpy(inference, X, options.rows) / options.rows / n * 1e6
            rows.append(
                [proposal, f"{fast:.2f}", f"{slow:.0f}", f"{slow / fast:.0f}", "" if slow > 100 * fast else "MISSED"]
            )
        show_table("Microseconds a row and particle", ["proposal", "compiled", "NumPy", "ratio", "target 100"], rows)
        rows = []
        for name, model in MODELS.items():
            inferences = [ParticleFilter(n_particles=n, n_sweeps=n_sweeps) for n_sweeps in (0, 1)]
            times = [seconds(inference, model, X, 100, 1) / 100 / n * 1e6 for inference in inferences]
            rows.append([name, *(f"{t:.1f}" for t in times)])
        columns = ["hyperparameters", "no sweeps", "a sweep after each resampling"]
        show_table("Microseconds a row and particle, proposal gibbs, 100 rows more", columns, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
