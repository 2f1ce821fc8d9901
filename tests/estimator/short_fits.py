"""Clear data, short fits of them, and whether two fits are the same."""

import numpy as np

from thali import CollapsedGibbs, LatentFeatures

SHORT = CollapsedGibbs(n_warmup=10, n_draws=10)
A = np.array([[4.0, 4.0, 0, 0, 0], [0, 0, 4.0, 4.0, 0], [4.0, 0, 0, 0, -4.0]])


def make(n_rows, rng, noise=0.3):
    Z = rng.integers(2, size=(n_rows, 3))
    return Z @ A + noise * rng.standard_normal((n_rows, 5)), Z


def estimator(**parameters):
    return LatentFeatures(**{"inference": SHORT, "n_chains": 2, "random_state": 3} | parameters)


def same(a, b):
    return np.array_equal(a.posterior_.draws["log_joint"], b.posterior_.draws["log_joint"]) and np.array_equal(
        a.components_, b.components_
    )
