"""What an inference can do. Its states and remarks are its own, and opaque to whoever hands them on."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from thali.core.events import EventNote
from thali.core.model import Model
from thali.core.observation import Observation
from thali.core.protocols.engines import Array, Data, Generator
from thali.core.protocols.prior import Prior

State: TypeAlias = Any  # opaque, and storable: each inference has its own
Info: TypeAlias = Any  # remarks on a step: each inference has its own
Draw: TypeAlias = Any  # a `thali.posteriors.base.Draw`, which lies above this module; so do the next two
Posterior: TypeAlias = Any  # a `thali.posteriors.base.Posterior`
Task: TypeAlias = Any  # a `thali.storage.tasks.Task`


@runtime_checkable
class Inference(Protocol):
    """What an inference needs of the other two, its settings, and its shape: what its work consists of.

    "chains" of draws (`Iterative`), "restarts" of an optimiser (`Optimiser`), "rows" that come once (`Streaming` if
    `keeps_rows`, else `Forgetful`), or "blocks" of rows that may come again (`Blockwise`). The runner asks for no more.
    """

    shape: str
    needs_prior: tuple[type, ...]
    needs_observation: tuple[type, ...]


@runtime_checkable
class Iterative(Inference, Protocol):
    """A sampler: a state, and a step that leaves the posterior invariant. Both are pure in their arguments."""

    n_warmup: int
    n_draws: int
    thin: int

    def init(
        self, rng: Generator, model: Model, data: Data, n_rows: int, tick: Callable[[], None] | None = None
    ) -> State:
        """A state to begin with. `tick` is called now and then; an error that it raises ends the search for one."""

    def at(self, prior: Prior, observation: Observation, data: Data, codes: Array, X: Array) -> State:
        """The state with these values (concrete prior and observation, complete X): for tests and warm starts."""

    def step(self, rng: Generator, state: State, model: Model, data: Data) -> tuple[State, Info]:
        """(next state, remarks). The remarks have at least `log_joint` and `n_features`."""

    def check_sound(self, state: State, data: Data, n_rows: int) -> None:
        """Raise a ValueError unless a chain on these data can be in this state, which may come from a file."""

    def record(self, state: State, info: Info, data: Data) -> Draw:
        """What the posterior keeps of a state: a `thali.posteriors.draws.Draw`."""


@runtime_checkable
class Optimiser(Inference, Protocol):
    """Passes over the data that never raise an objective, from several starts. All are pure in their arguments."""

    max_iter: int
    tol: float
    n_restarts: int

    def prepare(self, model: Model, X: Array) -> Data:
        """What all restarts share."""

    def init(
        self, rng: Generator, model: Model, data: Data, restart: int, is_over: Callable[[], bool] | None = None
    ) -> State:
        """A state to begin with. It has an `objective` and a number of features `n_features`. A long search for one
        should end once `is_over()`."""

    def step(self, rng: Generator, state: State, model: Model, data: Data) -> tuple[State, bool]:
        """(the state after a pass, whether anything changed)."""

    def posterior(self, rng: Generator, state: State, model: Model, data: Data) -> Posterior:
        """That of the best state: a `thali.posteriors.draws.Posterior`."""

    def check_sound(self, state: State, model: Model, data: Data) -> None:
        """A ValueError unless a restart on these data can be in this state, which may come from a file."""

    def remarks(self, data: Data) -> dict[str, float]:
        """What else there is to say of the run."""


@runtime_checkable
class Streaming(Inference, Protocol):
    """An inference that takes rows as they come, each once, and keeps them. `state` is its own, with `n_rows`, the
    number of rows so far; it may change in place. The tasks of a run are filters: each has a stream `rng`, a `state`,
    and `infos`."""

    keeps_rows: bool  # True
    n_draws: int

    def begin(self, rng: Generator, model: Model, n_dims: int) -> State:
        """The state before the first row, or an error if something in the model cannot be learned from a stream."""

    def absorb(self, rng: Generator, state: State, model: Model, X: Array) -> tuple[State, list[Info]]:
        """(state, remarks) after the rows of X. The result does not depend on how rows are batched."""

    def draws(self, rng: Generator, state: State, model: Model) -> list[Draw]:
        """n_draws draws of the posterior given the rows so far. It leaves the state and `rng` as they are."""

    def posterior(self, tasks: Sequence[Task], model: Model) -> Posterior:
        """That of all filters together."""

    def filters(self, tasks: Sequence[Task]) -> Any:
        """How the filters stand, for the verdict; None if there is nothing to say."""

    def history(self, tasks: Sequence[Task]) -> dict[str, Array]:
        """(filter, remark) arrays."""

    def rows(self, tasks: Sequence[Task]) -> Array | None:
        """All rows so far; None if they are not kept."""

    def check_stream(self, tasks: Sequence[Task], posterior: Posterior) -> None:
        """A ValueError if the tasks, which come from a file, are not those of the posterior."""

    def check_sound(self, state: State, model: Model) -> None:
        """A ValueError if the state, which comes from a file, does not fit the model or itself."""


@runtime_checkable
class Forgetful(Inference, Protocol):
    """An inference that takes rows as they come, each once, and keeps none: its state does not grow with their number.

    The state has the `model`, adapted to the first rows, `n_rows`, the number of rows so far, and `n_features`.
    """

    keeps_rows: bool  # False
    n_young: int  # rows with which it begins, at most

    def begin(self, rng: Generator, model: Model, n_dims: int) -> State:
        """The state before the first row, or an error if something in the model cannot be learned from a stream."""

    def absorb_first(self, rng: Generator, state: State, X: Array) -> tuple[State, list[EventNote]]:
        """`absorb` for the rows with which it begins, up to n_young (more, if relative priors refer to more): all so
        far, while the state is that before the first row."""

    def absorb(self, rng: Generator, state: State, X: Array) -> tuple[State, list[EventNote]]:
        """(state after the rows of X, what happened to features). The old state stays as it was. Neither the new one
        nor the events depend on how rows are batched. A FloatingPointError if numbers left their range."""

    def posterior(self, state: State) -> Posterior:
        """That given the rows so far; its `model` is that of the state."""

    def history(self, state: State) -> dict[str, Array]:
        """(1, n) arrays, `n_rows` and `n_features` among them, no longer than some hundred."""

    def check_sound(self, state: State, model: Model, n_dims: int) -> None:
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

    def begin(self, rng: Generator, model: Model, X: Array, n_rows: int | None, is_over: Callable[[], bool]) -> State:
        """Before the first block: features from the rows X, which are some of n_rows (None: not known)."""

    def visit(
        self, state: State, X: Array, index: int | None = None, *, n_all: int | None = None, keep: bool = False
    ) -> State:
        """The state after a block of checked rows, which comes again if it has an index; `keep` its rows' factors."""

    def in_order(self, state: State) -> State:
        """The state after a pass over all blocks, put in order."""

    def with_more(self, rng: Generator, state: State, X: Array) -> State:
        """A state before the first block, with other features that suit the rows X better; None if none do."""

    def misfit(self, state: State, X: Array) -> Array:
        """How badly each row is explained, (n_rows,)."""

    def posterior(self, state: State, n_blocks: int | None = None) -> Posterior:
        """With the factors of the rows, if those of all n_blocks blocks were kept."""

    def check_sound(self, state: State, model: Model) -> None:
        """A ValueError if the state, which comes from a file, does not fit the model or itself."""

    def check_resumable(self, state: State, model: Model, blocks: Any) -> None:
        """A ValueError if the state, which comes from a file, is none in the middle of a pass over these blocks."""
