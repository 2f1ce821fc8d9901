"""Mean field of the linear-Gaussian model: what its bound is, that each update is an optimum, and golden values."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from gaussian_fits import FIXED, MODELS, PAIRS, PAPER, PRIORS, X4, Fit, nu0, rises, settled, wave, with_holes
from scipy.optimize import minimize_scalar
from scipy.special import digamma, expit, logit, logsumexp
from scipy.stats import multivariate_normal

from thali import BetaBernoulli, InverseGamma, LinearGaussian, StickBreakingIBP
from thali.core.distributions import NormalOffset, PerDim
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows
from thali.core.spec import Spec
from thali.numerics.entropies import beta_entropy
from thali.observations.gaussian.mean_field import bits as _mean_field_bits
from thali.observations.gaussian.mean_field import features as _mean_field
from thali.observations.gaussian.mean_field import point_variances as _point_variances
from thali.observations.gaussian.mean_field import sums as _feature_factor
from thali.priors.beta_bernoulli import BetaWeights
from thali.priors.sticks import weights as _stick_weights
from thali.priors.sticks.weights import multinomial_update
from thali.testing import z_limit
from thali.testing.enumerate import all_matrices
from thali.testing.zscores import z_scores

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/ibp-gibbs-variational.json").read_text())
CASES = {case["id"]: case for case in GOLDEN}
INPUTS = CASES["G11"]["inputs"]


# ---- the bound


def golden_fit(prior, weights):
    """The q of G11: independent features, with variances that no update has made."""
    fit = Fit(FIXED, prior, X4, 2, PAPER, codes=expit(np.array(INPUTS["logit_nu"])))
    cov = np.diag(np.array(INPUTS["s2"]) / 0.36)[None]
    fit.q = fit.q._replace(mean=np.array(INPUTS["phi"]), cov=cov)
    fit.weights = weights
    return fit


def finite_golden_fit():
    prior = BetaBernoulli(mass=1.5, n_features=2)
    return golden_fit(prior, BetaWeights(np.array(INPUTS["tau"]).T, prior.init_weights(4).mass))


def test_golden_bounds():
    """G11: Eq. (6). G14: Eq. (8), corrected, with the multinomial bound and with the exact expectation."""
    assert finite_golden_fit().bound() == pytest.approx(CASES["G11"]["outputs"]["elbo"], rel=1e-9)
    for how, name in (("multinomial", "elbo_multinomial"), ("exact", "elbo_exactE")):
        prior = StickBreakingIBP(mass=1.5, truncation=2, log_complement=how)
        fit = golden_fit(prior, prior.init_weights(4)._replace(tau=np.array(INPUTS["tau"]).T))
        assert fit.bound() == pytest.approx(CASES["G14"]["outputs"][name], rel=1e-9)


def test_printed_eq_8_is_seen(monkeypatch):
    """Its index and argument are wrong: 6.2065 nats off at G11."""
    prior = StickBreakingIBP(mass=1.5, truncation=2)
    fit = golden_fit(prior, prior.init_weights(4)._replace(tau=np.array(INPUTS["tau"]).T))
    right = fit.bound()

    def printed(tau, mass, counts, n_rows, complement):
        log_weights = np.arange(1, 3) * (digamma(tau[1]) - digamma(tau.sum(axis=0)))
        terms = np.sum(mass.mean_log + (mass.mean - 1) * _stick_weights.expected_log_sticks(tau) + beta_entropy(*tau))
        return float(terms + counts @ log_weights + (n_rows - counts) @ complement)

    monkeypatch.setattr(_stick_weights, "weights_bound", printed)
    assert fit.bound() - right == pytest.approx(6.2065, abs=1e-4)
    with pytest.raises(AssertionError):
        test_golden_bounds()


def log_marginal(model, concrete, X, Z):
    """log p(X | Z) over observed cells: columns of X are normal with the features and the offset integrated out."""
    total, n_dims = 0.0, X.shape[1]
    noise = np.broadcast_to(concrete.noise_var, n_dims)
    feature = concrete.feature_var * (noise if concrete.per_dim else np.ones(n_dims))
    learned = isinstance(model.offset, NormalOffset)
    centre = model.offset.centre if learned else (np.zeros(n_dims) if model.offset is None else model.offset)
    for d in range(n_dims):
        seen = ~np.isnan(X[:, d])
        z = Z[seen].astype(float)
        cov = noise[d] * (np.eye(len(z)) + (model.offset.spread if learned else 0.0)) + feature[d] * z @ z.T
        error = X[seen, d] - centre[d]
        total -= 0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + error @ np.linalg.solve(cov, error))
    return total


def log_evidence(fit, X, K):
    terms = [fit.prior.log_prob(Z) + log_marginal(fit.model, fit.q.observation, X, Z) for Z in all_matrices(len(X), K)]
    return float(logsumexp(terms)) + fit.model.engine(MeanFieldRows)._log_variances(fit.q.observation)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_bound_is_below_the_evidence(name, holes, rng):
    """By enumeration of all Z, for every family; the joint one is the tightest, hard bits are the loosest."""
    X = with_holes(X4[:3], rng) if holes else X4[:3]
    gaps = {}
    for family in (Family(), PAPER, Family(bits="hard")):
        fit = Fit(MODELS[name], BetaBernoulli(mass=1.5, n_features=2), X, 2, family)
        bounds = fit.run(40)
        gaps[family] = log_evidence(fit, X, 2) - bounds[-1]
    assert min(gaps.values()) > 0
    if not fit.model.learned:
        assert gaps[PAPER] > gaps[Family()]


def test_golden_evidence():
    """G06 and G20 bound what the paper's family reaches in G18 and G19, and what the joint one reaches."""
    finite, sticks = BetaBernoulli(mass=1.5, n_features=2), StickBreakingIBP(mass=1.5, truncation=2)
    for prior, known in ((finite, "G06"), (sticks, "G20")):
        fits = [Fit(FIXED, prior, X4, 2, family, codes=nu0(4, 2)) for family in (PAPER, Family())]
        paper, joint = (fit.run(100)[-1] for fit in fits)
        assert paper <= joint + 1e-9
        assert joint < CASES[known]["outputs"]["log_evidence"]
        reached = CASES["G18" if known == "G06" else "G19"]["outputs"]["elbo"][-1]
        assert paper == pytest.approx(reached, abs=1e-5)
        exact = log_evidence(fits[0], X4, 2)
        assert exact == pytest.approx(CASES[known]["outputs"]["log_evidence"], rel=1e-9)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("features", ["joint", "independent"])
