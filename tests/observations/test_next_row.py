"""The density of the next row for a filter: golden value, enumeration, quadrature, and estimates without bias."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from scipy.special import logit, logsumexp
from scipy.stats import multivariate_normal, norm

from thali import InvalidParameterError, LinearGaussian
from thali.core.protocols.engines.predictions import Predictions
from thali.observations.gaussian import next_row
from thali.observations.gaussian.codebook import GaussianCodebook
from thali.observations.gaussian.next_row import HOW, NextRow, log_density
from thali.rng import row_uniforms
from thali.testing import z_limit

GOLDEN = -2.8233785669
X = np.array([[0.2, 1.1, 1.9]])
ROW = NextRow(
    chance=np.array([0.7, 0.5, 0.2, 0.05]),
    mean=np.array([[1.0, 0.0, 2.0], [-1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]]),
    var=np.array([0.02, 0.05, 0.3, 1.0]),
    noise_var=0.4,
)
N_TIMES, N_SAMPLES = 2000, 100


def by_hand(x, row):
    """Enumeration by scipy's multivariate normal density of the cells that are seen."""
    seen = ~np.isnan(x)
    terms = []
    for z in itertools.product([0, 1], repeat=len(row.chance)):
        z = np.array(z)
        var = row.noise_var + (z @ row.var if row.var.ndim == 2 else np.full(len(x), z @ row.var))
        law = multivariate_normal((z @ row.mean)[seen], np.diag(np.broadcast_to(var, len(x))[seen]))
        terms.append(np.log(np.where(z, row.chance, 1 - row.chance)).sum() + law.logpdf(x[seen]))
    return logsumexp(terms)


@pytest.mark.parametrize("how", ["auto", "exact"])
def test_golden(how):
    assert log_density(X, ROW, how)[0] == pytest.approx(GOLDEN, rel=1e-10)


@pytest.mark.parametrize("var", [ROW.var, np.outer(ROW.var, [1.0, 3.0, 0.2])], ids=["isotropic", "per cell"])
@pytest.mark.parametrize("noise", [0.4, np.array([0.3, 1.0, 0.1])], ids=["one", "per dim"])
def test_enumeration_of_rows_with_missing_cells(var, noise, rng):
    row = ROW._replace(var=var, noise_var=noise)
    rows = rng.normal(0, 2, (5, 3))
    rows[1, 0] = rows[3, 1:] = rows[4] = np.nan
    got = log_density(rows, row)
    assert got[:4] == pytest.approx([by_hand(x, row) for x in rows[:4]], rel=1e-12)
    assert got[4] == 0.0


def errors(how, row=ROW, wanted=GOLDEN, x=X[0], n_samples=N_SAMPLES):
    """Of independent estimates of the same row, which differs from itself by so little that nothing else shows it."""
    rows = x + 1e-12 * np.arange(N_TIMES)[:, None]
    return log_density(rows, row, how, n_samples) - wanted


def assert_unbiased(error):
    ratio = np.exp(error)
    assert abs(ratio.mean() - 1) < z_limit(1) * ratio.std() / math.sqrt(len(ratio))


@pytest.mark.parametrize(("how", "wanted"), [("joint", 0.138), ("marginal", 0.130), ("importance", 0.034)])
def test_errors_are_those_that_were_measured(how, wanted):
    """RMSE at 100 draws; its relative standard error is 1 / sqrt(2 n_times), or a little more with heavy tails."""
    error = errors(how)
    assert_unbiased(error)
    assert math.sqrt((error**2).mean()) == pytest.approx(wanted, rel=5 / math.sqrt(2 * N_TIMES))


def test_a_mean_of_logs_is_another_quantity(monkeypatch):
    """The mutant: what the authors' code reports, -5.04 instead of -2.82."""
    monkeypatch.setattr(next_row, "logsumexp", lambda w, axis: w.mean(axis=axis) + math.log(w.shape[axis]))
    error = errors("joint")
    assert error.mean() == pytest.approx(-5.04 - GOLDEN, abs=0.1)
    with pytest.raises(AssertionError):
        assert_unbiased(error)


