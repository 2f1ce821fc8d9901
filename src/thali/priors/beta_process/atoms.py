"""One atom of a beta process in variational inference: q(V) = Beta(a, b), q(T | d > 1) = Gamma(u, v).

Its weight is V in round 1 and V exp(-T) later. Here are the terms of the bound that depend on a, b, u, v, their
gradient, and a step uphill; arrays hold one number per atom, and `theta` has the rows a, b, u, v.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, polygamma

from thali.numerics.entropies import beta_entropy, gamma_entropy
from thali.numerics.series import log_beta_moment, series_nodes, sum_series

Array = np.ndarray

_BLOCK = 64  # atoms whose series are summed at a time: they share their number of nodes
_STRIDE, _NOTHING = 16, 60.0  # nodes are looked at in strides for where the terms have fallen by a factor e^-60
_NO_LATER = 1e-8  # q(T) matters only if d > 1 has some probability
_SMALLEST = 1e-10  # of a, b, u, v
_HALVINGS = 30


def expected_log_rest(a: Array, b: Array, u: Array, v: Array) -> Array:
    """E log(1 - V exp(-T)) of each atom."""
    return _log_rest(a, b, u, v, gradient=False)[0]


def log_rest_gradient(a: Array, b: Array, u: Array, v: Array) -> Array:
    """Rows: E log(1 - V exp(-T)) and its derivatives by a, b, u, v."""
    return _log_rest(a, b, u, v, gradient=True)


def _log_rest(a: Array, b: Array, u: Array, v: Array, *, gradient: bool) -> Array:
    n_nodes = _nodes_in_use(a, b, u, v)
    order = np.argsort(n_nodes, kind="stable")
    result = np.empty((5 if gradient else 1, len(a)))
    for start in range(0, len(a), _BLOCK):
        s = order[start : start + _BLOCK]
        result[:, s] = _log_rest_block(a[s], b[s], u[s], v[s], n_nodes[s[-1]], gradient=gradient)
    return result


def _nodes_in_use(a: Array, b: Array, u: Array, v: Array) -> Array:
    """How many nodes of the series each atom needs: few, unless its weight may be close to one.

    The log of E[weight^r] falls ever faster in log r, so after e^-60 nothing comes.
    """
    r, _ = series_nodes()
    coarse = r[::_STRIDE]
    log_moment = log_beta_moment(a[:, None], b[:, None], coarse) - u[:, None] * np.log1p(coarse / v[:, None])
    n_passed = (log_moment > log_moment[:, :1] - _NOTHING).sum(axis=1)
    return np.where(n_passed < len(coarse), n_passed * _STRIDE + 1, len(r))


def _log_rest_block(a: Array, b: Array, u: Array, v: Array, n_nodes: int, *, gradient: bool) -> Array:
    r = series_nodes()[0][:n_nodes]
    decay = b + u
    a, b, u, v = (x[:, None] for x in (a, b, u, v))
    log_late = np.log1p(r / v)
    terms = np.exp(log_beta_moment(a, b, r) - u * log_late - np.log(r))  # eq: PCB11.log-rest
    total = sum_series(terms, decay)
    if not gradient:
        return -total[None]
    by_b = digamma(a + b) - digamma(a + b + r)
    by_a = by_b + digamma(a + r) - digamma(a)
    # the decay of the remainder depends on b and u
    end = terms[:, -1] * r[-1] / decay**2 if n_nodes == len(series_nodes()[0]) else 0.0
    # eq: PCB11.log-rest-gradient
    return -np.stack(
        [
            total,
            sum_series(terms * by_a, decay),
            sum_series(terms * by_b, decay) - end,
            sum_series(-terms * log_late, decay) - end,
            sum_series(terms * (u * r / (v * (v + r))), decay),
        ]
    )


class AtomTerms(NamedTuple):
    """What the bound of one atom's q(V) q(T) depends on besides a, b, u, v; each is one number per atom."""

    n_on: Array
    n_off: Array
    first: Array  # q(d = 1)
    later: Array  # q(d > 1)
    extra: Array  # E[(d - 2) 1(d > 1)]
    concentration: Array

    def of(self, atoms: Array) -> "AtomTerms":
        return AtomTerms(*(term[atoms] for term in self))


