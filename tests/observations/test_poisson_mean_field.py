"""Mean field of counts: golden values, bounds below the exact evidence, every update at its optimum."""

import numpy as np
import pytest
from count_runs import FAMILIES, ON, Run, some_counts
from scipy.special import digamma, gammaln, logsumexp, roots_genlaguerre
from scipy.stats import gamma, nbinom

from thali import Gamma, InvalidParameterError
from thali.core.protocols.engines.mean_field import MeanFieldRows
from thali.observations.poisson import mean_field as module
from thali.observations.poisson.mean_field import RowFactors, _features
from thali.testing import z_limit
from thali.testing.zscores import z_scores


def wave(c, n, m):
    return np.sin(c + 1.3 * np.arange(n)[:, None] + 0.7 * np.arange(m))


def test_golden_sweeps(rng):
    """G20: bounds of three sweeps (features; weights; bits one after the other) of a leaky spike, q(z) q(w)."""
    i, j = np.arange(6)[:, None], np.arange(5)
    X = ((3 * i + 5 * j + i * j + 1) % 4).T
    run = Run(X, 3, FAMILIES["independent"], rng, weight_rate=0.25, feature_shape=0.5, leak=1e-3)
    run.q = _features(FAMILIES["independent"], run.model, 1e-3, (1 + 0.5 * wave(0.2, 6, 3)).T, np.full((3, 1), 3.0))
    ones = np.ones((5, 3))
    run.local = RowFactors((0.5 + 0.3 * wave(1.0, 3, 5)).T, (1 + 0.5 * wave(0.6, 3, 5)).T, ones, ones)
    run.rows(0)
    bounds = [run.bound()]
    for _ in range(3):
        run.rows(0)
        run.features()
        run.rows()
        bounds.append(run.bound())
    np.testing.assert_allclose(bounds, [-215.331653088, -88.766639302, -73.2914711825, -72.6033499322], rtol=1e-10)
    np.testing.assert_allclose(run.q.a_shape[:, 0], [6.50042933778, 0.500037519655, 1.49953314257], rtol=1e-9)
    wanted = [0.999999999999, 0.999999999999, 0.999999999999, 0.999999999999, 0.151561022753]
    np.testing.assert_allclose(run.local.z_prob[:, 0], wanted, rtol=1e-9)


# ---- the bound


def exact_evidence(X, n_features, model, leak):
    """log p(X) of counts in one dim, by quadrature over the features: given them and the bits, each feature's part of a
    count is negative binomial."""
    points, masses = roots_genlaguerre(80, model.feature_shape - 1)
    points, masses = points / model.features_rate(1), masses / masses.sum()
    largest = int(X.max())
    values = np.arange(largest + 1)
    law = np.zeros((len(points), largest + 1))  # of one feature's part, bits summed out
    for s, p in ((1.0, ON), (leak, 1 - ON)):
        chance = model.weight_rate / (model.weight_rate + s * points)
        law += p * nbinom.pmf(values[None], model.weight_shape, chance[:, None])
    if n_features == 1:
        rows = law[:, X[:, 0].astype(int)]
        return np.log(np.sum(masses * np.prod(rows, axis=1)))
    total = np.zeros((len(points), len(points), largest + 1))
    for x in values:
        for part in range(x + 1):
            total[:, :, x] += law[:, None, part] * law[None, :, x - part]
    rows = np.prod(total[:, :, X[:, 0].astype(int)], axis=2)
    return np.log(masses @ rows @ masses)


@pytest.mark.parametrize("n_features", [1, 2])
@pytest.mark.parametrize("name", FAMILIES)
def test_bound_is_below_the_exact_evidence(name, n_features, rng):
    """Of the leaky model for soft bits, of the model itself for hard ones; and the joint q is closer."""
    X = np.array([[0.0], [3.0], [1.0]])
    run = Run(X, n_features, FAMILIES[name], rng, feature_shape=1.2, weight_shape=0.8, leak=0.05).settle()
    exact = exact_evidence(X, n_features, run.model, 0.0 if name == "hard" else 0.05)
    assert exact - 3.5 < run.bound() < exact
    if name == "joint":
        other = Run(X, n_features, FAMILIES["independent"], rng, feature_shape=1.2, weight_shape=0.8, leak=0.05)
        assert run.bound() > other.settle().bound()


