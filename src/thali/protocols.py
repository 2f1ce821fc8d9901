"""Every capability by which priors, observation models and inferences meet: the library's vocabulary.

    logit P(z_nk = 1 | rest)  =  prior log-odds of k  +  evidence for k from row n

A prior speaks log-odds and never sees data; an observation model speaks evidence and never sees the prior; an inference
adds the two. A component declares nothing: it *has* a capability when it has the methods. Hyperparameters that are
learned are distributions in a spec; `current` is the same spec with their current values in place (a concrete spec).
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

Array = np.ndarray
Generator = np.random.Generator


@runtime_checkable
class Prior(Protocol):
    """A distribution over binary matrices Z with n_rows rows."""

    @property
    def learned(self) -> dict[str, Any]:
        """The hyperparameters that are distributions, by name."""

    def draw(self, rng: Generator) -> Any:
        """This prior with a number in place of each distribution."""

    def simulate(self, rng: Generator, n_rows: int) -> Array:
        """A draw of Z, uint8 (n_rows, n_features)."""

    def log_prob(self, Z: Array) -> float:
        """Log probability of Z; of its class, where the columns have no order. Concrete priors only."""

    def log_hyper(self, current: Any) -> float:
        """Log density of the learned hyperparameters of `current`, up to a constant."""


@runtime_checkable
class Predictive(Prior, Protocol):
    """Exchangeable rows with a closed conditional of one row given the others."""

    def log_odds(self, n_rows: int) -> Array:
        """log_odds[m]: of having a feature that m of the other n_rows - 1 rows have; -inf at m = 0 if infinite."""

    def new_rate(self, n_rows: int) -> float:
        """Poisson rate of the number of features that one row alone has; zero for a finite prior."""

    def resample(self, rng: Generator, current: Any, Z: Array) -> Any:
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

    def init_weights(self, n_rows: int) -> Any:
        """q to begin with: the prior itself."""

    def expected_log_odds(self, q: Any) -> Array:
        """E_q log(weight) - E_q log(1 - weight) of each feature, with the prior's bound where it has no closed form."""

    def expected_weights(self, q: Any) -> Array:
        """E_q of the weight of each feature."""

    def update_weights(self, q: Any, counts: Array, n_rows: int) -> Any:
        """q after one pass of coordinate ascent; `weights_bound` never falls."""

    def weights_bound(self, q: Any, counts: Array, n_rows: int) -> float:
        """E_q[log p(Z, weights, hyperparameters) - log q(weights, hyperparameters)] or a lower bound of it."""


@runtime_checkable
class Recursive(Prior, Protocol):
    """Marginals of the next row from running sums: what a filter needs. Concrete priors only."""

    def start_running(self) -> Any:
        """Running sums before the first row: a `thali.priors.recursion.Running`."""

    def next_row(self, running: Any, births: str) -> Array:
        """P(the next row has feature k), for the known features and enough new ones."""

    def absorb(self, running: Any, z_prob: Array, births: str) -> Any:
        """The sums after a row whose bits have the posterior probabilities z_prob."""


@runtime_checkable
class Links(Prior, Protocol):
    """Features are handed on along links between rows: z_nk = 1 where links lead from row n to the owner of k."""

    @property
    def n_rows(self) -> int:
        """The number of rows that have distances."""

    def owner_rates(self) -> Array:
        """Poisson rates of the number of features that each row owns, (n_rows,). Concrete priors only."""

    def link_probs(self) -> Any:
        """P(row i links to row j), a scipy.sparse CSR matrix whose rows sum to one."""


@runtime_checkable
class Observation(Protocol):
    """A distribution of data X (n_rows, n_dims) given Z and features."""

    @property
    def learned(self) -> dict[str, Any]:
        """The hyperparameters that are distributions, by name."""

    def check_data(self, X: Any) -> Array:
        """X as this model needs it, NaN for missing cells, or an error that says what is wrong."""

    def adapt(self, X: Array) -> Any:
        """This model with what depends on the scale of the data (relative priors, floors) made absolute."""

    def draw(self, rng: Generator, n_dims: int) -> Any:
        """This model with a number in place of each distribution."""

    def draw_features(self, rng: Generator, n_features: int, n_dims: int) -> Array:
        """Features from their prior, (n_features, n_dims)."""

    def simulate(
        self,
        rng: Generator,
        Z: Array,
        *,
        n_dims: int | None = None,
        features: Array | None = None,
        codes: Array | None = None,
    ) -> Array:
        """A draw of X; features and codes are drawn, too, where they are not given."""

    def reconstruct(self, codes: Array, features: Array) -> Array:
        """Expected rows of X given codes (n_rows, n_features), in the data's units."""

    def log_prob(self, X: Array, local: Any, features: Array) -> float:
        """Log density of the observed cells of X given the row variables and the features."""

    def log_hyper(self, current: Any) -> float:
        """Log density of the learned hyperparameters of `current`, up to a constant."""


