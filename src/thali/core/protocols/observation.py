"""What an observation model can do.

For variational inference,

    log p(X)  >=  prior.weights_bound(weights, counts, n_rows)  +  observation.features_bound(q, statistics)

Three kinds of factors: of the rows (`local`), of the features (`q`, with the learned hyperparameters at a point), and
of the weights (the prior's). Given q and the weights the rows are independent; given the rows, q and the weights
depend on sums over rows alone. So a fit is a local step on parts of the data, a sum of statistics, and a global step;
in memory, from a file, in a stream or on many machines.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from thali.core.registry import stored

Array = np.ndarray
Generator = np.random.Generator


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
    is that of `thali.inference.samplers.column_moves.column_weight`.
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
class ParticleRows(CollapsedRows, Protocol):
    """A population of hypotheses about the rows so far, each with hyperparameters of its own."""

    def check_particles(self) -> None:
        """An error if something is learned that a particle cannot carry."""

    def start_particles(self, n_particles: int, n_dims: int) -> Any:
        """Particles without rows and columns: opaque to the inference but for `n_rows`, `log_weight` (normalised) and
        `roots` (the particle before the first row that each descends from)."""

    def refreshed(self, particles: Any, currents: Any) -> Any:
        """The particles, changed in place, with new hyperparameters: those of one concrete model for each."""

    def filter_rows(
        self,
        rng: Generator,
        particles: Any,
        currents: Any,
        X: Array,
        log_odds: Array,
        new_rate: Array,
        table_of: Array,
        n_features: int | None,
        group: int,
        resample_below: float,
        max_resamplings: int,
    ) -> Any:
        """Take in the rows of X, as far as the last resampling that is allowed; particles change in place.

        log_odds[t, i, m] and new_rate[t, i] are the prior's for row i, t = table_of[particle]; n_features is the
        number of columns of a finite prior. Bits are proposed `group` at a time given the data, from the prior if it is
        0. Gives `particles`, `n_absorbed`, `trace` (of each row: log mean weight, effective number of particles, mean
        number of columns) and `source`: which particle took each place in the last resampling, None if it did not end
        with one.
        """

    def particle(self, particles: Any, index: int, data: Any, n_features: int | None) -> Any:
        """The row variables (`local`) of one particle, with the unused columns of a finite prior."""

    def put_particle(self, particles: Any, index: int, local: Any, data: Any) -> Any:
        """The particles, changed in place, with these row variables for one of them; `refreshed` is called after."""

    def check_sound(self, particles: Any, X: Array) -> None:
        """A ValueError if the particles, which come from a file, cannot be those of the rows X."""


@runtime_checkable
class HardRows(FeatureRows, Protocol):
    """Bits and features as numbers: the limit of no noise, in which a fit is |X - Z A|^2 over the observed cells.

    `data` is the form of checked data that `hard_data` makes; it is never changed. `features` may have rows besides
    those of Z, such as an offset. There are at most `limit` features.
    """

    def hard_noise(self, data: Any) -> tuple[float | None, float]:
        """(noise variance in the units of the error, if it is fixed; what it should be at least, if it is not)."""

    def hard_data(self, X: Array) -> Any:
        """The working form of checked data, for an adapted model."""

    def hard_matrix(self, data: Any) -> tuple[Array, bool]:
        """(X in the units of the error, NaN where missing; whether the offset is learned): what starts look at."""

    def hard_features(self, data: Any, Z: Array) -> Array:
        """The features with the least error given Z."""

    def hard_error(self, data: Any, Z: Array, features: Array) -> float:
        """|X - Z A|^2."""

    def hard_sweep(
        self, data: Any, Z: Array, features: Array, penalty: float, limit: int, order: Array
    ) -> tuple[Array, int]:
        """(Z, number of changes): the best value of each bit, given the rest, row by row in this order.

        What a row has left becomes a feature of its own if it is more than the penalty (which may be infinite).
        """

    def hard_refit_sweep(
        self, data: Any, Z: Array, features: Array, penalty: float, limit: int, order: Array
    ) -> tuple[Array, int]:
        """As `hard_sweep`; a row gets a feature of its own if, all features fitted anew, it is worth the penalty."""

    def hard_column(self, rng: Generator, data: Any, Z: Array, features: Array, tries: int) -> tuple[Array, float]:
        """(a column that any number of rows share, by how much it lowers the error with the features as they are)."""

    def hard_worth(self, data: Any, Z: Array) -> Array:
        """By how much the error would rise without each feature, the others fitted anew."""

    def hard_point(self, data: Any, Z: Array, features: Array) -> tuple[Any, dict[str, Array]]:
        """(this model with numbers for what is learned, the codebook): a posterior in one point."""

    def hard_completed(self, X: Array, Z: Array, codebook: dict[str, Array]) -> Array:
        """X as `place` takes it, with missing cells where a point puts them, which this model is one of."""


@stored("Family")
class Family(NamedTuple):
    """Which factors q consists of."""

    bits: str = "soft"  # or "hard": q(z) is an indicator
    features: str = "joint"  # q(A) over all features of a dim; or "independent": one factor per feature
    codes: str = "joint"  # q(z, w) of one row and feature; or "independent": q(z) q(w)
    precision: str = "double"  # or "single": of the row kernels; sums are always double


@runtime_checkable
class MeanFieldRows(Observation, Protocol):
    """Coordinate ascent for a model that is adapted to the data; learned hyperparameters are distributions in it.

    `local` is the model's NamedTuple of arrays with one entry per row, the first being `z_prob` (n_rows, n_features);
    what holds of all rows is sliced by rows. `statistics` is a NamedTuple of sums over rows, the first being `counts`
    (n_features,), to be added by `thali.core.statistics.add`. `q` is the model's NamedTuple with the fields `family`
    and `observation`, the concrete model that predictions use. All methods are pure.
    """

    def row_data(self, X: Any) -> Any:
        """The working form of checked data, never changed: has `len`, and `part(start, stop)` for some of its rows."""

    def init_features(self, data: Any, n_features: int, family: Family) -> Any:
        """q before any row was seen: features as in their prior, hyperparameters at what the data suggest at once."""

    def init_rows(self, data: Any, codes: Array) -> Any:
        """`local` near these codes (bits, or their weights where they are on; also between, for uncertain bits)."""

    def update_rows(self, data: Any, q: Any, local: Any, log_odds: Array, n_passes: int = 1) -> tuple[Any, Any]:
        """(local, statistics) after `n_passes` passes over the features, each row on its own; 0 for statistics alone.

        log_odds are the prior's, one per feature. Each update is the optimum of its factor given the others.
        """

    def update_features(self, q: Any, statistics: Any, *, learn: bool = True) -> Any:
        """q at its optimum given the rows' sums; with `learn`, then the hyperparameters at theirs."""

    def features_bound(self, q: Any, statistics: Any) -> float:
        """E[log p(X, features, weights of rows | Z) - log q(rows) q(features)] + log_hyper of the hyperparameters."""

    def annealed(self, q: Any, temperature: float) -> Any:
        """q whose evidence for the bits is flattened, for `update_rows` alone; temperature 1 gives q itself."""

    def keep_columns(self, part: Any, columns: Array) -> Any:
        """`local`, `statistics` or `q` with these features only, in this order."""

    def add_column(self, local: Any, codes: Array) -> Any:
        """`local` with one more feature, near these codes (n_rows,) as in `init_rows`; see `add_feature`."""

    def add_feature(self, q: Any) -> Any:
        """q with one more feature, as in its prior."""

    def unexplained(self, data: Any, q: Any, local: Any) -> Array:
        """What the features leave of the data, (n_rows, n_dims), zero at missing cells: where births look."""

    def draw_rows(self, rng: Generator, local: Any) -> tuple[Array, Array]:
        """(bits, codes) drawn from q."""

    def expected_codes(self, local: Any) -> Array:
        """E_q of the codes, (n_rows, n_features)."""

    def variational_codebook(self, q: Any) -> dict[str, Array]:
        """What `q.observation` needs to predict: as `codebook` of `FeatureRows`, from q."""


@runtime_checkable
class ScaledFeatures(MeanFieldRows, Protocol):
    """Features with weights, of which the data know the products only: signs and sizes can change together."""

    def signs(self, q: Any) -> Array:
        """-1 for the features that are to be shown the other way round, else 1."""

    def stretch(self, q: Any, local: Any) -> Array:
        """Factors of the codes that suit the laws of weights and features best; `local` is a sequence of parts."""

    def turned(self, part: Any, factors: Array) -> Any:
        """`local`, `statistics` or `q` with codes times these factors and features divided by them.

        Signs leave the bound as it is. With other factors `local` is where `update_rows` can go on, no more.
        """
