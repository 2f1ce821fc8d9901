"""Moments of the weights of a beta process that come in its first rounds.

A weight of round r is a product of independent variables, Beta(1, c) times r - 1 times Beta(c, 1); so the moments of
one round follow from those of the round before, by sums of positive terms only: exact for any number of rows.
"""

import numpy as np
from scipy.special import betaln, gammaln

Array = np.ndarray


def log_column_rates(concentration: float, n_rows: int, rounds: int | None) -> Array:
    """log sum_{r <= rounds} E[w^m (1 - w)^(n_rows - m)] of a weight w of round r, for m = 1 .. n_rows.

    Times the mass, it is the Poisson rate of columns with the m ones at given places. rounds None: all of them.
    """
    c, m = concentration, np.arange(1.0, n_rows + 1)
    if rounds is None:
        return np.log(c) + betaln(m, n_rows - m + c)  # eq: PCB11.moments
    current = np.log(c) + betaln(1 + m, n_rows - m + c)
    total = current
    scale = gammaln(n_rows - m + 1) + gammaln(m + c)
    kept = np.log(c / (m + c)) - scale
    for _ in range(rounds - 1):
        current = _next_round(current, scale, kept)
        total = np.logaddexp(total, current)
    return total


def _next_round(log_moments: Array, scale: Array, kept: Array) -> Array:
    """Moments of w U for U ~ Beta(c, 1) from those of w: (m + c) new(m) = (n_rows - m) new(m + 1) + c old(m)."""
    # solved from m = n_rows downwards: eq: own.next-round
    return scale + np.logaddexp.accumulate((log_moments + kept)[::-1])[::-1]


def expected_columns(log_rates: Array) -> float:
    """Expected number of columns with a one, per unit of mass: the sum over the places of the ones."""
    n_rows = len(log_rates)
    m = np.arange(1.0, n_rows + 1)
    log_places = gammaln(n_rows + 1) - gammaln(m + 1) - gammaln(n_rows - m + 1)
    return float(np.exp(log_places + log_rates).sum())
