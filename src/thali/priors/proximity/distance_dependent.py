"""The distance-dependent Indian buffet process: rows that are near each other share more features.

Gershman, Frazier & Blei (2015). With proximities f_ij = decay(d_ij) and h_i = sum_j f_ij (its own included), row i owns
Poisson(mass / h_i) features. For each feature every row links to one row, j with probability f_ij / h_i, and a row has
the feature when its links lead to the owner. Rows are not exchangeable, and distances must be known for all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from thali.core.binary import Array, check_binary, n_non_empty
from thali.core.distributions import Gamma
from thali.core.histories import distinct_columns
from thali.core.registry import stored
from thali.core.spec import ScalarHypers, hyper, moderate, one_of, setting
from thali.errors import InvalidDataError, InvalidParameterError
from thali.kernels.links.layout import Graph
from thali.numerics.slice_sampling import slice_sample_positive
from thali.priors.ibp import IBP
from thali.priors.proximity.decays import ExponentialDecay
from thali.priors.proximity.distances import Coordinates, Times, check_proximity, n_rows, proximities
from thali.priors.proximity.link_draws import draw_links, log_link_rates, possible_columns
from thali.priors.proximity.link_graph import EXACT_ROWS, LinkGraph

_DEFAULT_DECAY = ExponentialDecay()


class LinkedDraw(NamedTuple):
    """owners (n_features,), links (n_features, n_rows), and the Z (n_rows, n_features) that they make."""

    owners: Array
    links: Array
    Z: Array


@stored("DistanceDependentIBP")
@dataclass(frozen=True, eq=False)
class DistanceDependentIBP(ScalarHypers):
    """Features handed on along links between near rows.

    Parameters
    ----------
    mass : float or distribution
        A row owns a Poisson number of features, on average mass divided by the sum of its proximities. A number is
        fixed, a distribution is learned.
    distances : array, sparse matrix, Times or Coordinates
        Of each pair of rows. What is absent from a scipy.sparse matrix is infinitely far.
    decay : str, decay or callable
        "constant", "window", "exponential" or "logistic"; a decay with its settings such as
        `WindowDecay(width=2.0)`; or a function of an array of distances.
    sequential : bool
        Whether rows link only to themselves and to earlier rows. Then a row has mass / f(0) features on average,
        whatever the distances.
    """

    n_features: ClassVar[None] = None  # infinitely many

    mass: Any = hyper(Gamma(1.0, 1.0), moderate)
    distances: Any = None
    decay: Any = _DEFAULT_DECAY
    sequential: bool = setting(False, one_of(True, False))

    @classmethod
    def from_times(cls, times: Any, decay: Any = _DEFAULT_DECAY, **settings: Any) -> Self:
        """d_ij = |times_i - times_j|."""
        return cls(distances=Times(times), decay=decay, **settings)

    @classmethod
    def from_coordinates(
        cls, points: Any, decay: Any = _DEFAULT_DECAY, *, metric: Any = "euclidean", **settings: Any
    ) -> Self:
        """d_ij = metric(points_i, points_j); a metric of scipy.spatial.distance.cdist or a function of two points."""
        return cls(distances=Coordinates(points, metric), decay=decay, **settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        distances, decay = check_proximity(self.distances, self.decay, self.sequential)
        object.__setattr__(self, "distances", distances)
        object.__setattr__(self, "decay", decay)

    def updated(self, **values: Any) -> Self:
        """As for every spec; the links are kept, since they do not depend on the mass."""
        copy = super().updated(**values)
        if not {"distances", "decay", "sequential"} & values.keys():
            copy.__dict__["_graph"] = self._graph
        return copy

    @cached_property
    def _graph(self) -> LinkGraph:
        return LinkGraph(proximities(self.distances, self.decay, self.sequential))

    @property
    def n_rows(self) -> int:
        """The number of rows that have distances."""
        return n_rows(self.distances)

    def owner_rates(self) -> Array:
        """Poisson rates of the number of features that each row owns, (n_rows,)."""
        self.require_concrete("owner_rates")
        return self.mass / self._graph.totals  # eq: DD.owner-rate

    def expected_features(self, n_rows: int) -> float:
        """How many features the rows have together, on average: every owned one is in use."""
        self._check_rows(n_rows)
        return float(self.owner_rates().sum())

    def link_probs(self) -> sp.csr_array:
        """P(row i links to row j); rows sum to one."""
        return self._graph.probs

    def simulate(self, rng: np.random.Generator, n_rows: int) -> Array:
        """A draw of Z, columns in order of their owners."""
        self._check_rows(n_rows)
        return self._graph.draw_holders(rng, self._draw_owners(rng))

    def simulate_links(self, rng: np.random.Generator) -> LinkedDraw:
        """A draw of Z with the owners and all links that made it."""
        from thali.kernels.links.reach import reach_owners  # numba is slow to import

        owners = self._draw_owners(rng)
        links = self._graph.draw_links(rng, len(owners))
        return LinkedDraw(owners, links, reach_owners(owners, links))

    def _draw_owners(self, rng: np.random.Generator) -> Array:
        mass = self.mass.sample(rng) if "mass" in self.learned else self.mass
        return np.repeat(np.arange(self.n_rows), rng.poisson(mass / self._graph.totals))

    def log_prob(self, Z: Array) -> float:
        """Log probability of the class of Z; empty columns count for nothing. Exact, for any number of rows.

        The numbers K_S of features that exactly the rows S have are independent Poisson counts, for every owned feature
        falls on some S by links of its own. Their rates are mass sum_{n in S} P(S | owner n) / h_n, with

            P(S | owner n) = det(L without row and column n) prod_{i not in S} sum_{j not in S} a_ij,

        L = diag(sum_{j in S, j != i} a_ij) - a on S: by the matrix-tree theorem the determinant sums the trees in which
        all other rows of S lead to n; the owner's own link is free, and the rest links among itself. Without circles
        the owner is the first of S and P(S | n) = prod_{i in S, i > n} sum_{j in S, j < i} a_ij times the same product.
        Cost O(|S|^3) per distinct column, or the number of links without circles.
        """
        self.require_concrete("log_prob")
        Z = check_binary(Z)
        self._check_rows(len(Z), InvalidDataError)
        histories, counts = distinct_columns(Z)
        log_rates = math.log(self.mass) + self._graph.log_history_rates(histories)
        # eq: own.dd-class-prob
        return float((counts * log_rates - gammaln(counts + 1)).sum()) - float(self.owner_rates().sum())

    def reach_probs(self, n_draws: int | None = None, rng: np.random.Generator | None = None) -> Array:
        """P(row i reaches row j by its links), (n_rows, n_rows).

        Exact without n_draws, if rows link only to earlier ones or are at most 12; else the mean over n_draws draws of
        the links. It is not the hitting probability of a Markov chain: each row links once.
        """
        if n_draws is None and self._graph.is_exact:
            return self._graph.reach()
        return self._simulated_mean(lambda on_path: on_path, n_draws, rng)

    def expected_shared(self, n_draws: int | None = None, rng: np.random.Generator | None = None) -> Array:
        """E[ZZ']: expected features that rows i and j share; exact or simulated as for `reach_probs`.

        Each of these numbers is Poisson, so this is their variance too. It is also the covariance of the numbers of
        features of rows i and j.
        """
        self.require_concrete("expected_shared")
        if n_draws is None and self._graph.is_exact:
            return self.mass * self._graph.shared()
        # eq: DD.expected-shared
        return self._simulated_mean(lambda on_path: (on_path * self.owner_rates()) @ on_path.T, n_draws, rng)

    # --- links of a chain -------------------------------------------------------------------------

    def kernel_graph(self) -> Graph:
        return self._graph.for_kernels

    def draw_links(self, rng: np.random.Generator, Z: Array) -> Array:
        return draw_links(self._graph, rng, Z)

    def leads_to(self, links: Array, Z: Array) -> bool:
        from thali.kernels.links.reach import reach_owners  # numba is slow to import

        rows = np.arange(self.n_rows)
        owners = (links == rows).argmax(axis=1)
        if not np.array_equal((links == rows).sum(axis=1), np.ones(len(links))) or not np.array_equal(links >= 0, Z.T):
            return False
        if not np.array_equal(reach_owners(owners, np.where(links < 0, rows, links)), Z):
            return False
        return bool(np.isfinite(log_link_rates(self._graph, links)).all())

    def possible(self, Z: Array) -> Array:
        return possible_columns(self._graph, Z)

    def log_joint(self, links: Array) -> float:
        """log p(owners, links); without circles the links are summed out, too. Features in random order."""
        self.require_concrete("log_joint")
        if self._graph.has_order:
            return self.log_prob(np.ascontiguousarray((links >= 0).T))
        n_features = len(links)
        log_rates = n_features * math.log(self.mass) + float(log_link_rates(self._graph, links).sum())
        return log_rates - math.lgamma(n_features + 1) - float(self.owner_rates().sum())

    def resample_linked(self, rng: np.random.Generator, current: Self, links: Array) -> Self:
        return self.resample(rng, current, np.ascontiguousarray((links >= 0).T))

    def exchangeable(self) -> IBP:
        return IBP()

    def resample(self, rng: np.random.Generator, current: Self, Z: Array) -> Self:
        """`current` with its mass drawn given Z: every owned feature is a column of Z, so their number is enough."""
        prior = self.learned.get("mass")
        if prior is None:
            return current
        n_features, rows = n_non_empty(Z), float((1.0 / self._graph.totals).sum())
        if isinstance(prior, Gamma):
            # eq: DD.mass-conditional
            return current.updated(mass=float(rng.gamma(prior.shape + n_features) / (prior.rate + rows)))

        def log_density(mass: float) -> float:
            if not 0 < mass < math.inf:
                return -math.inf
            return prior.log_prob(mass) + n_features * math.log(mass) - mass * rows

        return current.updated(mass=float(slice_sample_positive(log_density, current.mass, rng)))

    def _check_rows(self, given: int, error: type[Exception] = InvalidParameterError) -> None:
        if given != self.n_rows:
            raise error(f"The distances are those of {self.n_rows} rows, so there must be as many. Got {given}.")

    def _simulated_mean(
        self, statistic: Callable[[Array], Array], n_draws: int | None, rng: np.random.Generator | None
    ) -> Array:
        """Mean over draws of all links of a statistic of who is on whose path."""
        if n_draws is None or n_draws < 1 or rng is None:
            raise InvalidParameterError(
                "To simulate (where links may form circles between more than "
                f"{EXACT_ROWS} rows there is no exact value) give both n_draws, 1 or more, and rng. "
                f"Got n_draws={n_draws!r}, rng={rng!r}."
            )
        total = np.zeros((self.n_rows, self.n_rows))
        for _ in range(n_draws):
            total += statistic(self._graph.simulated_paths(rng))
        return total / n_draws
