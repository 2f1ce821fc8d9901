"""The dependent hierarchical beta process: groups with beta processes around a common one, rows that mix the groups.

Zhou, Yang, Sapiro, Dunson & Carin (2011). Features of weight p come from a Poisson process of intensity
mass c0 p^-1 (1 - p)^(c0 - 1), c0 the concentration; in group m a feature has the weight p*_m ~ Beta(c1 p, c1 (1 - p)),
c1 the group concentration. Row i follows group m with probability weights[i, m]. Nothing here is truncated: p* is
integrated out (an urn per group and feature), and a feature appears with the first row that has it.
"""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import gammaln, logsumexp

from thali.core.binary import Array, check_binary
from thali.core.distributions import Gamma
from thali.core.histories import distinct_columns
from thali.core.registry import stored
from thali.core.spec import ScalarHypers, hyper, moderate, one_of, setting
from thali.errors import InvalidDataError, InvalidParameterError
from thali.priors.proximity.distances import check_proximity, proximities
from thali.priors.proximity.link_graph import LinkGraph

MAX_ASSIGNMENTS = 100_000  # of rows to groups, over which log_prob sums


class _Assignments(NamedTuple):
    groups: Array  # (n_assignments, n_rows)
    probability: Array


@stored("HierarchicalBetaProcess")
@dataclass(frozen=True, eq=False)
class HierarchicalBetaProcess(ScalarHypers):
    """Rows share most features with rows that follow the same groups.

    Parameters
    ----------
    mass : float or distribution
        Expected number of features of a row. As for the next two, a number is fixed, and a distribution is learned.
    concentration : float or distribution
        Larger values share features less, between all rows.
    group_concentration : float or distribution
        Smaller values make groups differ more, and rows of one group more alike.
    weights : array of shape (n_rows, n_groups)
        P(row i follows group m); rows sum to one.
    mixing : "row" or "feature"
        "row" draws one group per row for all its features, so that the number of shared features is a mixture of
        Poisson variables; "feature" draws one per row and feature, and the number is Poisson.
    """

    n_features: ClassVar[None] = None  # infinitely many

    mass: Any = hyper(Gamma(1.0, 1.0), moderate)
    concentration: Any = hyper(1.0, moderate)
    group_concentration: Any = hyper(1.0, moderate)
    weights: Any = None
    mixing: str = setting("row", one_of("row", "feature"))

    @classmethod
    def from_distances(cls, distances: Any, decay: Any, *, sequential: bool = False, **settings: Any) -> Self:
        """One group per row; row i follows that of row j with probability f(d_ij) / sum_j f(d_ij).

        distances and decay as for `DistanceDependentIBP`, `Times` and `Coordinates` among them.
        """
        graph = LinkGraph(proximities(*check_proximity(distances, decay, sequential), sequential))
        return cls(weights=graph.probs.toarray(), **settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "weights", _check_weights(self.weights))

    @property
    def n_rows(self) -> int:
        """The number of rows that have weights."""
        return len(self.weights)

    # --- draws ------------------------------------------------------------------------------------

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        """A draw of Z, columns in order of first appearance. Cost about n_rows^2 mass."""
        self._check_rows(n_rows)
        prior = self.draw(rng)
        c1, n_groups = prior.group_concentration, self.weights.shape[1]
        cumulative = np.cumsum(self.weights, axis=1)[:, :-1]
        fixed = _draw_groups(rng, cumulative, 1) if self.mixing == "row" else None
        Z = np.zeros((n_rows, 0), dtype=np.uint8)
        p = np.zeros(0)
        seen = held = np.zeros((0, n_groups))  # rows of each group so far, by feature; those of them that have it
        for i in range(n_rows):
            so_far = cumulative[: i + 1]
            group = _draw_groups(rng, so_far[-1:], len(p))[:, 0] if fixed is None else np.repeat(fixed[:, i], len(p))
            old = np.arange(len(p))
            # eq: dHBP.urn
            taken = rng.random(len(p)) * (c1 + seen[old, group]) < c1 * p + held[old, group]
            n_new = int(rng.poisson(prior.mass))
            paths = _draw_groups(rng, so_far, n_new) if fixed is None else np.repeat(fixed[:, : i + 1], n_new, axis=0)
            new_p, new_seen, accepted = prior._propose(rng, paths, n_groups)
            p = np.concatenate([p, new_p[accepted]])
            seen = np.vstack([seen, new_seen[accepted]])
            held = np.vstack([held, np.zeros((int(accepted.sum()), n_groups))])
            group = np.concatenate([group, paths[accepted, i]])
            taken = np.concatenate([taken, np.ones(int(accepted.sum()), dtype=bool)])
            every = np.arange(len(p))
            seen[every, group] += 1.0
            held[every, group] += taken
            Z = np.hstack([Z, np.zeros((n_rows, len(p) - Z.shape[1]), dtype=np.uint8)])
            Z[i] = taken
        return np.ascontiguousarray(Z)

    def _propose(self, rng: np.random.Generator, paths: Array, n_groups: int) -> tuple[Array, Array, Array]:
        """Features that the last row of `paths` (features, rows) may be the first to have: p, seen, which are accepted.

        Of the first row with a feature, p^-1 of the intensity meets c1 p / (c1 + seen): what remains is Beta(1, c0)
        times the probability that no earlier row has it, at most one. eq: own.dhbp-first.
        """
        c1 = self.group_concentration
        exponential = rng.exponential(size=len(paths)) / self.concentration
        p, q = -np.expm1(-exponential), np.maximum(np.exp(-exponential), 1e-300)
        features = np.arange(len(paths))
        seen = np.zeros((len(paths), n_groups))
        np.add.at(seen, (features[:, None], paths[:, :-1]), 1.0)
        mine = (c1 * q)[:, None]
        log_none = (gammaln(mine + seen) - gammaln(mine) - gammaln(c1 + seen) + math.lgamma(c1)).sum(axis=1)
        accepted = rng.random(len(paths)) < np.exp(log_none) * c1 / (c1 + seen[features, paths[:, -1]])
        return p, seen, accepted

    # --- probabilities ----------------------------------------------------------------------------

    def log_prob(self, Z: Array) -> float:
        """Log probability of the class of Z; empty columns count for nothing. For few rows and groups.

        Given the groups of the rows, the numbers of features that exactly the rows S have are independent Poisson
        counts. Their rates are integrals of polynomials in p, which Gauss's quadrature gives exactly. Mixing by row
        averages the probability over the groups, mixing by feature the rates.
        """
        self.require_concrete("log_prob")
        Z = check_binary(Z)
        self._check_rows(len(Z), InvalidDataError)
        histories, counts = distinct_columns(Z)
        probability = self._assignments.probability
        rates = np.empty((len(counts), len(probability)))
        for k, history in enumerate(histories.T):
            rates[k] = self._history_rates(history)
        totals = self._total_rates
        if self.mixing == "feature":
            rates, totals, probability = rates @ probability[:, None], totals @ probability[:, None], np.ones(1)
        with np.errstate(divide="ignore"):
            # eq: own.dhbp-class-prob
            log_given = (counts[:, None] * np.log(rates) - gammaln(counts + 1)[:, None]).sum(axis=0) - totals
        return float(logsumexp(log_given, b=probability))

    @cached_property
    def _assignments(self) -> _Assignments:
        """Every way to give rows a group, with its probability."""
        supports = [np.flatnonzero(row) for row in self.weights]
        n_assignments = math.prod(len(support) for support in supports)
        if n_assignments > MAX_ASSIGNMENTS:
            raise InvalidParameterError(
                f"HierarchicalBetaProcess.log_prob sums over all assignments of rows to groups, and there are "
                f"{n_assignments:.3g} of them (at most {MAX_ASSIGNMENTS}). Use fewer rows or groups; simulate works."
            )
        groups = np.array(list(itertools.product(*supports)))
        return _Assignments(groups, np.prod(self.weights[np.arange(self.n_rows), groups], axis=1))

    def _history_rates(self, has: Array) -> Array:
        """Poisson rate of the number of features that exactly these rows have, for each assignment to groups."""
        c1, groups = self.group_concentration, self._assignments.groups
        p, node_weights = beta_nodes(self.concentration, self.n_rows)
        each = np.arange(len(groups))
        seen, held = (np.zeros((len(groups), self.weights.shape[1])) for _ in range(2))
        integrand = np.ones((len(groups), len(p)))
        found = False
        for i, (group, bit) in enumerate(zip(groups.T, has, strict=True)):
            with_it, without = held[each, group, None], (seen - held)[each, group, None]
            if bit:  # the first p is that of the intensity's p^-1
                integrand *= c1 * p + with_it if found else c1
            else:
                integrand *= c1 * (1.0 - p) + without
            integrand /= c1 + with_it + without
            seen[each, group] += 1.0
            held[each, group] += has[i]
            found = found or bool(bit)
        return self.mass * integrand @ node_weights  # eq: own.dhbp-history

    @cached_property
    def _total_rates(self) -> Array:
        """Expected number of features of all rows, for each assignment: the sum over the first row with a feature."""
        c1, groups = self.group_concentration, self._assignments.groups
        p, node_weights = beta_nodes(self.concentration, self.n_rows)
        each = np.arange(len(groups))
        seen = np.zeros((len(groups), self.weights.shape[1]))
        none = np.ones((len(groups), len(p)))
        total = np.zeros(len(groups))
        for group in groups.T:
            before = seen[each, group, None]
            total += (none * c1 / (c1 + before)) @ node_weights  # eq: own.dhbp-first
            none *= (c1 * (1.0 - p) + before) / (c1 + before)
            seen[each, group] += 1.0
        return self.mass * total

    # --- moments ----------------------------------------------------------------------------------

    def expected_shared(self) -> Array:
        """E[ZZ']: expected features that rows i and j share; on the diagonal, that a row has."""
        same, apart = self._shared_by_group()
        together = self.weights @ self.weights.T
        # eq: dHBP.expected-shared
        shared = together * same + (1.0 - together) * apart
        np.fill_diagonal(shared, self.mass)
        return shared

    def shared_variance(self) -> Array:
        """Variance of the number of features that rows i and j share: a mixture of two Poissons, or one."""
        variance = self.expected_shared()
        if self.mixing == "row":
            same, apart = self._shared_by_group()
            together = self.weights @ self.weights.T
            np.fill_diagonal(together, 1.0)
            variance += together * (1.0 - together) * (same - apart) ** 2  # eq: dHBP.variance
        return variance

    def _shared_by_group(self) -> tuple[float, float]:
        """Expected features shared by two rows that follow the same group, and different ones."""
        self.require_concrete("expected_shared")
        c0, c1 = self.concentration, self.group_concentration
        return self.mass * (c0 + c1 + 1) / ((c0 + 1) * (c1 + 1)), self.mass / (c0 + 1)

    def _check_rows(self, given: int, error: type[Exception] = InvalidParameterError) -> None:
        if given != self.n_rows:
            raise error(f"The weights are those of {self.n_rows} rows, so there must be as many. Got {given}.")