@runtime_checkable
class FeatureRows(Observation, Protocol):
    """Rows that know of each other through features alone; chains keep the row variables and integrate features out.

    `local` is the model's own NamedTuple of row variables whose first field is z. `codes` (n_rows, n_features) are what
    multiplies the features: the bits, or their weights where they are on.
    """

    def prepare(self, X: Array) -> Any:
        """The working form of checked data, one per chain: opaque to the inference."""

    def as_matrix(self, data: Any) -> tuple[Array, bool]:
        """(X without a fixed offset, NaN where missing; whether an offset is learned): what starts look at."""

    def start(self, data: Any, codes: Array, matrix: Array) -> tuple[Any, Any]:
        """(current, local): where to begin, given codes and the completed form of `as_matrix`."""

    def place(self, data: Any, codes: Array, X: Array) -> Any:
        """Row variables with these values; X is complete, as in `completed`."""

    def completed(self, data: Any, local: Any) -> Array:
        """X as `data` holds it (counted from an origin, where the model has one), missing cells as `local` has them."""

    def check_rows(self, data: Any, local: Any) -> None:
        """Raise a ValueError unless a chain on these data can hold these row variables: kernels do not look before
        they read, and `local` may come from a file. Its bits have been checked."""

    def draw_codes(self, rng: Generator, Z: Array) -> Array:
        """Codes of rows with these bits, from their prior."""

    def codes_of(self, local: Any) -> Array:
        """The codes that `local` holds."""

    def codes(self, Z: Array, codebook: dict[str, Array]) -> Array:
        """The codes of a draw of which Z (without empty columns) and the codebook were kept."""

    def resample(self, rng: Generator, current: Any, data: Any, local: Any) -> Any:
        """`current` with its learned hyperparameters drawn given codes and X, features integrated out."""

    def log_evidence(self, data: Any, local: Any) -> float:
        """log p(X, what else is local | Z) with the features integrated out."""

    def log_marginal(self, X: Array, codes: Array) -> float:
        """log p(X | codes) of the observed cells, features integrated out."""

    def codebook(self, data: Any, local: Any) -> dict[str, Array]:
        """What is needed to predict: `features` (posterior mean), `gram_inv`, `counts`, and what `codes` needs."""

    def definite(self, rng: Generator, codebook: dict[str, Array]) -> dict[str, Array]:
        """The codebook with features drawn, if `encode` takes them as given; else as it is."""

    def encode(self, X: Array, codebook: dict[str, Array], log_odds: Array, new_rate: float) -> Any:
        """Presence, expected codes and log density of new rows, each on its own."""

    def sample_codes(self, rng: Generator, encoded: Any, owner: Array) -> Array:
        """Codes of the encoded rows `owner` from their posterior."""

    def features_var(self, codebook: dict[str, Array]) -> Array:
        """Posterior variance of each feature's values, (n_features, n_dims)."""

    def log_cells(self, X: Array, codes: Array, codebook: dict[str, Array]) -> Array:
        """Log density of each cell of rows with these codes, features integrated out."""

    def sample_rows(self, rng: Generator, codes: Array, codebook: dict[str, Array], n_unknown: Any) -> Array:
        """A row for each row of codes, with `n_unknown` features from their prior beside the known ones."""


@runtime_checkable
class CollapsedRows(FeatureRows, Protocol):
    """Features integrated out of the draw of a row's bits, too."""

    def sweep(
        self,
        rng: Generator,
        data: Any,
        local: Any,
        log_odds: Array,
        new_rate: float,
        group: int = 1,
        keys: Array | None = None,
    ) -> tuple[Any, dict[str, float]]:
        """Draw every row's bits, `group` jointly (neighbours in the order of `keys`, by default a random one), and what
        else is local, given the rest. Concrete models only."""


@runtime_checkable
class ConditionalRows(FeatureRows, Protocol):
    """Features drawn beside Z, for the time of a sweep."""

    def conditional_sweep(self, rng: Generator, data: Any, local: Any, log_odds: Array, new_rate: float) -> Any:
        """Draw the features given the codes, then every row's bits and what else is local given the features."""

    def weighted_sweep(
        self, rng: Generator, data: Any, local: Any, used: Array, unused: Array, level: float = 0.0
    ) -> Any:
        """As `conditional_sweep`, given the weights of the columns in use and of further ones that no row has yet.

        It keeps the law of a slice below the smallest weight in use; columns that no row has in the end are dropped.
        Bits of columns whose weight is below `level` stay as they are.
        """