def test_bound_is_the_expectation(name, holes, features, rng):
    """features_bound = E_q[log p(X, A, offset | Z) - log q(A, offset) - log q(Z)] + log density of the variances."""
    assert abs(score_of_bound(name, holes, features, rng)) <= z_limit(1)


def score_of_bound(name, holes, features, rng):
    X = with_holes(X4, rng) if holes else X4
    fit = Fit(MODELS[name], PRIORS["finite"], X, 3, Family(features=features))
    fit.run(2)
    model, concrete, q, P = fit.model, fit.q.observation, fit.q, fit.local.z_prob
    noise = q.noise
    n_draws, (n_columns, n_dims) = 20_000, q.mean.shape
    Z = rng.random((n_draws, *P.shape)) < P
    value = -(Z * np.log(P) + ~Z * np.log1p(-P)).sum(axis=(1, 2))
    cov = np.broadcast_to(q.cov, (n_dims, n_columns, n_columns)) * noise[:, None, None]
    centre = 0.0 if model.offset is None else np.asarray(getattr(model.offset, "centre", model.offset))
    prior_var = np.full((n_columns, n_dims), concrete.feature_var) * (noise if concrete.per_dim else 1.0)
    if n_columns == 4:
        prior_var[3] = model.offset.spread * noise
    A = np.empty((n_draws, n_columns, n_dims))
    for d in range(n_dims):
        law = multivariate_normal(q.mean[:, d], cov[d])
        A[:, :, d] = law.rvs(size=n_draws, random_state=rng).reshape(n_draws, n_columns)
        value -= law.logpdf(A[:, :, d])
    value += -0.5 * (np.log(2 * np.pi * prior_var) + A**2 / prior_var).sum(axis=(1, 2))
    codes = np.concatenate([Z, np.ones((n_draws, len(P), n_columns - 3))], axis=2)
    error = X - centre - codes @ A
    value += np.nansum(-0.5 * (np.log(2 * np.pi * noise) + error**2 / noise), axis=(1, 2))
    expected = model.engine(MeanFieldRows).features_bound(q, fit.sums) - model.engine(MeanFieldRows)._log_variances(
        concrete
    )
    return float(z_scores(value[:, None], np.array([expected]))[0])


# ---- updates


