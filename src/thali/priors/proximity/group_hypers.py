"""Hyperparameters of a dependent hierarchical beta process given bits, groups and sizes.

What makes them hard is the probability that no feature but those in use has a row. Given one group per row it is an
integral over p. If groups are mixed by feature it is an integral over all paths through the groups, too: there,
features that no row has are drawn, as rejections of a sampler that would draw those in use (Adams, Murray & MacKay
2009), and count as further data. Above a cut these are the unused features; below it, those that a row might have been
the first to have.
"""

import math
from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import digamma

from thali.core.distributions import Gamma
from thali.numerics.slice_sampling import slice_sample_positive
from thali.priors.proximity.group_draws import BELOW_ONE, LEAST, GroupMarks, Urns, draw_unused, log_urns

if TYPE_CHECKING:  # which builds on this module
    from thali.priors.proximity.hierarchical import HierarchicalBetaProcess

Array = np.ndarray
Generator = np.random.Generator


class Unseen(NamedTuple):
    """Features that no row has: none of all rows (unused), or not that row which might have been the first."""

    p: Array
    unused: Urns
    first: Urns  # rows before the first one
    own: Array  # those of the group of the first one


def resample(
    rng: Generator, spec: "HierarchicalBetaProcess", current: "HierarchicalBetaProcess", Z: Array, marks: GroupMarks
) -> "HierarchicalBetaProcess":
    """`current` with its learned hyperparameters drawn given the rest, one after another."""
    if not spec.learned:
        return current
    law = _ByRow(Z, marks) if spec.mixing == "row" else _ByFeature(rng, current, Z, marks)
    for name, prior in spec.learned.items():
        current = current.updated(**{name: law.draw(rng, name, prior, current)})
    return current


class _Law(ABC):
    """Of hyperparameters given n features of these sizes; subclasses say how likely it is that there are no more."""

    def __init__(self, current: "HierarchicalBetaProcess | None", Z: Array, marks: GroupMarks) -> None:
        self.Z, self.marks, self.p = Z, marks, marks.sizes

    @abstractmethod
    def expected(self, current: "HierarchicalBetaProcess") -> float:
        """Expected number of features, per unit of mass."""

    def log_groups(self, current: "HierarchicalBetaProcess") -> float:
        """Log probability of what depends on the group concentration, but for the number of features."""
        groups = np.broadcast_to(self.marks.groups, self.Z.shape)
        urns = Urns.of(self.Z, groups, current.n_groups)
        return float(log_urns(self.marks.sizes, current.group_concentration, urns).sum())

    def draw(self, rng: Generator, name: str, prior: Any, current: "HierarchicalBetaProcess") -> float:
        n = len(self.p)
        if name == "mass" and isinstance(prior, Gamma):
            # eq: own.dhbp-mass
            return float(rng.gamma(prior.shape + n) / (prior.rate + self.expected(current)))

        def log_density(value: float) -> float:
            if not 0 < value < math.inf:
                return -math.inf
            now = current.updated(**{name: value})
            total = prior.log_prob(value) - now.mass * self.expected(now)
            if name == "mass":
                return float(total + n * math.log(value))
            if name == "concentration":
                # eq: own.dhbp-concentration
                return float(total + n * math.log(value) + (value - 1.0) * np.log1p(-self.p).sum())
            return float(total + self.log_groups(now))  # eq: own.dhbp-group-concentration

        return float(slice_sample_positive(log_density, getattr(current, name), rng))


class _ByRow(_Law):
    """Given the group of each row."""

    def __init__(self, Z: Array, marks: GroupMarks) -> None:
        super().__init__(None, Z, marks)

    def expected(self, current: "HierarchicalBetaProcess") -> float:
        return current.expected_found(self.marks.groups[:, 0])


class _ByFeature(_Law):
    """Given features that no row has, too; then the expected number is that of all of these."""

    def __init__(self, rng: Generator, current: "HierarchicalBetaProcess", Z: Array, marks: GroupMarks) -> None:
        super().__init__(current, Z, marks)
        self.n_rows = len(Z)
        self.cut = 1.0 / (self.n_rows + 1.0)
        self.unseen = draw_unseen(rng, current, self.cut)
        self.p = np.concatenate([marks.sizes, self.unseen.p])

    def expected(self, current: "HierarchicalBetaProcess") -> float:
        return expected_above(current.concentration, self.cut, self.n_rows)

    def log_groups(self, current: "HierarchicalBetaProcess") -> float:
        c1, (p, unused, first, own) = current.group_concentration, self.unseen
        n_unused = len(unused.seen)
        log_first = log_urns(p[n_unused:], c1, first) + math.log(c1) - np.log(c1 + own)
        # eq: own.dhbp-unseen
        log_rejected = np.log(np.maximum(-np.expm1(log_first), LEAST))
        return super().log_groups(current) + float(log_urns(p[:n_unused], c1, unused).sum() + log_rejected.sum())


def draw_unseen(rng: Generator, prior: "HierarchicalBetaProcess", cut: float) -> Unseen:
    """Unused features above the cut, and rejected proposals of the first row's below it."""
    n_rows, M = prior.n_rows, prior.n_groups
    above = draw_unused(rng, prior, cut, np.zeros((n_rows, 1), np.int64))
    unused = Urns.of(np.zeros(above.groups.shape, np.uint8), above.groups, M)
    below = -math.expm1(prior.concentration * math.log1p(-cut))  # P(p < cut)
    rows = np.repeat(np.arange(n_rows), rng.poisson(prior.mass * below, n_rows))
    q = np.exp(np.log1p(-below * rng.random(len(rows))) / prior.concentration)
    p = np.clip(1.0 - q, LEAST, BELOW_ONE)
    paths = prior.draw_paths(rng, len(rows))
    before = np.arange(n_rows) < rows[:, None]
    k, n = np.nonzero(before)
    seen = np.zeros((len(rows), M))
    np.add.at(seen, (k, paths[k, n]), 1.0)
    first, own = Urns(seen, np.zeros_like(seen)), seen[np.arange(len(rows)), paths[np.arange(len(rows)), rows]]
    c1 = prior.group_concentration
    rejected = rng.random(len(p)) >= np.exp(log_urns(p, c1, first)) * c1 / (c1 + own)
    first = Urns(seen[rejected], np.zeros_like(seen[rejected]))
    return Unseen(np.concatenate([above.sizes, p[rejected]]), unused, first, own[rejected])


@cache
def _unit_nodes() -> tuple[Array, Array]:
    """Of a quadrature over (0, 1) in 32 equal parts."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    starts = np.arange(32.0)[:, None]
    return ((starts + 0.5 * (nodes + 1.0)) / 32.0).ravel(), np.tile(weights / 64.0, 32)


def expected_above(c0: float, cut: float, n_rows: int) -> float:
    """Expected number, per unit of mass, of all features above a cut and of n_rows draws below it.

    That of c0 (1 - p)^(c0 - 1) / p above the cut is (1 - cut)^c0 + c0 (I - log cut - psi(c0 + 1) - gamma), where
    I is the integral of (1 - (1 - p)^c0) / p below it, here over -log p.
    """
    depth = 40.0 + max(math.log(c0 * cut), 0.0)
    nodes, weights = _unit_nodes()
    integral = depth * float(weights @ -np.expm1(c0 * np.log1p(-cut * np.exp(-depth * nodes))))
    # eq: own.dhbp-above
    above = (1.0 - cut) ** c0 + c0 * (integral - math.log(cut) - float(digamma(c0 + 1.0)) - np.euler_gamma)
    return above - n_rows * math.expm1(c0 * math.log1p(-cut))
