"""The capability of variational inference, beside those of `thali.protocols`.

    log p(X)  >=  prior.weights_bound(weights, counts, n_rows)  +  observation.features_bound(q, statistics)

Three kinds of factors: of the rows (`local`), of the features (`q`, with the learned hyperparameters at a point), and
of the weights (the prior's). Given q and the weights the rows are independent; given the rows, q and the weights
depend on sums over rows alone. So a fit is a local step on parts of the data, a sum of statistics, and a global step;
in memory, from a file, in a stream or on many machines.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from thali.protocols import Array, Generator, Observation


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
    (n_features,), to be added by `thali.stats.add`. `q` is the model's NamedTuple with the fields `family` and
    `observation`, the concrete model that predictions use. All methods are pure.
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


@runtime_checkable
class AdaptiveWeights(Protocol):
    """Variational weights whose features can change places, and whose truncation can grow."""

    def reorder_weights(self, weights: Any, order: Array) -> Any:
        """The factor with its features in this order, a permutation of all of them."""

    def grow_weights(self, weights: Any, n_features: int) -> Any:
        """The factor with so many features, the new ones as in the prior. An error if the prior fixes their number."""
