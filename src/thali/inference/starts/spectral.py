"""Where a chain begins. Columns of an IBP are independent, so noisy ICA of the centred data is a moment estimator of Z:
it lands in or near the right mode, where single-site Gibbs from a random start often stays in a wrong one.
"""

import numpy as np

from thali.core.binary import non_empty
from thali.core.observation import Observation
from thali.core.protocols.engines.chains import StartRows

Array = np.ndarray

_MAX_START = 60  # features; a start with more is worse than one that grows
_ITERATIONS = 200
_COMPLETIONS = 10
_SHRINKAGE = 0.02  # of correlations, towards none


def spectral_start(rng: np.random.Generator, X: Array, *, has_offset: bool) -> Array:
    """Bits (n_rows, n_features) by noise-corrected whitening, a cumulant fixed point and a two-class split per source.

    The noise level is that of the Marchenko-Pastur law; directions below its edge are left out. Bernoulli sources have
    no kurtosis at p = 0.211 and no skewness at p = 0.5, so both cumulants drive the rotation. Without an offset the
    sign of a source is fixed by the mean of the data, with one the rarer class is "on".
    """
    mean, white, vectors, signal = _signals(X, _MAX_START)
    if not len(signal):
        return np.zeros((len(X), 0), dtype=np.uint8)
    rotation = _independent(rng, white)
    sources = white @ rotation.T
    directions = rotation * np.sqrt(signal) @ vectors
    level = np.linalg.lstsq(directions.T, mean, rcond=None)[0]
    columns = []
    for source, height in zip(sources.T, level, strict=True):
        on, gap = _split(source)
        share = on.mean()
        flip = share > 0.5 if has_offset else height / gap <= share - 0.5
        columns.append(~on if flip else on)
    Z = np.array(columns, dtype=np.uint8).T
    return non_empty(Z)


