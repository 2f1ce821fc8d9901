"""Streams by a particle filter: batches, files, missing cells, what it says of itself, and what it refuses."""

import math
import os
import signal
import time

import numpy as np
import pytest

import thali
from thali import (
    IBP,
    BetaBernoulli,
    CollapsedGibbs,
    Gamma,
    InvalidDataError,
    InvalidFileError,
    InvalidParameterError,
    LatentFeatures,
    LinearGaussian,
    NormalOffset,
    ParticleFilter,
    PerDim,
)
from thali.core.model import Model
from thali.core.protocols.engines.chains import MarginalRows
from thali.inference.streams.particle_filter import prior_tables
from thali.kernels.bits.particle_rows import log_row
from thali.storage import archive as files
from thali.verdicts.chains import Filters, agree, diagnose_filters, filter_verdict

FIXED = LinearGaussian(noise_var=0.1, feature_var=2.0)


def simple_data(n_rows=80, n_dims=12, seed=0, noise_var=0.1):
    """(X, mask of a fifth of the cells, what X is without noise) with three features that are easy to tell apart."""
    rng = np.random.default_rng(seed)
    Z = (rng.random((n_rows, 3)) < 0.5).astype(float)
    clean = Z @ np.kron(np.eye(3), np.full((1, n_dims // 3), 1.5))
    return clean + np.sqrt(noise_var) * rng.standard_normal(clean.shape), rng.random(clean.shape) < 0.2, clean


def estimator(observation=FIXED, prior=None, n_chains=2, **settings):
    inference = ParticleFilter(**({"n_particles": 30} | settings))
    return LatentFeatures(
        observation, prior or IBP(mass=1.0), inference, n_chains=n_chains, random_state=3, verbose=False
    )


def assert_same_bits(a, b):
    assert np.array_equal(a.posterior_.packed_z.values, b.posterior_.packed_z.values)
    assert np.array_equal(a.components_, b.components_)
    assert a.log_evidence_ == b.log_evidence_
    assert all(np.array_equal(a.history_[name], b.history_[name]) for name in a.history_)


@pytest.mark.parametrize("prior", [IBP(mass=1.0), BetaBernoulli(mass=1.0, n_features=4)], ids=["IBP", "finite"])
def test_batches_give_the_bits_of_one_fit(prior, tmp_path):
    X, mask, _ = simple_data(n_rows=40)
    X[mask] = np.nan
    X[25, :] = np.where(np.arange(12) < 11, np.nan, 0.3)  # in a batch of one row, wholly missing dims
    whole = estimator(prior=prior).fit(X)
    assert_same_bits(estimator(prior=prior).set_params(n_jobs=1).fit(X), whole)
    parts = estimator(prior=prior).partial_fit(X[:25])
    parts.partial_fit(X[25:26])
    parts.save(tmp_path / "half.thali")
    assert_same_bits(parts.partial_fit(X[26:]), whole)
    loaded = thali.load(tmp_path / "half.thali")
    assert "log evidence" in loaded.check()
    assert_same_bits(loaded.partial_fit(X[26:]), whole)
    assert_same_bits(whole.fit(X), parts)  # a fit begins anew


def test_learned_values_survive_a_file(tmp_path):
    X, _, _ = simple_data(n_rows=20)
    model = estimator(LinearGaussian(), IBP()).partial_fit(X[:10])
    assert set(model.posterior_.hyper) == {"prior.mass", "observation.noise_var", "observation.feature_var"}
    model.save(tmp_path / "stream.thali")
    loaded = thali.load(tmp_path / "stream.thali")
    assert_same_bits(loaded.partial_fit(X[10:]), model.partial_fit(X[10:]))


def test_a_damaged_stream_is_refused(tmp_path):
    X, _, _ = simple_data(n_rows=10)
    estimator().fit(X).save(tmp_path / "stream.thali")
    meta, arrays = files.read(tmp_path / "stream.thali")
    for part, value in (("n_columns", 99), ("gram", 7.0), ("log_weight", np.nan)):
        name = f"stream/0/state.particles.{part}.values"
        files.write(tmp_path / "bad.thali", meta, arrays | {name: np.full_like(arrays[name], value)})
        with pytest.raises(InvalidFileError):
            thali.load(tmp_path / "bad.thali")


@pytest.mark.parametrize("proposal", ["gibbs", "prior"])
def test_a_fifth_of_the_cells_missing(proposal):
    """Cells are predicted nearly as well as by one who knows the features and the rows' bits."""
    X, mask, clean = simple_data(n_rows=80)
    model = estimator(n_particles=30, proposal=proposal, n_chains=2).fit(np.where(mask, np.nan, X))
    assert model.n_components_ == 3
    error = np.sqrt(np.mean((model.impute(np.where(mask, np.nan, X)) - X)[mask] ** 2))
    assert error < 1.05 * np.sqrt(np.mean((clean - X)[mask] ** 2))
    oracle = -0.5 * (math.log(2 * math.pi * 0.1) + np.mean((clean - X)[mask] ** 2) / 0.1)
    assert model.heldout_score(X, mask) > oracle - 0.1
    assert model.transform(X).shape == (80, 3)
    assert np.isfinite(model.score(X))


def test_what_it_says_of_itself():
    X, _, _ = simple_data()
    model = estimator(n_particles=100, n_chains=3).fit(X)
    text = model.check()
    assert text.startswith("converged (all 3 filters found 3 features" if model.converged_ else "not converged: ")
    assert "100 particles" in text
    assert "descended from" in text
    assert "ESS" in text or model.converged_
    assert model.posterior_.draws["n_features"].shape == (3, 100)
    assert model.history_["effective"].shape == (3, len(X))
    assert (model.history_["effective"] <= 100 + 1e-9).all()
    alone = estimator(n_particles=20, n_chains=1).fit(X[:20])
    assert not alone.converged_
    assert "one filter" in alone.check()


def test_evidence_is_pooled_over_filters():
    log_evidence = np.array([-1001.0, -1000.0, -1002.0])
    filters = Filters(log_evidence, np.ones(3), np.ones(3, int), 10)
    ratio = np.exp(log_evidence + 1000)
    value, error = filters.evidence
    assert math.isclose(value, -1000 + math.log(ratio.mean()))
    assert math.isclose(error, ratio.std(ddof=1) / ratio.mean() / math.sqrt(3))
    assert math.isnan(Filters(log_evidence[:1], np.ones(1), np.ones(1, int), 10).evidence[1])


def test_filters_are_judged_by_their_differences(rng):
    draws = {
        "n_on": rng.standard_normal((4, 500)),
        "free_energy": np.zeros((4, 500)),
        "n_features": np.full((4, 500), 3),
    }
    good = diagnose_filters(draws)
    assert set(good) == {"n_on", "n_features"}
    assert good["n_on"].good
    assert good["n_features"].good
    apart = diagnose_filters({"n_on": draws["n_on"] + np.arange(4)[:, None]})
    assert not apart["n_on"].good
    assert apart["n_on"].ess < 10
    order = diagnose_filters({"n_on": np.sort(draws["n_on"], axis=1)})
    assert np.allclose(order["n_on"], good["n_on"])  # the order of particles does not matter
    filters = Filters(np.zeros(4), np.full(4, 9.0), np.array([1, 2, 1, 1]), 500)
    words = filter_verdict(filters, apart, agree(np.full(4, 3), np.zeros((4, 500))))
    assert words.startswith("not converged: filters disagree on n_on")
    assert "descended from 1 to 2 at the first" in words


def test_partial_fit_is_there_only_if_it_streams():
    assert hasattr(estimator(), "partial_fit")
    for inference in ("auto", CollapsedGibbs()):
        model = LatentFeatures(inference=inference)
        assert not hasattr(model, "partial_fit")
        assert not hasattr(model, "log_evidence_")
    with pytest.raises(AttributeError, match="partial_fit"):
        LatentFeatures().partial_fit(np.zeros((3, 2)))


def test_bad_batches():
    X, _, _ = simple_data(n_rows=20)
    model = estimator().partial_fit(X)
    before = model.log_evidence_
    for bad in (X[:, :3], X[:0], np.full((1, 12), np.nan), np.full((1, 12), np.inf), np.array([["a"] * 12])):
        with pytest.raises(InvalidDataError):
            model.partial_fit(bad)
    assert model.log_evidence_ == before
    assert model.partial_fit(X[:1]).posterior_.n_rows == 21


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (LinearGaussian(noise_var=PerDim()), "noise_var=PerDim"),
        (LinearGaussian(offset=NormalOffset()), "offset=NormalOffset"),
    ],
    ids=["noise per dim", "offset"],
)
def test_vectors_cannot_be_learned(observation, words):
    with pytest.raises(InvalidParameterError, match=f"{words}.*CollapsedGibbs"):
        estimator(observation).fit(simple_data()[0])


def test_fixed_vectors_are_undone(tmp_path):
    """Other units and another origin for each dim: the same bits, and the density in the new units."""
    X, mask, _ = simple_data(n_rows=30)
    X[mask] = np.nan
    scale, offset = np.linspace(0.5, 2.0, 12), np.arange(12.0)
    plain = estimator(LinearGaussian(noise_var=1.0, feature_var=2.0)).fit(X)
    moved = estimator(LinearGaussian(noise_var=scale**2, feature_var=2.0, offset=offset)).fit(X * scale + offset)
    assert np.array_equal(plain.posterior_.packed_z.values, moved.posterior_.packed_z.values)
    np.testing.assert_allclose(moved.components_, plain.components_ * scale, atol=1e-9)
    change = float(np.sum(~mask @ np.log(scale)))
    np.testing.assert_allclose(moved.log_evidence_, plain.log_evidence_ - change, rtol=1e-9)
    filled = moved.impute(X * scale + offset)
    np.testing.assert_allclose(filled, plain.impute(X) * scale + offset, atol=1e-9)


def test_settings_of_samplers_are_refused():
    with pytest.raises(InvalidParameterError, match="target_ess is for samplers"):
        estimator().set_params(target_ess=100.0).fit(simple_data()[0])


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_rows_so_far_and_the_rest_can_follow(which, monkeypatch):
    X = simple_data(n_rows=60)[0]
    whole = estimator().fit(X)
    absorb, calls = ParticleFilter.absorb, []

    def pressing(*arguments):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), which)
            time.sleep(0.3)
        return absorb(*arguments)

    monkeypatch.setattr(ParticleFilter, "absorb", pressing)
    model = estimator()
    with pytest.warns(UserWarning, match="Stopped by interrupt: took in"):
        model.fit(X)
    assert model.interrupted_
    n_seen = model.posterior_.n_rows
    assert 0 < n_seen < 60
    assert_same_bits(model.partial_fit(X[n_seen:]), whole)


