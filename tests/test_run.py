"""Running chains: threads, stopping, errors."""

import os
import signal
import time

import numpy as np
import pytest

from thali import IBP, BetaBernoulli, CollapsedGibbs, LatentFeatures, LinearGaussian
from thali.errors import InvalidParameterError
from thali.model import Model
from thali.rng import make_generator
from thali.run import iterate, resolve_n_jobs, run_chains

MODEL = Model(IBP(), LinearGaussian())


@pytest.fixture
def X(rng):  # noqa: N802 (the matrix has this name)
    return rng.integers(2, size=(25, 2)) @ (3 * rng.standard_normal((2, 4))) + 0.3 * rng.standard_normal((25, 4))


def run(X, inference, *, model=MODEL, seed=1, **options):
    return run_chains(make_generator(seed), inference, model, X, **{"n_chains": 2} | options)


def same(a, b):
    return all(np.array_equal(a.posterior.draws[k], b.posterior.draws[k]) for k in a.posterior.draws)


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, 2.0, "2", True, [1]])
def test_bad_n_jobs(n_jobs, X):
    with pytest.raises(InvalidParameterError, match=r"n_jobs must be .* Got"):
        run(X, CollapsedGibbs(n_warmup=10**9), n_jobs=n_jobs)


def test_n_jobs_means_threads():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert resolve_n_jobs(None, 10**6) == resolve_n_jobs(-1, 10**6) == cores
    assert resolve_n_jobs(3, 2) == 2
    assert resolve_n_jobs(np.int64(3), 8) == 3


@pytest.mark.parametrize("thin", [1, 3])
def test_shapes(X, thin):
    result = run(X, CollapsedGibbs(n_warmup=4, n_draws=5, thin=thin), n_chains=3)
    assert not result.interrupted
    assert result.posterior.n_chains == 3
    assert result.posterior.n_draws == 5
    for values in result.history.values():
        assert values.shape == (3, 4 + 5 * thin)
        assert np.isfinite(values).all()
    for name, kept in result.posterior.draws.items():
        assert kept.shape == (3, 5)
        if name in result.history:
            assert np.array_equal(kept, result.history[name][:, 4 + thin - 1 :: thin])


def test_bits_do_not_depend_on_threads_or_company(X):
    inference = CollapsedGibbs(n_warmup=5, n_draws=10)
    alone = run(X, inference, n_jobs=1)
    assert same(alone, run(X, inference, n_jobs=2))
    assert not same(alone, run(X, inference, seed=2))
    more = run(X, inference, n_chains=3)
    assert np.array_equal(more.posterior.draws["log_joint"][:2], alone.posterior.draws["log_joint"])


def test_a_longer_run_begins_as_a_shorter_one(X):
    short = run(X, CollapsedGibbs(n_warmup=2, n_draws=4))
    long = run(X, CollapsedGibbs(n_warmup=2, n_draws=9))
    assert np.array_equal(long.history["log_joint"][:, :6], short.history["log_joint"])


def test_iterate_leaves_stopping_to_the_consumer(X):
    observation = MODEL.observation.adapt(X)
    model = Model(MODEL.prior, observation)
    steps = iterate(make_generator(0), CollapsedGibbs(n_warmup=0, n_draws=1), model, observation.prepare(X), len(X))
    for _ in range(20):
        state, info = next(steps)
    assert info.n_features == state.local.z.shape[1]
    assert info.drift < 1e-8


def test_data_are_not_changed(X):
    X[2, 1] = np.nan
    before = X.copy()
    X.flags.writeable = False
    run(X, CollapsedGibbs(n_warmup=2, n_draws=2))
    assert np.array_equal(X, before, equal_nan=True)


def test_on_step_sees_every_step(X):
    seen = []
    run(
        X, CollapsedGibbs(n_warmup=2, n_draws=3), on_step=lambda chain, iteration, info: seen.append((chain, iteration))
    )
    assert sorted(seen) == [(chain, i) for chain in range(2) for i in range(1, 6)]


def test_an_error_in_one_chain_ends_all_and_is_shown(X):
    def fail(chain, iteration, info):
        if chain == 1 and iteration == 3:
            raise ZeroDivisionError("in chain 1")

    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="in chain 1"):
        run(X, CollapsedGibbs(n_warmup=10**9, n_draws=1), n_jobs=2, on_step=fail)
    assert time.monotonic() - begin < 30


def interrupt_at(chain, iteration):
    """An `on_step` that presses Ctrl-C, and then waits until it has been noticed."""

    def on_step(c, i, info):
        if (c, i) == (chain, iteration):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

    return on_step


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_keeps_what_was_drawn(X, n_jobs):
    """Of one chain; of several, the draws that each of them has."""
    result = run(
        X, CollapsedGibbs(n_warmup=0, n_draws=10**9), n_chains=n_jobs, n_jobs=n_jobs, on_step=interrupt_at(0, 40)
    )
    assert result.interrupted
    assert 1 <= result.posterior.n_draws <= result.history["log_joint"].shape[1]
    whole = run(X, CollapsedGibbs(n_warmup=0, n_draws=result.posterior.n_draws), n_chains=n_jobs)
    assert same(result, whole)


def test_ctrl_c_in_the_warm_up_keeps_nothing(X):
    with pytest.raises(KeyboardInterrupt):
        run(X, CollapsedGibbs(n_warmup=10**9, n_draws=1), on_step=interrupt_at(0, 10))


def test_ctrl_c_with_chains_still_waiting(X):
    """Two chains on one thread: the second never began, and is left out."""
    result = run(X, CollapsedGibbs(n_warmup=5, n_draws=10**9), n_jobs=1, on_step=interrupt_at(0, 20))
    assert result.interrupted
    assert result.posterior.n_chains == 1
    assert result.posterior.n_draws >= 15


def test_interrupted_fit_warns_and_can_be_used(X, monkeypatch):
    from thali import estimator

    press = interrupt_at(0, 30)

    class Pressing(estimator.Progress):
        def __call__(self, chain, iteration, info):
            press(chain, iteration, info)

    monkeypatch.setattr(estimator, "Progress", Pressing)
    m = LatentFeatures(inference=CollapsedGibbs(n_warmup=5, n_draws=10**6), n_chains=1, random_state=0)
    with pytest.warns(UserWarning, match=r"Interrupted: kept 1 of 1 chains with \d+ draws each, of 1000000"):
        m.fit(X)
    assert m.interrupted_
    assert m.transform(X).shape == (25, m.n_components_)


@pytest.mark.parametrize("prior", [IBP(mass=2.0), BetaBernoulli(mass=2.0, n_features=3)])
def test_fixed_hyperparameters_stay_fixed(X, prior):
    model = Model(prior, LinearGaussian(noise_var=0.1, feature_var=4.0))
    result = run(X, CollapsedGibbs(n_warmup=2, n_draws=3), model=model)
    assert set(result.posterior.draws) == {"n_features", "n_on", "log_joint"}
    assert result.posterior.concrete(0, 0) == Model(prior, result.posterior.model.observation)