def test_a_wrong_bound_is_seen(rng, monkeypatch):
    """The test above fails without the divergence of the weights' rates (a sign) or without the leak's exposure."""
    X = np.array([[0.0], [3.0], [1.0]])
    run = Run(X, 1, FAMILIES["joint"], rng, feature_shape=1.2, weight_shape=0.8, leak=0.05).settle()
    exact = exact_evidence(X, 1, run.model, 0.05)
    shift = run.model.engine(MeanFieldRows).features_bound(run.q, run.sums) - run.model.engine(
        MeanFieldRows
    ).features_bound(run.q, run.sums._replace(exposure=0 * run.sums.exposure))
    assert run.bound() < exact < run.bound() - shift


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", FAMILIES)
def test_bound_is_the_expectation(name, missing, rng):
    """E_q[log p(X, parts of counts, A, W, Z) - log q], parts of counts drawn by their optimal shares."""
    X = some_counts(rng, 3, 2, missing)
    run = Run(X, 2, FAMILIES[name], rng, leak=0.1)
    run.rows(), run.features(), run.rows()
    n_draws, model, q, (z_prob, w_shape, w_on, w_off) = 20_000, run.model, run.q, run.local
    hard, b = name == "hard", model.features_rate(2)
    Z = rng.random((n_draws, *z_prob.shape)) < z_prob
    rate = np.where(Z, w_on, w_off)
    W = rng.gamma(w_shape, 1 / rate)
    A = rng.gamma(q.a_shape, 1 / q.a_rate, (n_draws, *q.a_shape.shape))
    weights = gamma.logpdf(W, model.weight_shape, scale=1 / model.weight_rate) - gamma.logpdf(
        W, w_shape, scale=1 / rate
    )
    weights = np.where(Z, weights, 0.0) if hard else weights
    codes = W * np.where(Z, 1.0, 0.0 if hard else 0.1)
    value = weights.sum(axis=(1, 2))
    value += np.sum(
        gamma.logpdf(A, model.feature_shape, scale=1 / b) - gamma.logpdf(A, q.a_shape, scale=1 / q.a_rate), (1, 2)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        value += np.sum(np.where(Z, np.log(ON / z_prob), np.log((1 - ON) / (1 - z_prob))), axis=(1, 2))
        log_code = z_prob * (digamma(w_shape) - np.log(w_on)) + (1 - z_prob) * (
            digamma(w_shape) - np.log(w_off) + np.log(0.1)
        )
        log_code = np.where(hard & (z_prob == 0), -1e3, log_code)
    log_part = log_code[:, :, None] + q.log_mean
    shares = np.exp(log_part - logsumexp(log_part, axis=1, keepdims=True))  # (row, feature, dim)
    for n, d in np.argwhere(~np.isnan(X)):
        parts = rng.multinomial(int(X[n, d]), shares[n, :, d], n_draws)
        rates = codes[:, n] * A[:, :, d]
        with np.errstate(divide="ignore", invalid="ignore"):
            value += np.sum(np.where(parts > 0, parts * np.log(rates / shares[n, :, d]), 0.0), axis=1)
        value += -rates.sum(axis=1) - gammaln(X[n, d] + 1)
    assert abs(z_scores(value[:, None], np.array([run.bound()]))[0]) < z_limit(1)


# ---- updates


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", FAMILIES)
def test_bound_never_falls(name, missing, rng):
    run = Run(some_counts(rng, 30, 8, missing), 5, FAMILIES[name], rng, weight_rate=Gamma(1.0, 1.0), leak=1e-3)
    last = run.bound()
    for i in range(60):
        run.rows(1 + i % 2)
        middle = run.bound()
        run.features(learn=i > 5)
        now = run.bound()
        assert middle >= last - 1e-9 * abs(last)
        assert now >= middle - 1e-9 * abs(middle)
        last = now


def test_a_wrong_update_makes_the_bound_fall(rng, monkeypatch):
    """The test above sees weights whose prior has twice its rate."""
    run = Run(some_counts(rng, 30, 8), 5, FAMILIES["joint"], rng).settle()
    before, joint = run.bound(), module.joint_rows
    monkeypatch.setattr(module, "joint_rows", lambda *parts: joint(*parts[:10], 2 * parts[10], *parts[11:]))
    run.rows()
    assert run.bound() < before - 1e-3


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", FAMILIES)
def test_updates_reach_the_optimum(name, missing, rng):
    """Slopes of the bound are zero in every factor's parameters; hard bits gain by no flip."""
    run = Run(some_counts(rng, 5, 3, missing), 2, FAMILIES[name], rng, leak=0.05).settle(400)
    soft = name != "hard"

    def slope(change):
        return (change(1e-5) - change(-1e-5)) / 2e-5

    for field in ("a_shape", "a_rate"):
        values = getattr(run.q, field)
        for index in np.ndindex(values.shape):

            def moved(step, field=field, index=index, values=values):
                new = values.copy()
                new[index] *= np.exp(step)
                q = run.q._replace(**{field: new})
                return run.bound(_features(q.family, q.observation, q.leak, q.a_shape, q.a_rate), None)

            assert abs(slope(moved)) < 1e-5
    for field in ("w_shape", "w_on", "w_off") if soft else ("w_shape", "w_on"):
        values = getattr(run.local, field)
        for index in np.ndindex(values.shape):
            if not soft and run.local.z_prob[index] == 0:
                continue

            def row_moved(step, field=field, index=index, values=values):
                new = values.copy()
                new[index] *= np.exp(step)
                local = run.local._replace(**{field: new})
                if name == "independent":  # one rate, whichever the bit
                    local = local._replace(w_off=local.w_on) if field == "w_on" else local
                return run.bound(local=local)

            if not (name == "independent" and field == "w_off"):
                assert abs(slope(row_moved)) < 1e-5
    for index in np.ndindex(run.local.z_prob.shape):
        z = run.local.z_prob[index]

        def bit_moved(step, index=index, z=z):
            new = run.local.z_prob.copy()
            new[index] = 1 / (1 + (1 - z) / z * np.exp(-step)) if soft else step
            return run.bound(local=run.local._replace(z_prob=new))

        if soft:
            assert abs(slope(bit_moved)) < 1e-5
        else:
            w = run.local.w_shape[index], run.local.w_on[index]
            assert bit_moved(1.0 - z) < run.bound() + 1e-9, w


def test_learned_rate_is_the_optimum(rng):
    run = Run(some_counts(rng, 20, 6), 3, FAMILIES["joint"], rng, weight_rate=Gamma(2.0, 3.0)).settle(20)
    run.features(learn=True)
    best = run.q.observation.weight_rate
    for factor in (0.99, 1.01):
        other = run.q._replace(observation=run.q.observation.replace(weight_rate=factor * best))
        assert run.bound(other) < run.bound()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_hot_pass_has_no_bits(name, rng):
    """Weights and features move as without a spike; the bits it leaves are on where the feature made counts."""
    X = some_counts(rng, 20, 6)
    run = Run(X, 3, FAMILIES[name], np.random.default_rng(0), leak=1e-3)
    free = Run(X, 3, FAMILIES["independent" if name == "independent" else "joint"], np.random.default_rng(0), leak=1.0)
    assert run.model.engine(MeanFieldRows).annealed(run.q, 1.0) == run.q
    free.local = run.local
    for _ in range(5):
        hot = run.model.engine(MeanFieldRows).annealed(run.q, 5.0)
        run.local, run.sums = run.model.engine(MeanFieldRows).update_rows(run.data, hot, run.local, run.odds)
        run.features()
        free.rows()
        free.features()
        np.testing.assert_allclose(run.q.mean, free.q.mean, rtol=1e-9)
    made = run.local.w_shape - run.model.weight_shape
    assert (run.local.z_prob[made > 1] > 0.9).all()
    assert (run.local.z_prob[made < 0.01] < 0.2).all()


def test_without_bits_it_is_matrix_factorisation(rng):
    """leak = 1: q(z) is the prior, and features and weights are those of VB-NMF written down directly."""
    X = some_counts(rng, 8, 5)
    run = Run(X, 3, FAMILIES["independent"], rng, leak=1.0)
    shape, rate = run.local.w_shape.copy(), run.local.w_on.copy()
    a, b = np.full((3, 5), 0.5), np.full((3, 1), 2.5)
    for _ in range(4):
        run.rows()
        run.features()
        code, load = np.exp(digamma(shape)) / rate, np.exp(digamma(a)) / b
        shape = 0.25 + code * ((X / (code @ load)) @ load.T)
        rate = np.broadcast_to(0.4 + (a / b).sum(axis=1), shape.shape)
        code = np.exp(digamma(shape)) / rate
        a = 0.5 + load * (code.T @ (X / (code @ load)))
        b = 2.5 + (shape / rate).sum(axis=0)[:, None]
        np.testing.assert_allclose(run.local.z_prob, ON, rtol=1e-12)
        np.testing.assert_allclose(run.q.mean, a / b, rtol=1e-9)
        np.testing.assert_allclose(run.model.engine(MeanFieldRows).expected_codes(run.local), shape / rate, rtol=1e-9)
    with pytest.raises(InvalidParameterError, match="no bits"):
        run.model.engine(MeanFieldRows).init_features(run.data, 2, FAMILIES["hard"])
