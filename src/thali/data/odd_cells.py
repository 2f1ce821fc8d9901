"""Odd cells: the few that lie so far outside of the others of their dim that they should not set its scale."""

import numpy as np

Array = np.ndarray

_FAR = (8.0, 30.0)  # standard deviations from the median; the second where the first would find odd cells all over
_FEW_ROWS = 0.02  # of the rows, or two: with odd cells in more of them, such cells are the rule (heavy tails)
_FEW = 0.02  # of the cells of a dim: more are no exceptions but its law
_ODD_ROW = 0.25  # of the cells of a row: with more of them odd, the others are, too
_LEAST = 10  # cells, of which one may be odd; two of twice as many
_NORMAL = 1.4826  # standard deviations of a normal law in its median absolute deviation


def odd_cells(X: Array) -> Array:
    """Which cells of X (NaN where missing) are odd, by medians, so that they do not hide each other.

    A dim of which more than half of the cells are equal has no scale of that kind, and no odd cells. A row with many
    odd cells is odd as a whole.
    """
    odd = np.zeros(X.shape, dtype=bool)
    for far in _FAR:
        odd = _beyond(X, far)
        if odd.any(axis=1).sum() <= max(2.0, _FEW_ROWS * len(X)):
            break
    return odd


def _beyond(X: Array, far: float) -> Array:
    """Cells so many standard deviations from the median of their dim, where few cells of the dim are."""
    seen = ~np.isnan(X)
    n_seen = seen.sum(axis=0)
    distance, sd = np.abs(X - medians(X)), spreads(X)
    with np.errstate(invalid="ignore"):
        beyond = seen & (sd > 0) & (distance > far * sd)
    most = np.maximum(np.minimum(n_seen // _LEAST, 2), (_FEW * n_seen).astype(int))
    odd = beyond & (beyond.sum(axis=0) <= most)
    return odd | (seen & (odd.sum(axis=1) > _ODD_ROW * seen.sum(axis=1))[:, None])


def spreads(X: Array) -> Array:
    """Standard deviation of each dim by its median absolute deviation; 0 if more than half of its cells are equal."""
    return _NORMAL * medians(np.abs(X - medians(X)))


def medians(X: Array) -> Array:
    """Of the cells of each dim that are not NaN; 0 where there are none."""
    n_seen = np.sum(~np.isnan(X), axis=0)
    ordered = np.sort(X, axis=0)  # missing cells last
    dims = np.arange(X.shape[1])
    upper = np.minimum(n_seen // 2, len(X) - 1)
    lower = np.maximum((n_seen - 1) // 2, 0)
    return np.where(n_seen > 0, 0.5 * (ordered[lower, dims] + ordered[upper, dims]), 0.0)
