"""Engines of samplers. A chain keeps the row variables; features are integrated out or part of them."""

from collections.abc import Callable
from typing import Any, Protocol

from thali.core.codebook import Codebook
from thali.core.observation import Observation
from thali.core.odds import RowOdds
from thali.core.protocols.engines import Array, Data, Generator, Local


class ChainRows(Protocol):
    """The row variables that a chain keeps, and what they say: the part that all samplers share."""

    def prepare(self, X: Array) -> Data:
        """The working form of checked data, one per chain: it may hold a work space."""

    def place(self, data: Data, codes: Array, X: Array) -> Local:
        """Row variables with these codes; X is complete, as in `completed`."""

    def completed(self, data: Data, local: Local) -> Array:
        """X as `data` holds it (counted from an origin, where the model has one), missing cells as `local` has them."""

    def codes(self, local: Local) -> Array:
        """The codes that `local` holds."""

    def check(self, data: Data, local: Local) -> None:
        """Raise a ValueError unless a chain on these data can hold these row variables: kernels do not look before
        they read, and `local` may come from a file. Its bits have been checked."""

    def log_evidence(self, data: Data, local: Local) -> float:
        """log p(X, what else is local | Z), features integrated out unless they are local. Concrete models only."""

    def resample(self, rng: Generator, spec: Observation, data: Data, local: Local) -> Observation:
        """This concrete model with the hyperparameters that `spec` learns drawn given the row variables and X."""

    def codebook(self, data: Data, local: Local) -> Codebook:
        """What is needed to predict."""


class FreshRows(Protocol):
    """Row variables that `resample` leaves out of account, so that hyperparameters move more freely."""

    def refresh(self, rng: Generator, data: Data, local: Local) -> Local:
        """Those variables drawn given all else, with the hyperparameters of this concrete model."""


class ShownRows(Protocol):
    """Row variables of which a posterior keeps a simpler form that says the same."""

    def shown(self, local: Local) -> Local:
        """That form."""


class StartRows(Protocol):
    """Where chains begin."""

    def matrix(self, data: Data) -> tuple[Array, bool]:
        """(X without a fixed offset, NaN where missing; whether an offset is learned): what starts look at."""

    def units(self, n_dims: int) -> Array | None:
        """What starts should divide the dims by; None to leave them as they are."""

    def begin(self, data: Data, codes: Array, matrix: Array) -> tuple[Observation, Local]:
        """(concrete model, row variables) near these codes, given the completed form of `matrix`."""

    def tempered(self, factor: float) -> Observation:
        """This concrete model with evidence that is flatter by so much: `factor` times the noise variance."""


class OwnStart(Protocol):
    """A model that knows better than the directions of its data where to begin."""

    def start_codes(self, rng: Generator, data: Data, n_features: int | None, is_over: Callable[[], bool]) -> Array:
        """Codes (n_rows, n_features) to begin with, zero where a row lacks a feature; as many as it likes if None.

        `is_over()` is asked now and then; once it is true, the codes that there are will do."""


class FactorStart(Protocol):
    """A model of factors with Gaussian values: its chains begin at an ordinary factor analysis."""

    def start_factors(self, data: Data) -> Array:
        """What to analyse, (n_samples, n_owners), NaN where missing: the loadings are those of the owners of bits."""


class CollapsedRows(Protocol):
    """Features integrated out of the draw of a row's bits. Concrete models only."""

    def sweep(
        self,
        rng: Generator,
        data: Data,
        local: Local,
        odds: RowOdds,
        group: int = 1,
        keys: Array | None = None,
    ) -> tuple[Local, dict[str, float]]:
        """Draw every row's bits, `group` jointly (neighbours in the order of `keys`, by default a random one), and what
        else is local, given the rest."""


class ConditionalRows(Protocol):
    """Features drawn beside Z, for the time of a sweep. Concrete models only."""

    def conditional_sweep(self, rng: Generator, data: Data, local: Local, odds: RowOdds) -> Local:
        """Draw the features given the codes, then every row's bits and what else is local given the features."""


class SliceRows(Protocol):
    """Bits given the weights of features, of which a slice leaves finitely many. Concrete models only."""

    def weighted_sweep(
        self, rng: Generator, data: Data, local: Local, used: Array, unused: Array, level: float = 0.0
    ) -> Local:
        """As `conditional_sweep`, given the weights of the columns in use and of further ones that no row has yet.

        It keeps the law of a slice below the smallest weight in use; columns that no row has in the end are dropped.
        Bits of columns whose weight is below `level` stay as they are.
        """


