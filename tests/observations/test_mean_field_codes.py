"""Mean field of models with weights: Monte Carlo, numerical optima, golden values, mistakes."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import laplace, norm
from served import serves

from thali import (
    ICA,
    BetaBernoulli,
    BetaProcess,
    FactorAnalysis,
    InvalidParameterError,
    NormalOffset,
    PerDim,
    StickBreakingIBP,
)
from thali.core.distributions import Gamma, LogNormal
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows, ScaledFeatures
from thali.core.protocols.engines.predictions import Predictions
from thali.core.statistics import add
from thali.kernels.weights.code_factors import joint_divergence
from thali.kernels.weights.slabs import log_slab
from thali.observations.gaussian.mean_field import weights as _mean_field_codes
from thali.observations.gaussian.mean_field.sums import GaussianFeatures
from thali.observations.gaussian.mean_field.weight_factors import IndependentCodes, JointCodes
from thali.testing import z_limit
from thali.testing.zscores import z_scores

KINDS = {"normal": FactorAnalysis, "laplace": ICA}
FAMILIES = {
    "joint": Family(),
    "independent": Family(codes="independent"),
    "features too": Family(features="independent", codes="independent"),
    "hard": Family(bits="hard"),
    "hard, independent": Family(bits="hard", codes="independent"),
}
PRIORS = {
    "finite": BetaBernoulli(mass=1.2, n_features=2),
    "sticks": StickBreakingIBP(mass=1.2, truncation=2),
    "beta process": BetaProcess(mass=1.2, concentration=2.0, truncation=2, rounds=3),
}


class Fit:
    """Coordinate ascent, one block at a time; `bounds` has the bound after each."""

    def __init__(self, prior, model, X, family, codes):
        self.prior, self.model, self.family = prior, model, family
        self.data, self.n_rows = model.engine(MeanFieldRows).row_data(X), len(X)
        self.q = model.engine(MeanFieldRows).init_features(self.data, codes.shape[1], family)
        self.weights = prior.init_weights(len(X))
        self.local = model.engine(MeanFieldRows).init_rows(self.data, codes)
        self.bounds = []
        self.rows(0)
        self.features()
        self.bounds = [self.bound()]

    def bound(self):
        counts = self.statistics.counts
        return self.prior.weights_bound(self.weights, counts, self.n_rows) + self.model.engine(
            MeanFieldRows
        ).features_bound(self.q, self.statistics)

    def rows(self, n_passes=1):
        odds = self.prior.expected_log_odds(self.weights)
        self.local, self.statistics = self.model.engine(MeanFieldRows).update_rows(
            self.data, self.q, self.local, odds, n_passes
        )

    def features(self):
        self.q = self.model.engine(MeanFieldRows).update_features(self.q, self.statistics)

    def step(self):
        self.rows()
        self.bounds.append(self.bound())
        self.features()
        self.bounds.append(self.bound())
        self.weights = self.prior.update_weights(self.weights, self.statistics.counts, self.n_rows)
        self.bounds.append(self.bound())

    def run(self, n_steps):
        for _ in range(n_steps):
            self.step()
        return self


def some_data(kind, n_rows=30, n_dims=5, K=2, missing=0.0, seed=1, noise=0.5):
    rng = np.random.default_rng(seed)
    Z = rng.random((n_rows, K)) < 0.5
    codes = Z * KINDS[kind]().draw_weights(rng, Z.shape)
    X = codes @ (1.5 * rng.standard_normal((K, n_dims))) + noise * rng.standard_normal((n_rows, n_dims)) + 1.0
    holes = rng.random(X.shape) < missing
    holes[:, 0] = False
    holes[0] = False
    return np.where(holes, np.nan, X), codes


# ---- the bound


def log_joint_terms(fit, X, rng, n_draws):
    """log p(X, A, W | Z) + log p(hyperparameters) - log q(Z, W, A) at draws from q."""
    model, q, local, concrete = fit.model, fit.q, fit.local, fit.q.observation
    noise, n_dims = q.noise, X.shape[1]
    rate, precision, log_norm = model.law
    K = q.n_features
    hyper = model.noise_var.log_prob(noise) + model.feature_var.log_prob(concrete.feature_var)
    values = np.full(n_draws, hyper)
    covs = np.broadcast_to(q.cov, (n_dims, *q.cov.shape[1:])) * noise[:, None, None]
    A = np.stack([rng.multivariate_normal(q.mean[:, d], covs[d], size=n_draws) for d in range(n_dims)], axis=2)
    var = np.outer(np.append(np.full(K, concrete.feature_var), model.offset.spread), noise)
    values += norm.logpdf(A, scale=np.sqrt(var)).sum(axis=(1, 2))
    for d in range(n_dims):
        e = A[:, :, d] - q.mean[:, d]
        values += 0.5 * np.einsum("rk,kl,rl->r", e, np.linalg.inv(covs[d]), e)
        values += 0.5 * (len(e[0]) * np.log(2 * np.pi) + np.linalg.slogdet(covs[d])[1])
    for r in range(n_draws):
        Z, V = model.engine(MeanFieldRows).draw_rows(rng, local)
        with np.errstate(divide="ignore"):
            values[r] -= np.sum(np.log(np.where(Z == 1, local.z_prob, 1 - local.z_prob)))
        if isinstance(local, JointCodes):
            on = Z == 1
            b, c, w = local.pull[on], local.curve[on], V[on]
            norms = [log_slab(*pair, rate, precision, log_norm) for pair in zip(b, c, strict=True)]
            values[r] -= np.sum(b * w - 0.5 * c * w * w) - np.sum(norms)  # p(w) cancels
        else:
            W = np.where(Z == 1, V, np.nan)
            fresh = rng.laplace(local.mean, local.spread) if rate > 0 else rng.normal(local.mean, local.spread**0.5)
            W = np.where(Z == 1, W, fresh)
            log_p = -rate * np.abs(W) - 0.5 * precision * W * W - log_norm
            away, wide = np.abs(W - local.mean), local.spread
            if rate > 0:
                log_q = -away / wide - np.log(2 * wide)
            else:
                log_q = -0.5 * away**2 / wide - 0.5 * np.log(2 * np.pi * wide)
            values[r] += np.sum(log_p - log_q)
        mean = model.offset.centre + V @ A[r, :K] + A[r, K]
        values[r] += np.nansum(norm.logpdf(X, mean, np.sqrt(noise)))
    return values


def monte_carlo_score(kind, family, missing, rng, n_draws=400):
    X, _ = some_data(kind, n_rows=5, n_dims=3, missing=missing)
    model = KINDS[kind](noise_floor=0.0).adapt(X)
    fit = Fit(BetaBernoulli(mass=1.0, n_features=2), model, X, FAMILIES[family], rng.standard_normal((5, 2))).run(1)
    values = log_joint_terms(fit, X, rng, n_draws)
    return abs(
        float(
            z_scores(values[:, None], np.array([model.engine(MeanFieldRows).features_bound(fit.q, fit.statistics)]))[0]
        )
    )


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("family", ["joint", "independent", "features too"])
@pytest.mark.parametrize("kind", KINDS)
def test_bound_equals_its_monte_carlo_estimate(kind, family, missing, rng):
    assert monte_carlo_score(kind, family, missing, rng) <= z_limit(1)


def squares_of_means(rows, *arguments):
    total = rows(*arguments)
    arguments[-1][:] = arguments[-2] ** 2
    return total


def dearer_weights(rows, *arguments):
    """The divergence of a weight is paid in rows without the feature, too."""
    total, (z, _, pull, curve, _, _) = rows(*arguments), arguments[-6:]
    law = arguments[6:9]
    paid = [joint_divergence(*pair, *law)[0] for pair in zip(pull.ravel(), curve.ravel(), strict=True)]
    return total - np.sum((1 - z.ravel()) * paid)


@pytest.mark.parametrize("wrong", [squares_of_means, dearer_weights])
def test_a_wrong_bound_is_seen(wrong, monkeypatch, rng):
    monkeypatch.setattr(_mean_field_codes, "joint_rows", partial(wrong, _mean_field_codes.joint_rows))
    assert monte_carlo_score("normal", "joint", 0.0, rng, 1000) > z_limit(1)


# ---- coordinate ascent


def lowest_step(fit):
    return np.diff(fit.bounds).min() / abs(fit.bounds[-1])


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_bound_never_falls(kind, family, missing, rng):
    X, _ = some_data(kind, missing=missing)
    prior = StickBreakingIBP(mass=Gamma(1.0, 1.0), truncation=4)
    model = KINDS[kind](noise_floor=0.0).adapt(X)
    fit = Fit(prior, model, X, FAMILIES[family], rng.standard_normal((len(X), 4))).run(25)
    assert lowest_step(fit) >= -1e-9
    assert fit.bounds[-1] > fit.bounds[0] + 1.0


def test_a_wrong_update_makes_the_bound_fall(monkeypatch, rng):
    """Evidence that forgets what is not known of the features, which is much in few rows."""
    evidence = _mean_field_codes.evidence
    X, _ = some_data("normal", n_rows=6)
    model, prior = FactorAnalysis(noise_floor=0.0).adapt(X), BetaBernoulli(n_features=3)
    starts = rng.standard_normal((4, 6, 3))
    assert min(lowest_step(Fit(prior, model, X, Family(), codes).run(15)) for codes in starts) >= -1e-9

    def without_spread(q, *, any_missing):
        return evidence(q._replace(cov=np.zeros_like(q.cov)), any_missing=any_missing)

    monkeypatch.setattr(_mean_field_codes, "evidence", without_spread)
    assert min(lowest_step(Fit(prior, model, X, Family(), codes).run(15)) for codes in starts) < -1e-6


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_last_factor_of_a_pass_is_at_its_optimum(kind, family, missing, rng):
    """Slopes of the bound by its parameters are zero, by finite differences."""
    X, _ = some_data(kind, n_rows=4, missing=missing)
    model = KINDS[kind](noise_floor=0.0).adapt(X)
    fit = Fit(BetaBernoulli(mass=1.0, n_features=2), model, X, FAMILIES[family], rng.standard_normal((4, 2))).run(2)
    fit.rows(50 if family == "independent" else 1)  # location, spread and bit in turn
    names = ("pull", "curve") if family == "joint" else ("mean", "spread")
    h = 1e-4

    def moved(name, step):
        values = np.array(getattr(fit.local, name))
        if name == "z_prob":
            values[1, 1] = expit(np.log(values[1, 1] / (1 - values[1, 1])) + step)
        else:
            values[1, 1] *= math.exp(step)
        odds = fit.prior.expected_log_odds(fit.weights)
        _, statistics = model.engine(MeanFieldRows).update_rows(
            fit.data, fit.q, fit.local._replace(**{name: values}), odds, 0
        )
        return fit.prior.weights_bound(fit.weights, statistics.counts, 4) + model.engine(MeanFieldRows).features_bound(
            fit.q, statistics
        )

    for name in ("z_prob", *names):
        here, up, down = moved(name, 0.0), moved(name, h), moved(name, -h)
        assert abs(up - down) / (2 * h) < 1e-5
        assert here >= max(up, down) - 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_joint_is_better_than_independent(kind, rng):
    X, codes = some_data(kind, n_rows=60)
    model, prior = KINDS[kind](noise_floor=0.0).adapt(X), BetaBernoulli(n_features=2)
    joint, independent = (Fit(prior, model, X, FAMILIES[name], codes).run(80) for name in ("joint", "independent"))
    assert joint.bounds[-1] > independent.bounds[-1] + 1.0
    presence = joint.local.z_prob
    assert np.mean((presence > 0.5) == (np.abs(codes) > 0.3)) > 0.8  # a small weight is as good as none


# ---- golden values


def golden_fit():
    """G11 and G21 of the reference: one state of q, independent Laplace weights."""
    n, d = np.arange(4)[:, None], np.arange(3)
    X = np.sin((n + 1) * (d + 1)) + 0.7 * np.cos(0.3 * (n + 1) + (d + 1))
    model = ICA(noise_var=0.36, feature_var=1.21, offset=None, noise_floor=0.0)
    nu = expit(np.array([[0.3, -0.5], [1.0, 0.2], [-0.7, 0.9], [0.1, -1.2]]))
    mu = np.array([[0.7, -0.4], [1.2, 0.3], [-0.8, 0.05], [0.2, -0.9]])
    eta = np.array([[0.5, 0.9], [0.3, 1.2], [0.7, 0.4], [0.6, 0.8]])
    mean = np.array([[0.5, -0.2, 0.1], [-0.3, 0.8, 0.4]])
    q = GaussianFeatures(FAMILIES["features too"], model, mean, np.diag([0.2, 0.35])[None] / 0.36, np.zeros(2))
    data = model.engine(MeanFieldRows).row_data(X)
    _, statistics = model.engine(MeanFieldRows).update_rows(data, q, IndependentCodes(nu, mu, eta), np.zeros(2), 0)
    return SimpleNamespace(model=model, q=q, statistics=statistics)


@pytest.mark.parametrize(
    ("prior", "golden"),
    [
        (BetaBernoulli(mass=1.5, n_features=2), -36.4394117776),
        (StickBreakingIBP(mass=1.5, truncation=2), -39.6030614804),
    ],
)
def test_golden_bound(prior, golden):
    fit = golden_fit()
    weights = prior.init_weights(4)._replace(tau=np.array([[1.4, 0.9], [2.2, 3.1]]))
    bound = prior.weights_bound(weights, fit.statistics.counts, 4) + fit.model.engine(MeanFieldRows).features_bound(
        fit.q, fit.statistics
    )
    assert bound == pytest.approx(golden, rel=1e-9)


def test_golden_features():
    """The update of the first feature, the second as it is."""
    fit = golden_fit()
    new = fit.model.engine(MeanFieldRows).update_features(fit.q, fit.statistics, learn=False)
    assert 0.36 * new.cov[0, 0, 0] == pytest.approx(0.120520098792, rel=1e-9)
    gram, cross = fit.statistics.gram, fit.statistics.cross
    first = new.cov[0, 0, 0] * (cross[0] - gram[0, 1] * fit.q.mean[1])
    assert first == pytest.approx([0.371310969097, -0.257468210271, -0.369918507871], rel=1e-9)


# ---- the rest of the capability


@pytest.mark.parametrize("kind", KINDS)
def test_capabilities(kind):
    assert serves(KINDS[kind](), MeanFieldRows)
    assert serves(KINDS[kind](), ScaledFeatures)


def fitted(kind, family="joint", missing=0.0, n_steps=5):
    X, codes = some_data(kind, missing=missing)
    return Fit(BetaBernoulli(n_features=2), KINDS[kind](noise_floor=0.0).adapt(X), X, FAMILIES[family], codes).run(
        n_steps
    )


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_of_parts_add_up(kind, family, missing):
    fit = fitted(kind, family, missing)
    odds = fit.prior.expected_log_odds(fit.weights)
    whole, sums = fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, odds)
    parts, total = [], None
    for start, stop in ((0, 7), (7, 30)):
        local = type(fit.local)(*(values[start:stop] for values in fit.local))
        local, statistics = fit.model.engine(MeanFieldRows).update_rows(fit.data.part(start, stop), fit.q, local, odds)
        parts.append(local)
        total = statistics if total is None else add(total, statistics)
    for mine, theirs in zip(map(np.vstack, zip(*parts, strict=True)), whole, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(total, sums, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_same_bits_on_any_number_of_threads(missing):
    X, codes = some_data("laplace", n_rows=1500, K=4, missing=missing)
    fit = Fit(BetaBernoulli(n_features=4), ICA(noise_floor=0.0).adapt(X), X, Family(), codes)
    one, several = (
        fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, np.zeros(4), 2, n_threads=n)
        for n in (1, 3)
    )
    for mine, theirs in zip((*one[0], *one[1]), (*several[0], *several[1]), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("family", ["joint", "independent", "hard"])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_come_and_go(kind, family):
    fit = fitted(kind, family, 0.2)
    model, odds = fit.model, np.zeros(3)
    wide, q = (
        model.engine(MeanFieldRows).add_column(fit.local, np.linspace(-1, 1, 30)),
        model.engine(MeanFieldRows).add_feature(fit.q),
    )
    local, statistics = model.engine(MeanFieldRows).update_rows(fit.data, q, wide, odds, 0)
    assert local.z_prob.shape == (30, 3)
    assert np.allclose(model.engine(MeanFieldRows).expected_codes(local)[:, 2], np.linspace(-1, 1, 30), atol=0.1)
    back = (
        model.engine(MeanFieldRows).keep_columns(local, [0, 1]),
        model.engine(MeanFieldRows).keep_columns(q, [0, 1]),
        model.engine(MeanFieldRows).keep_columns(statistics, [0, 1]),
    )
    again, sums = model.engine(MeanFieldRows).update_rows(fit.data, back[1], back[0], odds[:2], 0)
    assert all(np.array_equal(a, b) for a, b in zip(back[0], again, strict=True))
    assert np.allclose(sums.gram, back[2].gram)
    assert np.allclose(sums.cross, back[2].cross)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_signs_change_together(kind, family, missing):
    fit = fitted(kind, family, missing)
    signs = np.array([-1.0, 1.0])
    turned = [fit.model.engine(ScaledFeatures).turned(part, signs) for part in (fit.q, fit.local, fit.statistics)]
    assert fit.model.engine(MeanFieldRows).features_bound(turned[0], turned[2]) == pytest.approx(
        fit.model.engine(MeanFieldRows).features_bound(fit.q, fit.statistics), rel=1e-12
    )
    _, statistics = fit.model.engine(MeanFieldRows).update_rows(fit.data, turned[0], turned[1], np.zeros(2), 0)
    assert all(np.allclose(a, b) for a, b in zip(statistics, turned[2], strict=True))
    shown = fit.model.engine(ScaledFeatures).turned(fit.q, fit.model.engine(ScaledFeatures).signs(fit.q)).mean[:2]
    assert (shown[range(2), np.abs(shown).argmax(axis=1)] > 0).all()


def bound_of_scaled(fit, factors):
    """What depends on the factors if q(w) and q(A) are scaled by them exactly, by quadrature and by definition."""
    model, q, local, total = fit.model, fit.q, fit.local, 0.0
    rate, precision, log_norm = model.law
    for k, f in enumerate(factors):
        for n in range(len(local.z_prob)):
            if isinstance(local, JointCodes):
                b, c, share = local.pull[n, k], local.curve[n, k], local.z_prob[n, k]
                log_norm_q = log_slab(b, c, rate, precision, 0.0)

                def log_q(w, b=b, c=c, log_norm_q=log_norm_q):
                    return b * w - 0.5 * (c + precision) * w * w - rate * np.abs(w) - log_norm_q
            else:
                share = 1.0
                spread = local.spread[n, k]
                law = laplace(local.mean[n, k], spread) if rate > 0 else norm(local.mean[n, k], spread**0.5)
                log_q = law.logpdf
            w = GRID + local.mean[n, k]
            log_p = -rate * np.abs(f * w) - 0.5 * precision * (f * w) ** 2 - log_norm + math.log(f)
            total += share * np.sum(np.exp(log_q(w)) * log_p) * (GRID[1] - GRID[0])
    K, n_dims = q.mean[: q.n_features].shape
    power = np.square(q.mean[:K]).sum(axis=1) / q.noise[0] + n_dims * np.diag(q.cov[0])[:K]
    ratio = q.noise[0] / q.observation.feature_var
    return total - np.sum(n_dims * np.log(factors)) - 0.5 * ratio * np.sum(power / factors**2)


GRID = np.linspace(-40.0, 40.0, 40_001)


@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_stretch_is_the_optimum(kind, family):
    X, codes = some_data(kind, n_rows=4)
    model = KINDS[kind](noise_var=0.5, feature_var=2.0, noise_floor=0.0).adapt(X)
    fit = Fit(BetaBernoulli(n_features=2), model, X, FAMILIES[family], codes).run(3)
    factors = model.engine(ScaledFeatures).stretch(fit.q, [fit.local])
    best = bound_of_scaled(fit, factors)
    for k in range(2):
        for step in (0.97, 1.03):
            other = np.array(factors)
            other[k] *= step
            assert bound_of_scaled(fit, other) < best
    assert best > bound_of_scaled(fit, np.ones(2))


@pytest.mark.parametrize("kind", KINDS)
def test_stretching_gets_further(kind):
    """A pass after it gains more than one without, where passes have become slow."""
    X, codes = some_data(kind, n_rows=60, noise=0.2)
    model = KINDS[kind](noise_floor=0.0).adapt(X)
    fit = Fit(BetaBernoulli(n_features=2), model, X, Family(), codes).run(25)
    factors = model.engine(ScaledFeatures).stretch(fit.q, [fit.local])
    before, q, local = fit.bounds[-1], fit.q, fit.local
    plain = fit.run(1).bounds[-1] - before
    fit.q, fit.local = (
        model.engine(ScaledFeatures).turned(q, factors),
        model.engine(ScaledFeatures).turned(local, factors),
    )
    assert fit.run(1).bounds[-1] - before > 1.5 * plain > 0


@pytest.mark.parametrize("family", ["joint", "independent"])
@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_moments_of_q(kind, family, rng):
    fit = fitted(kind, family)
    draws = np.array([fit.model.engine(MeanFieldRows).draw_rows(rng, fit.local) for _ in range(2000)])
    assert np.array_equal(draws[:, 0] != 0, draws[:, 1] != 0)
    z = z_scores(
        draws[:, 1].reshape(2000, -1).sum(axis=1)[:, None],
        np.array([fit.model.engine(MeanFieldRows).expected_codes(fit.local).sum()]),
    )
    z = np.append(z, z_scores(draws[:, 0].sum(axis=1), fit.statistics.counts))
    squares = np.diag(fit.statistics.gram)[:2]
    z = np.append(z, z_scores((draws[:, 1] ** 2).sum(axis=1), squares))
    assert np.abs(z).max() <= z_limit(len(z)), z


@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_are_encoded_with_the_codebook(kind):
    X, codes = some_data(kind, n_rows=80, noise=0.3)
    fit = Fit(BetaBernoulli(n_features=2), KINDS[kind](noise_floor=0.0).adapt(X), X, Family(), codes).run(60)
    book = fit.model.engine(MeanFieldRows).codebook(fit.q)
    encoded = fit.q.observation.engine(Predictions).encode(X[:20], book, fit.prior.expected_log_odds(fit.weights), 0.0)
    assert np.abs(encoded.presence - fit.local.z_prob[:20]).mean() < 0.15
    assert (
        np.corrcoef(encoded.codes.ravel(), fit.model.engine(MeanFieldRows).expected_codes(fit.local)[:20].ravel())[0, 1]
        > 0.95
    )
    assert np.isfinite(fit.q.observation.engine(Predictions).log_cells(X[:20], encoded.codes, book)).all()


def test_unexplained_is_what_is_left():
    fit = fitted("normal", missing=0.2)
    left = fit.model.engine(MeanFieldRows).unexplained(fit.data, fit.q, fit.local)
    assert np.isfinite(left).all()
    assert np.square(left).sum() < 0.7 * np.square(fit.data.X).sum()


def test_single_precision_is_close():
    fit = fitted("laplace")
    odds = fit.prior.expected_log_odds(fit.weights)
    _, double = fit.model.engine(MeanFieldRows).update_rows(fit.data, fit.q, fit.local, odds)
    _, single = fit.model.engine(MeanFieldRows).update_rows(
        fit.data, fit.q._replace(family=Family(precision="single")), fit.local, odds
    )
    assert single.entropy == pytest.approx(double.entropy, rel=1e-4)
    assert not np.array_equal(single.gram, double.gram)


def test_relevance_of_single_features_is_refused():
    X, codes = some_data("normal")
    with pytest.raises(InvalidParameterError, match="ard to be None"):
        Fit(BetaBernoulli(n_features=2), FactorAnalysis(ard=2.0, noise_floor=0.0).adapt(X), X, Family(), codes)


def test_learned_parts_are_those_of_the_model():
    model = FactorAnalysis()
    assert isinstance(model.noise_var, PerDim)
    assert isinstance(model.offset, NormalOffset)
    assert isinstance(fitted("normal").model.feature_var, LogNormal)
