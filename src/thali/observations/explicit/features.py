"""A slice for every value of the features: given the codes, dims are independent, and all are drawn side by side."""

from typing import TYPE_CHECKING

import numpy as np

from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.likelihood import Likelihood

Array = np.ndarray
Generator = np.random.Generator

_STEPS = 16  # by which a slice may be widened
_SHRINKINGS = 200  # after which a value stays
_TYPICAL = 64  # draws that say how wide the prior is


def redraw_features(rng: Generator, model: "Likelihood", X: Array, seen: Array, codes: Array, features: Array) -> Array:
    """Features after a slice for each of them in turn (Neal 2003), given codes and X."""
    features = features.copy()
    width = _width(model, X.shape[1])
    for k in rng.permutation(len(features)):
        features[k] = _slice(rng, model, X, seen, codes, features, int(k), width)
    return features


def _width(model: "Likelihood", n_dims: int) -> float:
    """About the spread of the prior, by the same draws every time."""
    spread = float(np.std(model.draw_features(make_generator(0), _TYPICAL, n_dims)))
    return spread if spread > 0 else 1.0


def _slice(
    rng: Generator,
    model: "Likelihood",
    X: Array,
    seen: Array,
    codes: Array,
    features: Array,
    k: int,
    width: float,
) -> Array:
    """New values (n_dims,) of feature k."""
    trial = features.copy()

    def log_density(values: Array) -> Array:
        trial[k] = values
        prior = model.log_features(values[None])[0]
        with np.errstate(all="ignore"):  # of values outside the support, which the prior rules out
            cells = np.where(seen, model.log_cells(X, codes, trial), 0.0).sum(axis=0)
            total = prior + cells
        return np.where(np.isfinite(prior) & ~np.isnan(total), total, -np.inf)

    old = features[k].copy()
    n_dims = len(old)
    level = log_density(old) - rng.exponential(size=n_dims)
    low = old - width * rng.random(n_dims)
    high = low + width
    left = rng.integers(_STEPS, size=n_dims)  # a random split keeps the step reversible although it is bounded
    right = _STEPS - 1 - left
    while (wider := (left > 0) & (log_density(low) > level)).any():
        low, left = np.where(wider, low - width, low), left - wider
    while (wider := (right > 0) & (log_density(high) > level)).any():
        high, right = np.where(wider, high + width, high), right - wider
    new, open_ = old.copy(), np.ones(n_dims, dtype=bool)
    for _ in range(_SHRINKINGS):
        proposal = np.where(open_, low + (high - low) * rng.random(n_dims), new)
        accepted = open_ & (log_density(proposal) > level)
        new = np.where(accepted, proposal, new)
        open_ &= ~accepted
        if not open_.any():
            break
        low = np.where(open_ & (proposal < old), proposal, low)
        high = np.where(open_ & (proposal >= old), proposal, high)
    return new
