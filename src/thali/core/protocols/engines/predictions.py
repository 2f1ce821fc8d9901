"""The engine of predictions: what one draw of a posterior says of rows, fitted or new."""

from typing import Any, Protocol

from thali.core.codebook import Codebook, Encoded
from thali.core.protocols.engines import Array, Generator

Book = Any  # the engine's own kind of codebook, `codebook_kind`


class Predictions(Protocol):
    """For a concrete model and codebooks of its own kind."""

    codebook_kind: type[Codebook]

    def codes(self, Z: Array, codebook: Book) -> Array:
        """The codes of the fitted rows in a draw of which Z (without empty columns) and the codebook were kept."""

    def marks(self, Z: Array, codebook: Book) -> Array:
        """What tells the features of a draw apart, whatever their order: the codes of all that own bits."""

    def new_codes(self, rng: Generator, codebook: Book, log_odds: Array, n_rows: int) -> Array:
        """Codes of so many new rows of which nothing is known."""

    def definite(self, rng: Generator, codebook: Book) -> Book:
        """The codebook with features drawn, if `encode` takes them as given; else as it is."""

    def encode(self, X: Array, codebook: Book, log_odds: Array, new_rate: float) -> Encoded:
        """Presence, expected codes and log density of new rows, each on its own, which have Poisson(new_rate) features
        besides those of the codebook."""

    def sample_codes(self, rng: Generator, encoded: Encoded, owner: Array) -> Array:
        """Codes of the encoded rows `owner` from their posterior."""

    def sample_like(self, rng: Generator, encoded: Encoded, owner: Array, codebook: Book, known: Array) -> Array:
        """Rows like the encoded ones `owner`: with codes, and what else is a row's own, from their posterior; and an
        unknown feature, but with probability known[owner]."""

    def features_var(self, codebook: Book) -> Array:
        """Posterior variance of each feature's values, (n_features, n_dims)."""

    def means(self, codes: Array, codebook: Book) -> Array:
        """Expected rows given codes, counted from `origin`: sums of numbers near zero keep their digits."""

    def expected_rows(self, encoded: Encoded, codebook: Book) -> Array:
        """`means` of the encoded rows, expected over their codes."""

    @property
    def origin(self) -> Array | None:
        """What to add to `means` for the units of the data; None: nothing."""

    def log_cells(self, X: Array, codes: Array, codebook: Book) -> Array:
        """Log density of each cell of rows with these codes, features integrated out."""

    def sample_rows(self, rng: Generator, codes: Array, codebook: Book, n_unknown: Array | int) -> Array:
        """A row for each row of codes, with `n_unknown` features from their prior beside the known ones."""


class CellMoments(Protocol):
    """Cells that are normal given codes and features: what their mixture has as moments."""

    def from_origin(self, X: Array) -> Array:
        """X as the moments are counted."""

    def cell_moments(self, mean: Array, var: Array, codebook: Book) -> tuple[Array, Array, Array]:
        """(expected cells counted from the origin, noise variance, what uncertain codes and features add to it) of rows
        whose codes have these means and variances."""
