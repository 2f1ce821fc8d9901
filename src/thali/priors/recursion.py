"""Row by row: the probability that the next row has feature k, with features numbered in order of appearance.

Two-parameter IBP: row n has Poisson(lambda_n) new features, lambda_n = mass c/(c + n - 1); Lambda_n is their running
total. Without data the marginals are exact (Schaeffer, Du, Liu & Fiete 2022, Eq. 4). With data a filter only has
P(z_nk = 1) of the rows that it saw, and must guess how many features there are: `BIRTHS` lists the ways. In all of them
the births of a row sum to lambda_n.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, pdtr, pdtrik

from thali.errors import InvalidDataError, InvalidParameterError

Array = np.ndarray

BIRTHS = ("poisson", "independent", "comonotone", "anchored")


class Running(NamedTuple):
    """What a filter remembers of the rows so far, one entry per feature: expected counts and P(it has appeared)."""

    n_rows: int
    counts: Array
    exists: Array


def start_running() -> Running:
    return Running(0, np.zeros(0), np.zeros(0))


def marginals(mass: float, concentration: float, n_rows: int, n_features: int | None) -> Array:
    """P(z_nk = 1), (n_rows, n_features), before any data; each row of infinitely many sums to `mass`."""
    rates = mass * concentration / (concentration + np.arange(n_rows))
    totals = np.concatenate([[0.0], np.cumsum(rates)])
    K = enough_features(totals[-1]) if n_features is None else n_features
    P = poisson_births(totals[:-1], rates, K)
    counts = np.zeros(K)
    for n in range(n_rows):
        # eq: S22.marginal
        P[n] += counts / (concentration + n)
        counts += P[n]
    return P


def poisson_births(before: Array, rates: Array, K: int) -> Array:
    """P(Poisson(before) < k <= Poisson(before) + Poisson(rate)) for k = 1 .. K, a row per entry of `before`.

    A difference of distribution functions, as the integral of the density where it would cancel.
    """
    k = np.arange(K)
    before, rates = np.asarray(before, float)[:, None], np.asarray(rates, float)[:, None]
    births = np.empty((len(rates), K))
    small = rates[:, 0] < 0.05
    births[~small] = pdtr(k, before[~small]) - pdtr(k, (before + rates)[~small])
    x, w = np.polynomial.legendre.leggauss(3)
    points = before[small, :, None] + 0.5 * rates[small, :, None] * (1 + x)
    log_density = k[:, None] * np.log(np.maximum(points, 1e-300)) - points - gammaln(k + 1)[:, None]
    births[small] = 0.5 * rates[small] * (np.exp(log_density) @ w)
    return births


def enough_features(rate: float) -> int:
    """K such that a Poisson(rate) number of features leaves less than a billionth beyond it."""
    return int(np.ceil(pdtrik(1 - 1e-12, rate))) + 2


def birth_probs(running: Running, rate: float, how: str, K: int | None = None) -> Array:
    """P(feature k first appears in the next row), for the known features and enough new ones (or K in all)."""
    if how not in BIRTHS:
        raise InvalidParameterError(f"births must be one of {', '.join(map(repr, BIRTHS))}. Got {how!r}.")
    known = len(running.exists)
    if how == "poisson":  # the total as a Poisson variable of the right mean (as printed)
        expected = float(running.exists.sum())
        size = max(enough_features(expected + rate), known) if K is None else K
        return poisson_births(np.array([expected]), np.array([rate]), size)[0]
    size = known + enough_features(rate) if K is None else K
    exists = np.concatenate([running.exists, np.zeros(max(size - known, 0))])[:size]
    if how == "anchored":  # every known feature exists
        below = (np.arange(size) >= known).astype(float)
    elif how == "comonotone":  # the next feature exists only if all before it do: P(Lambda >= k) = e_k
        rank = np.argsort(-exists, kind="stable")
        below = 1 - exists[rank]
    else:  # features exist independently of each other
        below = np.cumsum(_poisson_binomial(running.exists, size))
    density = np.diff(np.concatenate([[0.0], below]))  # of the total, at 0 .. size - 1
    # eq: own.births
    births = below - np.convolve(density, pdtr(np.arange(size), rate))[:size]
    births = np.maximum(births, 0.0)
    if how == "comonotone":
        births[rank] = births.copy()
    return births


def _poisson_binomial(probs: Array, size: int) -> Array:
    """P(sum of independent Bernoulli(probs) = 0, 1, .. size - 1)."""
    density = np.zeros(size)
    density[0] = 1.0
    for p in probs:
        density[1:] = (1 - p) * density[1:] + p * density[:-1]
        density[0] *= 1 - p
    return density


def next_row(running: Running, mass: float, concentration: float, how: str) -> Array:
    """P(the next row has feature k), for the known features and enough new ones."""
    before = concentration + running.n_rows
    births = birth_probs(running, mass * concentration / before, how)
    births[: len(running.counts)] += running.counts / before
    # eq: S22.filter-prior
    return np.clip(births, 0.0, 1.0)


def absorb(running: Running, z_prob: Array, mass: float, concentration: float, how: str) -> Running:
    """The running sums after one more row. z_prob has an entry for every known feature, and for new ones if any."""
    b = np.asarray(z_prob, float)
    known = len(running.counts)
    if b.ndim != 1 or len(b) < known or not ((b >= 0) & (b <= 1)).all():
        raise InvalidDataError(
            f"z_prob must hold probabilities of the {known} known features, then of new ones. Got shape {b.shape}"
            f"{'' if b.ndim != 1 or len(b) < known else ' with values outside [0, 1]'}."
        )
    counts, exists = (np.concatenate([x, np.zeros(len(b) - known)]) for x in (running.counts, running.exists))
    before = concentration + running.n_rows
    if how == "comonotone":
        taken = counts / before
        q = taken + birth_probs(Running(running.n_rows, counts, exists), mass * concentration / before, how, len(b))
        # eq: own.existence
        exists = b + (1 - b) * np.where(q < 1, (exists - taken) / np.maximum(1 - q, 1e-300), 1.0)
        exists = np.clip(np.maximum(exists, (counts + b) / (before + 1)), 0.0, 1.0)
    else:
        # eq: S22.existence
        exists = 1 - (1 - exists) * (1 - b)
    return Running(running.n_rows + 1, counts + b, exists)
