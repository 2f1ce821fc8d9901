"""The capabilities of optimisers, beside those of `thali.protocols`."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from thali.protocols import Array, FeatureRows, Generator, Inference


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


@runtime_checkable
class Optimiser(Inference, Protocol):
    """Passes over the data that never raise an objective, from several starts. All are pure in their arguments."""

    max_iter: int
    tol: float
    n_restarts: int

    def prepare(self, model: Any, X: Array) -> Any:
        """What all restarts share."""

    def init(
        self, rng: Generator, model: Any, data: Any, restart: int, is_over: Callable[[], bool] | None = None
    ) -> Any:
        """A state to begin with. It has an `objective` and a number of features `n_features`. A long search for one
        should end once `is_over()`."""

    def step(self, rng: Generator, state: Any, model: Any, data: Any) -> tuple[Any, bool]:
        """(the state after a pass, whether anything changed)."""

    def posterior(self, rng: Generator, state: Any, model: Any, data: Any) -> Any:
        """That of the best state: a `thali.posterior.Posterior`."""

    def remarks(self, data: Any) -> dict[str, float]:
        """What else there is to say of the run."""
