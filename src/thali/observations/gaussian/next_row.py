"""The density of the next row for who knows each feature by its chance, and by a normal law of its own.

    p(x) = sum_z prod_k q_k^z_k (1 - q_k)^(1 - z_k) N(x; v mean, noise_var + v^2 var),    v = z, or z w with w normal

A filter of rows knows its features like that: features that a row may be the first to have are the last ones, with the
chance of their birth. Cells are independent given v; those that are missing have no part.

New features are alike, so only how many a row has matters, or the sum of their squared weights: that is integrated out
first. Few others are enumerated. Else their v is drawn, the features integrated out: from what is likely for the row,
with and without a new feature, and some from the law of v, so that no weight can be large. Each row has a stream of
random numbers of its own, from a seed and its content: whatever its company, it has the same answer.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp, ndtri, roots_genlaguerre

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
_NODES = 12, 6  # of the squared weight of a new feature, and of the sum of several
_TEMPERATURES = (8.0, 4.0, 2.0, 1.0)
_SWEEPS, _SETTLED = 50, 1e-6


class NextRow(NamedTuple):
    """What is known before a row."""

    chance: Array  # (n_features,) that it has the feature
    mean: Array  # (n_features, n_dims)
    var: Array  # (n_features,), or (n_features, n_dims)
    noise_var: float | Array  # or (n_dims,)
    weight_var: float | None = None  # of normal weights, of which each row and feature has one; None: there are none
    n_new: int = 0  # features that no row had, the last ones: means of zero, and one variance
    more: Array = np.zeros((2, 0))  # chances of what they may add to the variance of each cell, and how much that is


@one_blas_thread()
def log_density(X: Array, row: NextRow, how: str = "auto", n_samples: int = 200, seed: int = 0) -> Array:
    """log p(x_n) of each row of X on its own, NaN where a cell is missing; offsets are subtracted before.

    how: "exact" sums over all Z; "importance" draws codes by what is likely for the row; "marginal" draws them from
    their law; "joint" draws the features, too (the estimate of Schaeffer et al. 2022). Before the logarithm all are
    unbiased. "auto" is "exact" with few features and no weights, else "importance".
    """
    if how not in HOW:
        raise InvalidParameterError(f"how must be one of {', '.join(map(repr, HOW))}. Got {how!r}.")
    row = _possible(_collapsed(row) if how in ("auto", "exact", "importance") else row)
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


def _collapsed(row: NextRow) -> NextRow:
    """With the new features as a law of what they add to the variance of each cell."""
    if not row.n_new:
        return row
    known = len(row.chance) - row.n_new
    law = np.ones(1)
    for chance in row.chance[known:]:
        law = np.append(law, 0.0) * (1.0 - chance) + np.append(0.0, law) * chance
    var = float(np.max(row.var[-1]))
    chances, powers = [law[0]], [0.0]
    for m in range(1, len(law)):
        if row.weight_var is None:
            chances.append(law[m])
            powers.append(float(m))
        else:  # the sum of so many squared weights
            nodes, shares = roots_genlaguerre(_NODES[min(m - 1, 1)], 0.5 * m - 1.0)
            chances += list(law[m] * shares / shares.sum())
            powers += list(2.0 * row.weight_var * nodes)
    more = np.array([chances, var * np.array(powers)])[:, np.array(chances) > _IMPOSSIBLE]
    # eq: own.new-features
    return row._replace(chance=row.chance[:known], mean=row.mean[:known], var=row.var[:known], n_new=0, more=more)


def _possible(row: NextRow) -> NextRow:
    """Without features that no row will have; no other is certain."""
    kept = np.flatnonzero(row.chance > _IMPOSSIBLE)
    chance = np.minimum(row.chance[kept], 1.0 - _IMPOSSIBLE)
    return row._replace(chance=chance, mean=row.mean[kept], var=row.var[kept])


# ---- rows given their codes


def _log_rows(square: Array, seen: Array, var: Array) -> Array:
    """(n_rows, n_draws) from squares of what is left (n_rows, n_draws, n_dims) and variances (n_rows or 1, n_draws,
    n_dims or 1)."""
    if var.shape[2] == 1:
        left = np.where(seen[:, None], square, 0.0).sum(axis=2)
        return -0.5 * (seen.sum(axis=1)[:, None] * np.log(2 * np.pi * var[:, :, 0]) + left / var[:, :, 0])
    return np.where(seen[:, None], -0.5 * (np.log(2 * np.pi * var) + square / var), 0.0).sum(axis=2)


def _spread(codes: Array, row: NextRow) -> Array:
    """What the features add to the noise of rows with these codes."""
    return codes**2 @ (row.var if row.var.ndim == 2 else row.var[:, None])


def _given_codes(X: Array, seen: Array, codes: Array, row: NextRow) -> Array:
    """log p(x | codes), features integrated out, and new ones with how many there are."""
    square, var = (X[:, None] - codes @ row.mean) ** 2, _spread(codes, row) + row.noise_var
    if not row.more.size:
        return _log_rows(square, seen, var)
    if var.shape[2] == 1:  # one sum of squares is enough
        square, n_seen = np.where(seen[:, None], square, 0.0).sum(axis=2), seen.sum(axis=1)[:, None]
        whole = [var[:, :, 0] + more for more in row.more[1]]
        terms = [-0.5 * (n_seen * np.log(2 * np.pi * var) + square / var) for var in whole]
    else:
        terms = [_log_rows(square, seen, var + more) for more in row.more[1]]
    terms = [term + math.log(chance) for term, chance in zip(terms, row.more[0], strict=True)]
    return np.asarray(logsumexp(terms, axis=0))


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
    return _log_rows((X[:, None] - mean) ** 2, seen, var)


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
    """From what is likely for the row, and a fixed number from the law; each is weighted by the mixture of all.

    What is likely is asked twice if there may be new features: without one, and with one as noise."""
    n_features, n_of_law = len(row.chance), max(round(_FROM_THE_LAW * n), 1)
    numbers = row_uniforms(keys, 2 * n * n_features).reshape(len(keys), n, 2, n_features)
    normals = ndtri(numbers[:, :, 1] + 2.0**-54)
    kinds: list[_Source] = [_Source(np.tile(row.chance, (len(X), 1)), None)]
    for noise in _levels(row):
        given = row._replace(noise_var=noise)
        forms, pull = _forms(X, seen, given)
        kinds.append(_Source(_likely(given, forms, pull), (forms, pull)))
    ends = np.linspace(n_of_law, n, len(kinds)).astype(int)
    Z, weights = np.zeros((len(X), n, n_features), bool), np.zeros((len(X), n, n_features))
    for kind, first, last in zip(kinds, [0, *ends[:-1]], ends, strict=True):
        some = slice(first, last)
        Z[:, some] = numbers[:, some, 0] < kind.chance[:, None]
        if row.weight_var is not None:
            weights[:, some] = _drawn(Z[:, some], row, kind, normals[:, some])
    log_q = []
    for kind in kinds:
        log_q.append(_log_bits(Z, kind.chance[:, None]))
        if row.weight_var is not None:
            log_q[-1] = log_q[-1] + _log_weights(Z, weights, row, kind)
    codes = Z.astype(float) if row.weight_var is None else Z * weights
    # eq: own.row-importance
    return _given_codes(X, seen, codes, row) + log_q[0] - _log_mixture(log_q, np.diff([0, *ends]) / n)


def _log_mixture(log_densities: list[Array], shares: Array) -> Array:
    parts = [density + math.log(share) for density, share in zip(log_densities, shares, strict=True) if share > 0]
    return np.asarray(logsumexp(parts, axis=0))


def _levels(row: NextRow) -> list[Any]:
    """Variances of the noise for which it is asked what is likely."""
    if not row.more.size or row.more[0, 1:].sum() == 0:
        return [row.noise_var]
    return [row.noise_var, row.noise_var + float(np.average(row.more[1, 1:], weights=row.more[0, 1:]))]


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


class _Source(NamedTuple):
    """From where codes are drawn."""

    chance: Array  # (n_rows, n_features) of each bit
    given: tuple[Array, Array] | None  # forms and pull, from which weights given bits follow; None: from their law


def _precision(Z: Array, row: NextRow, forms: Array) -> Array:
    """Of the weights, given the row and Z with features at their mean."""
    assert row.weight_var is not None
    # eq: own.row-importance-weights
    return Z[..., None] * Z[..., None, :] * forms[:, None] + np.eye(Z.shape[2]) / row.weight_var


def _drawn(Z: Array, row: NextRow, kind: _Source, normals: Array) -> Array:
    """Weights; of features that are off, from their law."""
    assert row.weight_var is not None
    if kind.given is None:
        return math.sqrt(row.weight_var) * normals
    forms, pull = kind.given
    root = np.linalg.cholesky(_precision(Z, row, forms))
    half = np.linalg.solve(root, (Z * pull[:, None])[..., None])
    return np.asarray(np.linalg.solve(np.swapaxes(root, -1, -2), half + normals[..., None])[..., 0])


def _log_weights(Z: Array, weights: Array, row: NextRow, kind: _Source) -> Array:
    """Log density of weights of that source, up to a constant that all sources share."""
    assert row.weight_var is not None
    if kind.given is None:
        return -0.5 * (Z.shape[2] * math.log(row.weight_var) + (weights**2).sum(axis=-1) / row.weight_var)
    forms, pull = kind.given
    root = np.linalg.cholesky(_precision(Z, row, forms))
    half = np.linalg.solve(root, (Z * pull[:, None])[..., None])
    away = (np.swapaxes(root, -1, -2) @ weights[..., None] - half)[..., 0]
    return np.asarray(np.log(np.einsum("...kk->...k", root)).sum(axis=-1) - 0.5 * (away**2).sum(axis=-1))
