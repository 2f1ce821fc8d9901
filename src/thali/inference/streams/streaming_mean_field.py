"""Mean field for rows that come once: what the rows so far say of features and weights is the prior of the next batch,
as sums of statistics in which earlier rows may count for less. With all bits begun at random these are the streaming
baselines of Schaeffer, Du, Liu & Fiete (2022), after Doshi-Velez et al. (2009).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from thali.core.events import EventNote
from thali.core.model import Model
from thali.core.protocols.engines.chains import OwnStart
from thali.core.protocols.engines.mean_field import Family, GrowingSums, MeanFieldRows
from thali.core.protocols.prior import AdaptiveWeights, VariationalWeights
from thali.core.registry import stored
from thali.core.spec import Domain, Spec, at_least, not_negative, one_of, positive, setting
from thali.core.statistics import scale
from thali.errors import InvalidParameterError
from thali.inference.streams.batch_fit import Batch, begun, in_order, known, left_over, with_births, without_idle
from thali.inference.variational.ascent import State, check_factors, n_weights, split_rows
from thali.posteriors.approximation import Factors, RowSums, SummedApproximation
from thali.posteriors.variational_sums import VariationalSums
from thali.rng import make_generator, row_uniforms, seeded_keys

Array = np.ndarray
Generator = np.random.Generator

_SLOTS = 20  # of a prior that has no number of features
_ROWS = 10_000  # for which its weights are made
_TRACE = 512  # entries of the history, of which every second goes when they are as many

_optional_rate = Domain(
    "None or a positive number, at most 1", lambda v: v is None or (positive.contains(v) and v <= 1)
)
_optional_number = Domain("None or an integer, 1 or more", lambda v: v is None or at_least(1).contains(v))


@stored("StreamedFactors")
class StreamedState(NamedTuple):
    """The factors of features and weights, the sums that they go with, and the rows of the batch that is not full."""

    model: Model  # adapted to the first rows
    seed: int
    n_rows: int  # so far
    n_batches: int  # that were full
    n_counted: float  # rows that the sums stand for
    q: Any  # None before the first batch, as the next three
    weights: Any
    statistics: Any
    no_rows: Any  # the factors of no row at all
    bound: float
    refused: Array  # (2,) sum of squares left of the worst row, and of a mean one, that no feature was born from
    waiting: Array  # (fewer than batch_size, n_dims)
    trace: Array  # (n, 3): rows, features in use and bound after some batches
    stride: int  # batches between two of them

    @property
    def n_features(self) -> int:
        return 0 if self.statistics is None else len(self.statistics.counts)


@stored("StreamingMeanField")
@dataclass(frozen=True, eq=False)
class StreamingMeanField(Spec):
    """Mean field for a stream of rows, from the first row on: each batch is fitted given sums over all rows before it.

    The state has sums for each feature and pair of features, however many rows come. Rows are not revised, and a
    feature that was found wrongly among few rows stays: where data can be kept or read again, MeanField and
    StochasticMeanField find more.

    Parameters
    ----------
    truncation : int or None
        How many features there may be in use. None leaves it to the prior; one without a number gets 20.
    batch_size : int
        Rows that are fitted together. With few of them features are found worse.
    forgetting : float or None
        None: all rows count alike. A number: when batch t comes, what was known counts 1 - (t + delay)^-forgetting as
        much as before.
    delay : float
        See `forgetting`; with larger values the first batches are forgotten more slowly.
    n_inner : int
        Passes over a batch at most.
    tol : float
        A batch is done when a pass raises the bound by less than so many nats a row.
    start : "births" or "uniform"
        "births": rows begin at the features that are known; others are born from what is left of the batch, and idle
        ones deleted, if the bound rises by it. "uniform": all bits of a batch begin at random, and there are
        `truncation` features from the first row on, as published.
    bits : "soft" or "hard"
        Probabilities, or a definite value of each bit.
    features : "joint" or "independent"
        One factor over all features of a dim, or one for each as published.
    codes : "joint" or "independent"
        One factor of each bit and its weight, or one for each as published.
    """

    truncation: int | None = setting(None, _optional_number)
    batch_size: int = setting(100, at_least(1))
    forgetting: float | None = setting(None, _optional_rate)
    delay: float = setting(1.0, not_negative)
    n_inner: int = setting(50, at_least(1))
    tol: float = setting(1e-3, not_negative)
    start: str = setting("births", one_of("births", "uniform"))
    bits: str = setting("soft", one_of("soft", "hard"))
    features: str = setting("joint", one_of("joint", "independent"))
    codes: str = setting("joint", one_of("joint", "independent"))

    shape = "rows"
    keeps_rows = False
    n_young = 0  # it begins with the first row
    needs_prior = (VariationalWeights, AdaptiveWeights)
    needs_observation = (MeanFieldRows, GrowingSums)

    @property
    def family(self) -> Family:
        return Family(self.bits, self.features, self.codes)

    def kept(self, batch: int) -> float:
        """How much counts of what was known, when batch 1, 2, ... comes."""
        if self.forgetting is None:
            return 1.0
        return max(1.0 - float((batch + self.delay) ** -self.forgetting), 0.0)

    # ---- rows

    def begin(self, rng: Generator, model: Model, n_dims: int) -> StreamedState:
        self._weights(model.prior)
        seed = int(rng.integers(2**62))
        none = np.zeros((0, n_dims))
        return StreamedState(
            model, seed, 0, 0, 0.0, None, None, None, None, 0.0, np.zeros(2), none, np.zeros((0, 3)), 1
        )

    def absorb_first(self, rng: Generator, state: StreamedState, X: Any) -> tuple[StreamedState, list[EventNote]]:
        return self.absorb(rng, state, X)

    def absorb(self, rng: Generator, state: StreamedState, X: Any) -> tuple[StreamedState, list[EventNote]]:
        X = X.toarray() if issparse(X) else X
        rows = np.concatenate([state.waiting, X])
        n_full = len(rows) // self.batch_size * self.batch_size
        for first in range(0, n_full, self.batch_size):
            state = self._after(state, rows[first : first + self.batch_size])
        return state._replace(waiting=rows[n_full:].copy(), n_rows=state.n_rows + len(X)), []

    def _after(self, state: StreamedState, rows: Array) -> StreamedState:
        """With these rows in the sums."""
        number = state.n_batches + 1
        problem = split_rows(state.model, rows, self.family)
        q, weights, earlier, n_before = state.q, state.weights, None, 0.0
        if q is None:
            weights = self._weights(state.model.prior)
            one = problem.engine.init_features(problem.data, 1, self.family)  # for its scales
            q = problem.engine.keep_columns(one, np.arange(0))
        else:
            earlier, n_before = self._discounted(state, number)
        n_slots, least = self._n_slots(state.model.prior), self.tol * len(rows)
        batch = Batch(problem, earlier, n_before, n_slots, self.n_inner, least)
        fitted, refused = self._fitted(batch, q, weights, state, number)
        if not np.isfinite(fitted.bound):
            raise FloatingPointError("the bound is not finite")
        done = state._replace(
            n_batches=number,
            n_counted=batch.n_rows,
            q=fitted.q,
            weights=fitted.weights,
            statistics=fitted.statistics,
            no_rows=type(fitted.local[0])(*(field[:0] for field in fitted.local[0])),
            bound=fitted.bound,
            refused=refused,
        )
        return _traced(done, number * self.batch_size)

    def _discounted(self, state: StreamedState, batch: int) -> tuple[Any, float]:
        """The sums before this batch, and the rows that they stand for."""
        share = self.kept(batch)
        # eq: S22.discount
        return (state.statistics if share == 1.0 else scale(state.statistics, share)), share * state.n_counted

    def _fitted(self, batch: Batch, q: Any, weights: Any, before: StreamedState, number: int) -> tuple[State, Array]:
        """Rows, features and weights at an optimum given the sums of the rows before; and what is then `refused`.

        Births are looked for when a row, or the mean row, is explained worse than where none was found.
        """
        engine, observation = batch.problem.engine, batch.problem.model.observation
        if self.start == "uniform":
            for _ in range(batch.n_slots - len(engine.expected_features(q))):  # before the first batch
                q = engine.add_feature(q)
            return begun(batch, q, weights, self._random_codes(batch, before.seed, number)), before.refused
        rng = make_generator(before.seed + number)
        if not len(engine.expected_features(q)) and observation.has(OwnStart):  # its rows need a feature
            codes = observation.engine(OwnStart).start_codes(rng, batch.problem.data, 1, lambda: False)
            state = begun(batch, engine.add_feature(q), weights, codes)
        else:
            batch, state = without_idle(batch, known(batch, q, weights))
        n_features, refused = state.n_features, before.refused
        if number == 1 or (left_over(batch, state) > refused).any():
            batch, state = with_births(rng, batch, state)
            found = left_over(batch, state)
            refused = found if state.n_features > n_features else np.maximum(found, refused)
        return in_order(batch, state), refused

    def _random_codes(self, batch: Batch, seed: int, number: int) -> Array:
        """Uniform bits of each row, a function of its number in the stream; with signs where codes have them."""
        rows = np.arange(batch.problem.n_rows, dtype=np.uint64) + np.uint64((number - 1) * self.batch_size)
        codes, signs = np.split(row_uniforms(seeded_keys(rows, seed), 2 * batch.n_slots), 2, axis=1)
        return np.where(signs < 0.5, codes, -codes) if batch.problem.model.observation.code_kind == "real" else codes

    # ---- slots

    def _n_slots(self, prior: Any) -> int:
        fixed = prior.n_features or prior.get_params(deep=False).get("truncation")
        if fixed is not None and self.truncation is not None and self.truncation > fixed:
            raise InvalidParameterError(
                f"StreamingMeanField.truncation must be at most the {fixed} features that {type(prior).__name__} has. "
                f"Got {self.truncation}; leave it out, or let the prior have more."
            )
        return int(self.truncation or fixed or _SLOTS)

    def _weights(self, prior: Any) -> Any:
        """Those of the prior, for so many slots at least."""
        n_slots, weights = self._n_slots(prior), prior.init_weights(_ROWS)
        return weights if n_weights(prior, weights) >= n_slots else prior.grow_weights(weights, n_slots)

    # ---- what was found

    def posterior(self, state: StreamedState) -> VariationalSums:
        """Of the rows that wait, too, as if they were a batch."""
        if len(state.waiting):
            state = self._after(state, state.waiting)
        rows = RowSums(max(round(state.n_counted), 1), np.asarray(state.statistics.counts))
        factors = Factors(state.no_rows, state.q, state.weights, state.bound)
        return VariationalSums(SummedApproximation(state.model, factors, rows))

    def history(self, state: StreamedState) -> dict[str, Array]:
        """After some of the batches, and now: rows, features in use, and the bound."""
        trace = state.trace
        if len(state.waiting):
            trace = np.vstack([trace, _entry(self._after(state, state.waiting), state.n_rows)])
        elif not len(trace) or trace[-1, 0] != state.n_rows:
            trace = np.vstack([trace, _entry(state, state.n_rows)])
        return {name: trace[None, :, i].copy() for i, name in enumerate(("n_rows", "n_features", "bound"))}

    # ---- files

    def check_sound(self, state: Any, model: Model, n_dims: int) -> None:
        """A ValueError if the state, which comes from a file, does not fit the model or itself."""
        if not isinstance(state, StreamedState):
            raise ValueError("its state is none of a stream")
        kinds = [type(part) for one in (state.model, model) for part in (one.prior, one.observation)]
        numbers = [type(value) for value in (state.seed, state.n_rows, state.n_batches, state.stride)]
        if kinds[:2] != kinds[2:] or numbers != [int] * 4 or not 0 <= state.seed < 2**62:
            raise ValueError("its state is that of another model")
        _check_rows(state, n_dims, self.batch_size)
        state.model.observation.check_data(np.where(np.isnan(state.waiting).all(axis=0), 0.0, state.waiting))
        if state.n_batches == 0:
            if not (state.q is state.weights is state.statistics is state.no_rows is None):
                raise ValueError("it has factors of no rows")
            return
        problem = split_rows(state.model, np.zeros((1, n_dims)), self.family)
        if state.n_features > self._n_slots(model.prior):
            raise ValueError("it has more features than there can be")
        check_factors(problem, state.n_features, state.q, state.weights, None, state.statistics)
        batch = Batch(problem, None, max(state.n_counted - 1.0, 0.0), state.n_features, 1, 0.0)
        anew = batch.refit(State((), state.statistics, state.q, state.weights, 0.0))
        if not np.isfinite(anew.bound) or state.statistics.counts.min(initial=0.0) < 0:
            raise ValueError("its factors do not fit its sums")


def _entry(state: StreamedState, n_rows: int) -> list[float]:
    return [float(n_rows), float(state.n_features), float(state.bound)]


def _traced(state: StreamedState, n_rows: int) -> StreamedState:
    """With one more entry of its history, if it is time for one."""
    if state.n_batches % state.stride:
        return state
    trace, stride = np.vstack([state.trace, _entry(state, n_rows)]), state.stride
    if len(trace) == _TRACE:
        trace, stride = trace[1::2], 2 * stride
    return state._replace(trace=trace, stride=stride)


def _check_rows(state: StreamedState, n_dims: int, batch_size: int) -> None:
    """As many rows as it says are in the sums, wait, or are told of by its history."""
    waiting, trace = state.waiting, state.trace
    arrays = all(
        isinstance(part, np.ndarray) and part.dtype == np.float64 and part.ndim == 2 for part in (waiting, trace)
    )
    if not arrays or waiting.shape[1] != n_dims or len(waiting) >= batch_size or trace.shape[1] != 3:
        raise ValueError("its rows are none")
    if state.n_rows != state.n_batches * batch_size + len(waiting) or state.n_batches < 0 or state.stride < 1:
        raise ValueError("its rows are not as many as it says")
    if len(trace) >= _TRACE or not np.isfinite(trace).all() or (np.diff(trace[:, 0]) <= 0).any():
        raise ValueError("its history is none")
    n_counted = state.n_counted
    if type(n_counted) is not float or not 0 <= n_counted <= state.n_rows or not np.isfinite(state.bound):
        raise ValueError("its sums stand for other rows")
    if state.refused.shape != (2,) or not np.isfinite(state.refused).all():
        raise ValueError("what it refused is no number")
