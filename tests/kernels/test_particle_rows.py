"""The row draws of a particle against their twins, and the weight of a row against all its patterns."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, seeds
from reference.bits import particle_rows as twin
from scipy.special import logsumexp
from scipy.stats import norm, poisson

from thali.kernels.bits import particle_rows as kernel
from thali.testing import z_limit
from thali.testing.zscores import z_scores

LAWS = {"infinite": (-0.7, 0.0, 0.7), "rare": (-1e-3, 0.0, 1e-3), "finite": (-3 * math.log1p(0.4), -0.4, 4 * 0.4)}


class Row:
    """A row, and a particle that sees it."""

    def __init__(self, seed, K, n_dims, law, noise_var=0.3, feature_var=1.2):
        rng = np.random.default_rng(seed)
        Z = (rng.random((K + 3, K)) < 0.4).astype(float)
        features = rng.standard_normal((K, n_dims))
        self.mu = features + 0.1 * rng.standard_normal((K, n_dims))
        self.P = np.linalg.inv(Z.T @ Z + noise_var / feature_var * np.eye(K))
        self.G = self.mu @ self.mu.T
        self.x = (rng.random(K) < 0.5) @ features + rng.standard_normal(n_dims)
        self.b, self.xx = self.mu @ self.x, self.x @ self.x
        self.odds = rng.standard_normal(K)
        self.law = (float(n_dims), noise_var / feature_var, 1 / noise_var, *LAWS[law])
        self.K = K

    def draw(self, module, group, rng):
        """(bits, q, s, log weight, a random number at the end)."""
        z, work = np.zeros(self.K), np.zeros((6, max(self.K, 1 << group)))
        order = np.zeros(self.K, np.int64)
        found = module(z, self.K, self.odds, self.P, self.G, self.b, self.xx, self.law, group, work, order, rng)
        return np.array([*z, *found, rng.random()])

    def log_total(self):
        """log of the sum over all patterns of prior x L."""
        scores = []
        for bits in itertools.product((0.0, 1.0), repeat=self.K):
            z = np.array(bits)
            q, s = twin.forms(z, self.K, self.P, self.G, self.b, self.xx)
            scores.append(z @ self.odds - np.logaddexp(0, self.odds).sum() + twin.log_row(q, s, self.law, 36.0))
        return logsumexp(scores)


@few
@given(seeds, st.integers(0, 7), st.integers(1, 5), st.sampled_from(sorted(LAWS)), st.integers(0, 4))
def test_row_equals_its_twin(seed, K, n_dims, law, group):
    row = Row(seed, K, n_dims, law)
    mine = row.draw(kernel.draw_row, group, np.random.default_rng(seed))
    np.testing.assert_allclose(mine, row.draw(twin.draw_row, group, np.random.default_rng(seed)), atol=1e-8)


@few
@given(seeds, st.floats(0.0, 5.0), st.floats(0.0, 300.0), st.sampled_from(sorted(LAWS)), st.floats(0.0, 1.0))
def test_sum_over_new_features_equals_its_twin(seed, q, s, law, u):
    law = (3.0, 0.25, 2.0, *LAWS[law])
    for negligible in (36.0, 12.0):
        mine = kernel.log_row(q, s, law, negligible)
        assert math.isclose(mine, twin.log_row(q, s, law, negligible), rel_tol=1e-11, abs_tol=1e-11)
        assert mine <= kernel.upper(q, s, law) + 1e-12
    assert math.isclose(kernel.upper(q, s, law), twin.upper(q, s, law), rel_tol=1e-12)
    total = kernel.log_row(q, s, law, 36.0)
    assert kernel.draw_count(q, s, law, total, u) == twin.draw_count(q, s, law, total, u)


def test_new_features_by_hand():
    """Poisson x normal and binomial x normal densities, summed by scipy."""
    e, noise, feature, q = np.array([1.0, -2.0, 0.5]), 0.5, 2.0, 0.3
    j = np.arange(60)
    density = np.array([norm.logpdf(e, scale=np.sqrt(noise * (1 + q) + n * feature)).sum() for n in j])
    constant = -1.5 * math.log(2 * math.pi * noise)
    got = kernel.log_row(q, e @ e, (3.0, noise / feature, 1 / noise, *LAWS["infinite"]), 36.0)
    assert math.isclose(got + constant, logsumexp(density + poisson.logpmf(j, 0.7)), rel_tol=1e-12)
    weights = [math.log(math.comb(3, n)) + n * math.log(0.4) - 3 * math.log(1.4) for n in range(4)]
    got = kernel.log_row(q, e @ e, (3.0, noise / feature, 1 / noise, *LAWS["finite"]), 36.0)
    assert math.isclose(got + constant, logsumexp(density[:4] + weights), rel_tol=1e-12)


def test_one_group_has_the_sum_of_all_patterns_as_its_weight(rng):
    row = Row(3, 5, 4, "infinite")
    weights = [row.draw(kernel.draw_row, 5, rng)[-2] for _ in range(20)]
    np.testing.assert_allclose(weights, row.log_total(), atol=1e-4)  # the proposal is cut off at 12 nats


@pytest.mark.parametrize("group", [0, 1, 2, 4])
def test_weights_are_unbiased(group, rng):
    row = Row(4, 6, 3, "infinite")
    log_total = row.log_total()
    ratios = np.exp([row.draw(kernel.draw_row, group, rng)[-2] - log_total for _ in range(20_000)])
    assert abs(z_scores(ratios[:, None], np.ones(1))[0]) <= z_limit(1)


@pytest.mark.parametrize(
    ("kernel_name", "old", "new"),
    [
        ("draw_row", "- log_proposal", "- 0.9 * log_proposal"),
        ("draw_row", "max(odds[k], 0.0)", "0.0"),
        ("draw_group", "prior += step * odds[k]", "prior += 0.0"),
        ("draw_group", "s += 2.0 * step * (Gz[k] - b[k]) + G[k, k]", "s += 2.0 * step * (Gz[k] - b[k])"),
        ("climb", "if loss[k] > 0.0:", "if loss[k] > -np.inf:"),
        ("order_groups", "if like > most + _TIE:", "if like < most:"),
    ],
)
def test_a_mistake_is_seen(kernel_name, old, new, monkeypatch):
    monkeypatch.setattr(kernel, kernel_name, mutant(getattr(kernel, kernel_name), old, new))
    draw = getattr(kernel.draw_row, "py_func", kernel.draw_row)
    agree = []
    for seed in range(8):
        row = Row(seed, 6, 3, "infinite")
        mine = row.draw(draw, 2, np.random.default_rng(seed))
        agree.append(np.allclose(mine, row.draw(twin.draw_row, 2, np.random.default_rng(seed)), atol=1e-8))
    assert not all(agree)


def test_small_parts_equal_their_twins(rng):
    row = Row(5, 4, 3, "rare")
    found = []
    for module in (kernel, twin):
        z, Pz, Gz, loss, order = np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4, np.int64)
        forms = module.climb(z, 4, row.odds, row.P, row.G, row.b, row.xx, Pz, Gz, loss, row.law)
        module.order_groups(4, 2, loss, row.G, order)
        module.flip(1, z, 4, row.P, row.G, Pz, Gz)
        found.append(np.concatenate([z, Pz, Gz, loss, order, forms]))
        found[-1] = np.append(
            found[-1],
            module.draw_from_prior(z, 4, row.odds, row.P, row.G, row.b, row.xx, np.random.default_rng(1)),
        )
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)
