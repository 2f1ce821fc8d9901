"""Mean field of the linear-Gaussian model: what its bound is, that each update is an optimum, and golden values."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import digamma, expit, logit, logsumexp
from scipy.stats import multivariate_normal

from thali import BetaBernoulli, InverseGamma, LinearGaussian, StickBreakingIBP
from thali.distributions import Gamma, LogNormal, NormalOffset, PerDim
from thali.observations import _feature_factor, _mean_field, _mean_field_bits, _point_variances
from thali.priors import _stick_weights
from thali.priors._entropies import beta_entropy
from thali.priors._stick_weights import multinomial_update
from thali.priors.beta_bernoulli import BetaWeights
from thali.priors.beta_process import BetaProcess
from thali.spec import Spec
from thali.stats import add
from thali.testing import z_limit
from thali.testing.enumerate import all_matrices
from thali.testing.zscores import z_scores
from thali.variational_protocols import Family, MeanFieldRows

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/ibp-gibbs-variational.json").read_text())
CASES = {case["id"]: case for case in GOLDEN}
INPUTS = CASES["G11"]["inputs"]
PAPER = Family(features="independent")


def wave(n_rows, n_dims):
    n, d = np.arange(1, n_rows + 1)[:, None], np.arange(1, n_dims + 1)
    return np.sin(n * d) + 0.7 * np.cos(0.3 * n + d)


def nu0(n_rows, K):
    return expit(np.sin(1.7 * np.arange(n_rows)[:, None] + 2.3 * np.arange(K) + 0.5))


X4 = wave(4, 3)
FIXED = LinearGaussian(noise_var=0.36, feature_var=1.21)
MODELS = {
    "as in the paper": FIXED,
    "noise per dim": LinearGaussian(noise_var=[0.3, 0.5, 0.2], feature_var=1.6),
    "offset": LinearGaussian(noise_var=0.36, feature_var=1.21, offset=[0.3, -0.2, 0.5]),
    "learned offset": LinearGaussian(noise_var=0.36, feature_var=1.21, offset=NormalOffset(spread=4.0)),
    "all learned": LinearGaussian(offset=NormalOffset(spread=4.0)),
    "all learned, floor": LinearGaussian(noise_floor=0.4, offset=NormalOffset(spread=4.0)),
    "all learned per dim": LinearGaussian(noise_var=PerDim(), offset=NormalOffset(spread=4.0), noise_floor=0.1),
    "other laws": LinearGaussian(noise_var=LogNormal(-1.0, 2.0), feature_var=Gamma(2.0, 1.0)),
}
PRIORS = {
    "finite": BetaBernoulli(mass=Gamma(1.0, 1.0), n_features=3),
    "sticks": StickBreakingIBP(mass=1.5, truncation=3),
    "beta process": BetaProcess(mass=1.5, concentration=2.0, truncation=3, rounds=4),
}

PAIRS = [("finite", False), ("finite", True), ("sticks", True), ("beta process", False)]


def with_holes(X, rng, share=0.2):
    holes = rng.random(X.shape) < share
    holes[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = False
    holes[0, 0] = True
    return np.where(holes, np.nan, X)


class Fit:
    """Coordinate ascent, step by step."""

    def __init__(self, model, prior, X, K, family=None, seed=0, codes=None):
        rng = np.random.default_rng(seed)
        self.model, self.prior, self.n_rows = model.adapt(model.check_data(X)), prior, len(X)
        self.data = self.model.row_data(X)
        self.q = self.model.init_features(self.data, K, family or Family())
        self.local = self.model.init_rows(self.data, rng.random((len(X), K)) if codes is None else codes)
        self.weights = prior.init_weights(len(X))
        self.local, self.sums = self.model.update_rows(self.data, self.q, self.local, np.zeros(K), 0)

    def bound(self):
        return self.prior.weights_bound(self.weights, self.sums.counts, self.n_rows) + self.model.features_bound(
            self.q, self.sums
        )

    def update_weights(self):
        self.weights = self.prior.update_weights(self.weights, self.sums.counts, self.n_rows)

    def update_features(self, learn=True):
        self.q = self.model.update_features(self.q, self.sums, learn=learn)

    def update_rows(self, n_passes=1):
        odds = self.prior.expected_log_odds(self.weights)
        self.local, self.sums = self.model.update_rows(self.data, self.q, self.local, odds, n_passes)

    def run(self, n_iter):
        """The bound after each of the updates."""
        bounds = []
        for _ in range(n_iter):
            for step in (self.update_weights, self.update_features, self.update_rows):
                step()
                bounds.append(self.bound())
        return np.array(bounds)


def rises(bounds):
    return bool((np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all())


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
    return float(logsumexp(terms)) + fit.model._log_variances(fit.q.observation)


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
    expected = model.features_bound(q, fit.sums) - model._log_variances(concrete)
    return float(z_scores(value[:, None], np.array([expected]))[0])


# ---- updates


def test_golden_updates():
    """G12: one feature given the other, one column of bits given the other."""
    outputs = CASES["G12"]["outputs"]
    fit = finite_golden_fit()
    np.testing.assert_allclose(one_feature(fit.q, fit.sums, 0), outputs["phi0"], rtol=1e-9)
    q = fit.model.update_features(fit.q, fit.sums)
    assert 0.36 * q.cov[0, 0, 0] == pytest.approx(outputs["s2_0"], rel=1e-9)
    assert q.cov[0, 0, 1] == 0
    for _ in range(100):  # the limit of such updates
        fit.q = in_turn(fit.q, fit.sums)
    np.testing.assert_allclose(q.mean, fit.q.mean, rtol=1e-9)
    swapped = finite_golden_fit()
    parts = (swapped.model.keep_columns(part, [1, 0]) for part in (swapped.q, swapped.local))
    local, _ = swapped.model.update_rows(swapped.data, *parts, swapped.prior.expected_log_odds(swapped.weights)[::-1])
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
        cov = fit.model.update_features(fit.q, fit.sums).cov
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
        assert fit.model.features_bound(fit.q, fit.sums) - fit.sums.entropy == pytest.approx(known, abs=1e-3)


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


def settled(name, holes, rng, prior="finite", family=None, n_iter=3):
    X = with_holes(wave(9, 3), rng) if holes else wave(9, 3)
    fit = Fit(MODELS[name], PRIORS[prior], X, 3, family)
    fit.run(n_iter)
    return fit


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
            _, sums = fit.model.update_rows(fit.data, fit.q, fit.local._replace(z_prob=P), np.zeros(3), 0)
            return fit.prior.weights_bound(fit.weights, sums.counts, fit.n_rows) + fit.model.features_bound(fit.q, sums)

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
            return fit.model.features_bound(changed, fit.sums)

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
        return model.features_bound(q._replace(observation=q.observation.updated(**values), cov=cov), sums)

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
        assert model.features_bound(other, sums) < model.features_bound(stretched, sums)


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


# ---- what is exact by construction


def test_nothing_missing_is_no_mask(rng):
    """Gram matrices of each dim, of which none lacks a row, say what one for all says."""
    for name in MODELS:
        fit = settled(name, False, rng)
        masked = fit.sums._replace(lacking=np.zeros((3, 4, 4)))
        mine, theirs = (fit.model.update_features(fit.q, sums) for sums in (masked, fit.sums))
        np.testing.assert_allclose(mine.mean, theirs.mean, atol=1e-9)
        np.testing.assert_allclose(mine.cov, np.broadcast_to(theirs.cov, mine.cov.shape), atol=1e-9)
        np.testing.assert_allclose(mine.observation.noise_var, theirs.observation.noise_var, rtol=1e-7)
        assert mine.observation.feature_var == pytest.approx(theirs.observation.feature_var, rel=1e-6)
        assert fit.model.features_bound(fit.q, masked) == pytest.approx(
            fit.model.features_bound(fit.q, fit.sums), rel=1e-12
        )


@pytest.mark.parametrize("precision", ["double", "single"])
def test_parts_make_the_whole(precision, rng):
    X = wave(300, 6) + rng.standard_normal((300, 6))
    X[:150] = with_holes(X[:150], rng)
    fit = Fit(MODELS["all learned"], PRIORS["finite"], X, 3, Family(precision=precision))
    fit.run(2)
    odds = np.array([0.3, -0.2, 0.1])
    local, sums = fit.model.update_rows(fit.data, fit.q, fit.local, odds)
    parts = []
    for start, stop in ((0, 100), (100, 160), (160, 300)):
        some = type(fit.local)(*(values[start:stop] for values in fit.local))
        mine, part = fit.model.update_rows(fit.data.part(start, stop), fit.q, some, odds)
        np.testing.assert_allclose(mine.z_prob, local.z_prob[start:stop], atol=1e-6)
        parts.append(part)
    whole = add(add(*parts[:2]), parts[2])
    for mine, theirs in zip(whole, sums, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-4)
    alone = fit.model.update_rows(fit.data, fit.q, fit.local, odds, n_threads=1)
    assert all(np.array_equal(a, b) for a, b in zip(alone[1], sums, strict=True))
    assert np.array_equal(alone[0].z_prob, local.z_prob)


def test_data_are_copied_only_where_they_must_be(rng):
    X = rng.standard_normal((20, 3))
    assert FIXED.row_data(X).double is X
    data = FIXED.row_data(X.astype(np.float32))
    assert data.single is data.X
    assert data.part(5, 9).single.base is data.X
    X.flags.writeable = False
    assert FIXED.row_data(X).X.flags.writeable
    centred = MODELS["offset"].row_data(np.where(X > 1, np.nan, X))
    assert np.array_equal(centred.X, np.where(X > 1, 0.0, X - MODELS["offset"].offset))
    some = centred.part(5, 15)
    assert len(some) == 10
    rows, dims = np.nonzero(X[5:15] > 1)
    assert np.array_equal(some.missing_row, rows)
    assert np.array_equal(some.missing_dim, dims)


def test_many_threads_give_the_same_bits(rng, monkeypatch):
    monkeypatch.setattr(_mean_field_bits, "_LEAST_WORK", 1)
    monkeypatch.setattr(_feature_factor, "_LEAST_WORK", 1)
    fit = Fit(FIXED.replace(offset=NormalOffset()), PRIORS["finite"], with_holes(wave(1000, 6), rng, 0.01), 3)
    fit.update_features()
    results = [fit.model.update_rows(fit.data, fit.q, fit.local, np.zeros(3), 1, n) for n in (1, 2, 5)]
    for local, sums in results[1:]:
        assert np.array_equal(local.z_prob, results[0][0].z_prob)
        assert all(np.array_equal(a, b) for a, b in zip(sums, results[0][1], strict=True))


@pytest.mark.parametrize("holes", [False, True])
def test_single_precision_is_close(holes, rng):
    X = wave(200, 5) + 0.5 * rng.standard_normal((200, 5))
    X = with_holes(X, rng) if holes else X
    bounds = [
        Fit(MODELS["all learned"], PRIORS["finite"], X, 3, Family(precision=precision)).run(20)[-1]
        for precision in ("double", "single")
    ]
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-4)


def test_annealing_divides_the_evidence(rng):
    fit = settled("all learned per dim", True, rng)
    one = fit.model.keep_columns(fit.q, [0])
    local = fit.model.keep_columns(fit.local, [0])

    def log_odds(temperature):
        q = fit.model.annealed(one, temperature)
        return logit(fit.model.update_rows(fit.data, q, local, np.zeros(1))[0].z_prob)

    np.testing.assert_allclose(log_odds(5.0), log_odds(1.0) / 5, rtol=1e-9)


def test_columns_come_and_go(rng):
    """A feature as in its prior that no row has changes nothing; what was added can be dropped again."""
    for name in ("all learned", "noise per dim"):
        fit = settled(name, True, rng)
        q, local = fit.model.add_feature(fit.q), fit.model.add_column(fit.local, np.zeros(9))
        _, sums = fit.model.update_rows(fit.data, q, local, np.zeros(4), 0)
        known = fit.model.features_bound(fit.q, fit.sums)
        assert fit.model.features_bound(q, sums) == pytest.approx(known, rel=1e-12)
        q, sums = (fit.model.keep_columns(part, np.arange(3)) for part in (q, sums))
        assert fit.model.features_bound(q, sums) == pytest.approx(known, rel=1e-12)
        order = np.array([2, 0, 1])
        q, sums, local = (fit.model.keep_columns(part, order) for part in (fit.q, fit.sums, fit.local))
        assert fit.model.features_bound(q, sums) == pytest.approx(known, rel=1e-12)
        assert np.array_equal(local.z_prob, fit.local.z_prob[:, order])


def test_no_features(rng):
    fit = settled("all learned", True, rng)
    parts = [fit.model.keep_columns(part, np.arange(0)) for part in (fit.q, fit.local)]
    local, sums = fit.model.update_rows(fit.data, *parts, np.zeros(0))
    q = fit.model.update_features(parts[0], sums)
    assert local.z_prob.shape == (9, 0)
    assert np.isfinite(fit.model.features_bound(q, sums))


def test_what_is_left_and_what_predicts(rng):
    X = with_holes(wave(9, 3) + 5.0, rng)
    fit = Fit(MODELS["all learned"], PRIORS["finite"], X, 3)
    fit.run(20)
    observation = fit.q.observation
    assert isinstance(fit.model, MeanFieldRows)
    observation.require_concrete("test")
    left = fit.model.unexplained(fit.data, fit.q, fit.local)
    codes = fit.model.expected_codes(fit.local)
    book = fit.model.variational_codebook(fit.q)
    expected = X - observation.reconstruct(codes, book["features"])
    np.testing.assert_allclose(left, np.where(np.isnan(X), 0.0, expected), atol=1e-9)
    encoded = observation.encode(X, book, fit.prior.expected_log_odds(fit.weights), 0.0)
    assert np.isfinite(encoded.log_density).all()
    assert np.corrcoef(encoded.presence.ravel(), codes.ravel())[0, 1] > 0.8
    assert np.isfinite(observation.log_cells(X, codes, book)[~np.isnan(X)]).all()
    bits = np.mean([fit.model.draw_rows(rng, fit.local)[0] for _ in range(4000)], axis=0)
    z = (bits - fit.local.z_prob) / np.sqrt(np.maximum(fit.local.z_prob * (1 - fit.local.z_prob), 1e-4) / 4000)
    assert np.abs(z).max() <= z_limit(z.size)


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
