"""Variational weights of every prior that has them: the bound is what it says, and each update is its optimum."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import betaln, gammaln

from thali import BetaBernoulli, Gamma, StickBreakingIBP
from thali.core.protocols.prior import VariationalWeights
from thali.priors.sticks import weights as _stick_weights
from thali.testing import z_limit
from thali.testing.zscores import z_scores

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/ibp-gibbs-variational.json").read_text())
CASES = {case["id"]: case for case in GOLDEN}
N_ROWS = 9
COUNTS = np.array([6.2, 4.1, 2.3, 0.7])
PRIORS = {
    "finite": BetaBernoulli(mass=1.7, n_features=4),
    "finite, mass learned": BetaBernoulli(mass=Gamma(2.0, 1.5), n_features=4),
    "sticks": StickBreakingIBP(mass=1.7, truncation=4),
    "sticks, mass learned": StickBreakingIBP(mass=Gamma(2.0, 1.5), truncation=4),
    "sticks, exact": StickBreakingIBP(mass=1.7, truncation=4, log_complement="exact"),
    "sticks, exact, mass learned": StickBreakingIBP(mass=Gamma(2.0, 1.5), truncation=4, log_complement="exact"),
}


def some_q(prior):
    q = prior.init_weights(N_ROWS)
    tau = np.array([[2.0, 3.0, 1.5, 1.2], [1.0, 1.4, 2.0, 1.1]])
    return q._replace(tau=tau, mass=q.mass if q.mass.prior is None else q.mass._replace(shape=3.0, rate=1.4))


@pytest.mark.parametrize("name", PRIORS)
def test_bound_is_the_expectation(name, rng):
    """weights_bound = E_q[log p(Z, weights, mass) - log q]; below it where the multinomial bound is in it."""
    prior = PRIORS[name]
    assert isinstance(prior, VariationalWeights)
    q, n_draws = some_q(prior), 200_000
    v = rng.beta(*q.tau, size=(n_draws, 4))
    log_q = ((q.tau[0] - 1) * np.log(v) + (q.tau[1] - 1) * np.log1p(-v) - betaln(*q.tau)).sum(axis=1)
    learned = q.mass.prior is not None
    mass = rng.gamma(q.mass.shape, size=n_draws) / q.mass.rate if learned else np.full(n_draws, prior.mass)
    log_p = np.zeros(n_draws)
    if learned:
        for (shape, rate), sign in (((prior.mass.shape, prior.mass.rate), 1), (q.mass[:2], -1)):
            log_p += sign * (shape * math.log(rate) - gammaln(shape) + (shape - 1) * np.log(mass) - rate * mass)
    a = (mass / 4 if isinstance(prior, BetaBernoulli) else mass)[:, None]
    weights = v if isinstance(prior, BetaBernoulli) else np.cumprod(v, axis=1)
    log_p += (np.log(a) + (a - 1) * np.log(v)).sum(axis=1)
    log_p += np.log(weights) @ COUNTS + np.log1p(-weights) @ (N_ROWS - COUNTS)
    z = float(z_scores((log_p - log_q)[:, None], np.array([prior.weights_bound(q, COUNTS, N_ROWS)]))[0])
    if name.startswith("sticks") and "exact" not in name:
        assert z > z_limit(1)
    else:
        assert abs(z) <= z_limit(1)


@pytest.mark.parametrize("name", PRIORS)
def test_log_odds_are_the_slope_of_the_bound(name):
    """One more expected row with feature k, one less without it: that is what a row's update needs."""
    prior = PRIORS[name]
    q = some_q(prior)
    for k in range(4):
        more = COUNTS + 0.5 * np.eye(4)[k]
        less = COUNTS - 0.5 * np.eye(4)[k]
        slope = prior.weights_bound(q, more, N_ROWS) - prior.weights_bound(q, less, N_ROWS)
        assert prior.expected_log_odds(q)[k] == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize("name", PRIORS)
def test_updates_reach_the_numerical_optimum(name):
    """Many passes end where a general optimiser ends, and the bound rises all the way."""
    prior = PRIORS[name]
    q = some_q(prior)
    bound = prior.weights_bound(q, COUNTS, N_ROWS)
    for _ in range(300):
        q = prior.update_weights(q, COUNTS, N_ROWS)
        new = prior.weights_bound(q, COUNTS, N_ROWS)
        assert new >= bound - 1e-9 * abs(bound)
        bound = new

    learned = q.mass.prior is not None

    def negative(x):
        tau, mass = np.exp(x[:8].reshape(2, 4)), q.mass
        if learned:
            mass = mass._replace(shape=math.exp(x[8]), rate=math.exp(x[9]))
        return -prior.weights_bound(q._replace(tau=tau, mass=mass), COUNTS, N_ROWS)

    start = np.log(np.concatenate([some_q(prior).tau.ravel(), (3.0, 1.4) if learned else ()]))
    found = minimize(negative, start, method="BFGS", options={"gtol": 1e-7})
    assert bound == pytest.approx(-found.fun, abs=2e-6)


def test_a_wrong_update_is_seen(monkeypatch):
    """The garbled bracket of the printed update: the sum over the sticks that may fail later is left out."""
    right = _stick_weights.multinomial_update
    monkeypatch.setattr(
        _stick_weights,
        "multinomial_update",
        lambda *args: np.vstack([args[1] + np.cumsum(args[2][::-1])[::-1], right(*args)[1]]),
    )
    with pytest.raises(AssertionError):
        test_updates_reach_the_numerical_optimum("sticks")


def test_finite_golden():
    """G12: tau; G24: q(mass) is conjugate. The bound is checked against Monte Carlo above."""
    inputs, outputs = CASES["G11"]["inputs"], CASES["G12"]["outputs"]
    counts = (1 / (1 + np.exp(-np.array(inputs["logit_nu"])))).sum(axis=0)
    prior = BetaBernoulli(mass=inputs["alpha"], n_features=2)
    q = prior.update_weights(prior.init_weights(inputs["N"]), counts, inputs["N"])
    assert pytest.approx(np.array(outputs["tau"]), rel=1e-9) == q.tau.T


def test_streaming_golden():
    """The multinomial bound and update of the streaming reference (same formulas, other numbers)."""
    prior = StickBreakingIBP(mass=1.7, truncation=4)
    q = some_q(prior)
    bound = [-1.5, -0.99697028278, -0.56802660336, -0.48630799733]
    assert _stick_weights.expected_log_weights(q.tau) - prior.expected_log_odds(q) == pytest.approx(
        np.array(bound), rel=1e-9
    )
    tau = _stick_weights.multinomial_update(q.tau, 1.7, COUNTS, N_ROWS)
    assert tau[0] == pytest.approx([26.286815032, 14.456169263, 5.351290745, 2.4], rel=1e-9)
    assert tau[1] == pytest.approx([12.413184968, 6.6306457692, 6.0048785176, 1.651290745], rel=1e-9)


def test_classes_of_the_finite_prior(rng):
    """All classes together have probability one."""
    prior = BetaBernoulli(mass=1.3, n_features=2)
    columns = [(a, b) for a in (0, 1) for b in (0, 1)]
    total = 0.0
    for i, left in enumerate(columns):
        for right in columns[i:]:
            total += math.exp(prior.log_prob_class(np.array([left, right]).T))
    assert total == pytest.approx(1.0, rel=1e-12)