def source_start(rng: np.random.Generator, X: Array) -> Array:
    """Codes (n_rows, n_features), none of them zero: independent sources of unit variance, X may have missing cells.

    Completed cells have no noise, which lets too many directions pass: their number is that of the mean-filled data.
    """
    limit = min(_MAX_START, max(len(X) // 4, 1))
    missing = np.isnan(X)
    if missing.any():
        limit = len(_signals(np.where(missing, np.nanmean(X, axis=0), X), limit)[3])
    _, white, _, _ = _signals(low_rank_completion(X), limit)
    return white @ _independent(rng, white).T if white.shape[1] else white


def start_units(observation: Observation, X: Array) -> Array:
    """What the dims of X are divided by before a start looks for directions: 1, unless the model knows better.

    The law of the noise that tells directions from noise has one level. So a dim's own unit is multiplied by the share
    of it that the other dims do not explain, as far as that can be seen before anything is fitted.
    """
    units = observation.engine(StartRows).units(X.shape[1])
    return np.ones(X.shape[1]) if units is None else units * np.sqrt(unexplained_share(X))


def unexplained_share(X: Array) -> Array:
    """The share of each dim's variance that a linear regression on the others leaves, shrunk towards 1 (n_dims,).

    That is 1 / diag(C^-1) with C the correlations of the mean-filled data, a little of the identity mixed in: dims that
    others explain wholly do not count without bound. Takes min(n_rows, n_dims)^2 max(n_rows, n_dims) operations.
    """
    centred = np.nan_to_num(X - np.nanmean(X, axis=0))
    square = np.mean(centred**2, axis=0)
    Y = centred / np.sqrt(np.where(square > 0, square, 1.0) * len(X))
    if Y.shape[1] <= len(Y):
        inverse = np.diag(np.linalg.inv((1 - _SHRINKAGE) * (Y.T @ Y) + _SHRINKAGE * np.eye(Y.shape[1])))
    else:  # the same by Woodbury's identity
        small = np.linalg.inv(Y @ Y.T + _SHRINKAGE / (1 - _SHRINKAGE) * np.eye(len(Y)))
        inverse = (1.0 - np.sum(Y * (small @ Y), axis=0)) / _SHRINKAGE
    return np.where(square > 0, np.minimum(1.0 / inverse, 1.0), 1.0)


def _signals(X: Array, limit: int) -> tuple[Array, Array, Array, Array]:
    """(mean, whitened scores, directions, their variances) of at most `limit` directions above the noise."""
    n_rows, n_dims = X.shape
    mean = X.mean(axis=0)
    centred = X - mean
    _, singular, vectors = np.linalg.svd(centred, full_matrices=False)
    eigen = singular**2 / n_rows
    noise = _noise_level(eigen, n_rows, n_dims)
    keep = min(_n_signals(eigen, noise, n_rows, n_dims), limit) if noise > 0 else 0
    signal = np.maximum(eigen[:keep] - noise * (1 + n_dims / n_rows * (n_dims > n_rows)), 1e-3 * eigen[:keep])
    return mean, centred @ vectors[:keep].T / np.sqrt(signal), vectors[:keep], signal


def low_rank_completion(X: Array) -> Array:
    """X with its missing cells (NaN) filled from the directions above the noise, refined a few times.

    Means would do worse: their cells carry the signal as noise, which hides directions.
    """
    missing = np.isnan(X)
    if not missing.any():
        return X
    mean = np.nanmean(X, axis=0)
    filled = np.where(missing, mean, X)
    for _ in range(_COMPLETIONS):
        mean = filled.mean(axis=0)
        left, singular, right = np.linalg.svd(filled - mean, full_matrices=False)
        eigen = singular**2 / len(X)
        keep = _n_signals(eigen, _noise_level(eigen, *X.shape), *X.shape)
        filled = np.where(missing, mean + (left[:, :keep] * singular[:keep]) @ right[:keep], X)
    return filled


def noise_level(X: Array) -> float:
    """Noise variance of complete data: that of the bulk of their spectrum."""
    singular = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    return _noise_level(singular**2 / len(X), *X.shape)


def _n_signals(eigen: Array, noise: float, n_rows: int, n_dims: int) -> int:
    """Directions above the Marchenko-Pastur edge."""
    return int((eigen > 1.05 * noise * (1 + np.sqrt(n_dims / n_rows)) ** 2).sum())


def _noise_level(eigen: Array, n_rows: int, n_dims: int) -> float:
    """Noise variance: of the bulk that is left when the fewest directions beyond its own edge are taken out.

    The median of the spectrum will not do: with few dims most of its eigenvalues may be signal.
    """
    used = eigen[: min(n_dims, max(n_rows - 1, 1))]
    ratio = n_dims / n_rows
    for n_signals in range(len(used)):
        noise = float(used[n_signals:].mean()) / max(ratio, 1.0)
        if used[n_signals] <= 1.05 * noise * (1 + np.sqrt(ratio)) ** 2:
            break
    return noise


def _independent(rng: np.random.Generator, white: Array) -> Array:
    """Rotation that maximises the sum over sources of skewness^2 / 12 + kurtosis^2 / 48, by a fixed point."""
    size = white.shape[1]
    rotation = _polar(rng.standard_normal((size, size)))
    for _ in range(_ITERATIONS):
        s = white @ rotation.T
        square = s * s
        v = square.mean(axis=0)
        third = (square * s).mean(axis=0)
        fourth = (square * square).mean(axis=0) - 3 * v * v
        slope = 0.5 * third * square + fourth / 6 * (square * s - 3 * v * s)
        new = _polar(slope.T @ white / len(white))
        change = np.abs(1 - np.abs(np.sum(new * rotation, axis=1))).max()
        rotation = new
        if change < 1e-6:
            break
    return rotation


def _polar(M: Array) -> Array:
    left, _, right = np.linalg.svd(M)
    return left @ right


def _split(source: Array) -> tuple[Array, float]:
    """Otsu's threshold: (upper class, difference of the class means)."""
    order = np.sort(source)
    n = len(order)
    below = np.cumsum(order)[:-1]
    size = np.arange(1, n)
    means = below / size, (order.sum() - below) / (n - size)
    between = size * (n - size) * (means[1] - means[0]) ** 2
    cut = int(np.argmax(between)) if n > 1 else 0
    gap = float(means[1][cut] - means[0][cut]) if n > 1 else 1.0
    return source > order[cut], max(gap, 1e-12)


def fit_columns(Z: Array, n_features: int | None) -> Array:
    """Codes with n_features columns if the prior fixes their number: the fullest ones, or empty ones added."""
    if n_features is None:
        return Z
    fullest = np.argsort(-np.sum(Z * Z, axis=0, dtype=float), kind="stable")[:n_features]
    result = np.zeros((len(Z), n_features), dtype=Z.dtype)
    result[:, : len(fullest)] = Z[:, fullest]
    return result
