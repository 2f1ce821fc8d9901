"""The contracts of inferences that take rows once and forget them, and of the engine of recursive filters."""

import math
from typing import Any

import numpy as np

from thali.core.events import KINDS
from thali.core.model import Model
from thali.core.protocols.engines.predictions import Predictions
from thali.core.protocols.engines.recursive import RecursiveRows, RowLaw, RowPlan
from thali.testing.contracts.example import Example
from thali.testing.contracts.posterior import check_posterior
from thali.testing.contracts.telling import check_stored, contract, same, spoiled, stored_and_back, unchanged

Array = np.ndarray

_TIMES = 9  # that the rows come again, so that state has time to grow
_LAW = RowLaw(1.5, 1.0, "anchored")
_PLAN = RowPlan(10, 1e-6, 1.0, 1e-3, 20, 10, 1, "residual")


def check_forgetful(
    inference: Any, model: Model, adapted: Model, X: Array, rng: np.random.Generator, n_steps: int, max_features: int
) -> None:
    X = np.tile(adapted.observation.check_data(X), (_TIMES, 1))
    with contract("begin must give a state before the first row, with the model."):
        start = inference.begin(rng, adapted, X.shape[1])
        assert start.n_rows == 0, f"n_rows is {start.n_rows}."
        assert start.model is adapted, "Its model is another one."
    with contract("absorb must leave the state as it was, and not depend on how rows are batched."):
        with unchanged(X=X, state=start):
            whole, notes = inference.absorb(rng, start, X)
        state, told = start, []
        for n in range(len(X)):
            state, more = inference.absorb(rng, state, X[n : n + 1])
            told += more
        assert whole.n_rows == state.n_rows == len(X), f"n_rows is {state.n_rows} after {len(X)} rows."
        assert same(_numbers(whole), _numbers(state)), "Row by row, it ends elsewhere."
        assert same(notes, told), "Row by row, other things are told."
        assert all(0 <= note.kind < len(KINDS) and 0 <= note.row <= len(X) for note in notes), "A note is none."
    with contract("absorb_first must take in all of its rows."), unchanged(X=X, state=start):
        first, _ = inference.absorb_first(rng, start, X)
        assert first.n_rows == len(X), f"n_rows is {first.n_rows} after {len(X)} rows."
    with contract("history must have numbers that end with the last row, and not grow with the rows."):
        history = inference.history(whole)
        assert {"n_rows", "n_features"} <= history.keys(), f"It has {', '.join(history)}."
        assert history["n_rows"][0, -1] == len(X), f"It ends at row {history['n_rows'][0, -1]}."
        assert len({trace.shape for trace in history.values()}) == 1, "Its traces differ in length."
    for one in (whole, first):
        with contract("posterior must leave the state as it was."), unchanged(state=_numbers(one)):
            posterior = inference.posterior(one)
        check_posterior(posterior, X)
    _check_sound(inference, adapted, whole, X.shape[1])
    with contract("The state must come back from a file, and go on as it would have."):
        back = stored_and_back(whole)
        inference.check_sound(back, adapted, X.shape[1])
        ways = [inference.absorb(rng, one, X[:5])[0] for one in (whole, back)]
        assert same(*map(_numbers, ways)), "It went on otherwise."


def _numbers(thing: Any) -> list[Any]:
    """All numbers in a state, specs left out."""
    if isinstance(thing, tuple | list):
        return [number for part in thing for number in _numbers(part)]
    return [thing] if isinstance(thing, np.ndarray | int | float) else []


def _check_sound(inference: Any, model: Model, state: Any, n_dims: int) -> None:
    with contract("check_sound must accept a state that it made."), unchanged(state=_numbers(state)):
        inference.check_sound(state, model, n_dims)
    wrong = [("dims", state, n_dims + 1)]
    for name, value in state._asdict().items():
        if hasattr(value, "_fields"):
            wrong += [
                (f"{name}.{words}", state._replace(**{name: bad}), n_dims)
                for words, bad in spoiled(value, value._fields)
            ]
    for words, bad, dims in wrong:
        with contract(f"check_sound must refuse a state with {words} by a ValueError."):
            try:
                inference.check_sound(bad, model, dims)
            except ValueError:
                continue
            raise AssertionError("It was accepted.")


def check_recursive_rows(example: Example) -> None:
    engine, X = example.observation.engine(RecursiveRows), example.holes
    engine.check_recursive(_PLAN)  # or it refuses, in words
    with contract("nothing_known must have no rows and no features."):
        nothing = engine.nothing_known(example.n_dims)
        assert nothing.n_rows == len(nothing.counts) == 0, f"It has {nothing.n_rows} rows."
    rows = np.tile(X, (5, 1))
    with contract("filter_rows must not depend on batches, and leave its arguments as they were."):
        with unchanged(X=rows, known=nothing):
            known, notes = engine.filter_rows(nothing, rows, _LAW, _PLAN)
        step, told = nothing, []
        for n in range(len(rows)):
            step, more = engine.filter_rows(step, rows[n : n + 1], _LAW, _PLAN)
            told += more
        assert same(_numbers(known), _numbers(step)), "Row by row, it ends elsewhere."
        assert same(notes, told), "Row by row, other things are told."
        assert known.n_rows == len(rows), f"It has {known.n_rows} of {len(rows)} rows."
        assert math.isfinite(known.bound), f"The bound is {known.bound}."
    with contract("counts and exists must be expected rows and probabilities."):
        assert ((known.counts >= 0) & (known.counts <= len(rows) + 1e-9)).all(), f"counts are {known.counts}."
        assert ((known.exists >= 0) & (known.exists <= 1)).all(), f"exists is {known.exists}."
        assert len(set(known.number.tolist())) == len(known.number), "Two features have one number."
    with contract("known_of must have these features, and in_order must keep the rows."), unchanged(X=rows):
        z_prob = np.tile(np.eye(len(X))[:, :2], (5, 1))
        given = engine.known_of(rows, z_prob, z_prob, nothing.observation)
        assert np.allclose(np.sort(given.counts), np.sort(z_prob.sum(axis=0))), f"counts are {given.counts}."
        tidy, _ = engine.in_order(given, _LAW, _PLAN)
        assert tidy.n_rows == len(rows), f"It has {tidy.n_rows} of {len(rows)} rows."
    with contract("codebook must be of the kind that predictions use, with a concrete model."):
        book = engine.codebook(known)
        assert type(book) is known.observation.engine(Predictions).codebook_kind, f"It is a {type(book).__name__}."
        assert not known.observation.learned, "The model has a distribution."
        book.check(len(known.counts), example.n_dims)
    with contract("log_density must be that of noise where no feature can be there, and not depend on other rows."):
        never = np.zeros(len(known.counts) + 2)
        alone = known.observation.engine(Predictions).log_cells(X, np.zeros((len(X), len(known.counts))), book)
        found = engine.log_density(known, X, never, "auto", 20)
        assert np.allclose(found, np.where(np.isnan(X), 0.0, alone).sum(axis=1)), "It is another one."
        some = never + 0.3
        with unchanged(X=X, known=known):
            whole = engine.log_density(known, X, some, "auto", 20)
        assert same(whole[1:3], engine.log_density(known, X[1:3], some, "auto", 20)), "It depends on them."
    with contract("check_known must accept what filter_rows made, and refuse other dims by a ValueError."):
        engine.check_known(known, example.n_dims)
        try:
            engine.check_known(known, example.n_dims + 1)
        except ValueError:
            pass
        else:
            raise AssertionError("What is known of other dims was accepted.")
    check_stored("What is known", known)