def test_golden_updates():
    """G12: one feature given the other, one column of bits given the other."""
    outputs = CASES["G12"]["outputs"]
    fit = finite_golden_fit()
    np.testing.assert_allclose(one_feature(fit.q, fit.sums, 0), outputs["phi0"], rtol=1e-9)
    q = fit.model.engine(MeanFieldRows).update_features(fit.q, fit.sums)
    assert 0.36 * q.cov[0, 0, 0] == pytest.approx(outputs["s2_0"], rel=1e-9)
    assert q.cov[0, 0, 1] == 0
    for _ in range(100):  # the limit of such updates
        fit.q = in_turn(fit.q, fit.sums)
    np.testing.assert_allclose(q.mean, fit.q.mean, rtol=1e-9)
    swapped = finite_golden_fit()
    parts = (swapped.model.engine(MeanFieldRows).keep_columns(part, [1, 0]) for part in (swapped.q, swapped.local))
    local, _ = swapped.model.engine(MeanFieldRows).update_rows(
        swapped.data, *parts, swapped.prior.expected_log_odds(swapped.weights)[::-1]
    )
    np.testing.assert_allclose(local.z_prob[:, 0], outputs["nu_col1"], rtol=1e-9)


def one_feature(q, sums, k):
    """phi_k at its optimum given the others (App. C.2)."""
    K = q.n_features
    others = [j for j in range(K) if j != k]
    ridge = q.observation.noise_var / q.observation.feature_var
    return (sums.cross[k] - sums.gram[k, others] @ q.mean[others]) / (sums.gram[k, k] + ridge)


def in_turn(q, sums):
    """The paper's pass over the features."""
    for k in range(q.n_features):
        mean = q.mean.copy()
        mean[k] = one_feature(q, sums, k)
        q = q._replace(mean=mean)
    return q


class PublishedSticks(StickBreakingIBP):
    """One update of the sticks at a time."""

    def update_weights(self, q, counts, n_rows):
        return q._replace(tau=multinomial_update(q.tau, q.mass.mean, counts, n_rows))


@pytest.mark.parametrize("name", ["G18", "G19"])
def test_golden_trajectories(name):
    """The paper's algorithm, with its features one after the other."""
    outputs = CASES[name]["outputs"]
    prior = BetaBernoulli(mass=1.5, n_features=2) if name == "G18" else PublishedSticks(mass=1.5, truncation=2)
    fit = Fit(FIXED, prior, X4, 2, PAPER, codes=nu0(4, 2))
    fit.update_weights()
    bounds = []
    for _ in range(200):
        cov = fit.model.engine(MeanFieldRows).update_features(fit.q, fit.sums).cov
        fit.q = in_turn(fit.q, fit.sums)._replace(cov=cov)
        fit.update_rows()
        fit.update_weights()
        bounds.append(fit.bound())
    np.testing.assert_allclose(np.array(bounds)[[0, 1, 9, 199]], outputs["elbo"], rtol=1e-8)
    if name == "G18":
        np.testing.assert_allclose(fit.local.z_prob, outputs["nu_final"], rtol=1e-6)
    else:
        np.testing.assert_allclose(fit.weights.tau.T, outputs["tau_final"], rtol=1e-6)


def test_joint_features_golden():
    """Section 8.3 of the reference: -26.631 for the joint q(A), -27.008 for independent features."""
    nu = expit(np.array([[0.3, -0.5], [1.0, 0.2], [-0.7, 0.9], [0.1, -1.2], [0.6, 0.6]]))
    for family, known in ((Family(), -26.631), (PAPER, -27.008)):
        fit = Fit(FIXED, BetaBernoulli(n_features=2), wave(5, 3), 2, family, codes=nu)
        fit.update_features()
        assert fit.model.engine(MeanFieldRows).features_bound(fit.q, fit.sums) - fit.sums.entropy == pytest.approx(
            known, abs=1e-3
        )


class Flat(Spec):
    """A law with a constant density."""

    support = (0.0, np.inf)
    centre = 1.0

    def log_prob(self, x):
        return 0.0

    def sample(self, rng):
        return 1.0

    def scaled(self, unit):
        return self


def test_golden_variances():
    """G24: the noise and the feature variance given q, without a prior."""
    outputs = CASES["G24"]["outputs"]
    fit = finite_golden_fit()
    model = FIXED.updated(noise_var=Flat(), feature_var=Flat(), scale=np.ones(3))
    learned = _point_variances.learn_variances(model, fit.q, fit.sums)
    assert learned.observation.noise_var == pytest.approx(outputs["sigma_n2"], rel=1e-7)
    assert _point_variances._feature_var(model, fit.q).observation.feature_var == pytest.approx(
        outputs["sigma_A2"], rel=1e-7
    )
    np.testing.assert_allclose(  # q itself did not change by what the noise became
        _point_variances._one_noise(model, fit.q, fit.sums, *_feature_factor.error_parts(fit.q, fit.sums)).cov
        * outputs["sigma_n2"],
        fit.q.cov * 0.36,
        rtol=1e-6,
    )


