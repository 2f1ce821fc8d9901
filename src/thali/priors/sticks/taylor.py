"""The Taylor series of E log(1 - pi_k) = - sum_r E[pi_k^r]/r cut after T terms, and how much is missing.

The terms g(r) = E[pi^r]/r are completely monotone in r, hence convex, so the rest is caught between two integrals; the
printed bound of the rest (Doshi-Velez et al. 2009, appendix D) is far wider, and infinite where every tau_2 < 1.
"""

import numpy as np
from scipy.special import gammaln, zeta

from thali.priors.sticks.weights import log_moments

Array = np.ndarray


def taylor_head(tau: Array, terms: int) -> Array:
    """The first terms of the series of every k: an upper bound of E log(1 - pi_k)."""
    r = np.arange(1.0, terms + 1)
    return -np.sum(np.exp(log_moments(tau, r)) / r, axis=1)


def printed_rest(tau: Array, terms: int) -> Array:
    """The printed upper bound of what `taylor_head` leaves out; infinite where it says nothing."""
    whole = np.floor(tau[1])
    power = np.cumsum(whole)
    # eq: DV09.taylor-rest
    log_factor = np.cumsum(gammaln(tau[0] + whole) - gammaln(tau[0]))
    with np.errstate(divide="ignore"):
        log_zeta = np.log(zeta(1 + np.maximum(power, 1e-9), terms + 1.0))
    return np.where(power > 0, np.exp(np.minimum(log_factor + log_zeta, 700.0)), np.inf)


def taylor_interval(tau: Array, terms: int) -> tuple[Array, Array]:
    """(lower, upper) of E log(1 - pi_k) for every k, rigorous for any number of terms."""
    head = taylor_head(tau, terms)
    next_term = np.exp(log_moments(tau, np.array([terms + 1.0])))[:, 0] / (terms + 1)
    # eq: own.taylor-interval
    least = _integral(tau, terms + 1.0) + 0.5 * next_term
    most = _integral(tau, terms + 0.5)
    return head - most, head - least


def _integral(tau: Array, start: float) -> Array:
    """int_start^inf E[pi_k^x]/x dx, with x = start e^u."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    u = (0.25 * (np.arange(240)[:, None] * 2 + 1 + nodes)).ravel()  # 240 panels of width 1/2
    f = np.exp(log_moments(tau, start * np.exp(u)))
    beyond = np.exp(log_moments(tau, np.array([start * np.exp(120.0)])))[:, 0] / np.cumsum(tau[1])  # a power law
    return f @ np.tile(0.25 * weights, 240) + beyond
