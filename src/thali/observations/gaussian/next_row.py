"""The density of the next row for who knows each feature by its chance, and by a normal law of its own.

    p(x) = sum_z prod_k q_k^z_k (1 - q_k)^(1 - z_k) N(x; v mean, noise_var + v^2 var),    v = z, or z w with w normal

A filter of rows knows its features like that: features that a row may be the first to have are among them, with the
chance of their birth. Cells are independent given v; those that are missing have no part.

Few features are enumerated. Else v is drawn, the features integrated out: from what is likely for the row, and some
from the law of v, so that no weight can be large. Each row has a stream of random numbers of its own, from a seed and
its content: whatever its company, it has the same answer.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp, ndtri

from thali.data.row_digests import row_digests
from thali.errors import InvalidParameterError
from thali.numerics.blas import one_blas_thread
from thali.rng import row_uniforms, seeded_keys

Array = np.ndarray

HOW = ("auto", "exact", "importance", "marginal", "joint")

_ENUMERATED = 10  # features
_IMPOSSIBLE = 1e-12  # a feature with a smaller chance is left out
_FROM_THE_LAW = 0.1  # share of the draws
_CELLS = 2_000_000  # of draws held at a time
_TEMPERATURES = (8.0, 4.0, 2.0, 1.0)
_SWEEPS, _SETTLED = 50, 1e-6


class NextRow(NamedTuple):
    """What is known before a row."""

    chance: Array  # (n_features,) that it has the feature
    mean: Array  # (n_features, n_dims)
    var: Array  # (n_features,), or (n_features, n_dims)
    noise_var: float | Array  # or (n_dims,)
    weight_var: float | None = None  # of normal weights, of which each row and feature has one; None: there are none


@one_blas_thread()
def log_density(X: Array, row: NextRow, how: str = "auto", n_samples: int = 200, seed: int = 0) -> Array:
    """log p(x_n) of each row of X on its own, NaN where a cell is missing; offsets are subtracted before.

    how: "exact" sums over all Z; "importance" draws codes by what is likely for the row; "marginal" draws them from
    their law; "joint" draws the features, too (the estimate of Schaeffer et al. 2022). Before the logarithm all are
    unbiased. "auto" is "exact" with few features and no weights, else "importance".
    """
    if how not in HOW:
        raise InvalidParameterError(f"how must be one of {', '.join(map(repr, HOW))}. Got {how!r}.")
    row = _possible(row)
    n_features = len(row.chance)
    if how == "auto":
        how = "exact" if row.weight_var is None and n_features <= _ENUMERATED else "importance"
    if how == "exact" and row.weight_var is not None:
        raise InvalidParameterError('Weights cannot be enumerated. Use how="importance".')
    seen = ~np.isnan(X)
    found = np.zeros(len(X))
    some = np.flatnonzero(seen.any(axis=1))  # a row of which nothing is seen has density 1
    keys = seeded_keys(row_digests(X), seed)
    per_draw = max(X.shape[1], n_features * (1 if row.weight_var is None else n_features), 1)
    size = max(_CELLS // ((2**n_features if how == "exact" else n_samples) * per_draw), 1)
    for rows in np.split(some, range(size, len(some), size)):
        cells = np.where(seen[rows], X[rows], 0.0), seen[rows]
        if how == "exact":
            found[rows] = _enumerated(*cells, row)
        else:
            log_weights = _DRAWS[how](*cells, row, keys[rows], n_samples)
            # eq: S22.predictive-draws
            found[rows] = logsumexp(log_weights, axis=1) - math.log(n_samples)
    return found


def _possible(row: NextRow) -> NextRow:
    """Without features that no row will have; no other is certain."""
    kept = np.flatnonzero(row.chance > _IMPOSSIBLE)
    chance = np.minimum(row.chance[kept], 1.0 - _IMPOSSIBLE)
    return row._replace(chance=chance, mean=row.mean[kept], var=row.var[kept])


# ---- rows given their codes


def _log_rows(X: Array, seen: Array, mean: Array, var: Array) -> Array:
    """(n_rows, n_draws) from means and variances (n_rows or 1, n_draws, n_dims or 1)."""
    square = (X[:, None] - mean) ** 2
    if var.shape[2] == 1:
        left = np.where(seen[:, None], square, 0.0).sum(axis=2)
        return -0.5 * (seen.sum(axis=1)[:, None] * np.log(2 * np.pi * var[:, :, 0]) + left / var[:, :, 0])
    return np.where(seen[:, None], -0.5 * (np.log(2 * np.pi * var) + square / var), 0.0).sum(axis=2)


def _spread(codes: Array, row: NextRow) -> Array:
    """What the features add to the noise of rows with these codes."""
    return codes**2 @ (row.var if row.var.ndim == 2 else row.var[:, None])


def _given_codes(X: Array, seen: Array, codes: Array, row: NextRow) -> Array:
    """log p(x | codes), features integrated out."""
    return _log_rows(X, seen, codes @ row.mean, _spread(codes, row) + row.noise_var)


def _log_bits(Z: Array, chance: Array) -> Array:
    """log P(Z) of independent bits; chance (..., 1, n_features)."""
    return np.where(Z, np.log(chance), np.log1p(-chance)).sum(axis=-1)


def _enumerated(X: Array, seen: Array, row: NextRow) -> Array:
    n_features = len(row.chance)
    Z = (np.arange(2**n_features)[:, None] >> np.arange(n_features)) & 1
    # eq: S22.predictive
    log_joint = _given_codes(X, seen, Z[None].astype(float), row) + _log_bits(Z == 1, row.chance[None])
    return np.asarray(logsumexp(log_joint, axis=1))


# ---- draws: log weights (n_rows, n_draws)


def _joint(X: Array, seen: Array, row: NextRow, keys: Array, n: int) -> Array:
    """Codes and features drawn; of the features only their sum matters."""
    codes, rest = _codes_of_law(row, keys, n, X.shape[1])
    mean = codes @ row.mean + np.sqrt(_spread(codes, row)) * ndtri(rest + 2.0**-54)
    var = np.broadcast_to(row.noise_var, X.shape[1])[None, None]
    return _log_rows(X, seen, mean, var)


def _marginal(X: Array, seen: Array, row: NextRow, keys: Array, n: int) -> Array:
    codes, _ = _codes_of_law(row, keys, n, 0)
    return _given_codes(X, seen, codes, row)


def _codes_of_law(row: NextRow, keys: Array, n: int, n_more: int) -> tuple[Array, Array]:
    """Codes (n_rows, n, n_features) from their law, and as many more uniforms for each."""
    n_features = len(row.chance)
    numbers = row_uniforms(keys, n * (2 * n_features + n_more)).reshape(len(keys), n, -1)
    codes = (numbers[:, :, :n_features] < row.chance).astype(float)
    if row.weight_var is not None:
        codes *= math.sqrt(row.weight_var) * ndtri(numbers[:, :, n_features : 2 * n_features] + 2.0**-54)
    return codes, numbers[:, :, 2 * n_features :]


def _importance(X: Array, seen: Array, row: NextRow, keys: Array, n: int) -> Array:
    """From what is likely for the row, and a fixed number from the law; each is weighted by the mixture of both."""
    n_features, n_of_law = len(row.chance), max(round(_FROM_THE_LAW * n), 1)
    shares = np.log([1.0 - n_of_law / n, n_of_law / n]) if n_of_law < n else np.array([-np.inf, 0.0])
    numbers = row_uniforms(keys, 2 * n * n_features).reshape(len(keys), n, 2, n_features)
    forms, pull = _forms(X, seen, row)
    likely = _likely(row, forms, pull)[:, None]
    chance = np.where((np.arange(n) < n_of_law)[:, None], row.chance, likely)
    Z = numbers[:, :, 0] < chance
    codes, log_likely = Z.astype(float), _log_bits(Z, likely)
    log_law = _log_bits(Z, row.chance)
    if row.weight_var is not None:
        codes, log_p, log_q = _weights(codes, row, forms, pull, ndtri(numbers[:, :, 1] + 2.0**-54), n_of_law)
        log_law, log_likely = log_law + log_p, log_likely + log_q
    # eq: own.row-importance
    log_mixture = np.logaddexp(shares[0] + log_likely, shares[1] + log_law)
    return _given_codes(X, seen, codes, row) + log_law - log_mixture


_DRAWS = {"joint": _joint, "marginal": _marginal, "importance": _importance}


# ---- what is likely for a row


def _forms(X: Array, seen: Array, row: NextRow) -> tuple[Array, Array]:
    """E[A A'] / noise over the cells that are seen, (n_rows or 1, n_features, n_features), and mean x' / noise."""
    n_features, n_dims = row.mean.shape
    noise = np.broadcast_to(row.noise_var, n_dims)
    scaled = row.mean / noise
    var = (row.var if row.var.ndim == 2 else row.var[:, None]) / noise
    pull = np.matmul(X[:, None], scaled.T)[:, 0]
    which = np.ones((1, n_dims)) if seen.all() else seen.astype(float)
    products = (scaled[:, None] * row.mean).reshape(n_features**2, n_dims)
    forms = np.matmul(which[:, None], products.T).reshape(len(which), n_features, n_features)
    at = np.arange(n_features)
    forms[:, at, at] += np.matmul(which[:, None], var.T)[:, 0]
    return np.broadcast_to(forms, (len(X), n_features, n_features)), pull


def _likely(row: NextRow, forms: Array, pull: Array) -> Array:
    """P(row has feature) with the others at their mean, cooled down: coordinate ascent, of bits and weights jointly."""
    n_features = len(row.chance)
    odds = np.log(row.chance) - np.log1p(-row.chance)
    bits = np.tile(row.chance, (len(pull), 1))
    codes = bits * (1.0 if row.weight_var is None else 0.0)
    own = np.einsum("nkk->nk", forms)
    for temperature in _TEMPERATURES:
        moving = np.arange(len(pull))
        for sweep in range(_SWEEPS):
            before = bits[moving]
            for k in range(n_features) if sweep % 2 == 0 else reversed(range(n_features)):
                others = (forms[moving, k] * codes[moving]).sum(axis=1) - own[moving, k] * codes[moving, k]
                left, size = (pull[moving, k] - others) / temperature, own[moving, k] / temperature
                if row.weight_var is None:
                    codes[moving, k] = bits[moving, k] = expit(odds[k] + left - 0.5 * size)
                else:
                    precision = 1.0 / row.weight_var + size
                    gain = 0.5 * (left**2 / precision - np.log(row.weight_var * precision))
                    bits[moving, k] = expit(odds[k] + gain)
                    codes[moving, k] = bits[moving, k] * left / precision
            moving = moving[np.abs(bits[moving] - before).max(axis=1, initial=0.0) > _SETTLED]
            if not len(moving):
                break
    return np.clip(bits, 1e-6, 1.0 - 1e-6)


def _weights(
    Z: Array, row: NextRow, forms: Array, pull: Array, normals: Array, n_of_law: int
) -> tuple[Array, Array, Array]:
    """(codes, log density of the weights in their law, and given the row and Z with features at their mean).

    The first n_of_law are drawn from the law. Weights of features that are off have the same law in both.
    """
    assert row.weight_var is not None
    n_features = len(row.chance)
    # eq: own.row-importance-weights
    precision = Z[..., None] * Z[..., None, :] * forms[:, None] + np.eye(n_features) / row.weight_var
    root = np.linalg.cholesky(precision)
    upper = np.swapaxes(root, -1, -2)
    half = np.linalg.solve(root, (Z * pull[:, None])[..., None])
    given = np.linalg.solve(upper, half + normals[..., None])[..., 0]
    weights = np.where((np.arange(normals.shape[1]) < n_of_law)[:, None], math.sqrt(row.weight_var) * normals, given)
    away = (upper @ weights[..., None] - half)[..., 0]
    log_q = np.log(np.einsum("...kk->...k", root)).sum(axis=-1) - 0.5 * (away**2).sum(axis=-1)
    log_p = -0.5 * (n_features * math.log(row.weight_var) + (weights**2).sum(axis=-1) / row.weight_var)
    return Z * weights, log_p, log_q
