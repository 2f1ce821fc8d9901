"""The contract of inferences that take blocks of rows, which may come again."""

import copy
import math
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.testing.contracts.posterior import check_posterior, exact_log_evidence
from thali.testing.contracts.telling import contract, same, stored_and_back, unchanged

Array = np.ndarray

_EPOCHS = 4


def check_blocks(
    inference: Any, model: Model, adapted: Model, X: Array, rng: np.random.Generator, n_steps: int, max_features: int
) -> None:
    X = adapted.observation.check_data(X)
    blocks = np.array_split(X, 2)
    again = copy.deepcopy(rng)
    with contract("begin must give a state before the first block, the same from the same stream."), unchanged(X=X):
        state = inference.begin(rng, adapted, X, len(X), lambda: False)
        other = inference.begin(again, adapted, X, len(X), lambda: False)
        assert state.n_visits == 0, f"n_visits is {state.n_visits}."
        assert state.n_seen == 0, f"n_seen is {state.n_seen}."
        assert same(list(state), list(other)), "The same stream gave another state."
    with contract("begin must give a state also once is_over() says so."):
        early = inference.begin(again, adapted, X, len(X), lambda: True)
        assert early.n_features >= 0, f"n_features is {early.n_features}."
    state = _check_pass(inference, state, blocks, again=False)
    for _ in range(_EPOCHS):
        state = _check_pass(inference, state, blocks, again=True)
    if inference.memoised:
        exact = exact_log_evidence(adapted, len(X), X, max_features)
        with contract("The bound must be one: never above log p(X)."):
            below = exact is None or state.bound <= exact + 1e-6 * (1 + abs(exact))
            assert below, f"It is {state.bound}, log p(X) is {exact}."
    with contract("misfit must give one number of each row."), unchanged(state=list(state), X=X):
        misfit = inference.misfit(state, X)
        assert np.shape(misfit) == (len(X),), f"Got shape {np.shape(misfit)}."
        assert np.isfinite(misfit).all(), "One is not finite."
    with contract("with_more must give None, or a state before the first block."), unchanged(state=list(state)):
        more = inference.with_more(rng, state, X)
        assert more is None or more.n_visits == 0, f"n_visits is {more.n_visits}."
    with contract("posterior must leave the state as it was."), unchanged(state=list(state)):
        with_rows, sums_only = inference.posterior(state, len(blocks)), inference.posterior(state)
    for posterior in (with_rows, sums_only):
        check_posterior(posterior, X)
    _check_sound(inference, adapted, state)
    with contract("The state must come back from a file, and go on as it would have."):
        forgotten = state._replace(sums={}, local={})  # as a stream keeps it
        back = stored_and_back(forgotten)
        inference.check_sound(back, adapted)
        ways = [inference.visit(one, blocks[0]) for one in (forgotten, back)]
        assert ways[0].bound == ways[1].bound, "It went on otherwise."


def _check_pass(inference: Any, state: Any, blocks: list[Array], *, again: bool) -> Any:
    """A pass over all blocks, which come again or for the first time."""
    n_all = sum(len(block) for block in blocks)
    for index, block in enumerate(blocks):
        with contract("visit must leave its arguments as they were, give the same twice, and count what came."):
            with unchanged(state=list(state), X=block):
                new = inference.visit(state, block, index, n_all=n_all, keep=True)
            twice = inference.visit(state, block, index, n_all=n_all, keep=True)
            assert same(list(new), list(twice)), "The second time it gave another state."
            assert new.n_visits == state.n_visits + 1, f"n_visits is {new.n_visits}."
            assert new.n_seen == state.n_seen + len(block), f"n_seen is {new.n_seen}."
        if inference.memoised and again:
            _not_lower("A visit of a block that comes again must not lower the bound.", state.bound, new.bound)
        state = new
    with contract("in_order must leave its argument as it was, and the bound finite."), unchanged(state=list(state)):
        ordered = inference.in_order(state)
        assert math.isfinite(ordered.bound), f"The bound is {ordered.bound}."
        assert ordered.n_rows == n_all, f"It stands for {ordered.n_rows} rows, not for {n_all}."
    if inference.memoised and again:
        _not_lower("in_order must not lower the bound.", state.bound, ordered.bound)
    return ordered


def _not_lower(sentence: str, before: float, after: float) -> None:
    with contract(sentence):
        assert after >= before - 1e-9 * (1 + abs(before)), f"It fell from {before} to {after}."


def _check_sound(inference: Any, model: Model, state: Any) -> None:
    with contract("check_sound must accept a state that it made."), unchanged(state=list(state)):
        inference.check_sound(state, model)
    wrong = {
        "one feature too many": state._replace(n_features=state.n_features + 1),
        "no rows": state._replace(n_rows=0),
        "another prior": state._replace(model=Model(model.observation, model.observation)),
        "nothing in it": ("nonsense",),
    }
    for what, nonsense in wrong.items():
        with contract(f"check_sound must refuse a state with {what} by a ValueError."):
            try:
                inference.check_sound(nonsense, model)
            except ValueError:
                continue
            raise AssertionError("It was accepted.")
