"""Starts with linked rows: columns that links hand on more easily, and a score of chains that no link disturbs."""

import itertools

import numpy as np
import pytest

from thali import DistanceDependentGibbs, DistanceDependentIBP, ExponentialDecay, LatentFeatures, LinearGaussian
from thali.core.protocols.engines.chains import ChainRows
from thali.inference.starts.linked_columns import gather_columns
from thali.rng import make_generator

N_ROWS = 30
TIMES = np.arange(float(N_ROWS))
MODEL = LinearGaussian(noise_var=0.3, feature_var=2.0, offset=None)


def stretches():
    """One feature within the time of another, and data of both."""
    Z = np.zeros((N_ROWS, 2), dtype=np.uint8)
    Z[3:25, 0] = Z[10:16, 1] = 1
    rng = np.random.default_rng(0)
    X = Z @ rng.normal(size=(2, 8)) * 1.4 + 0.5 * rng.normal(size=(N_ROWS, 8))
    return X, Z


@pytest.mark.parametrize("sequential", [False, True])
def test_a_feature_with_a_gap_is_closed_by_the_one_in_the_gap(sequential):
    X, Z = stretches()
    gap = np.column_stack([Z[:, 0] - Z[:, 1], Z[:, 1]])
    rows = MODEL.engine(ChainRows)
    data = rows.prepare(X)
    prior = DistanceDependentIBP.from_times(TIMES, ExponentialDecay(1.0), mass=0.5, sequential=sequential)
    before = rows.place(data, gap, X)
    after = gather_columns(prior, MODEL, data, before)
    assert np.array_equal(after.z, Z)
    score = [prior.log_prob(local.z) + rows.log_evidence(data, local) for local in (before, after)]
    assert score[1] > score[0] + 1
    assert gather_columns(prior, MODEL, data, after) is after
    assert np.array_equal(before.z, gap)


def test_a_start_that_was_given_stays():
    X, Z = stretches()
    gap = np.column_stack([Z[:, 0] - Z[:, 1], Z[:, 1]])
    rows = MODEL.engine(ChainRows)
    data = rows.prepare(X)
    prior = DistanceDependentIBP.from_times(TIMES, ExponentialDecay(1.0), mass=0.5)
    from thali.core.model import Model

    state = DistanceDependentGibbs(start=gap).init(make_generator(0), Model(prior, MODEL), data, N_ROWS)
    assert np.array_equal(state.local.z, gap)


def test_a_search_ends_with_features_that_hang_together():
    X, Z = stretches()
    fit = LatentFeatures(
        prior=DistanceDependentIBP(decay="exponential"), inference=DistanceDependentGibbs(n_warmup=5, n_draws=5),
        n_chains=1, random_state=0, verbose=False,
    ).fit(X, times=TIMES)  # fmt: skip
    found = fit.posterior_.Z(0, -1).T.astype(bool)
    assert all(any(np.mean(column == wanted) > 0.93 for column in found) for wanted in Z.T.astype(bool))


def test_the_surprise_of_links_is_what_other_links_add():
    """Of one feature, over all trees of links: p(Z) is the sum of p(links)."""
    prior = DistanceDependentIBP.from_times(np.arange(4.0), ExponentialDecay(0.7), mass=0.8)
    Z = np.array([[1], [1], [0], [1]], dtype=np.uint8)
    rows = np.array([0, 1, 3])
    joint = []
    for targets in itertools.product(rows, repeat=3):
        links = np.full((1, 4), -1)
        links[0, rows] = targets
        if prior.leads_to(links, Z):
            joint.append((prior.log_joint(links), prior.link_surprise(links)))
    assert len(joint) == 9  # three trees into each of three rows
    log_joint, surprise = np.array(joint).T
    assert np.logaddexp.reduce(log_joint) == pytest.approx(prior.log_prob(Z), abs=1e-10)
    np.testing.assert_allclose(log_joint + surprise, prior.log_prob(Z), atol=1e-10)
    ordered = DistanceDependentIBP.from_times(np.arange(4.0), ExponentialDecay(0.7), mass=0.8, sequential=True)
    assert ordered.link_surprise(np.array([[0, 0, -1, 1]])) == 0.0


def test_the_free_energy_has_no_links():
    X, _ = stretches()
    fit = LatentFeatures(
        MODEL, DistanceDependentIBP(0.5, decay="exponential"), DistanceDependentGibbs(n_warmup=3, n_draws=4),
        n_chains=1, random_state=0, verbose=False,
    ).fit(X, times=TIMES)  # fmt: skip
    rows, prior = MODEL.engine(ChainRows), fit.posterior_.model.prior
    data = rows.prepare(X)
    for draw in range(4):
        Z = fit.posterior_.Z(0, draw)
        wanted = prior.log_prob(Z) + rows.log_evidence(data, rows.place(data, Z, X))
        assert fit.posterior_.draws["free_energy"][0, draw] == pytest.approx(wanted, abs=1e-6)
