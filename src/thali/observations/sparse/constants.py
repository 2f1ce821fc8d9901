"""Dims that never vary.

Where dims own loadings and have noise and a mean of their own, such a dim would have no noise at all, and draw the
level that all dims share towards nothing. So it is taken for what it is to other dims: noise that nothing explains,
faint enough for its predictions to be the constant.
"""

import numpy as np

from thali.rng import make_generator

Array = np.ndarray

FAINT = 1e-8  # variance of such a dim, in that of a usual one
_SEED = 0


def never_vary(X: Array) -> Array:
    """Which dims have at least two cells, all of them equal."""
    seen = ~np.isnan(X)
    low, high = np.min(X, axis=0, where=seen, initial=np.inf), np.max(X, axis=0, where=seen, initial=-np.inf)
    return (low == high) & (seen.sum(axis=0) > 1)


def with_noise(Y: Array, dims: Array) -> Array:
    """Y with noise of variance one added to these dims, always the same."""
    if not dims.any():
        return Y
    Y = Y + 0.0
    Y[:, dims] += make_generator(_SEED).standard_normal((len(Y), int(dims.sum())))
    return Y