def test_a_signal_during_the_only_rows_is_not_forgotten(monkeypatch):
    """Else a loop over small batches could not be stopped."""
    absorb = ParticleFilter.absorb

    def pressing(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        return absorb(*arguments)

    X = simple_data(n_rows=1)[0]
    monkeypatch.setattr(ParticleFilter, "absorb", pressing)
    model = estimator().set_params(n_chains=1)
    with pytest.warns(UserWarning, match="Stopped by interrupt: took in 1 of 1 rows"):
        model.fit(X)
    assert model.interrupted_


def test_time_is_up():
    """What was taken in is kept, of all filters the same rows."""
    X, _, _ = simple_data(n_rows=60)
    model = estimator().set_params(max_time=1e-9)
    with pytest.warns(UserWarning, match="max_time: took in 1 of 60 rows"):
        model.fit(X)
    assert model.stopped_by_ == "max_time"
    assert_same_bits(model, estimator().fit(X[:1]))


def test_tables_are_those_of_the_rows_so_far():
    priors = [IBP(mass=2.0), IBP(mass=1.0, concentration=3.0)]
    log_odds, new_rate = prior_tables(priors, 5, 3)
    for t, prior in enumerate(priors):
        for i in range(3):
            assert np.array_equal(log_odds[t, i, : 6 + i], prior.log_odds(6 + i))
            assert new_rate[t, i] == prior.new_rate(6 + i)


def test_row_predictive_is_golden():
    """log N(x; z mu, noise (1 + z P z') + k feature_var) of a worked example with two past features and a new one."""
    Z, X = np.array([[1.0, 0], [1, 1], [0, 1]]), np.array([[1.2, -0.3], [0.9, 0.1], [-0.4, 1.5]])
    x, z, noise, feature = np.array([0.5, 0.7]), np.array([1.0, 0.0]), 0.25, 1.44
    P = np.linalg.inv(Z.T @ Z + noise / feature * np.eye(2))
    mean, q = z @ P @ Z.T @ X, z @ P @ z
    np.testing.assert_allclose(mean, [1.0912848135, -0.54629497754])
    s = float(np.sum((x - mean) ** 2))
    one = log_row(q + feature / noise, s, (2.0, noise / feature, 1 / noise, 0.0, 0.0, 0.0), 36.0)
    assert math.isclose(one - math.log(2 * math.pi * noise), -2.9636496013, rel_tol=1e-9)


def test_a_state_has_the_evidence_of_its_bits(rng):
    """Weights and evidence of one particle that follows the prior add up to its log p(X | Z)."""
    X, _, _ = simple_data(n_rows=12)
    model = Model(BetaBernoulli(mass=1.0, n_features=1), FIXED.adapt(X))
    inference = ParticleFilter(n_particles=2, proposal="prior", resample_below=0.0)
    state, _ = inference.absorb(rng, inference.begin(rng, model, 12), model, X)
    for draw in inference.draws(rng, state, model):
        assert math.isclose(
            draw.log_joint,
            model.prior.log_prob(draw.z) + FIXED.engine(MarginalRows).log_marginal(X, draw.z),
            rel_tol=1e-9,
        )


def test_mass_is_moved_after_a_resampling(rng):
    X, _, _ = simple_data(n_rows=10)
    model = Model(IBP(mass=Gamma(1.0, 1.0)), FIXED.adapt(X))
    inference = ParticleFilter(n_particles=20, resample_below=1.0)
    state, infos = inference.absorb(rng, inference.begin(rng, model, 12), model, X)
    assert len(np.unique(state.hyper["prior.mass"])) == 20
    assert len(infos) == 10
    assert len(np.unique(state.particles.roots)) < 20
