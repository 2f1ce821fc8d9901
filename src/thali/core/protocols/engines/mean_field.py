"""Engines of variational inference.

    log p(X)  >=  prior.weights_bound(weights, counts, n_rows)  +  observation.features_bound(q, statistics)

Three kinds of factors: of the rows (`local`), of the features (`q`, with the learned hyperparameters at a point), and
of the weights (the prior's). Given q and the weights the rows are independent; given the rows, q and the weights
depend on sums over rows alone. So a fit is a local step on parts of the data, a sum of statistics, and a global step;
in memory, from a file, in a stream or on many machines.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from thali.core.codebook import Codebook
from thali.core.protocols.engines import Array, Data, Generator, Local
from thali.core.registry import stored

Factor: TypeAlias = Any  # q, opaque but for `family` and `observation`: each engine has its own
Sums: TypeAlias = Any  # opaque but for `counts`: each engine has its own


@stored("Family")
class Family(NamedTuple):
    """Which factors q consists of."""

    bits: str = "soft"  # or "hard": q(z) is an indicator
    features: str = "joint"  # q(A) over all features of a dim; or "independent": one factor per feature
    codes: str = "joint"  # q(z, w) of one row and feature; or "independent": q(z) q(w)
    precision: str = "double"  # or "single": of the row kernels; sums are always double


class MeanFieldRows(Protocol):
    """Coordinate ascent for a model that is adapted to the data; learned hyperparameters are distributions in it.

    `local` is the model's NamedTuple of arrays with one entry per row, the first being `z_prob` (n_rows, n_features);
    what holds of all rows is sliced by rows. `statistics` is a NamedTuple of sums over rows, the first being `counts`
    (n_features,), to be added by `thali.core.statistics.add`. `q` is the model's NamedTuple with the fields `family`
    and `observation`, the concrete model as far as the features know it. All methods are pure.

    A row is an owner of bits, and data, `local` and what is `unexplained` have their form: where dims own the bits,
    that of X transposed.
    """

    def row_data(self, X: Array) -> Data:
        """The working form of checked data, never changed: has `len`, and `part(start, stop)` for some of its rows."""

    def init_features(self, data: Data, n_features: int, family: Family) -> Factor:
        """q before any row was seen: features as in their prior, hyperparameters at what the data suggest at once."""

    def init_rows(self, data: Data, codes: Array) -> Local:
        """`local` near these codes (bits, or their weights where they are on; also between, for uncertain bits)."""

    def update_rows(
        self, data: Data, q: Factor, local: Local, log_odds: Array, n_passes: int = 1
    ) -> tuple[Local, Sums]:
        """(local, statistics) after `n_passes` passes over the features, each row on its own; 0 for statistics alone.

        log_odds are the prior's, one per feature. Each update is the optimum of its factor given the others.
        """

    def update_features(self, q: Factor, statistics: Sums, *, learn: bool = True) -> Factor:
        """q at its optimum given the rows' sums; with `learn`, then the hyperparameters at theirs."""

    def features_bound(self, q: Factor, statistics: Sums) -> float:
        """E[log p(X, features, weights of rows | Z) - log q(rows) q(features)] + log_hyper of the hyperparameters."""

    def annealed(self, q: Factor, temperature: float) -> Factor:
        """q whose evidence for the bits is flattened, for `update_rows` alone; temperature 1 gives q itself."""

    def keep_columns(self, part: Any, columns: Array) -> Any:
        """`local`, `statistics` or `q` with these features only, in this order."""

    def add_column(self, local: Local, codes: Array) -> Local:
        """`local` with one more feature, near these codes (n_rows,) as in `init_rows`; see `add_feature`."""

    def add_feature(self, q: Factor) -> Factor:
        """q with one more feature, as in its prior."""

    def unexplained(self, data: Data, q: Factor, local: Local) -> Array:
        """What the features leave of the data, (n_rows, n_dims), zero at missing cells: where births look."""

    def draw_rows(self, rng: Generator, local: Local) -> tuple[Array, Array]:
        """(bits, codes) drawn from q."""

    def expected_codes(self, local: Local) -> Array:
        """E_q of the codes, (n_rows, n_features)."""

    def expected_features(self, q: Factor) -> Array:
        """E_q of what the codes multiply, in the form of `unexplained`, (n_features, n_dims)."""

    def check(self, q: Factor, local: Local) -> None:
        """Raise a ValueError unless these can be factors, whose shapes and bits have been checked: they may come from a
        file."""

    def concrete(self, q: Factor, local: Local) -> Any:
        """The model that predictions use: `q.observation`, with what is known of the owners of bits."""

    def codebook(self, q: Factor, local: Local) -> Codebook:
        """What the concrete model needs to predict: as `codebook` of `ChainRows`, from the factors."""


class GrowingSums(Protocol):
    """Sums over rows that are gone, which can have one more feature."""

    def with_unused(self, q: Factor, statistics: Sums, n_rows: float) -> Sums:
        """Those of the same n_rows rows with a last feature that none of them has; q has it already."""


class ScaledFeatures(Protocol):
    """Features with weights, of which the data know the products only: signs and sizes can change together."""

    def signs(self, q: Factor, local: Sequence[Local]) -> Array:
        """-1 for the features that are to be shown the other way round, else 1; `local` are parts."""

    def stretch(self, q: Factor, local: Sequence[Local]) -> Array:
        """Factors of the codes that suit the laws of weights and features best; `local` are parts."""

    def turned(self, part: Any, factors: Array) -> Any:
        """`local`, `statistics` or `q` with codes times these factors and features divided by them.

        Signs leave the bound as it is. With other factors `local` is where `update_rows` can go on, no more.
        """


class FeatureDraws(Protocol):
    """Features whose values can be drawn: where dims own the bits, they are the codes of the rows."""

    def draw_values(self, rng: Generator, q: Factor, cells: Array) -> Array:
        """Values from q, (n_cells, n_features), of all features in each of these cells of an owner of bits."""
