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
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp

from thali.core.binary import Array, check_binary
from thali.core.distributions import Gamma
from thali.core.histories import distinct_columns
from thali.core.registry import stored
from thali.core.spec import ScalarHypers, hyper, moderate, one_of, setting
from thali.errors import InvalidDataError, InvalidParameterError
from thali.priors.ibp import IBP
from thali.priors.proximity import group_draws, group_hypers
from thali.priors.proximity.decays import ExponentialDecay, as_decay
from thali.priors.proximity.distances import check_proximity, distances_between, proximities
from thali.priors.proximity.group_draws import BELOW_ONE, LEAST, GroupMarks, GroupSlice
from thali.priors.proximity.group_forecast import new_row_chances
from thali.priors.proximity.group_weights import beta_nodes, check_weights, draw_groups
from thali.priors.proximity.link_graph import LinkGraph

MAX_ASSIGNMENTS = 100_000  # of rows to groups, over which log_prob sums
_DEFAULT_DECAY = ExponentialDecay()
_KEPT = ("group_probs", "group_table", "_cumulative", "assignments", "n_assignments")  # whatever the hyperparameters


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
        P(row i follows group m); rows sum to one. None, if there are distances, or for `fit(X, times=...)` and its
        like: then there is a group for each row.
    mixing : "row" or "feature"
        "row" draws one group per row for all its features, so that the number of shared features is a mixture of
        Poisson variables; "feature" draws one per row and feature, and the number is Poisson.
    distances : array, sparse matrix, Times or Coordinates
        In place of weights: row i follows the group of row j with probability f(d_ij) / sum_j f(d_ij).
    decay : str, decay or callable
        f, as for `DistanceDependentIBP`, but with numbers only.
    sequential : bool
        Whether rows follow only their own group and those of earlier rows.
    """

    n_features: ClassVar[None] = None  # infinitely many

    mass: Any = hyper(Gamma(1.0, 1.0), moderate)
    concentration: Any = hyper(1.0, moderate)
    group_concentration: Any = hyper(1.0, moderate)
    weights: Any = None
    mixing: str = setting("row", one_of("row", "feature"))
    distances: Any = None
    decay: Any = _DEFAULT_DECAY
    sequential: bool = setting(False, one_of(True, False))

    @classmethod
    def from_distances(
        cls, distances: Any, decay: Any = _DEFAULT_DECAY, *, sequential: bool = False, **settings: Any
    ) -> Self:
        """One group per row; row i follows that of row j with probability f(d_ij) / sum_j f(d_ij).

        distances and decay as for `DistanceDependentIBP`, `Times` and `Coordinates` among them.
        """
        return cls(distances=distances, decay=decay, sequential=sequential, **settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        distances, decay = self.distances, as_decay(self.decay)
        if getattr(decay, "learned", None):
            raise InvalidParameterError(
                "HierarchicalBetaProcess does not learn its decay. Give it numbers, such as ExponentialDecay(rate=0.5)."
            )
        if distances is not None and self.weights is not None:
            raise InvalidParameterError(
                "The groups follow from weights or from distances. Leave out one of them. Got both."
            )
        if distances is not None:
            distances, decay = check_proximity(distances, decay, self.sequential)
        object.__setattr__(self, "distances", distances)
        object.__setattr__(self, "decay", decay)
        if self.weights is not None:
            object.__setattr__(self, "weights", check_weights(self.weights))

    def updated(self, **values: Any) -> Self:
        """As for every spec; what does not depend on the values is kept."""
        copy = super().updated(**values)
        if not {"weights", "distances", "decay", "sequential"} & values.keys():
            kept = _KEPT if "concentration" in values else (*_KEPT, "void_nodes")
            copy.__dict__.update({name: self.__dict__[name] for name in kept if name in self.__dict__})
        return copy

    # --- groups and who may follow them -----------------------------------------------------------

    @cached_property
    def group_table(self) -> sp.csr_array:
        """P(row i follows group m), those that are not zero."""
        if self.weights is not None:
            return sp.csr_array(self.weights)
        if self.distances is None:
            raise InvalidParameterError(
                "HierarchicalBetaProcess needs weights, a matrix (n_rows, n_groups), or distances between the rows. "
                "Give distances to the fit, as fit(X, times=...), fit(X, coordinates=...) or fit(X, distances=...), or "
                "either to the prior itself. Got nothing."
            )
        return LinkGraph(proximities(self.distances, self.decay, self.sequential)).probs

    @cached_property
    def group_probs(self) -> Array:
        """P(row i follows group m), (n_rows, n_groups)."""
        return self.weights if self.weights is not None else self.group_table.toarray()

    @property
    def n_rows(self) -> int:
        """The number of rows that have weights or distances."""
        return int(self.group_table.shape[0])

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return int(self.group_table.shape[1])

    @cached_property
    def _cumulative(self) -> Array:
        return np.cumsum(self.group_probs, axis=1)[:, :-1]

    def draw_paths(self, rng: np.random.Generator, n_draws: int) -> Array:
        """A group of each row, (n_draws, n_rows)."""
        return draw_groups(rng, self._cumulative, n_draws)

    def check_rows(self, n_rows: int) -> None:
        """An error unless there are weights or distances of so many rows."""
        self._check_rows(n_rows, InvalidDataError)

    def with_distances(self, distances: Any) -> Self:
        """This prior for rows with these distances: an array, a sparse matrix, Times or Coordinates."""
        if self.weights is not None:
            raise InvalidParameterError(
                "The prior has weights, so the fit can take no distances, times or coordinates. Leave one of them out."
            )
        return self.replace(distances=distances)

    # --- draws ------------------------------------------------------------------------------------

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        """A draw of Z, columns in order of first appearance. Cost about n_rows^2 mass."""
        self._check_rows(n_rows)
        prior = self.draw(rng)
        c1, n_groups = prior.group_concentration, self.n_groups
        cumulative = self._cumulative
        fixed = draw_groups(rng, cumulative, 1) if self.mixing == "row" else None
        Z = np.zeros((n_rows, 0), dtype=np.uint8)
        p = np.zeros(0)
        seen = held = np.zeros((0, n_groups))  # rows of each group so far, by feature; those of them that have it
        for i in range(n_rows):
            so_far = cumulative[: i + 1]
            group = draw_groups(rng, so_far[-1:], len(p))[:, 0] if fixed is None else np.repeat(fixed[:, i], len(p))
            old = np.arange(len(p))
            # eq: dHBP.urn
            taken = rng.random(len(p)) * (c1 + seen[old, group]) < c1 * p + held[old, group]
            n_new = int(rng.poisson(prior.mass))
            paths = draw_groups(rng, so_far, n_new) if fixed is None else np.repeat(fixed[:, : i + 1], n_new, axis=0)
            new_p, new_seen, accepted = prior.propose_first(rng, paths, n_groups)
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

    def propose_first(self, rng: np.random.Generator, paths: Array, n_groups: int) -> tuple[Array, Array, Array]:
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
        probability = self.assignments.probability
        rates = np.empty((len(counts), len(probability)))
        for k, history in enumerate(histories.T):
            rates[k] = self.history_rates(history)
        totals = self.total_rates
        if self.mixing == "feature":
            rates, totals, probability = rates @ probability[:, None], totals @ probability[:, None], np.ones(1)
        with np.errstate(divide="ignore"):
            # eq: own.dhbp-class-prob
            log_given = (counts[:, None] * np.log(rates) - gammaln(counts + 1)[:, None]).sum(axis=0) - totals
        return float(logsumexp(log_given, b=probability))

    @cached_property
    def assignments(self) -> _Assignments:
        """Every way to give rows a group, with its probability."""
        n_assignments = self.n_assignments
        if n_assignments > MAX_ASSIGNMENTS:
            raise InvalidParameterError(
                f"HierarchicalBetaProcess.log_prob sums over all assignments of rows to groups, and there are "
                f"{n_assignments:.3g} of them (at most {MAX_ASSIGNMENTS}). Use fewer rows or groups; simulate works."
            )
        groups = np.array(list(itertools.product(*(np.flatnonzero(row) for row in self.group_probs))))
        return _Assignments(groups, np.prod(self.group_probs[np.arange(self.n_rows), groups], axis=1))

    @cached_property
    def n_assignments(self) -> int:
        """The number of ways to give rows a group."""
        return math.prod(np.diff(self.group_table.indptr).tolist())

    def history_rates(self, has: Array) -> Array:
        """Poisson rate of the number of features that exactly these rows have, for each assignment to groups."""
        c1, groups = self.group_concentration, self.assignments.groups
        p, node_weights = beta_nodes(self.concentration, self.n_rows)
        each = np.arange(len(groups))
        seen, held = (np.zeros((len(groups), self.n_groups)) for _ in range(2))
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
    def total_rates(self) -> Array:
        """Expected number of features of all rows, for each assignment: the sum over the first row with a feature."""
        c1, groups = self.group_concentration, self.assignments.groups
        p, node_weights = beta_nodes(self.concentration, self.n_rows)
        each = np.arange(len(groups))
        seen = np.zeros((len(groups), self.n_groups))
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
        together = self.group_probs @ self.group_probs.T
        # eq: dHBP.expected-shared
        shared = together * same + (1.0 - together) * apart
        np.fill_diagonal(shared, self.mass)
        return shared

    def shared_variance(self) -> Array:
        """Variance of the number of features that rows i and j share: a mixture of two Poissons, or one."""
        variance = self.expected_shared()
        if self.mixing == "row":
            same, apart = self._shared_by_group()
            together = self.group_probs @ self.group_probs.T
            np.fill_diagonal(together, 1.0)
            variance += together * (1.0 - together) * (same - apart) ** 2  # eq: dHBP.variance
        return variance

    def _shared_by_group(self) -> tuple[float, float]:
        """Expected features shared by two rows that follow the same group, and different ones."""
        self.require_concrete("expected_shared")
        c0, c1 = self.concentration, self.group_concentration
        return self.mass * (c0 + c1 + 1) / ((c0 + 1) * (c1 + 1)), self.mass / (c0 + 1)

    # --- what a chain keeps beside the bits -------------------------------------------------------

    @cached_property
    def void_nodes(self) -> tuple[Array, Array]:
        """Nodes and weights of a quadrature for p ~ Beta(1, concentration): exact for polynomials of degree n_rows, or
        to rounding for those that grow no faster than (1 - p)^n_rows does."""
        degree = min(self.n_rows, 6 * math.ceil(math.sqrt(self.n_rows)) + 20)
        p, weights = beta_nodes(self.concentration, degree)
        return np.clip(p, LEAST, BELOW_ONE), weights

    def log_none(self, seen: Array) -> Array:
        """log P(no row has a feature) of the size of each node, given how many rows follow each group."""
        c1, (p, _) = self.group_concentration, self.void_nodes
        larger = np.bincount(seen.astype(np.int64))[::-1].cumsum()[::-1]  # groups of at least j rows, j = 0, 1, ...
        j = np.arange(len(larger) - 1)
        return np.log1p(-c1 * p[:, None] / (c1 + j)) @ larger[1:].astype(float)

    def expected_found(self, groups: Array) -> float:
        """Expected number of features of all rows, per unit of mass, given the group of each row."""
        p, weights = self.void_nodes
        none = self.log_none(np.bincount(groups, minlength=self.n_groups))
        return float(-(weights * np.expm1(none) / p).sum())  # eq: own.dhbp-void

    def begin_marks(self, rng: np.random.Generator, Z: Array) -> GroupMarks:
        return group_draws.begin_marks(rng, self, Z)

    def redraw_marks(self, rng: np.random.Generator, Z: Array, marks: GroupMarks) -> GroupMarks:
        return group_draws.redraw_marks(rng, self, Z, marks)

    def draw_slice(self, rng: np.random.Generator, Z: Array, marks: GroupMarks) -> GroupSlice:
        return group_draws.draw_slice(rng, self, Z, marks)

    def kept_marks(self, marks: GroupMarks, kept: Array) -> GroupMarks:
        groups = marks.groups if self.mixing == "row" else np.ascontiguousarray(marks.groups[:, kept])
        return GroupMarks(groups, marks.sizes[kept])

    def fits(self, marks: GroupMarks, Z: Array) -> bool:
        return group_draws.fits(self, marks, Z)

    def log_joint(self, Z: Array, marks: GroupMarks) -> float:
        self.require_concrete("log_joint")
        return group_draws.log_joint(self, Z, marks.groups)

    def resample_grouped(self, rng: np.random.Generator, current: Any, Z: Array, marks: GroupMarks) -> Any:
        return group_hypers.resample(rng, self, current, Z, marks)

    def exchangeable(self) -> IBP:
        return IBP()

    def distances_to(self, given: Any) -> Array:
        """Distances of new rows from these, (n_new, n_rows)."""
        if self.distances is None:
            raise InvalidParameterError(
                "The prior has weights, which say nothing of rows that are not among them. Fit with distances, times "
                "or coordinates to predict new rows."
            )
        return distances_between(given, self.distances)

    def new_row_chances(self, near: Array, Z: Array) -> tuple[Array, Array]:
        """(P(new row has feature) (n_new, n_features), rates of features that it alone has (n_new,)) given Z.

        A new row follows a group of these rows, or one of its own. Groups are drawn given Z by a short chain.
        """
        self.require_concrete("new_row_chances")
        return new_row_chances(self, near, Z)

    def _check_rows(self, given: int, error: type[Exception] = InvalidParameterError) -> None:
        if given != self.n_rows:
            what = "weights" if self.weights is not None else "distances"
            raise error(f"The {what} are those of {self.n_rows} rows, so there must be as many. Got {given}.")
