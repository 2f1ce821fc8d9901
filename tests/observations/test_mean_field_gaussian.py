"""Mean field of the linear-Gaussian model: what its bound is, that each update is an optimum, and mistakes."""

import numpy as np
import pytest
from gaussian_checks import check_bits, check_features, check_variances, log_evidence, score_of_bound
from gaussian_fits import MODELS, PAIRS, PAPER, X4, Fit, rises, settled, with_holes

from thali import BetaBernoulli, InverseGamma, LinearGaussian
from thali.core.protocols.engines.mean_field import Family
from thali.observations.gaussian.mean_field import bits as _mean_field_bits
from thali.observations.gaussian.mean_field import features as _mean_field
from thali.observations.gaussian.mean_field import point_variances as _point_variances
from thali.observations.gaussian.mean_field import sums as _feature_factor
from thali.testing import z_limit


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


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("features", ["joint", "independent"])
def test_bound_is_the_expectation(name, holes, features, rng):
    """features_bound = E_q[log p(X, A, offset | Z) - log q(A, offset) - log q(Z)] + log density of the variances."""
    assert abs(score_of_bound(name, holes, features, rng)) <= z_limit(1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("prior", "holes"), PAIRS)
def test_bits_are_at_their_optimum(name, holes, prior, rng):
    check_bits(settled(name, holes, rng, prior), rng)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("features", ["joint", "independent"])
def test_features_are_at_their_optimum(name, holes, features, rng):
    check_features(settled(name, holes, rng, family=Family(features=features)), rng)


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