def test_weights_that_forget_the_proposal_fail(monkeypatch):
    """The mutant: any proposal will do, as long as it is in the weights."""
    before = next_row._likely
    monkeypatch.setattr(next_row, "_likely", lambda *args: np.sqrt(before(*args)))
    assert_unbiased(errors("importance"))
    monkeypatch.setattr(next_row, "_log_mixture", lambda log_q, shares: log_q[0])
    with pytest.raises(AssertionError):
        assert_unbiased(errors("importance"))


def quadrature(x, row):
    """log p(x) for two features with weights, by a grid over both."""
    w = np.linspace(-9, 9, 601)
    weights = norm.logpdf(w, 0, math.sqrt(row.weight_var)) + math.log(w[1] - w[0])
    one, other = np.meshgrid(w, w, indexing="ij")
    seen = ~np.isnan(x)
    terms = []
    for z in itertools.product([0, 1], repeat=2):
        v = np.stack([z[0] * one, z[1] * other], axis=-1)
        var = row.noise_var + v**2 @ row.var
        cells = norm.logpdf(x[seen], (v @ row.mean)[..., seen], np.sqrt(var)[..., None]).sum(axis=-1)
        prior = np.log(np.where(z, row.chance, 1 - row.chance)).sum()
        terms.append(prior + logsumexp(cells + weights[:, None] + weights))
    return logsumexp(terms)


@pytest.mark.parametrize("x", [[0.8, 2.4, -1.0], [np.nan, 2.4, -1.0]], ids=["whole", "missing"])
def test_weights_by_quadrature(x):
    """The fewer of the unknowns are drawn, and the more likely they are, the smaller the error."""
    row = NextRow(np.array([0.6, 0.3]), np.array([[1.0, 1.5, 0.2], [0.5, -0.5, 1.5]]), np.array([0.1, 0.4]), 0.3, 1.4)
    x = np.array(x)
    wanted = quadrature(x, row)
    found = [errors(how, row, wanted, x) for how in ("importance", "marginal", "joint")]
    for error in found:
        assert_unbiased(error)
    sizes = [math.sqrt((error**2).mean()) for error in found]
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.7 * sizes[1]
    with pytest.raises(AssertionError):
        assert_unbiased(errors("importance", row._replace(weight_var=1.0), wanted, x))


@pytest.mark.parametrize("weight_var", [None, 1.0])
@pytest.mark.parametrize("how", ["importance", "marginal", "joint", "exact"])
def test_a_row_has_the_same_answer_in_any_company(how, weight_var, rng):
    if how == "exact" and weight_var is not None:
        pytest.skip("weights cannot be enumerated")
    row = NextRow(rng.random(6), rng.normal(size=(6, 5)), rng.random(6), 0.2, weight_var)
    rows = rng.normal(0, 1.5, (9, 5))
    rows[2, 3] = np.nan
    ask = partial(log_density, row=row, how=how, n_samples=30)
    whole = ask(rows, seed=4)
    assert np.array_equal(whole, ask(rows, seed=4))
    assert np.array_equal(whole[[7, 2]], ask(rows[[7, 2]], seed=4))
    assert np.array_equal(whole[3:4], ask(rows[3:4], seed=4))
    assert (how == "exact") == np.array_equal(whole, ask(rows, seed=5))


def test_it_is_what_predictions_of_the_model_say(rng):
    """With one variance for a feature it is the density of a row given a codebook with independent features."""
    model = LinearGaussian(noise_var=0.4, feature_var=1.0)
    rows = rng.normal(0, 2, (6, 3))
    rows[0, 1] = np.nan
    book = GaussianCodebook(ROW.mean, np.ones(4, np.int64), np.diag(ROW.var / 0.4))
    wanted = model.engine(Predictions).encode(rows, book, logit(ROW.chance), 0.0).log_density
    assert log_density(rows, ROW) == pytest.approx(wanted, rel=1e-10)


