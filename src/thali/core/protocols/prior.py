"""What a prior can do."""

from typing import Any, Protocol, Self, TypeAlias, TypeGuard, TypeVar, runtime_checkable

import numpy as np

Array = np.ndarray
Generator = np.random.Generator
Factor: TypeAlias = Any  # q, a NamedTuple of the prior's own
Running: TypeAlias = Any  # running sums, a NamedTuple of the prior's own
Auxiliary: TypeAlias = Any  # row variables, opaque to all but the prior that draws them
Marks: TypeAlias = Any  # a NamedTuple of the prior's own: groups that rows follow, and sizes of features
Capability = TypeVar("Capability")

_found: dict[tuple[type, type], bool] = {}


def provides(prior: Any, capability: type[Capability]) -> TypeGuard[Capability]:
    """isinstance, looked up once for each class of priors: in every step anew it would take a tenth of a small one."""
    key = type(prior), capability
    if key not in _found:
        _found[key] = isinstance(prior, capability)
    return _found[key]


@runtime_checkable
class Prior(Protocol):
    """A distribution over binary matrices Z with n_rows rows."""

    @property
    def n_features(self) -> int | None:
        """The number of columns of Z, which may be empty; None if there are infinitely many features."""

    @property
    def learned(self) -> dict[str, Any]:
        """The hyperparameters that are distributions, by name."""

    def draw(self, rng: Generator) -> Self:
        """This prior with a number in place of each distribution."""

    def simulate(self, rng: Generator, n_rows: int) -> Array:
        """A draw of Z, uint8 (n_rows, n_features)."""

    def log_prob(self, Z: Array) -> float:
        """Log probability of Z; of its class, where the columns have no order. Concrete priors only."""

    def log_hyper(self, current: Self) -> float:
        """Log density of the learned hyperparameters of `current`, up to a constant."""


@runtime_checkable
class Predictive(Prior, Protocol):
    """Exchangeable rows with a closed conditional of one row given the others."""

    def log_odds(self, n_rows: int) -> Array:
        """log_odds[m]: of having a feature that m of the other n_rows - 1 rows have; -inf at m = 0 if infinite."""

    def new_rate(self, n_rows: int) -> float:
        """Poisson rate of the number of features that one row alone has; zero for a finite prior."""

    def resample(self, rng: Generator, current: Self, Z: Array) -> Self:
        """`current` with its learned hyperparameters drawn given Z, by a step that leaves their posterior invariant."""


@runtime_checkable
class Weights(Prior, Protocol):
    """Weights (probabilities of having a feature) drawn beside Z: given them, rows are independent."""

    def draw_weights(self, rng: Generator, counts: Array, n_rows: int) -> Array:
        """Weights of features, given how many of the n_rows rows have each; of those in use if there are infinitely
        many. Concrete priors only."""


@runtime_checkable
class Sticks(Weights, Protocol):
    """Weights of features that no row has, too: what a slice sampler needs. Concrete priors only."""

    def draw_unused(self, rng: Generator, level: float, n_rows: int) -> Array:
        """Weights above `level` of the features that none of the n_rows rows has, in decreasing order."""

    def least_level(self, n_rows: int) -> float:
        """A level above which there are few enough of them to hold in memory, whatever the parameters."""


@runtime_checkable
class VariationalWeights(Prior, Protocol):
    """A variational distribution q of the weights of a truncated prior and of its learned hyperparameters.

    q is the prior's own NamedTuple; `counts` are expected numbers of rows, sum_n q(z_nk = 1), one per feature.
    """

    def init_weights(self, n_rows: int) -> Factor:
        """q to begin with: the prior itself."""

    def expected_log_odds(self, q: Factor) -> Array:
        """E_q log(weight) - E_q log(1 - weight) of each feature, with the prior's bound where it has no closed form."""

    def expected_weights(self, q: Factor) -> Array:
        """E_q of the weight of each feature."""

    def update_weights(self, q: Factor, counts: Array, n_rows: int) -> Factor:
        """q after one pass of coordinate ascent; `weights_bound` never falls."""

    def weights_bound(self, q: Factor, counts: Array, n_rows: int) -> float:
        """E_q[log p(Z, weights, hyperparameters) - log q(weights, hyperparameters)] or a lower bound of it."""


@runtime_checkable
class AdaptiveWeights(Protocol):
    """Variational weights whose features can change places, and whose truncation can grow."""

    def reorder_weights(self, weights: Factor, order: Array) -> Factor:
        """The factor with its features in this order, a permutation of all of them."""

    def grow_weights(self, weights: Factor, n_features: int) -> Factor:
        """The factor with so many features, the new ones as in the prior. An error if the prior fixes their number."""


@runtime_checkable
class Recursive(Prior, Protocol):
    """Marginals of the next row from running sums: what a filter needs. Concrete priors only."""

    def start_running(self) -> Running:
        """Running sums before the first row: a `thali.priors.recursion.Running`."""

    def next_row(self, running: Running, births: str) -> Array:
        """P(the next row has feature k), for the known features and enough new ones."""

    def absorb(self, running: Running, z_prob: Array, births: str) -> Running:
        """The sums after a row whose bits have the posterior probabilities z_prob."""

    def filter_law(self, n_features: float, n_rows: float) -> tuple[float, float]:
        """(mass, concentration) of a filter that expects so many features after so many rows; an error if something is
        learned that it cannot learn. Not for concrete priors only."""