def slope(function, at=0.0, step=1e-4):
    """Derivative by central differences, of fourth order."""
    a, b, c, d = (function(at + i * step) for i in (-2, -1, 1, 2))
    return (a - 8 * b + 8 * c - d) / (12 * step)


def check_bits(fit, rng):
    """The last feature's bits, which were updated last: the best log-odds are where the slope is zero."""
    fit.update_rows()
    for n in rng.choice(fit.n_rows, 4, replace=False):

        def bound(change, n=n):
            P = fit.local.z_prob.copy()
            P[n, -1] = expit(logit(P[n, -1]) + change)
            _, sums = fit.model.engine(MeanFieldRows).update_rows(
                fit.data, fit.q, fit.local._replace(z_prob=P), np.zeros(3), 0
            )
            return fit.prior.weights_bound(fit.weights, sums.counts, fit.n_rows) + fit.model.engine(
                MeanFieldRows
            ).features_bound(fit.q, sums)

        assert abs(slope(bound)) < 1e-7
        assert max(bound(-0.5), bound(0.5)) < bound(0.0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("prior", "holes"), PAIRS)
def test_bits_are_at_their_optimum(name, holes, prior, rng):
    check_bits(settled(name, holes, rng, prior), rng)


def check_features(fit, rng):
    """No change of the means or of the covariances in a random direction raises the bound."""
    fit.update_features(learn=False)
    q, independent = fit.q, fit.q.family.features == "independent"
    means = rng.standard_normal((6, *q.mean.shape))
    turns = rng.standard_normal((6, *q.cov.shape))
    if independent:
        turns *= np.eye(len(q.mean))
    for mean, turn in itertools.chain(
        zip(means, np.zeros_like(turns), strict=True), zip(np.zeros_like(means), turns, strict=True)
    ):

        def bound(size, mean=mean, turn=turn):
            by = np.eye(len(q.mean)) + size * turn
            changed = q._replace(mean=q.mean + size * mean, cov=by @ q.cov @ np.swapaxes(by, 1, 2))
            return fit.model.engine(MeanFieldRows).features_bound(changed, fit.sums)

        assert abs(slope(bound)) < 1e-6
        assert max(bound(-0.05), bound(0.05)) < bound(0.0)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("features", ["joint", "independent"])
def test_features_are_at_their_optimum(name, holes, features, rng):
    check_features(settled(name, holes, rng, family=Family(features=features)), rng)


def check_variances(fit):
    """Each variance maximises the bound, with what the step holds held."""
    fit.update_features(learn=False)
    model, q, sums = fit.model, fit.q, fit.sums
    noise = q.observation.noise_var

    def bound(cov, **values):
        return model.engine(MeanFieldRows).features_bound(
            q._replace(observation=q.observation.updated(**values), cov=cov), sums
        )

    parts = _feature_factor.error_parts(q, sums)
    if isinstance(model.noise_var, PerDim):
        new = _point_variances._noise_per_dim(model, q, sums, parts[0]).observation.noise_var
        for d in range(3):

            def of_dim(log_v, d=d):
                values = new.copy()
                values[d] = np.exp(log_v)
                return -bound(q.cov, noise_var=values)

            lowest = model.floor(3)[d]
            found = minimize_scalar(of_dim, bounds=(np.log(lowest), np.log(new[d]) + 3), options={"xatol": 1e-10})
            assert of_dim(np.log(new[d])) <= found.fun + 1e-9
    else:
        new = _point_variances._one_noise(model, q, sums, *parts).observation.noise_var
        lowest = max(model.floor(3).mean(), 1e-3)

        def one(log_v):
            return -bound(q.cov * (noise / np.exp(log_v)), noise_var=float(np.exp(log_v)))

        found = minimize_scalar(one, bounds=(np.log(lowest), np.log(new) + 3), options={"xatol": 1e-10})
        assert one(np.log(new)) <= found.fun + 1e-9
    new = _point_variances._feature_var(model, q).observation.feature_var
    found = minimize_scalar(
        lambda log_v: -bound(q.cov, feature_var=float(np.exp(log_v))), bracket=(np.log(new) - 1, np.log(new) + 1)
    )
    assert np.log(new) == pytest.approx(found.x, abs=1e-6)
    stretched = _point_variances._stretch(model, q, sums)
    for factor in (0.99, 1.01):
        by = np.ones(len(q.mean))
        by[: q.n_features] = np.sqrt(factor)
        other = stretched._replace(
            observation=stretched.observation.updated(feature_var=stretched.observation.feature_var * factor),
            cov=stretched.cov * np.outer(by, by),
        )
        assert model.engine(MeanFieldRows).features_bound(other, sums) < model.engine(MeanFieldRows).features_bound(
            stretched, sums
        )


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", [name for name in MODELS if "all" in name or "other" in name])
def test_variances_are_at_their_optimum(name, holes, rng):
    check_variances(settled(name, holes, rng))