@runtime_checkable
class OwnStart(FeatureRows, Protocol):
    """A model of positive features that knows better than the directions of its data where to begin."""

    def start_codes(self, rng: Generator, data: Any, n_features: int | None) -> Array:
        """Codes (n_rows, n_features) to begin with, zero where a row lacks a feature; as many as it likes if None."""


@runtime_checkable
class OwnUnits(FeatureRows, Protocol):
    """A model that does not mind in which units its dims are, and says in which a start should see them."""

    def start_units(self, n_dims: int) -> Array | None:
        """What to divide the dims by, or None to leave them as they are."""


@runtime_checkable
class AuxiliaryRows(FeatureRows, Protocol):
    """Row variables that codes and data do not determine, such as which feature made which count."""

    def simulate_local(self, rng: Generator, Z: Array, n_dims: int, missing: Array | None = None) -> tuple[Array, Any]:
        """(X, local) from the model: an exact posterior draw given its own data, for tests."""


@runtime_checkable
class ImportanceRows(ConditionalRows, Protocol):
    """New features drawn with all others, not integrated out."""

    def importance_sweep(
        self, rng: Generator, data: Any, local: Any, log_odds: Array, new_rate: float, n_candidates: int
    ) -> Any:
        """As `conditional_sweep`, but the features that a row alone has are picked by their likelihood among
        `n_candidates` sets: the present one and draws from the prior."""


@runtime_checkable
class ParallelRows(ConditionalRows, Protocol):
    """Weights drawn beside the features, so that rows can be drawn side by side."""

    def parallel_sweep(
        self,
        rng: Generator,
        data: Any,
        local: Any,
        draw_weights: Callable[[Array], Array],
        new_rate: float,
        n_threads: int | None = None,
    ) -> Any:
        """As `conditional_sweep`, given the weights of columns, which `draw_weights` makes from their counts: those
        at the beginning, and one for each column that may be born.

        On at most `n_threads` threads, None for one per core; the bits do not depend on it.
        """


@runtime_checkable
class ColumnMoves(CollapsedRows, Protocol):
    """Proposals that change whole columns of Z, and what a search for the right mode needs. Concrete models only.

    Each proposal gives (local, log Metropolis-Hastings ratio) for columns that were picked uniformly in order; `weight`
    is that of `thali.inference.moves.column_weight`.
    """

    def propose_rebirth(
        self, rng: Generator, data: Any, local: Any, weight: Array, columns: Array, n_new: int
    ) -> tuple[Any, float]:
        """Remove these columns, build n_new from what the others leave unexplained."""

    def propose_recoding(
        self, rng: Generator, data: Any, local: Any, weight: Array, pair: Array, table: Array
    ) -> tuple[Any, float]:
        """The second column of the pair gets the bits table[its own, the other's]; then both are drawn anew."""

    def propose_exclusive_or(self, data: Any, local: Any, weight: Array, pair: Array) -> tuple[Any, float]:
        """The second column of the pair becomes its exclusive or with the first."""

    def tempered(self, factor: float) -> Any:
        """This model with `factor` times the noise variance."""

    def likeness(self, local: Any) -> Array:
        """How alike the features are, (n_features, n_features) between 0 and 1."""

    def bit_entropy(self, data: Any, local: Any, log_odds: Array) -> float:
        """Sum of the entropies of the bits, each given the rest, in nats."""


@runtime_checkable
class Inference(Protocol):
    """What an inference needs of the other two, and its settings."""

    needs_prior: tuple[type, ...]
    needs_observation: tuple[type, ...]


@runtime_checkable
class Iterative(Inference, Protocol):
    """A sampler: a state, and a step that leaves the posterior invariant. Both are pure in their arguments."""

    n_warmup: int
    n_draws: int
    thin: int

    def init(self, rng: Generator, model: Any, data: Any, n_rows: int, tick: Callable[[], None] | None = None) -> Any:
        """A state to begin with. `tick` is called now and then; an error that it raises ends the search for one."""

    def at(self, prior: Any, observation: Any, data: Any, codes: Array, X: Array) -> Any:
        """The state with these values (concrete prior and observation, complete X): for tests and warm starts."""

    def step(self, rng: Generator, state: Any, model: Any, data: Any) -> tuple[Any, Any]:
        """(next state, remarks). The remarks have at least `log_joint` and `n_features`."""

    def check_sound(self, state: Any, data: Any, n_rows: int) -> None:
        """Raise a ValueError unless a chain on these data can be in this state, which may come from a file."""

    def record(self, state: Any, info: Any, data: Any) -> Any:
        """What the posterior keeps of a state: a `thali.posterior.Draw`."""
