"""The recursive Indian buffet process: features that are born as rows arrive, in one pass (Schaeffer, Du, Liu & Fiete
2022), with the corrections that docs/equations.md lists.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.core.events import KINDS, EventNote
from thali.core.model import Model, lacking
from thali.core.protocols.engines.recursive import RecursiveRows, RowLaw, RowPlan
from thali.core.protocols.prior import Recursive
from thali.core.registry import stored
from thali.core.spec import Domain, Spec, at_least, between, not_negative, one_of, setting
from thali.inference.restart import climb
from thali.inference.variational.mean_field import MeanField
from thali.posteriors.recursive import RecursivePosterior
from thali.rng import make_generator

Array = np.ndarray
Generator = np.random.Generator

BIRTHS = ("comonotone", "anchored", "independent", "poisson")
RECIPES = ("residual", "paper")

_LEAST, _SHARE, _LONGEST = 16, 8, 1000  # rows until features are put in order again: a share of the rows so far
_TRACE = 256  # entries
_ENOUGH = 16  # rows from which a mean field begins
_THERE = 0.5  # probability above which a row has a feature of that mean field

_kept = Domain("a number above 0, up to 1", lambda v: not_negative.contains(v) and 0 < v <= 1)
_share = Domain("a number from 0, below 1", lambda v: not_negative.contains(v) and v < 1)


@stored("RecursiveState")
class RecursiveState(NamedTuple):
    """Everything after the rows so far."""

    model: Model  # adapted to the first rows
    known: Any  # the engine's
    n_dims: int
    law: Array  # (2,) mass and concentration, as of when features were last put in order
    due: int  # the row after which they are again
    trace: Array  # (n, 5) rows, features, bound, log of the noise variance (nan: many), mass
    every: int  # which of those times are in the trace
    n_times: int
    waiting: Array  # (fewer than batch, n_dims) rows of the batch that is not full

    @property
    def n_rows(self) -> int:
        return int(self.known.n_rows) + len(self.waiting)

    @property
    def n_features(self) -> int:
        return len(self.known.counts)


@stored("RecursiveIBP")
@dataclass(frozen=True, eq=False)
class RecursiveIBP(Spec):
    """For streams of rows: each is seen once and forgotten, and features are born, fade and merge on the way.

    What is kept are a mean and a variance of each feature, and sums: memory and the time of a row do not grow with the
    number of rows. Learned variances and a learned mass are points that follow the rows so far.

    Parameters
    ----------
    births : "comonotone", "anchored", "independent" or "poisson"
        What is said of the number of features so far, and so of the next one: "comonotone" is exact without data;
        "anchored" takes all as certain; "poisson" is as published.
    n_inner : int
        Passes over the factors of a row, at most.
    tol : float
        They end when no probability changes by more.
    forgetting : float
        Share of its weight that each row leaves those before it, such as 0.999 for features that drift; 1 forgets
        nothing.
    fade_below : float
        A feature is dropped when it has less than this share of the rows since its birth.
    truncation : int
        Features at a time, at most.
    n_start : int
        So many rows are kept at first, and features begin with a `MeanField` of them; 0: with the first row.
    batch : int
        So many rows share one posterior of the features: they are taken in one by one, which gives each the prior
        that it has in a filter and finds new features; then the bits of all of them and the features are fitted
        together, those priors held. Until a batch is full its rows are kept, and what is shown is what follows from
        them, as if they were a batch. LinearGaussian only; memory grows with `batch` times dims.
    recipe : "residual" or "paper"
        Where factors of a row begin: "residual": new features at what others leave of it; "paper": all at the prior,
        in `n_inner` passes, with features averaged by counts (for comparison: most features die). It begins with
        the first row, and merges nothing.
    """

    births: str = setting("comonotone", one_of(*BIRTHS))
    n_inner: int = setting(20, at_least(1))
    tol: float = setting(1e-4, not_negative)
    forgetting: float = setting(1.0, _kept)
    fade_below: float = setting(1e-3, _share)
    truncation: int = setting(200, at_least(1))
    n_start: int = setting(100, at_least(0))
    batch: int = setting(1, between(1, 100_000))
    recipe: str = setting("residual", one_of(*RECIPES))

    shape = "rows"
    keeps_rows = False
    needs_prior = (Recursive,)
    needs_observation = (RecursiveRows,)

    @property
    def n_young(self) -> int:
        return self.n_start if self.recipe == "residual" else 0

    @property
    def plan(self) -> RowPlan:
        tol = self.tol if self.recipe == "residual" else 0.0
        return RowPlan(
            self.n_inner, tol, self.forgetting, self.fade_below, self.truncation, self.n_young, self.batch, self.recipe
        )

    def begin(self, rng: Generator, model: Model, n_dims: int) -> RecursiveState:
        engine = model.observation.engine(RecursiveRows)
        engine.check_recursive(self.plan)
        known = engine.nothing_known(n_dims)
        law, trace, waiting = _law_given(model, known), np.zeros((0, 5)), np.zeros((0, n_dims))
        return RecursiveState(model, known, n_dims, law, _LEAST, trace, 1, 0, waiting)

    def absorb_first(self, rng: Generator, state: RecursiveState, X: Array) -> tuple[RecursiveState, list[EventNote]]:
        """Few rows one by one; more begin with a mean field, which sees all of them at once."""
        model = state.model
        first = MeanField(truncation=self.truncation, n_restarts=2, features="independent")
        if len(X) < max(_ENOUGH, 1) or not self.n_young or lacking(model.prior, model.observation, first):
            return self.absorb(rng, state, X)
        data = first.prepare(model, X)
        fits = [climb(make_generator(0), first, model, data, number, _never) for number in range(first.n_restarts)]
        best = max(fits, key=lambda fit: fit.bound)
        rows = data.problem.engine
        z_prob = np.concatenate([np.asarray(part.z_prob, dtype=float) for part in best.local])
        codes = np.concatenate([rows.expected_codes(part) for part in best.local])
        there = (z_prob > _THERE).any(axis=0)
        known = model.observation.engine(RecursiveRows).known_of(
            X, z_prob[:, there], codes[:, there], rows.concrete(best.q, best.local[0])
        )
        known = known._replace(bound=float(best.bound))
        state = state._replace(known=known, due=len(X))
        notes = [
            EventNote(len(X) - 1, KINDS.index("born"), int(number), float(count))
            for number, count in zip(known.number, known.counts, strict=True)
        ]
        state, more = self._in_order(state)
        return state, notes + more

    def absorb(self, rng: Generator, state: RecursiveState, X: Array) -> tuple[RecursiveState, list[EventNote]]:
        notes: list[EventNote] = []
        X = np.concatenate([state.waiting, X])
        state = state._replace(waiting=X[:0])
        while len(X) >= self.batch:
            n = state.due - state.n_rows if self.batch == 1 else self.batch
            state, more = self._after(state, X[:n])
            notes, X = notes + more, X[n:]
            if state.n_rows >= state.due:
                state, more = self._in_order(state)
                notes += more
        return state._replace(waiting=X.copy()), notes

    def _after(self, state: RecursiveState, X: Array) -> tuple[RecursiveState, list[EventNote]]:
        engine = state.model.observation.engine(RecursiveRows)
        known, notes = engine.filter_rows(state.known, X, self._law(state), self.plan)
        return state._replace(known=known), notes

    def _so_far(self, state: RecursiveState) -> RecursiveState:
        """With the rows that wait, as if they were a batch."""
        if not len(state.waiting):
            return state
        return self._after(state._replace(waiting=state.waiting[:0]), state.waiting)[0]

    def _in_order(self, state: RecursiveState) -> tuple[RecursiveState, list[EventNote]]:
        engine = state.model.observation.engine(RecursiveRows)
        known, notes = engine.in_order(state.known, self._law(state), self.plan)
        n = state.n_rows
        state = state._replace(
            known=known,
            law=_law_given(state.model, known),
            due=n + min(max(_LEAST, n // _SHARE), _LONGEST),
            n_times=state.n_times + 1,
        )
        if state.n_times % state.every == 0:
            state = state._replace(trace=np.vstack([state.trace, self._entry(state)]))
        if len(state.trace) > _TRACE:
            state = state._replace(trace=state.trace[1::2].copy(), every=2 * state.every)
        return state, notes

    def _entry(self, state: RecursiveState) -> Array:
        noise = np.asarray(state.known.observation.noise_var, dtype=float)
        level = float(noise) if noise.ndim == 0 else float(noise.mean())
        return np.array([state.n_rows, state.n_features, state.known.bound, level, self._law(state).mass])

    def _law(self, state: RecursiveState) -> RowLaw:
        return RowLaw(float(state.law[0]), float(state.law[1]), self.births)

    def posterior(self, state: RecursiveState) -> RecursivePosterior:
        state = self._so_far(state)
        return RecursivePosterior(state.model, self._law(state), state.known)

    def history(self, state: RecursiveState) -> dict[str, Array]:
        """After some of the rows, the last included: the bound is of log p(rows so far), each given those before it."""
        last = self._entry(self._so_far(state))
        trace = state.trace
        if not len(trace) or trace[-1, 0] != last[0]:
            trace = np.vstack([trace, last])
        names = ("n_rows", "n_features", "bound", "noise_var", "mass")
        return {name: trace[:, i][None].copy() for i, name in enumerate(names)}

    def check_sound(self, state: Any, model: Model, n_dims: int) -> None:
        if not isinstance(state, RecursiveState) or state.n_dims != n_dims:
            raise ValueError("its state is none of a recursive filter")
        kinds = [type(part) for one in (state.model, model) for part in (one.prior, one.observation)]
        if kinds[:2] != kinds[2:]:
            raise ValueError("its state is that of another model")
        state.model.observation.engine(RecursiveRows).check_known(state.known, n_dims)
        trace = state.trace
        sound = (
            state.known.n_rows < state.due <= state.known.n_rows + _LONGEST
            and state.law.shape == (2,) and state.law.dtype == np.float64 and np.isfinite(state.law).all()
            and bool((state.law > 0).all())
            and trace.ndim == 2 and trace.shape[1] == 5 and len(trace) <= _TRACE and trace.dtype == np.float64
            and np.isfinite(trace).all() and state.every >= 1 and state.n_times >= len(trace)
        )  # fmt: skip
        if not sound:
            raise ValueError("its trace or its next order does not fit its rows")
        waiting = state.waiting
        if not (
            waiting.ndim == 2 and waiting.shape[1] == n_dims and len(waiting) < self.batch
            and waiting.dtype == np.float64 and not np.isinf(waiting).any()
        ):  # fmt: skip
            raise ValueError("the rows of its batch do not fit it")


def _law_given(model: Model, known: Any) -> Array:
    """Mass and concentration: what is learned of them is a point that suits the rows so far."""
    return np.array(model.prior.filter_law(float(known.exists.sum()), float(known.weight)), dtype=float)


_never: Callable[[], bool] = lambda: False  # noqa: E731
