"""Each contract of an inference catches one that breaks it, and says which; right ones of every shape pass."""

from typing import Any

import numpy as np
import pytest
from thinned import thinned

from thali import (
    IBP,
    BetaBernoulli,
    BPMeans,
    CollapsedGibbs,
    LinearGaussian,
    MeanField,
    ParticleFilter,
    RecursiveIBP,
    StochasticMeanField,
)
from thali.core.model import Model
from thali.inference.samplers.chain import ZState
from thali.posteriors.draws import Draws
from thali.testing import check_inference

PRIOR = BetaBernoulli(mass=1.0, n_features=2)
MODEL = Model(PRIOR, LinearGaussian(noise_var=0.25, feature_var=1.0))
X = np.array([[1.3, 0.6], [1.2, -1.8], [-0.1, -1.2]])

SAMPLER = CollapsedGibbs(start="empty", moves=0.0)
OPTIMISER = MeanField(n_restarts=2, max_iter=8, start="random", annealing=3.0)
POINT = BPMeans(n_restarts=2, max_iter=8)
STREAM = ParticleFilter(n_particles=10)
FORGETFUL = RecursiveIBP(n_start=20)
IBP_MODEL = Model(IBP(mass=1.0), LinearGaussian(noise_var=0.25, feature_var=1.0))
BLOCKS = StochasticMeanField(n_restarts=1, truncation=2)


def check(inference: Any, model: Model = MODEL, **settings: Any) -> None:
    check_inference(
        inference, model, X.copy(), np.random.default_rng(5), **{"n_steps": 30, "max_features": 2} | settings
    )


def broken(inference: Any, **methods: Any) -> Any:
    """The inference with some methods in place of its own."""
    kind = type(f"Broken{type(inference).__name__}", (type(inference),), methods)
    return kind(**inference.get_params(deep=False))


RIGHT = {
    "optimiser": (OPTIMISER, MODEL),
    "point": (POINT, MODEL),
    "stream": (STREAM, MODEL),
    "blocks": (BLOCKS, MODEL),
    "running mean": (StochasticMeanField(n_restarts=1, method="robbins-monro", truncation=2), MODEL),
    "learned": (MeanField(n_restarts=2, max_iter=8), Model(IBP(), LinearGaussian())),
    "forgetful": (FORGETFUL, IBP_MODEL),
    "learned in a stream": (ParticleFilter(n_particles=6), Model(IBP(), LinearGaussian())),
}


@pytest.mark.parametrize("name", thinned(RIGHT, "optimiser", "point", "stream", "blocks", "forgetful"))
def test_right_ones_pass(name: str) -> None:
    check(*RIGHT[name])


# ---- wrong ones

CALLS: list[int] = []  # another stream for each


def step_in_place(self: Any, rng: Any, state: Any, model: Any, data: Any) -> Any:
    state.local.z[0, 0] ^= 1
    return CollapsedGibbs.step(self, rng, state, model, data)


def blind_step(self: Any, rng: Any, state: Any, model: Any, data: Any) -> Any:
    CALLS.append(1)
    return CollapsedGibbs.step(self, np.random.default_rng(len(CALLS)), state, model, data)


def prior_step(self: Any, rng: Any, state: Any, model: Any, data: Any) -> Any:
    """Sweeps by other odds than those of the model."""
    other = state._replace(prior=state.prior.replace(mass=5.0))
    new, info = CollapsedGibbs.step(self, rng, other, model, data)
    return new._replace(prior=state.prior), info


def no_features(self: Any, rng: Any, state: Any, model: Any, data: Any) -> Any:
    new, info = CollapsedGibbs.step(self, rng, state, model, data)
    return new, info._replace(n_features=info.n_features + 1)


def rising(self: Any, rng: Any, state: Any, model: Any, data: Any) -> Any:
    new, _ = BPMeans.step(self, rng, state, model, data)
    return new._replace(objective=state.objective + 1.0), True


def point_in_place(self: Any, rng: Any, state: Any, model: Any, data: Any) -> Any:
    result = BPMeans.step(self, rng, state, model, data)
    state.features[:] += 1.0
    return result


