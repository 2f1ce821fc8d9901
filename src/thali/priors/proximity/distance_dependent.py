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
from thali.core.spec import ScalarHypers, Spec, hyper, is_distribution, moderate, one_of, setting
from thali.errors import InvalidDataError, InvalidParameterError
from thali.kernels.links.layout import Graph
from thali.numerics.slice_sampling import slice_sample_positive
from thali.priors.ibp import IBP
from thali.priors.proximity.decays import ExponentialDecay, as_decay, learned_of
from thali.priors.proximity.distances import (
    Coordinates,
    Times,
    check_proximity,
    distances_between,
    finite_distances,
    n_rows,
    proximities,
)
from thali.priors.proximity.link_draws import draw_links, log_link_rates, possible_columns
from thali.priors.proximity.link_graph import EXACT_ROWS, LinkGraph

_DEFAULT_DECAY = ExponentialDecay()
_MOST_SUMMED = 600  # rows for which the trees of links of each draw are counted


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
        Of each pair of rows, d_ij of row i from row j: where they are not symmetric, row i links to row j by d_ij. What
        is absent from a scipy.sparse matrix is infinitely far. None waits for `fit(X, times=...)` and its like.
    decay : str, decay or callable
        "constant", "window", "exponential" or "logistic"; a decay with its settings such as
        `WindowDecay(width=2.0)`, or `ExponentialDecay(rate=Gamma(2.0, 2.0))` to learn its rate; or a function of an
        array of distances.
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
        distances, decay = self.distances, as_decay(self.decay)
        if distances is not None:
            distances, decay = check_proximity(distances, decay, self.sequential)
        object.__setattr__(self, "distances", distances)
        object.__setattr__(self, "decay", decay)

    def __getattr__(self, name: str) -> Any:
        """decay_rate, decay_width: parameters of the decay."""
        outer, _, inner = name.partition("_")
        if outer == "decay" and inner and "decay" in self.__dict__:
            return getattr(self.__dict__["decay"], inner)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def learned(self) -> dict[str, Any]:
        """The hyperparameters that are distributions, by name; those of the decay as decay_rate, decay_width."""
        own = {"mass": self.mass} if is_distribution(self.mass) else {}
        return own | {f"decay_{name}": law for name, law in learned_of(self.decay).items()}

    def replace(self, **changes: Any) -> Self:
        """As for every spec; `decay_rate` is the rate of the decay."""
        return super().replace(**self._of_decay(changes, "replace"))

    def updated(self, **values: Any) -> Self:
        """As for every spec; what does not depend on the values is kept."""
        values = self._of_decay(values, "updated")
        copy = super().updated(**values)
        if not {"distances", "sequential"} & values.keys():
            for name in ("_graph", "_finite"):
                if name in self.__dict__ and not (name == "_graph" and "decay" in values):
                    copy.__dict__[name] = self.__dict__[name]
        return copy

    def _of_decay(self, changes: dict[str, Any], how: str) -> dict[str, Any]:
        """Changes of parameters of the decay as a change of the decay."""
        inner = {name.removeprefix("decay_"): value for name, value in changes.items() if name in self._decay_names}
        others = {name: value for name, value in changes.items() if name not in self._decay_names}
        return others | {"decay": getattr(others.get("decay", self.decay), how)(**inner)} if inner else others

    @cached_property
    def _decay_names(self) -> set[str]:
        return (
            {f"decay_{name}" for name in self.decay.get_params(deep=False)} if isinstance(self.decay, Spec) else set()
        )

    @cached_property
    def _graph(self) -> LinkGraph:
        self._require_distances()
        if "_finite" not in self.__dict__:
            return LinkGraph(proximities(self.distances, self.decay, self.sequential))
        far = self._finite  # as when the decay is learned
        values = np.asarray(self.decay(far.data - 1.0), dtype=float)
        return LinkGraph(sp.csr_array((values, far.indices, far.indptr), shape=far.shape))

    @cached_property
    def _finite(self) -> sp.csr_array:
        """1 + the distances that are finite, for a decay that is learned."""
        return finite_distances(self.distances, self.sequential)

    @property
    def n_rows(self) -> int:
        """The number of rows that have distances."""
        self._require_distances()
        return n_rows(self.distances)

    def _require_distances(self) -> None:
        if self.distances is None:
            raise InvalidParameterError(
                "DistanceDependentIBP needs distances between the rows. Give them to the fit, as "
                "fit(X, times=...), fit(X, coordinates=...) or fit(X, distances=...), or to the prior itself."
            )

    def with_distances(self, distances: Any) -> Self:
        """This prior for rows with these distances: an array, a sparse matrix, Times or Coordinates."""
        return self.replace(distances=distances)

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
        if learned_of(self.decay):
            return self.draw(rng).simulate(rng, n_rows)
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

    def log_columns(self, Z: Array) -> Array:
        """log of the rate of features that exactly the rows of each column have, but for the mass; none is empty."""
        return self._graph.log_history_rates(np.ascontiguousarray(Z))

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

    def distances_to(self, given: Any) -> Array:
        """Distances of new rows from these, (n_new, n_rows)."""
        return distances_between(given, self.distances)

    def new_row_chances(self, near: Array, Z: Array) -> tuple[Array, Array]:
        """(P(new row has feature) (n_new, n_features), rates of features that it alone has (n_new,)) given Z.

        New rows come after these: a new row links to one of these or to itself, and none links to it.
        """
        self.require_concrete("new_row_chances")
        f = np.where(np.isfinite(near), np.asarray(self.decay(near), dtype=float), 0.0)
        totals = f.sum(axis=1) + float(np.asarray(self.decay(np.zeros(1)))[0])
        # eq: own.dd-new-row
        return f @ Z.astype(float) / totals[:, None], self.mass / totals

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

    def link_surprise(self, links: Array) -> float:
        """log p(class of Z) - log p(links), which is 0 where links are summed out; and for more than 600 rows."""
        if self._graph.has_order or self.n_rows > _MOST_SUMMED:
            return 0.0
        return self.log_prob(np.ascontiguousarray((links >= 0).T)) - self.log_joint(links)

    def resample_linked(self, rng: np.random.Generator, current: Self, links: Array) -> Self:
        current = self.resample(rng, current, np.ascontiguousarray((links >= 0).T))
        for name, law in self.learned.items():
            if name == "mass":
                continue
            _ = current._finite  # which its copies share

            def log_density(value: float, name: str = name, law: Any = law, now: Self = current) -> float:
                if not 0 < value < math.inf:
                    return -math.inf
                # eq: own.dd-decay
                return float(law.log_prob(value) + now.updated(**{name: value}).log_joint(links))

            value = slice_sample_positive(log_density, getattr(current, name), rng)
            current = current.updated(**{name: float(value)})
        return current

    def exchangeable(self) -> IBP:
        return IBP()

    def resample(self, rng: np.random.Generator, current: Self, Z: Array) -> Self:
        """`current` with its mass drawn given Z: every owned feature is a column of Z, so their number is enough."""
        prior = self.learned.get("mass")
        if prior is None:
            return current
        n_features, rows = n_non_empty(Z), float((1.0 / current._graph.totals).sum())
        if isinstance(prior, Gamma):
            # eq: DD.mass-conditional
            return current.updated(mass=float(rng.gamma(prior.shape + n_features) / (prior.rate + rows)))

        def log_density(mass: float) -> float:
            if not 0 < mass < math.inf:
                return -math.inf
            return prior.log_prob(mass) + n_features * math.log(mass) - mass * rows

        return current.updated(mass=float(slice_sample_positive(log_density, current.mass, rng)))

    def check_rows(self, n_rows: int) -> None:
        """An error unless there are distances of so many rows."""
        self._check_rows(n_rows, InvalidDataError)

    def _check_rows(self, given: int, error: type[Exception] = InvalidParameterError) -> None:
        if given != self.n_rows:
            raise error(f"The distances are those of {self.n_rows} rows, so there must be as many rows. Got {given}.")

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