def beta_nodes(c: float, n_rows: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss's quadrature for p ~ Beta(1, c), exact for polynomials of degree n_rows.

    Golub and Welsch: eigenvalues of the matrix of the recurrence of the Jacobi polynomials, moved to (0, 1).
    """
    from scipy.linalg import eigh_tridiagonal  # slow to import

    k = np.arange(1.0, n_rows // 2 + 1)
    a = c - 1.0
    # eq: own.beta-quadrature
    diagonal = (2 * k * k + 2 * k * c + a) / ((2 * k + a) * (2 * k + a + 2))
    beside = k * (k + a) / ((2 * k + a) * np.sqrt((2 * k + a + 1) * (2 * k + a - 1)))
    nodes, vectors = eigh_tridiagonal(np.concatenate([[1.0 / (c + 1.0)], diagonal]), beside)
    return nodes, vectors[0] ** 2


def _draw_groups(rng: np.random.Generator, cumulative: Array, n_draws: int) -> Array:
    """A group of each row, (n_draws, n_rows), given the running sums of its probabilities but for the last."""
    n_rows, n_inner = cumulative.shape
    rows = np.arange(n_rows)
    # each row's sums lie in its own unit interval; those of the rows before it are counted off
    at = np.searchsorted((cumulative + rows[:, None]).ravel(), rng.random((n_draws, n_rows)) + rows, side="right")
    return np.clip(at - rows * n_inner, 0, n_inner)


def _check_weights(given: Any) -> Array:
    try:
        weights = np.asarray(given)
    except ValueError:  # rows of different lengths
        weights = np.empty(0)
    if weights.dtype.kind not in "buif" or weights.ndim != 2 or 0 in weights.shape:
        raise InvalidParameterError(
            "weights must be a matrix (n_rows, n_groups), the probability of each group for each row; or use "
            f".from_distances. Got {'nothing' if given is None else f'an array of shape {weights.shape}'}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any() or (np.abs(weights.sum(axis=1) - 1) > 1e-9).any():
        raise InvalidParameterError(
            f"Each row of weights must be zero or more and sum to one. Got sums from {weights.sum(axis=1).min():.6g} "
            f"to {weights.sum(axis=1).max():.6g}, the smallest entry {weights.min():.6g}; divide each row by its sum."
        )
    return weights if weights.dtype == float else weights.astype(float)
