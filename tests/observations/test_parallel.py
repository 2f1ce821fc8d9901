"""Sweeps on several threads: the same bits for any number of them; offset, scale and missing cells; when they serve."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import thali.inference.samplers.gibbs
from thali import IBP, BetaBernoulli, BetaProcess, Gibbs, LatentFeatures, LinearGaussian
from thali.core.protocols.engines.chains import ChainRows, ParallelRows
from thali.errors import InvalidParameterError
from thali.kernels.atomics import wait_until
from thali.kernels.bits.parallel_sweep import FAILED, PHASE
from thali.observations.gaussian import parallel as _parallel

N_ROWS, N_DIMS = 5_000, 4
PRIORS = {"IBP": IBP(mass=2.0), "finite": BetaBernoulli(mass=2.0, n_features=5)}


def problem(rng, missing=0.1):
    """(X with holes, X without, Z)."""
    Z = (rng.random((N_ROWS, 5)) < 0.3).astype(np.uint8)
    whole = Z @ (3.0 * rng.standard_normal((5, N_DIMS))) + rng.standard_normal((N_ROWS, N_DIMS))
    holes = rng.random(whole.shape) < missing
    holes[:, 0] = False
    return np.where(holes, np.nan, whole), whole, Z


def sweeps(observation, prior, X, whole, Z, n_threads, n=3):
    rng = np.random.default_rng(1)
    data = observation.engine(ChainRows).prepare(X)
    local = observation.engine(ChainRows).place(data, Z, whole)
    for _ in range(n):
        draw_weights = partial(prior.draw_weights, rng, n_rows=len(Z))
        local = observation.engine(ParallelRows).parallel_sweep(
            rng, data, local, draw_weights, prior.new_rate(len(Z)), n_threads
        )
    return data, local


def same(mine, theirs):
    return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("prior", PRIORS)
def test_the_same_bits_on_any_number_of_threads(prior, rng, monkeypatch):
    observation = LinearGaussian(
        noise_var=0.7 + rng.random(N_DIMS), feature_var=2.0, offset=rng.standard_normal(N_DIMS)
    )
    parts = problem(rng)
    _, alone = sweeps(observation, PRIORS[prior], *parts, 1)
    for n_threads in (2, 4):
        assert same(alone, sweeps(observation, PRIORS[prior], *parts, n_threads)[1])
    both = threading.Barrier(2, timeout=60)  # opens only if two threads are at work at once
    sweep = _parallel.sweep_rows
    monkeypatch.setattr(_parallel, "sweep_rows", lambda *arguments: both.wait() is not None and sweep(*arguments))
    assert same(alone, sweeps(observation, PRIORS[prior], *parts, 2)[1])


def test_a_thread_that_fails_leaves_nobody_waiting(rng, monkeypatch):
    both = threading.Barrier(2, timeout=60)

    def fail(*arguments):
        both.wait()
        shared, is_last = arguments[14], arguments[-1]
        if not is_last:
            raise MemoryError
        wait_until(shared, PHASE, FAILED)

    monkeypatch.setattr(_parallel, "sweep_rows", fail)
    with pytest.raises(MemoryError, match="fewer threads"):
        sweeps(LinearGaussian(noise_var=1.0, feature_var=2.0), PRIORS["IBP"], *problem(rng), 2)


def test_chains_share_the_threads(rng):
    observation = LinearGaussian(noise_var=1.0, feature_var=2.0)
    parts = problem(rng)
    _, alone = sweeps(observation, PRIORS["IBP"], *parts, 1)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: sweeps(observation, PRIORS["IBP"], *parts, None)[1], range(8)))
    assert all(same(alone, local) for local in found)


@pytest.mark.parametrize("prior", PRIORS)
def test_statistics_are_those_of_the_rows(prior, rng):
    observation = LinearGaussian(noise_var=1.0, feature_var=2.0)
    data, local = sweeps(observation, PRIORS[prior], *problem(rng), 2)
    known = observation.engine(ChainRows).rows(data, local.z, local.filled)
    assert np.array_equal(local.gram, known.gram)
    np.testing.assert_allclose(local.cross, known.cross, rtol=1e-9, atol=1e-9)
    assert prior == "finite" or local.z.any(axis=0).all()


def test_offset_and_scale_are_undone(rng):
    X, whole, Z = problem(rng)
    noise_var, offset = 0.5 + rng.random(N_DIMS), rng.standard_normal(N_DIMS)
    scale = np.sqrt(noise_var)
    _, plain = sweeps(LinearGaussian(noise_var=1.0, feature_var=2.0), PRIORS["IBP"], X, whole, Z, 1, n=1)
    moved = LinearGaussian(noise_var=noise_var, feature_var=2.0, offset=offset)
    data, local = sweeps(moved, PRIORS["IBP"], X * scale + offset, whole * scale + offset, Z, 1, n=1)
    assert np.array_equal(plain.z, local.z)
    np.testing.assert_allclose(plain.filled * scale[data.hidden_dim] + offset[data.hidden_dim], local.filled)


def test_features_without_end_are_refused(rng):
    observation = LinearGaussian(noise_var=1e-9, feature_var=1e-3)
    X = 1e3 * rng.standard_normal((3_000, 2))
    with pytest.raises(InvalidParameterError, match="suit the scale of X"):
        sweeps(observation, IBP(mass=5.0), X, X, np.zeros((3_000, 0), np.uint8), 1)


def test_many_columns_at_once_find_room(rng):
    """All rows begin without features: far more are born than there is room for at first."""
    Z = (rng.random((3_000, 40)) < 0.0005).astype(np.uint8)
    X = Z @ (50.0 * rng.standard_normal((40, 6))) + rng.standard_normal((3_000, 6))
    observation, none = LinearGaussian(noise_var=1.0, feature_var=2_500.0), np.zeros((3_000, 0), np.uint8)
    found = [sweeps(observation, IBP(mass=2.0), X, X, none, n_threads, n=1)[1] for n_threads in (1, 2)]
    assert same(*found)
    assert found[0].z.shape[1] > 30
    assert (found[0].z.any(axis=1) == Z.any(axis=1)).mean() > 0.99


def test_it_serves_where_rows_are_many(rng, monkeypatch):
    used = []
    sweep = _parallel.ParallelGaussian.parallel_sweep
    monkeypatch.setattr(_parallel.ParallelGaussian, "parallel_sweep", lambda *a: used.append(a[-1]) or sweep(*a))
    observation = LinearGaussian(noise_var=1.0, feature_var=1.0)
    for n_rows in (thali.inference.samplers.gibbs._MANY - 1, thali.inference.samplers.gibbs._MANY):
        X = rng.standard_normal((n_rows, 2))
        data = observation.engine(ChainRows).prepare(X)
        local = observation.engine(ChainRows).place(data, np.ones((n_rows, 1), np.uint8), X)
        for prior in (IBP(mass=1.0), BetaBernoulli(mass=1.0, n_features=1), BetaProcess(mass=1.0, rounds=3)):
            Gibbs(n_threads=2).sweep(rng, prior, observation, data, local)
    assert used == [2, 2]  # the many, and not the prior without weights


def test_settings_are_checked():
    for wrong in ({"n_threads": 0}, {"n_threads": 1.5}, {"births": "none"}, {"candidates": 1}):
        with pytest.raises(InvalidParameterError, match=next(iter(wrong))):
            Gibbs(**wrong)


def test_a_fit_does_not_depend_on_threads(rng, monkeypatch):
    monkeypatch.setattr(_parallel, "_LEAST_ROWS", _parallel.BLOCK)
    X = problem(rng)[1][:1200]
    fits = []
    for n_threads, n_jobs in ((1, 1), (3, 2)):
        inference = Gibbs(n_warmup=2, n_draws=3, start="spectral", n_threads=n_threads)
        model = LatentFeatures(inference=inference, n_chains=2, n_jobs=n_jobs, random_state=0, verbose=False)
        fits.append(model.fit(X).posterior_.draws["log_joint"])
    assert np.array_equal(*fits)