def own_stream_init(self: Any, rng: Any, model: Any, data: Any, restart: int, is_over: Any = None) -> Any:
    CALLS.append(1)
    return MeanField.init(self, np.random.default_rng(len(CALLS)), model, data, restart, is_over)


def endless_init(self: Any, rng: Any, model: Any, data: Any, restart: int, is_over: Any = None) -> Any:
    for _ in range(20):
        if is_over is not None:
            is_over()
    return BPMeans.init(self, rng, model, data, restart, is_over)


def one_row_posterior(self: Any, rng: Any, state: Any, model: Any, data: Any) -> Any:
    draw = BPMeans.record(self, rng, state, model, data)
    return Draws.from_chains(model, [[draw._replace(z=draw.z[:1])]])


def bound_too_high(self: Any, rng: Any, state: Any, model: Any, data: Any) -> Any:
    new, changed = MeanField.step(self, rng, state, model, data)
    return new._replace(bound=new.bound + 9.0), changed


def batch_wise(self: Any, rng: Any, state: Any, model: Any, rows: np.ndarray) -> Any:
    rng.random()
    return ParticleFilter.absorb(self, rng, state, model, rows)


def greedy_draws(self: Any, rng: Any, state: Any, model: Any) -> Any:
    rng.random()
    return ParticleFilter.draws(self, rng, state, model)


def draws_in_place(self: Any, rng: Any, state: Any, model: Any) -> Any:
    made = ParticleFilter.draws(self, rng, state, model)
    state.particles.log_weight[:] = -1.0
    return made


def half_evidence(self: Any, rng: Any, state: Any, model: Any, rows: np.ndarray) -> Any:
    state, infos = ParticleFilter.absorb(self, rng, state, model, rows)
    return state, [info._replace(log_evidence=info.log_evidence + 1.0) for info in infos]


def visit_in_place(self: Any, state: Any, rows: np.ndarray, index: Any = None, **more: Any) -> Any:
    new = StochasticMeanField.visit(self, state, rows, index, **more)
    rows[0, 0] += 1.0
    return new


def falling_visit(self: Any, state: Any, rows: np.ndarray, index: Any = None, **more: Any) -> Any:
    new = StochasticMeanField.visit(self, state, rows, index, **more)
    return new._replace(bound=state.bound - 1.0)


def uncounted_visit(self: Any, state: Any, rows: np.ndarray, index: Any = None, **more: Any) -> Any:
    return StochasticMeanField.visit(self, state, rows, index, **more)._replace(n_seen=0)


def falling_order(self: Any, state: Any) -> Any:
    return StochasticMeanField.in_order(self, state)._replace(bound=state.bound - 1.0)


def raised_visit(self: Any, state: Any, rows: np.ndarray, index: Any = None, **more: Any) -> Any:
    new = StochasticMeanField.visit(self, state, rows, index, **more)
    return new._replace(bound=max(new.bound, state.bound) + 50.0)


def raised_order(self: Any, state: Any) -> Any:
    return StochasticMeanField.in_order(self, state)._replace(bound=state.bound)


def anything_goes(self: Any, *arguments: Any) -> None:
    return None


