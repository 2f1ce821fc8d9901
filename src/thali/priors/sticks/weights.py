"""Variational sticks: q(v_k) = Beta(tau_k1, tau_k2), weights pi_k = v_1 ... v_k (Doshi-Velez et al. 2009, section 5).

`tau` is (2, n_features). The expectation of log(1 - pi_k) has no closed form: the multinomial bound costs O(K) and its
sticks have a closed update; the series is exact and its sticks are found by numerical optimisation.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, digamma, loggamma, polygamma

from thali.core.registry import stored
from thali.numerics.entropies import beta_entropy
from thali.numerics.series import expected_log_complement, log_beta_moment, series_nodes
from thali.priors.gamma_factor import ScalarFactor

Array = np.ndarray

_FAR = 100.0  # log tau beyond which nothing is extrapolated


@stored("StickWeights")
class StickWeights(NamedTuple):
    """q(v_k) = Beta(tau_k1, tau_k2), tau (2, n_features), and q(mass)."""

    tau: Array
    mass: ScalarFactor


def prior_sticks(mass: ScalarFactor, n_features: int) -> Array:
    """tau of sticks that nothing is known of."""
    return np.vstack([np.full(n_features, mass.mean), np.ones(n_features)])


def expected_log_sticks(tau: Array) -> Array:
    """E log v_k."""
    return digamma(tau[0]) - digamma(tau.sum(axis=0))


def expected_log_weights(tau: Array) -> Array:
    """E log pi_k: a sum over the sticks up to k."""
    return np.cumsum(expected_log_sticks(tau))


def stick_scores(tau: Array) -> Array:
    """s_i with logsumexp(s_1 .. s_k) <= E log(1 - pi_k): 1 - pi_k is a sum over the first stick that fails."""
    total = digamma(tau.sum(axis=0))
    before = np.concatenate([[0.0], np.cumsum(digamma(tau[0]))[:-1]])
    # eq: DV09.multinomial-bound
    return digamma(tau[1]) + before - np.cumsum(total)


def multinomial_complement(tau: Array) -> Array:
    """The multinomial lower bound of E log(1 - pi_k), with its free distribution at the optimum."""
    return np.logaddexp.accumulate(stick_scores(tau))


def exact_complement(tau: Array) -> Array:
    """E log(1 - pi_k) by its series of moments."""
    # eq: DV09.taylor-series
    return expected_log_complement(lambda r: log_moments(tau, r), np.cumsum(tau[1]))


def log_moments(tau: Array, r: Array) -> Array:
    """log E[pi_k^r], (n_features, len(r))."""
    return np.cumsum(log_beta_moment(tau[0][:, None], tau[1][:, None], r), axis=0)


def multinomial_update(tau: Array, mass: float, counts: Array, n_rows: int) -> Array:
    """All sticks at their joint optimum, given the multinomial distributions that are best for the old ones."""
    s = stick_scores(tau)
    off = n_rows - counts
    log_sum = np.logaddexp.accumulate(s)  # of s_1 .. s_k
    on_after = np.cumsum(counts[::-1])[::-1]
    # P(the first stick of m that fails is after k), m >= k; without cancellation, so O(K^2)
    K = len(s)
    fails_later = np.triu(-np.expm1(log_sum[:, None] - np.maximum(log_sum[None, :], log_sum[:, None])), 1)
    fails_here = np.triu(np.exp(np.minimum(s[:, None] - log_sum[None, :], 0.0)))
    new = np.empty((2, K))
    # eq: DV09.stick-update
    new[0] = mass + on_after + fails_later @ off
    new[1] = 1.0 + fails_here @ off
    return new


def multinomial_ascent(tau: Array, mass: float, counts: Array, n_rows: int) -> Array:
    """Sticks after some passes of `multinomial_update`, which alone takes hundreds of them to converge.

    They begin at the shares of rows if that is better than where they are, and an extrapolation of two passes (Varadhan
    & Roland 2008, on log tau) stays if it is better than both.
    """

    def value(t: Array) -> float:
        return multinomial_objective(t, mass, counts, n_rows)

    def update(t: Array) -> Array:
        return multinomial_update(t, mass, counts, n_rows)

    start = max((tau, from_counts(mass, counts, n_rows)), key=value)
    once = update(start)
    twice = update(once)
    step = np.log(once / start)
    turn = np.log(twice / once) - step
    # eq: VR08.step
    length = np.sqrt(np.sum(step**2) / max(np.sum(turn**2), 1e-300))
    if length <= 1:
        return twice
    log_far = np.log(start) + 2 * length * step + length**2 * turn
    if np.abs(log_far).max() > _FAR:
        return twice
    return max((twice, update(np.exp(log_far))), key=value)


def multinomial_objective(tau: Array, mass: float, counts: Array, n_rows: int) -> float:
    """The part of the bound that depends on the sticks."""
    log_v = expected_log_sticks(tau)
    likelihood = counts @ np.cumsum(log_v) + (n_rows - counts) @ multinomial_complement(tau)
    return float(np.sum((mass - 1) * log_v + beta_entropy(*tau)) + likelihood)


def from_counts(mass: float, counts: Array, n_rows: int) -> Array:
    """Sticks by which each weight is the share of rows with the feature, or that of a later feature if it is larger."""
    most_after = np.maximum.accumulate(counts[::-1])[::-1]
    before = np.concatenate([[float(n_rows)], most_after[:-1]])
    # eq: own.shares-of-rows
    return np.vstack([mass + most_after, 1.0 + before - most_after])


def exact_update(tau: Array, mass: float, counts: Array, n_rows: int) -> Array:
    """The sticks that maximise the bound with the series in it, by L-BFGS on log tau from where they are, or better."""
    from scipy.optimize import minimize  # slow to import

    def negative(x: Array) -> tuple[float, Array]:
        t = np.exp(x.reshape(2, -1))
        value, gradient = exact_objective(t, mass, counts, n_rows)
        return -value, -(gradient * t).ravel()

    starts = [np.log(t).ravel() for t in (tau, from_counts(mass, counts, n_rows))]
    start = min(starts, key=lambda x: negative(x)[0])
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    better = found.fun <= negative(start)[0]
    return np.exp((found.x if better else start).reshape(2, -1))


def exact_objective(tau: Array, mass: float, counts: Array, n_rows: int) -> tuple[float, Array]:
    """The part of the bound that depends on the sticks, and its gradient in tau."""
    r, weights = series_nodes()
    first = log_beta_moment(
        tau[0, :1], tau[1, :1], r
    )  # the largest moments: where they are nothing the series has ended
    end = max(int(np.searchsorted(-first, 46.0)), 1)
    moments = np.exp(log_moments(tau, r[:end]))
    on_after = mass + np.cumsum(counts[::-1])[::-1]
    off = n_rows - counts
    total = tau.sum(axis=0)
    log_v, log_1v = digamma(tau[0]) - digamma(total), digamma(tau[1]) - digamma(total)
    share = weights[:end] / r[:end]
    complement = -(moments @ share)
    if end == len(r):
        complement -= moments[:, -1] / np.cumsum(tau[1])
    value = np.sum((on_after - tau[0]) * log_v + (1 - tau[1]) * log_1v + betaln(*tau)) + off @ complement
    # weight of d log E[pi_m^r] / d tau_k, the same for all m >= k
    later = np.cumsum((off[:, None] * moments)[::-1], axis=0)[::-1] * share
    trigamma = polygamma(1, total)
    series_2 = np.sum(later * (digamma(total)[:, None] - digamma(total[:, None] + r[:end])), axis=1)
    series_1 = np.sum(later * (digamma(tau[0][:, None] + r[:end]) - digamma(tau[0])[:, None]), axis=1) + series_2
    # eq: DV09.taylor-gradient
    slope_1 = (on_after - tau[0]) * (polygamma(1, tau[0]) - trigamma) - (1 - tau[1]) * trigamma - series_1
    slope_2 = (1 - tau[1]) * (polygamma(1, tau[1]) - trigamma) - (on_after - tau[0]) * trigamma - series_2
    return float(value), np.vstack([slope_1, slope_2])


def weights_bound(tau: Array, mass: ScalarFactor, counts: Array, n_rows: int, complement: Array) -> float:
    """E log p(Z, sticks) + entropy of the sticks, with `complement` for E log(1 - pi_k)."""
    log_v = expected_log_sticks(tau)
    # eq: DV09.infinite-bound
    likelihood = counts @ np.cumsum(log_v) + (n_rows - counts) @ complement
    return float(np.sum(mass.mean_log + (mass.mean - 1) * log_v + beta_entropy(*tau)) + likelihood)


# --- the tail -------------------------------------------------------------------------------------


def expected_tail(tau: Array, n_rows: int) -> float:
    """E g_N(pi_K), g_N(p) = sum_{j <= N} (1 - (1 - p)^j)/j, for the weight of the last stick.

    The moments E pi^s are known for complex s, and int_0^inf g_N(e^-y) e^(-s y) dy = (H_N - 1/s + B(s, N + 1))/s, so
    the expectation is a Mellin-Barnes integral over s = -1/2 + i t (no alternating sum of N moments). Its integrand
    falls as a power of t; it is integrated panel by panel, wide ones once it has stopped turning.
    """
    nodes, weights = np.polynomial.legendre.leggauss(16)
    mean = -float(np.sum(expected_log_sticks(tau)))
    width = np.pi / (mean + 6.0)
    turning = 4.0 * (tau.sum(axis=0).max() + n_rows)
    total, left = 0.0, 0.0
    while True:
        widths = np.full(32, width) if left < turning else left * 0.25 * 1.25 ** np.arange(32)
        starts = left + np.concatenate([[0.0], np.cumsum(widths)[:-1]])
        t = starts[:, None] + 0.5 * widths[:, None] * (1 + nodes)
        values = _tail_integrand(-0.5 + 1j * t, tau, n_rows)
        total += float(np.sum(0.5 * widths[:, None] * weights * values.real)) / np.pi
        left = float(starts[-1] + widths[-1])
        if np.abs(values[-1]).max() * left < 1e-14 * max(total, 1e-300) or left > 1e100:
            return total


def _tail_integrand(s: Array, tau: Array, n_rows: int) -> Array:
    harmonic = digamma(n_rows + 1.0) - digamma(1.0)
    log_beta = loggamma(s) + loggamma(n_rows + 1.0) - loggamma(s + n_rows + 1.0)
    log_moment = sum(loggamma(a - s) - loggamma(a + b - s) + loggamma(a + b) - loggamma(a) for a, b in tau.T)
    # eq: own.expected-tail
    return (harmonic - 1 / s + np.exp(log_beta)) / s * np.exp(log_moment)