def test_features_that_cannot_be_there_are_left_out(rng):
    """As many as one likes; without any feature a row is noise."""
    more = ROW._replace(
        chance=np.append(ROW.chance, np.zeros(50)),
        mean=np.vstack([ROW.mean, rng.normal(size=(50, 3))]),
        var=np.append(ROW.var, np.ones(50)),
    )
    assert log_density(X, more)[0] == pytest.approx(GOLDEN, rel=1e-10)
    none = NextRow(np.zeros(0), np.zeros((0, 3)), np.zeros(0), 0.4)
    assert log_density(X, none) == pytest.approx(norm.logpdf(X, 0, math.sqrt(0.4)).sum())
    for how in ("importance", "marginal", "joint"):
        assert log_density(X, none, how) == pytest.approx(norm.logpdf(X, 0, math.sqrt(0.4)).sum())


def with_new(row, chance, var):
    """And new features with these chances."""
    n = len(chance)
    return row._replace(
        chance=np.append(row.chance, chance), mean=np.vstack([row.mean, np.zeros((n, 3))]),
        var=np.concatenate([row.var, np.full((n, *row.var.shape[1:]), var)]), n_new=n,
    )  # fmt: skip


FAR = np.array([[0.2, 1.1, 1.9], [9.0, -7.0, 3.0], [np.nan, 6.0, np.nan], [-2.0, 2.0, -5.0]])


@pytest.mark.parametrize("var", [ROW.var, np.outer(ROW.var, [1.0, 3.0, 0.2])], ids=["isotropic", "per cell"])
def test_new_features_are_integrated_with_their_number(var):
    """As if each were one of the features, which are enumerated; rows that only new features explain among them."""
    row = with_new(ROW._replace(var=var), [0.002, 3e-4, 3e-5], 4.0)
    wanted = [by_hand(x, row) for x in FAR]
    assert log_density(FAR, row) == pytest.approx(wanted, rel=1e-10)
    assert log_density(FAR, row._replace(n_new=0)) == pytest.approx(wanted, rel=1e-10)
    few = log_density(FAR, row, "importance", 400)
    assert few == pytest.approx(wanted, abs=0.2)
    # where new features are drawn as others are, a row that needs one is missed
    assert log_density(FAR, row._replace(n_new=0), "importance", 400)[1] != pytest.approx(wanted[1], abs=0.2)


def test_new_features_with_weights_by_quadrature():
    row = NextRow(np.array([0.6, 0.3]), np.array([[1.0, 1.5, 0.2], [0.5, -0.5, 1.5]]), np.array([0.1, 0.4]), 0.3, 1.4)
    alone = row._replace(chance=row.chance[:1], mean=row.mean[:1], var=row.var[:1])
    row = with_new(alone, [0.1], 0.8)
    for x in ([0.8, 2.4, -1.0], [4.0, -3.0, np.nan]):
        wanted = quadrature(np.array(x), row)
        assert_unbiased(errors("importance", row, wanted, np.array(x)))
        assert log_density(np.array([x]), row, "importance", 20_000)[0] == pytest.approx(wanted, abs=0.02)


def test_what_cannot_be_asked():
    with pytest.raises(InvalidParameterError, match="'importance'"):
        log_density(X, ROW, "best")
    with pytest.raises(InvalidParameterError, match="enumerated"):
        log_density(X, ROW._replace(weight_var=1.0), "exact")
    assert set(HOW) == {"auto", "exact", *next_row._DRAWS}


def test_streams_of_rows_are_those_of_kernels():
    from reference.row_streams import start_stream, uniform

    keys = np.array([0, 7, 2**63 + 11], dtype=np.uint64)
    for key, got in zip(keys, row_uniforms(keys, 5), strict=True):
        stream = [start_stream(key, 0)]
        assert list(got) == [uniform(stream, 0) for _ in range(5)]
