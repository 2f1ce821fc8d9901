"""The contract of optimisers: an objective that never rises, and starts that are the same for the same stream."""

import copy
import math
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.testing.contracts.posterior import check_posterior, exact_log_evidence
from thali.testing.contracts.telling import contract, same, stored_and_back, unchanged

Array = np.ndarray

_MOST_PASSES = 30
_OFTEN = 3  # a search that asks so often must ask less often once it is over


class _Clock:
    """Says whether it is over, and counts how often it was asked."""

    def __init__(self, is_over: bool) -> None:
        self.is_over, self.n_asked = is_over, 0

    def __call__(self) -> bool:
        self.n_asked += 1
        return self.is_over


def check_optimiser(
    inference: Any, model: Model, adapted: Model, X: Array, rng: np.random.Generator, n_steps: int, max_features: int
) -> None:
    with contract("prepare must leave X as it was."), unchanged(X=X):
        data = inference.prepare(adapted, adapted.observation.check_data(X))
    exact = exact_log_evidence(adapted, len(X), X, max_features)
    is_bound = bool(inference.remarks(data).get("is_bound", 0.0))
    best: Any = None
    for restart in range(inference.n_restarts):
        state = _check_start(inference, adapted, data, rng, restart)
        state = _check_passes(inference, adapted, data, rng, state)
        if best is None or state.objective < best.objective:
            best = state
    if is_bound and exact is not None:
        with contract("An objective that is called a bound must be one: never above log p(X)."):
            assert -best.objective <= exact + 1e-6 * (1 + abs(exact)), f"It is {-best.objective}, log p(X) is {exact}."
    with contract("posterior must leave the state as it was and give the same from the same stream."):
        again = copy.deepcopy(rng)
        with unchanged(state=best):
            posterior = inference.posterior(rng, best, adapted, data)
        other = inference.posterior(again, best, adapted, data)
        assert same(posterior.features(0, 0), other.features(0, 0)), "It gave other features."
    check_posterior(posterior, X)
    _check_sound(inference, adapted, data, rng, best)
    with contract("remarks must be numbers by name."):
        for name, value in inference.remarks(data).items():
            assert isinstance(name, str), f"A name is {name!r}."
            assert math.isfinite(value), f"{name} is {value}."


def _check_start(inference: Any, model: Model, data: Any, rng: np.random.Generator, restart: int) -> Any:
    first = rng.spawn(1)[0]
    again, cut = copy.deepcopy(first), copy.deepcopy(first)
    going, over = _Clock(False), _Clock(True)
    with contract("init must give a state with an objective and n_features, the same from the same stream."):
        state = inference.init(first, model, data, restart, going)
        other = inference.init(again, model, data, restart)
        assert math.isfinite(state.objective), f"The objective is {state.objective}."
        most = model.prior.n_features
        assert most is None or state.n_features <= most, f"It has {state.n_features} features, the prior {most}."
        assert state.objective == other.objective, f"Objectives are {state.objective} and {other.objective}."
        assert same(_arrays(state), _arrays(other)), "The same stream gave another state."
    with contract("init must end its search once is_over() says so, with a state all the same."):
        cut_short = inference.init(cut, model, data, restart, over)
        assert math.isfinite(cut_short.objective), f"The objective is {cut_short.objective}."
        stopped = going.n_asked < _OFTEN or over.n_asked < going.n_asked
        assert stopped, f"It asked {over.n_asked} times, was told so, and went on."
    return state


def _check_passes(inference: Any, model: Model, data: Any, rng: np.random.Generator, state: Any) -> Any:
    for number in range(min(inference.max_iter, _MOST_PASSES)):
        again = copy.deepcopy(rng)
        with contract("step must leave its input state as it was."), unchanged(state=_arrays(state)):
            new, changed = inference.step(rng, state, model, data)
        if number < 2:
            with contract("step must give the same from the same stream."):
                other, _ = inference.step(again, state, model, data)
                assert same(_arrays(new), _arrays(other)), "It gave another state."
        with contract("A pass must never raise the objective."):
            slack = 1e-9 * (1.0 + abs(state.objective))
            assert new.objective <= state.objective + slack, f"It rose from {state.objective} to {new.objective}."
        state = new
        if not changed:
            break
    return state


def _check_sound(inference: Any, model: Model, data: Any, rng: np.random.Generator, state: Any) -> None:
    with contract("The state of a restart must come back from a file, and go on as it would have."):
        back = stored_and_back(state)
        inference.check_sound(back, model, data)
        ways = [inference.step(copy.deepcopy(rng), one, model, data)[0] for one in (state, back)]
        assert same(_arrays(ways[0]), _arrays(ways[1])), "It went on otherwise."
    wrong = {"nothing in it": ("nonsense",), "no number in it": _with_nan(state)}
    for what, nonsense in wrong.items():
        with contract(f"check_sound must refuse a state with {what} by a ValueError."):
            try:
                inference.check_sound(nonsense, model, data)
            except ValueError:
                continue
            raise AssertionError("It was accepted.")


def _with_nan(state: Any) -> Any:
    """The state with a number that is none, wherever there is one at its top."""
    numbers = [name for name in state._fields if isinstance(getattr(state, name), float)]
    return state._replace(**dict.fromkeys(numbers, float("nan")))


def _arrays(state: Any) -> Any:
    """All but what is a function of the rest."""
    return list(state) if isinstance(state, tuple) else vars(state)
