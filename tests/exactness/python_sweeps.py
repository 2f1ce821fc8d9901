"""Sweeps that are made of compiled parts in Python, in the form that exactness tests take: replicate by replicate."""

from collections.abc import Callable
from typing import Any

import numpy as np

from thali import LinearGaussian
from thali.core.protocols.engines.chains import ChainRows


def replicates(sweep: Callable[..., Any]) -> Callable[..., int]:
    """A function like `thali.kernels.bits.replicates.sweep_replicates`, by sweep(rng, observation, data, local)."""

    def run(X, missing_start, missing_dim, Z, K, log_odds, new_rate, noise_var, feature_var, group, rng) -> int:
        observation = LinearGaussian(noise_var=noise_var, feature_var=feature_var)
        holes = np.zeros(X.shape[1:], dtype=bool)
        holes[np.repeat(np.arange(len(holes)), np.diff(missing_start)), missing_dim] = True
        n_full = 0
        for i in range(len(X)):
            data = observation.engine(ChainRows).prepare(np.where(holes, np.nan, X[i]))
            local = sweep(rng, observation, data, observation.engine(ChainRows).place(data, Z[i, :, : K[i]], X[i]))
            K[i] = local.z.shape[1]
            Z[i] = 0
            Z[i, :, : min(K[i], Z.shape[2])] = local.z[:, : Z.shape[2]]
            n_full += K[i] > Z.shape[2]
            X[i][holes] = local.filled
        return n_full

    return run
