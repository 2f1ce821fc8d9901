"""Detailed balance on tiny data: the sharpest test of a Metropolis-Hastings ratio."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from thali.core.model import Model
from thali.errors import InvalidParameterError
from thali.testing.enumerate import enumerate_posterior, one_sweep

Array = np.ndarray


class Flows(NamedTuple):
    """How far the flows between classes of matrices are from balance: chi-square, its degrees of freedom, p-value."""

    chi2: float
    df: int
    p: float
    moved: float  # share of replicates that changed their class


def flow_test(
    model: Model,
    X: Array,
    rng: np.random.Generator,
    move: Callable[..., int],
    *,
    n_replicates: int = 1_000_000,
    max_features: int = 8,
    capacity: int = 16,
) -> Flows:
    """Detailed balance: from exact posterior draws a reversible move goes from i to j as often as from j to i.

    `move` has the signature of `sweep_replicates`. Pairs of classes with few moves are left out, as are matrices with
    more columns than were listed.
    """
    from scipy.stats import chi2

    exact = enumerate_posterior(model, X, max_features=max_features)
    after, before = one_sweep(exact, model, X, rng, n_replicates, capacity, 1, move)
    listed = after.any(axis=1).sum(axis=1) <= max_features
    first, second = _class_codes(before)[listed], _class_codes(after)[listed]
    moved = first != second
    ahead = first < second
    low, high = np.where(ahead, first, second)[moved], np.where(ahead, second, first)[moved]
    _, pair = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
    up = np.bincount(pair.ravel(), ahead[moved])
    both = np.bincount(pair.ravel())
    enough = both >= 10
    statistic = float((((2 * up - both) ** 2)[enough] / both[enough]).sum())
    df = int(enough.sum())
    return Flows(statistic, df, float(chi2.sf(statistic, df)), float(moved.mean()))


def _class_codes(Z: Array) -> Array:
    """One integer for each class of Z (R, N, K): its columns as numbers, sorted, as the digits of one number."""
    n_rows = Z.shape[1]
    columns = np.sort(np.einsum("rnk,n->rk", Z.astype(np.int64), 2 ** np.arange(n_rows)), axis=1)[:, ::-1]
    used = int((columns > 0).sum(axis=1).max(initial=0))
    if n_rows * used > 62:
        raise InvalidParameterError(
            f"flow_test needs n_rows x n_features <= 62. Got {n_rows} x {used}; use fewer rows."
        )
    return columns[:, :used] @ 2 ** (n_rows * np.arange(used))