def atom_bound(theta: Array, terms: AtomTerms, log_rest: Array) -> Array:
    """The terms of the bound with a, b, u, v (the rows of theta), one number per atom."""
    a, b, u, v = theta
    log_v, log_rest_v = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    # eq: PCB11.bound
    sticks = terms.n_on * log_v + (terms.n_off * terms.first + terms.concentration - 1) * log_rest_v
    late = terms.extra * (digamma(u) - np.log(v)) - terms.later * (terms.n_on + terms.concentration) * u / v
    entropy = beta_entropy(a, b) + terms.later * gamma_entropy(u, v)
    return sticks + late + terms.n_off * terms.later * log_rest + entropy


def atom_gradient(theta: Array, terms: AtomTerms, by: Array) -> Array:
    """Derivatives of `atom_bound` by a, b, u, v; `by` are those of E log(1 - V exp(-T))."""
    a, b, u, v = theta
    both = polygamma(1, a + b)
    on = terms.n_on + 1 - a
    off = terms.n_off * terms.first + terms.concentration - b
    rest = terms.n_off * terms.later
    exposure = terms.n_on + terms.concentration
    curve = polygamma(1, u)
    # eq: PCB11.stick-gradient
    by_a = on * (polygamma(1, a) - both) - off * both + rest * by[0]
    by_b = -on * both + off * (polygamma(1, b) - both) + rest * by[1]
    # eq: PCB11.late-gradient
    by_u = curve * terms.extra + terms.later * (1 - exposure / v + (1 - u) * curve) + rest * by[2]
    by_v = -terms.extra / v + terms.later * (u * exposure / v**2 - 1 / v) + rest * by[3]
    return np.stack([by_a, by_b, by_u, by_v])


def natural_target(theta: Array, terms: AtomTerms, by: Array) -> Array:
    """theta after a full natural-gradient step: the optimum itself where the last term of the bound is linear."""
    a, b, u, v = theta
    both = polygamma(1, a + b)
    rest = terms.n_off * terms.later
    aa, bb = polygamma(1, a) - both, polygamma(1, b) - both
    det = aa * bb - both**2
    curve = polygamma(1, u)
    late_det = u * curve - 1
    mean_extra = terms.extra / np.maximum(terms.later, _NO_LATER)
    # eq: own.natural-step
    target = np.stack(
        [
            terms.n_on + 1 + rest * (bb * by[0] + both * by[1]) / det,
            terms.n_off * terms.first + terms.concentration + rest * (both * by[0] + aa * by[1]) / det,
            1 + mean_extra + terms.n_off * (u * by[2] + v * by[3]) / late_det,
            terms.n_on + terms.concentration + terms.n_off * v * (by[2] + curve * v * by[3]) / late_det,
        ]
    )
    idle = terms.later < _NO_LATER
    target[2:, idle] = theta[2:, idle]
    return target


def ascend(theta: Array, terms: AtomTerms, rest: Array) -> Array:
    """theta after one natural-gradient step, halved for each atom until its bound does not fall.

    `rest` is `log_rest_gradient` at theta.
    """
    value = atom_bound(theta, terms, rest[0])
    direction = natural_target(theta, terms, rest[1:]) - theta
    gain = (atom_gradient(theta, terms, rest[1:]) * direction).sum(axis=0)
    left = np.flatnonzero(gain > 1e-13 * (1 + np.abs(value)))  # the others are at their optimum
    result = theta.copy()
    step = 1.0
    for _ in range(_HALVINGS):
        if not left.size:
            break
        inside = left[(theta[:, left] + step * direction[:, left] > _SMALLEST).all(axis=0)]
        trial = theta[:, inside] + step * direction[:, inside]
        better = atom_bound(trial, terms.of(inside), expected_log_rest(*trial)) >= value[inside]
        result[:, inside[better]] = trial[:, better]
        left = np.setdiff1d(left, inside[better], assume_unique=True)
        step /= 2
    return result