@pytest.mark.parametrize(("prior", "holes"), PAIRS)
@pytest.mark.parametrize("name", MODELS)
def test_bound_never_falls(name, prior, holes, rng):
    for family in (Family(), PAPER, Family(bits="hard")):
        fit = settled(name, holes, rng, prior, family, n_iter=0)
        bounds = fit.run(15)
        assert rises(bounds[3:] if family.bits == "hard" else bounds)  # the start is of no family of hard bits


def test_learned_feature_variance_does_not_wait_for_unused_features(rng):
    """Most features are as in their prior; the variance of the others is found in a few steps all the same."""
    Z = rng.random((200, 2)) < 0.5
    X = Z @ (3.0 * rng.standard_normal((2, 20))) + 0.3 * rng.standard_normal((200, 20))
    codes = np.zeros((200, 30))
    codes[:, :2] = Z
    model = LinearGaussian(noise_var=0.09, feature_var=InverseGamma(1.0, 1e-3))
    fit = Fit(model, BetaBernoulli(n_features=30), X, 30, codes=codes)
    found = []
    for _ in range(40):
        fit.update_features()
        found.append(fit.q.observation.feature_var)
    assert abs(np.log(found[12] / found[-1])) < 0.01


# ---- mistakes


def cov_with_the_wrong_sign(q, *, any_missing):
    return _feature_factor.evidence(q._replace(cov=-q.cov), any_missing=any_missing)


def only_variances(q, *, any_missing):
    """Of the paper's family, where the features of the joint one are correlated."""
    return _feature_factor.evidence(q._replace(cov=q.cov * np.eye(len(q.mean))), any_missing=any_missing)


def without_half_the_square(q, *, any_missing):
    right = _feature_factor.evidence(q, any_missing=any_missing)
    return right._replace(forms=right.forms - 0.5 * np.diag(np.diag(right.forms)))


@pytest.mark.parametrize("wrong", [cov_with_the_wrong_sign, only_variances, without_half_the_square])
def test_wrong_evidence_is_seen(wrong, rng, monkeypatch):
    fit = settled("learned offset", False, rng)
    monkeypatch.setattr(_mean_field_bits, "evidence", wrong)
    with pytest.raises(AssertionError):
        check_bits(fit, rng)


def test_wrong_features_are_seen(rng, monkeypatch):
    fit = settled("all learned", True, rng)
    monkeypatch.setattr(_mean_field, "prior_precision", lambda *a: 2.0 * _feature_factor.prior_precision(*a))
    fit.update_features(learn=False)
    monkeypatch.undo()
    monkeypatch.setattr(Fit, "update_features", lambda *args, **options: None)
    with pytest.raises(AssertionError):
        check_features(fit, rng)


def test_wrong_bounds_are_seen(rng, monkeypatch):
    def without_covariance(q, sums):
        left, added = _feature_factor.error_parts(q, sums)
        return left, 0.0 * added

    monkeypatch.setattr(_mean_field, "error_parts", without_covariance)
    assert abs(score_of_bound("all learned", True, "joint", rng)) > z_limit(1)
    monkeypatch.undo()
    monkeypatch.setattr(_mean_field, "prior_precision", lambda *a: 2.0 * _feature_factor.prior_precision(*a))
    assert abs(score_of_bound("learned offset", False, "joint", rng)) > z_limit(1)


def test_wrong_variances_are_seen(rng, monkeypatch):
    right = _point_variances._one_noise
    fit = settled("all learned", False, rng)
    monkeypatch.setattr(_point_variances, "_one_noise", lambda *args: right(*args[:4], 0.0 * args[4]))
    with pytest.raises(AssertionError):
        check_variances(fit)
