"""The contract of samplers: steps that are pure, states that survive a file, and the right posterior."""

import copy
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.posteriors.base import Draw
from thali.posteriors.draws import Draws
from thali.testing.contracts.posterior import check_posterior
from thali.testing.contracts.telling import check_stored, contract, same, spoiled, unchanged
from thali.testing.enumerate import Comparison, against_exact, enumerate_posterior, exact_statistics
from thali.testing.zscores import z_limit

Array = np.ndarray

_REPEATED = 8  # steps: after one, tiny states are the same by chance
_WARMUP = 50  # steps of each chain, at most: tiny data have no modes to be found


def check_sampler(
    inference: Any, model: Model, adapted: Model, X: Array, rng: np.random.Generator, n_steps: int, max_features: int
) -> None:
    with contract("A sampler is compared with enumeration, which needs numbers for all hyperparameters."):
        learned = [*model.prior.learned, *model.observation.learned]
        assert not learned, f"{', '.join(learned)} is learned."
    data = adapted.observation.engine(ChainRows).prepare(adapted.observation.check_data(X))
    with contract("init must give a state that check_sound accepts."):
        state = inference.init(rng, adapted, data, len(X))
        inference.check_sound(state, data, len(X))
    first, second = rng.spawn(2)
    again = copy.deepcopy(first)
    with contract("step must leave its input state as it was."), unchanged(state=state):
        new, info = inference.step(first, state, adapted, data)
    with contract("step must give the same from the same stream."):
        one, two = new, inference.step(again, state, adapted, data)[0]
        for _ in range(_REPEATED):
            assert same(one, two), "It gave another state."
            one, two = (inference.step(s, at, adapted, data)[0] for s, at in ((first, one), (again, two)))
        assert again.bit_generator.state == first.bit_generator.state, "It took another number of draws."
    with contract("step must give remarks with a finite log_joint and the number of features in use."):
        assert np.isfinite(info.log_joint), f"log_joint is {info.log_joint}."
        assert info.n_features == int(new.local.z.any(axis=0).sum()), f"n_features is {info.n_features}."
    with contract("step must give a state that check_sound accepts."):
        inference.check_sound(new, data, len(X))
    with contract("check_sound must refuse the state of other rows by a ValueError."):
        _refused(lambda: inference.check_sound(new, data, len(X) + 1))
        for what, wrong in spoiled(new.local, ("z",)):
            _refused(lambda wrong=wrong: inference.check_sound(new._replace(local=wrong), data, len(X)), what)
    with contract("record must give a Draw that posteriors are made of."), unchanged(state=new):
        draw = inference.record(new, info, data)
        assert isinstance(draw, Draw), f"Got a {type(draw).__name__}."
    check_posterior(Draws.from_chains(adapted, [[draw]]), X)
    settings = {"n_steps": n_steps, "n_warmup": min(n_steps, _WARMUP), "max_features": max_features}
    comparison = against_exact(model, inference, X, second, **settings)
    scores = comparison.scores
    with contract("A sampler must have the posterior that enumeration says."):
        name = max(scores, key=lambda n: abs(scores[n]))
        assert abs(scores[name]) <= z_limit(len(scores)), f"{name} is off by z = {scores[name]:.1f}."
    _check_informative(comparison, model, X, max_features)
    back = check_stored("The state of a chain", new)
    with contract("A chain must go on from its file as it would have."):
        later = copy.deepcopy(first)
        data_anew = adapted.observation.engine(ChainRows).prepare(adapted.observation.check_data(X))
        ways = (inference.step(first, new, adapted, data)[0], inference.step(later, back, adapted, data_anew)[0])
        assert same(*ways), "It went on otherwise."


def _refused(call: Any, what: str = "It") -> None:
    try:
        call()
    except ValueError:
        return
    raise AssertionError(f"{what} was accepted.")


def _check_informative(comparison: Comparison, model: Model, X: Array, max_features: int) -> None:
    """Samplers that are right but for other data than X must be told from a right one, with twice the error allowed."""
    for what, other in _lesser(X).items():
        exact = exact_statistics(enumerate_posterior(model, other, max_features=max_features), len(X), max_features)
        gap = np.abs(exact - comparison.expected)[comparison.kept]
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(gap > 1e-12, gap / comparison.error[comparison.kept], 0.0)
        assert z.max() > 2 * z_limit(len(z)), (
            f"X says too little: a sampler that {what} could not be told from a right one (z = {z.max():.1f}). "
            f"Give data of several times the noise in which every row and dim counts, or more steps."
        )


def _lesser(X: Array) -> dict[str, Array]:
    """What a sampler sees of X that is blind in one way or another."""
    row, dim = np.arange(len(X))[:, None], np.arange(X.shape[1])
    zeros = np.where(np.isnan(X), X, 0.0)
    seen = {"takes X for zeros": zeros}
    for i, which in enumerate(("even", "odd")):
        if len(X) > 1:
            seen[f"takes the {which} rows for zeros"] = np.where(row % 2 == i, zeros, X)
        if X.shape[1] > 1:
            seen[f"takes the {which} dims for zeros"] = np.where(dim % 2 == i, zeros, X)
    return seen
