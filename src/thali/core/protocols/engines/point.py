"""The engine of optimisers of a point: bits and features as numbers."""

from typing import Protocol

from thali.core.codebook import Codebook
from thali.core.observation import Observation
from thali.core.protocols.engines import Array, Data, Generator


class PointRows(Protocol):
    """Bits and features as numbers: the limit of no noise, in which a fit is |X - Z A|^2 over the observed cells.

    `data` is the form of checked data that `prepare` makes; it is never changed. `features` may have rows besides
    those of Z, such as an offset. There are at most `limit` features.
    """

    def noise(self, data: Data) -> tuple[float | None, float]:
        """(noise variance in the units of the error, if it is fixed; what it should be at least, if it is not)."""

    def prepare(self, X: Array) -> Data:
        """The working form of checked data, for an adapted model."""

    def matrix(self, data: Data) -> tuple[Array, bool]:
        """(X in the units of the error, NaN where missing; whether the offset is learned): what starts look at."""

    def features(self, data: Data, Z: Array) -> Array:
        """The features with the least error given Z."""

    def error(self, data: Data, Z: Array, features: Array) -> float:
        """|X - Z A|^2."""

    def sweep(
        self, data: Data, Z: Array, features: Array, penalty: float, limit: int, order: Array
    ) -> tuple[Array, int]:
        """(Z, number of changes): the best value of each bit, given the rest, row by row in this order.

        What a row has left becomes a feature of its own if it is more than the penalty (which may be infinite).
        """

    def refit_sweep(
        self, data: Data, Z: Array, features: Array, penalty: float, limit: int, order: Array
    ) -> tuple[Array, int]:
        """As `sweep`; a row gets a feature of its own if, all features fitted anew, it is worth the penalty."""

    def column(self, rng: Generator, data: Data, Z: Array, features: Array, tries: int) -> tuple[Array, float]:
        """(a column that any number of rows share, by how much it lowers the error with the features as they are)."""

    def worth(self, data: Data, Z: Array) -> Array:
        """By how much the error would rise without each feature, the others fitted anew."""

    def point(self, data: Data, Z: Array, features: Array) -> tuple[Observation, Codebook]:
        """(this model with numbers for what is learned, the codebook): a posterior in one point."""

    def completed(self, X: Array, Z: Array, codebook: Codebook) -> Array:
        """X as `place` takes it, with missing cells where a point puts them, which this model is one of."""