@runtime_checkable
class AuxiliaryPrior(Prior, Protocol):
    """Rows that are not exchangeable, through row variables of the prior's own: links between rows, groups of rows.

    Z alone is the state of a chain; the row variables are drawn when a sweep needs them. Concrete priors only.
    """

    def draw_auxiliary(self, rng: Generator, Z: Array) -> Auxiliary:
        """The row variables given Z, from their posterior: opaque to all but this prior."""

    def auxiliary_odds(self, auxiliary: Auxiliary, Z: Array) -> tuple[Array, Array]:
        """(log-odds of each bit given all others (n_rows, n_features), rates of features that a row alone has
        (n_rows,)), given the row variables."""

    def log_joint(self, auxiliary: Auxiliary, Z: Array) -> float:
        """log p(Z, row variables)."""


@runtime_checkable
class NearRows(Prior, Protocol):
    """Rows that are not exchangeable: some are near to each other, by distances or by groups that they follow."""

    def check_rows(self, n_rows: int) -> None:
        """An error unless the prior knows how near so many rows are."""

    def with_distances(self, distances: Any) -> Self:
        """This prior for rows with these distances: an array, a sparse matrix, `Times` or `Coordinates`."""

    def distances_to(self, given: Any) -> Array:
        """Distances of new rows from these, (n_new, n_rows), of times, coordinates or what they are already."""

    def new_row_chances(self, near: Array, Z: Array) -> tuple[Array, Array]:
        """(P(new row has feature) (n_new, n_features), rates of features that it alone has (n_new,)) given Z and
        distances `near`, if new rows come after these. Concrete priors only."""

    def exchangeable(self) -> Predictive:
        """A prior of exchangeable rows with as vague a number of features, with which starts are looked for."""


@runtime_checkable
class Groups(NearRows, Protocol):
    """Rows follow groups, in which features have weights of their own. `Marks` are opaque to all but the prior: what a
    chain keeps beside the bits. Concrete priors only, but for `resample_grouped`."""

    def begin_marks(self, rng: Generator, Z: Array) -> Marks:
        """Marks given bits: from their exact law for few rows, else near it."""

    def redraw_marks(self, rng: Generator, Z: Array, marks: Marks) -> Marks:
        """Marks given bits, by a step that leaves their law invariant. It has the fields `groups` and `sizes`."""

    def draw_slice(self, rng: Generator, Z: Array, marks: Marks) -> Any:
        """What `GroupedRows` asks: chances of bits by kind of row, kinds of rows, marks, and level; with columns for
        the unused features above that level, a uniform draw below the smallest size in use."""

    def kept_marks(self, marks: Marks, kept: Array) -> Marks:
        """Marks of these columns, a mask."""

    def fits(self, marks: Marks, Z: Array) -> bool:
        """Whether a chain with these bits can have these marks."""

    def log_joint(self, Z: Array, marks: Marks) -> float:
        """log p(Z, groups), up to a constant."""

    def resample_grouped(self, rng: Generator, current: Self, Z: Array, marks: Marks) -> Self:
        """`current` with its learned hyperparameters drawn given bits and marks."""


@runtime_checkable
class Links(NearRows, Protocol):
    """Features are handed on along links between rows: z_nk = 1 where links lead from row n to the owner of k."""

    def owner_rates(self) -> Array:
        """Poisson rates of the number of features that each row owns, (n_rows,). Concrete priors only."""

    def link_probs(self) -> Any:
        """P(row i links to row j), a scipy.sparse CSR matrix whose rows sum to one."""

    def kernel_graph(self) -> Any:
        """The same for kernels: a `thali.kernels.links.layout.Graph`."""

    def draw_links(self, rng: Generator, Z: Array) -> Array:
        """Links that lead to Z, (n_features, n_rows): the row to which a row links, itself if it owns the feature, -1
        if it lacks it."""

    def leads_to(self, links: Array, Z: Array) -> bool:
        """Whether these links, each of them possible, lead to Z."""

    def possible(self, Z: Array) -> Array:
        """Z with each column that no links can lead to in parts, each of them possible."""

    def log_columns(self, Z: Array) -> Array:
        """log of the rate of features that exactly the rows of each column have, but for what all columns share.
        Concrete priors only."""

    def log_joint(self, links: Array) -> float:
        """log p(links), those of rows that lack a feature summed out. Concrete priors only."""

    def link_surprise(self, links: Array) -> float:
        """log p(class of Z) - log p(links): added to `log_joint` it scores Z whatever its links. 0 where that takes too
        long. Concrete priors only."""

    def resample_linked(self, rng: Generator, current: Self, links: Array) -> Self:
        """`current` with its learned hyperparameters drawn given the links."""