class GroupedRows(Protocol):
    """Bits under a slice where rows have a feature with different chances. Concrete models only."""

    def grouped_sweep(
        self, rng: Generator, data: Data, local: Local, chances: Array, kinds: Array, sizes: Array, level: float = 0.0
    ) -> tuple[Local, Array]:
        """As `SliceRows.weighted_sweep`, row n having column k with chances[kinds[n], k], (n_kinds, n_columns).

        The columns are those of `local` and further ones that no row has yet; the slice is below the smallest of their
        `sizes` that is in use. Returns which columns are kept, too.
        """


class ProposedRows(Protocol):
    """Features that a row alone has, exchanged for another set of them by Metropolis-Hastings."""

    def proposed_sweep(
        self, rng: Generator, data: Data, local: Local, odds: RowOdds, boost: float, single: float
    ) -> Local:
        """As `conditional_sweep`, but those features are proposed from their prior: Poisson many with `boost` times its
        rate, or with probability `single` one."""


class ImportanceRows(Protocol):
    """New features drawn with all others, not integrated out."""

    def importance_sweep(self, rng: Generator, data: Data, local: Local, odds: RowOdds, n_candidates: int) -> Local:
        """As `conditional_sweep`, but the features that a row alone has are picked by their likelihood among
        `n_candidates` sets: the present one and draws from the prior."""


class LinkedRows(Protocol):
    """Features handed on along links between rows (a prior with `Links`), integrated out. Concrete models only."""

    def column_change(self, data: Data, local: Local, k: int, rows: Array) -> float:
        """The change of log p(X | Z) if the bits of these rows of column k are flipped."""

    def linked_sweep(
        self, rng: Generator, data: Data, local: Local, graph: Any, links: Array, rates: Array, jointly: bool
    ) -> tuple[Local, Array, dict[str, float]]:
        """Draw the links of all features, propose features to be born and to die, and draw what else is local.

        `graph` and `rates` are the prior's; links[k, n] is the row to which row n links for feature k, n itself if it
        owns the feature, -1 if it lacks it. Numbers of owned features are proposed for one row after another, or for
        all rows `jointly`. Returns the links, too, and remarks.
        """


class ParallelRows(Protocol):
    """Weights drawn beside the features, so that rows can be drawn side by side."""

    def parallel_sweep(
        self,
        rng: Generator,
        data: Data,
        local: Local,
        draw_weights: Callable[[Array], Array],
        new_rate: float,
        n_threads: int | None = None,
    ) -> Local:
        """As `conditional_sweep`, given the weights of columns, which `draw_weights` makes from their counts: those
        at the beginning, and one for each column that may be born.

        On at most `n_threads` threads, None for one per core; the bits do not depend on it.
        """


class ColumnMoves(Protocol):
    """Proposals that change whole columns of Z. Concrete models only.

    Each gives (local, log Metropolis-Hastings ratio) for columns that were picked uniformly in order; `weight` is that
    of `thali.inference.samplers.column_moves.column_weight`.
    """

    def propose_rebirth(
        self, rng: Generator, data: Data, local: Local, weight: Array, columns: Array, n_new: int
    ) -> tuple[Local, float]:
        """Remove these columns, build n_new from what the others leave unexplained."""

    def propose_recoding(
        self, rng: Generator, data: Data, local: Local, weight: Array, pair: Array, table: Array
    ) -> tuple[Local, float]:
        """The second column of the pair gets the bits table[its own, the other's]; then both are drawn anew."""

    def propose_exclusive_or(self, data: Data, local: Local, weight: Array, pair: Array) -> tuple[Local, float]:
        """The second column of the pair becomes its exclusive or with the first."""

    def likeness(self, local: Local) -> Array:
        """How alike the features are, (n_features, n_features) between 0 and 1."""


class BitEntropy(Protocol):
    """What turns the log joint of a state into the free energy of its mode."""

    def bit_entropy(self, data: Data, local: Local, odds: RowOdds) -> float:
        """Sum of the entropies of the bits, each given the rest, in nats."""


class MarginalRows(Protocol):
    """The exact marginal of data, for tests and tiny data."""

    def log_marginal(self, X: Array, codes: Array) -> float:
        """log p(X | codes) of the observed cells, features integrated out."""

    def log_codes(self, codes: Array) -> float:
        """log p(codes | their bits); 0 if codes are bits."""


class AuxiliaryRows(Protocol):
    """Row variables that codes and data do not determine, such as which feature made which count."""

    def simulate_local(
        self, rng: Generator, Z: Array, n_dims: int, missing: Array | None = None
    ) -> tuple[Array, Local]:
        """(X, local) from the model: an exact posterior draw given its own data, for tests."""
