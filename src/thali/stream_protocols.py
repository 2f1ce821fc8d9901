"""The capabilities of streams, beside those of `thali.protocols`."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from thali.protocols import Array, CollapsedRows, Generator, Inference


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
class Streaming(Inference, Protocol):
    """An inference that takes rows as they come, each once. `state` is its own; it may change in place."""

    n_draws: int

    def begin(self, rng: Generator, model: Any, n_dims: int) -> Any:
        """The state before the first row, or an error if something in the model cannot be learned from a stream."""

    def absorb(self, rng: Generator, state: Any, model: Any, X: Array) -> tuple[Any, list[Any]]:
        """(state, a remark on each row) after the rows of X. The result does not depend on how rows are batched."""

    def draws(self, rng: Generator, state: Any, model: Any) -> list[Any]:
        """n_draws draws of the posterior given the rows so far. It leaves the state and `rng` as they are."""

    def check_sound(self, state: Any, model: Any) -> None:
        """A ValueError if the state, which comes from a file, does not fit the model or itself."""


@runtime_checkable
class Blockwise(Inference, Protocol):
    """An inference that takes blocks of rows, which may come again. All are pure in their arguments.

    Its `state` has a `bound`, `n_features`, `n_rows` that it stands for, and `n_visits` and `n_seen`, the number of
    blocks and of rows that came so far.
    """

    memoised: bool  # whether the bound is of all rows, rather than an estimate
    moves: bool  # whether other features are looked for
    batch_size: int
    n_epochs: int
    tol: float
    n_start: int
    n_rows: int | None

    def begin(self, rng: Generator, model: Any, X: Array, n_rows: int | None, is_over: Callable[[], bool]) -> Any:
        """Before the first block: features from the rows X, which are some of n_rows (None: not known)."""

    def visit(
        self, state: Any, X: Array, index: int | None = None, *, n_all: int | None = None, keep: bool = False
    ) -> Any:
        """The state after a block of checked rows, which comes again if it has an index; `keep` its rows' factors."""

    def in_order(self, state: Any) -> Any:
        """The state after a pass over all blocks, put in order."""

    def with_more(self, rng: Generator, state: Any, X: Array) -> Any:
        """A state before the first block, with other features that suit the rows X better; None if none do."""

    def misfit(self, state: Any, X: Array) -> Array:
        """How badly each row is explained, (n_rows,)."""

    def posterior(self, state: Any, n_blocks: int | None = None) -> Any:
        """With the factors of the rows, if those of all n_blocks blocks were kept."""

    def check_sound(self, state: Any, model: Any) -> None:
        """A ValueError if the state, which comes from a file, does not fit the model or itself."""