MUTANTS = {
    "step in place": (broken(SAMPLER, step=step_in_place), "step must leave its input state as it was"),
    "a stream of its own": (broken(SAMPLER, step=blind_step), "step must give the same from the same stream"),
    "other odds": (
        broken(SAMPLER, step=prior_step),
        r"A sampler must have the posterior that enumeration says\. .*off by z",
    ),
    "other remarks": (broken(SAMPLER, step=no_features), "step must give remarks"),
    "any state of a chain": (
        broken(SAMPLER, check_sound=anything_goes),
        "check_sound must refuse the state of other rows",
    ),
    "a state for a draw": (broken(SAMPLER, record=lambda s, state, info, data: state), "record must give a Draw"),
    "an objective that rises": (broken(POINT, step=rising), "A pass must never raise the objective"),
    "a point in place": (broken(POINT, step=point_in_place), "step must leave its input state as it was"),
    "a start of its own stream": (broken(OPTIMISER, init=own_stream_init), "init must give a state"),
    "an endless start": (broken(POINT, init=endless_init), "init must end its search once is_over"),
    "a posterior of one row": (broken(POINT, posterior=one_row_posterior), "The posterior must be well-formed"),
    "a bound above the evidence": (
        broken(OPTIMISER, step=bound_too_high),
        "An objective that is called a bound must be one",
    ),
    "rows by the batch": (broken(STREAM, absorb=batch_wise), "absorb must not depend on how rows are batched"),
    "draws that draw": (broken(STREAM, draws=greedy_draws), "draws must leave the state and the stream"),
    "draws in place": (broken(STREAM, draws=draws_in_place), "draws must leave the state and the stream"),
    "another evidence": (broken(STREAM, absorb=half_evidence), "log_evidence must be an unbiased estimate"),
    "any state of a restart": (
        broken(OPTIMISER, check_sound=anything_goes),
        "check_sound must refuse a state with nothing in it",
    ),
    "any state of a stream": (
        broken(STREAM, check_sound=anything_goes),
        "check_sound must refuse a state whose X is too short",
    ),
    "a visit in place": (broken(BLOCKS, visit=visit_in_place), "visit must leave its arguments"),
    "a bound that falls": (broken(BLOCKS, visit=falling_visit), "A visit of a block that comes again must not lower"),
    "visits not counted": (broken(BLOCKS, visit=uncounted_visit), "visit must leave its arguments .* n_seen"),
    "an order that costs": (broken(BLOCKS, in_order=falling_order), "in_order must not lower the bound"),
    "a bound of blocks too high": (broken(BLOCKS, visit=raised_visit, in_order=raised_order), "The bound must be one"),
    "one misfit": (broken(BLOCKS, misfit=lambda s, state, X: np.zeros(1)), "misfit must give one number of each row"),
    "any state of blocks": (
        broken(BLOCKS, check_sound=anything_goes),
        "check_sound must refuse a state with one feature too many",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_inference_is_named(name: str) -> None:
    inference, words = MUTANTS[name]
    with pytest.raises(AssertionError, match=rf"\A({words})"):
        check(inference)


def counted_batches(self: Any, rng: Any, state: Any, rows: np.ndarray) -> Any:
    state, notes = RecursiveIBP.absorb(self, rng, state, rows)
    return state._replace(n_times=state.n_times + 1), notes


def first_of_few(self: Any, rng: Any, state: Any, rows: np.ndarray) -> Any:
    return RecursiveIBP.absorb_first(self, rng, state, rows[:5])


def all_sound(self: Any, state: Any, model: Any, n_dims: int) -> None:
    pass


FORGETFUL_MUTANTS = [
    ({"absorb": counted_batches}, "absorb must leave the state as it was, and not depend"),
    ({"absorb_first": first_of_few}, "absorb_first must take in all"),
    ({"history": lambda self, state: {"n_rows": state.trace[:, :1].T}}, "history must have numbers"),
    ({"check_sound": all_sound}, "check_sound must refuse a state with"),
]


@pytest.mark.parametrize(("methods", "words"), FORGETFUL_MUTANTS, ids=lambda part: "-".join(part))
def test_a_broken_forgetful_inference_is_named(methods: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=rf"\A({words})"):
        check(broken(FORGETFUL, **methods), IBP_MODEL)


def test_what_is_no_inference_is_told_what_it_lacks() -> None:
    class Half(CollapsedGibbs):
        record = property()

    with pytest.raises(AssertionError, match=r"\AAn inference must declare its shape.* lacks record of Iterative"):
        check(Half())

    class Shapeless(CollapsedGibbs):
        shape = "circle"

    with pytest.raises(AssertionError, match=r"\AAn inference must declare its shape.*'circle'"):
        check(Shapeless())


def test_the_state_of_another_shape_is_refused() -> None:
    """As files may hold: a chain's state where blocks were expected."""
    with pytest.raises(ValueError, match="none of a fit by blocks"):
        BLOCKS.check_sound(ZState(None, None, None), MODEL)
