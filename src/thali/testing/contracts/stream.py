"""The contract of streams: rows once, however they are batched, and draws that can be asked for at any time."""

import copy
import math
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.posteriors.draws import Draws
from thali.testing.contracts.posterior import check_posterior, exact_log_evidence
from thali.testing.contracts.telling import contract, same, stored_and_back, unchanged
from thali.testing.zscores import z_limit, z_scores

Array = np.ndarray


def check_stream(
    inference: Any, model: Model, adapted: Model, X: Array, rng: np.random.Generator, n_steps: int, max_features: int
) -> None:
    X = adapted.observation.check_data(X)
    streams = [copy.deepcopy(rng) for _ in range(2)]
    with contract("absorb must not depend on how rows are batched, and make a remark on each."), unchanged(X=X):
        whole, remarks = _absorbed(inference, adapted, streams[0], [X])
        split, one_by_one = _absorbed(inference, adapted, streams[1], [X[n : n + 1] for n in range(len(X))])
        assert len(remarks) == len(one_by_one) == len(X), f"There are {len(remarks)} remarks on {len(X)} rows."
        assert same(remarks, one_by_one), "Row by row, other things are said of the rows."
        assert same(*(s.bit_generator.state for s in streams)), "Row by row, it takes another number of draws."
        ends = zip(copy.deepcopy(streams), copy.deepcopy((whole, split)), strict=True)
        ways = [inference.draws(stream, state, adapted) for stream, state in ends]
        assert same(*ways), "Row by row, it ends in other draws."
        for info in remarks:
            assert math.isfinite(info.log_joint), f"log_joint is {info.log_joint}."
            assert info.n_features >= 0, f"n_features is {info.n_features}."
    with contract("draws must leave the state and the stream of random numbers as they are."):
        before = copy.deepcopy(streams[0].bit_generator.state)
        with unchanged(state=whole):
            draws = inference.draws(streams[0], whole, adapted)
        assert same(streams[0].bit_generator.state, before), "It took random numbers."
        assert len(draws) == inference.n_draws, f"There are {len(draws)}, not {inference.n_draws}."
    check_posterior(Draws.from_chains(adapted, [draws]), X)
    _check_sound(inference, adapted, whole)
    _check_evidence(inference, adapted, X, rng, n_steps, max_features)
    with contract("The state of a stream must come back from a file, and go on as it would have."):
        back = stored_and_back(whole)
        inference.check_sound(back, adapted)
        streams[1] = copy.deepcopy(streams[0])
        ways = [
            inference.absorb(stream, state, adapted, X[:1])[1]
            for stream, state in zip(streams, (whole, back), strict=True)
        ]
        assert same(*ways), "It went on otherwise."


def _absorbed(inference: Any, model: Model, rng: np.random.Generator, batches: list[Array]) -> tuple[Any, list[Any]]:
    state, remarks = inference.begin(rng, model, batches[0].shape[1]), []
    for batch in batches:
        state, more = inference.absorb(rng, state, model, batch)
        remarks += more
    return state, remarks


def _check_sound(inference: Any, model: Model, state: Any) -> None:
    with contract("check_sound must accept a state that it made."), unchanged(state=state):
        inference.check_sound(state, model)
    for name in state._fields:
        value: Any = getattr(state, name)
        if isinstance(value, np.ndarray) and value.size:
            with contract(f"check_sound must refuse a state whose {name} is too short by a ValueError."):
                _refused(lambda wrong: inference.check_sound(wrong, model), state._replace(**{name: value[:-1]}))
        if hasattr(value, "_fields"):
            for inner, array in zip(value._fields, value, strict=True):
                if isinstance(array, np.ndarray) and array.size and array.dtype.kind == "f":
                    wrong = value._replace(**{inner: np.full_like(array, np.nan)})
                    with contract(f"check_sound must refuse a state whose {name}.{inner} is not a number."):
                        _refused(lambda w: inference.check_sound(w, model), state._replace(**{name: wrong}))


def _refused(call: Any, wrong: Any) -> None:
    try:
        call(wrong)
    except ValueError:
        return
    raise AssertionError("It was accepted.")


def _check_evidence(
    inference: Any, model: Model, X: Array, rng: np.random.Generator, n_replicates: int, max_features: int
) -> None:
    """Remarks with a log_evidence promise an unbiased estimate of p(X)."""
    exact = exact_log_evidence(model, len(X), X, max_features)
    if exact is None:
        return
    with contract("log_evidence must be an unbiased estimate of p(X) on its own scale."):
        ends = [_absorbed(inference, model, stream, [X])[1][-1] for stream in rng.spawn(n_replicates)]
        if not hasattr(ends[0], "log_evidence"):
            return
        share = np.exp([end.log_evidence - exact for end in ends])
        z = float(z_scores(share[:, None], np.ones(1))[0])
        assert abs(z) <= z_limit(1), f"Its mean is {share.mean():.3g} times p(X) (z = {z:.1f})."
