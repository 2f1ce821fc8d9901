"""What the draws agree on: hand-made chains with a known answer."""

import numpy as np
import pytest
from scipy.special import expit

from thali import IBP, BetaBernoulli, CollapsedGibbs, LatentFeatures, LinearGaussian
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.counting import count
from thali.posteriors.base import Draw
from thali.posteriors.draws import Draws
from thali.posteriors.matching import similarity
from thali.posteriors.representative import evenly, find_medoid
from thali.storage.fit import About, Choice, Outcome

N, D = 40, 3
PRIOR = IBP(mass=1.0)
OBSERVATION = LinearGaussian(noise_var=0.2, feature_var=1.5)
A = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 1.0], [1.0, -2.0, 0.0], [0.0, 0.0, 3.0]])


def column(*rows):
    z = np.zeros(N, dtype=np.uint8)
    z[list(rows)] = 1
    return z


HISTORY = {"n_features": np.zeros((2, 1000), dtype=int)}  # beyond the warm-up
BASE = [column(*range(10)), column(*range(5, 30)), column(*range(20, 35)), column(3, 36, 37, 38)]


def draws(chains, *, free_energy=None, prior=PRIOR, observation=OBSERVATION):
    """A posterior from lists of lists of columns."""
    X = np.stack(BASE, axis=1) @ A
    data = observation.engine(ChainRows).prepare(X)
    free_energy = np.zeros((len(chains), len(chains[0]))) if free_energy is None else np.array(free_energy)

    def draw(columns, energy):
        z = np.stack(columns, axis=1) if columns else np.zeros((N, 0), dtype=np.uint8)
        return Draw(
            z,
            0.0,
            energy,
            prior,
            observation,
            observation.engine(ChainRows).codebook(data, observation.engine(ChainRows).place(data, z, X)),
        )

    recorded = [[draw(c, e) for c, e in zip(*pair, strict=True)] for pair in zip(chains, free_energy, strict=True)]
    return Draws.from_chains(Model(prior, observation), recorded)


def with_junk(rng, n_draws, n_junk=2, base=BASE):
    """Every draw has the base and some features of one random row, in random order."""
    found = []
    for _ in range(n_draws):
        columns = list(base) + [column(rng.integers(N)) for _ in range(rng.integers(1, n_junk + 1))]
        found.append([columns[i] for i in rng.permutation(len(columns))])
    return found


def test_what_comes_and_goes_does_not_count(rng):
    posterior = draws([with_junk(rng, 20), with_junk(rng, 20)])
    c = posterior.consensus
    assert min(posterior.k_posterior) == 5  # the raw number is never 4
    assert len(c.columns) == 4
    assert c.chain_features.tolist() == [4, 4]
    assert c.persistence.tolist() == c.stability.tolist() == [1.0] * 4
    bits = posterior.bits(c.chain, c.draw)[:, c.columns]
    expected = np.stack(BASE, axis=1)[:, [1, 2, 0, 3]]  # the most frequent first
    assert np.array_equal(bits, expected)
    assert np.array_equal(c.presence, expected)
    assert np.array_equal(posterior.encoder.codebook.features, posterior.features(c.chain, c.draw)[c.columns])


def test_ties_are_ordered_by_first_appearance():
    columns = [column(5, 6), column(1, 2, 3), column(0, 9), column(4, 7)]
    assert draws([[columns] * 3]).consensus.columns.tolist() == [1, 2, 3, 0]


def test_the_chain_with_the_highest_mean_free_energy_represents():
    two, three = [BASE[:2]] * 4, [BASE[:3]] * 4
    peak = [[0.0, 0.0, 0.0, 50.0], [20.0] * 4]  # the first has the highest value, the second the highest mean
    c = draws([two, three], free_energy=peak).consensus
    assert c.chain == 1
    assert len(c.columns) == 3
    assert c.chain_features.tolist() == [2, 3]
    assert c.persistence.tolist() == [1.0, 1.0, 1.0]
    assert c.stability.tolist() == [1.0, 0.5, 1.0]


def test_a_feature_of_half_the_draws_persists_and_one_of_fewer_does_not():
    chain = [BASE[:3]] * 2 + [BASE[:2]] * 2
    assert len(draws([chain]).consensus.columns) == 3
    assert len(draws([[*chain, BASE[:2]]]).consensus.columns) == 2


def test_the_representative_has_all_that_persists(rng):
    """The most frequent K is 4, by draws that each lack one of five; only draws with all five show them."""
    five = [*BASE, column(*range(10, 20))]
    chain = [[c for i, c in enumerate(five) if i != n % 5] for n in range(10)] + [five] * 3
    found = find_medoid(lambda i: np.stack(chain[i], axis=1), range(13), similarity)
    assert found.draw >= 10
    assert (found.persistence >= 0.5).all()
    assert len(draws([chain]).consensus.columns) == 5


def test_labels_do_not_matter(rng):
    chain = with_junk(rng, 12)
    other = [[columns[i] for i in rng.permutation(len(columns))] for columns in chain]
    a, b = draws([chain]), draws([other])
    assert a.representative == b.representative
    np.testing.assert_allclose(a.encoder.codebook.features, b.encoder.codebook.features, atol=1e-12)
    np.testing.assert_allclose(a.consensus.presence, b.consensus.presence)
    np.testing.assert_allclose(a.consensus.feature_sd, b.consensus.feature_sd, atol=1e-9)


def test_presence_and_spread_are_over_the_draws_with_the_feature():
    less = column(*range(5, 25))  # similarity 20/25 with BASE[1]
    posterior = draws([[BASE[:2], BASE[:2], [less], [less]]])
    c = posterior.consensus
    assert c.columns.tolist() == [1, 0]
    assert c.stability.tolist() == [1.0, 0.5]
    np.testing.assert_allclose(c.presence[:, 0], 0.5 * BASE[1] + 0.5 * less)
    np.testing.assert_allclose(c.presence[:, 1], BASE[0])
    means, variances = [], []
    for draw, k in ((0, 1), (1, 1), (2, 0), (3, 0)):
        means.append(posterior.features(0, draw)[k])
        variances.append(0.2 * posterior.codebook(0, draw).gram_inv[k, k])
    total = np.var(means, axis=0) + np.mean(variances)
    np.testing.assert_allclose(c.feature_sd[0], np.sqrt(total))


def test_no_feature_persists(rng):
    c = draws([[[column(n)] for n in range(10)]]).consensus
    assert c.columns.shape == c.stability.shape == (0,)
    assert c.presence.shape == (N, 0)
    assert c.feature_sd.shape == (0, D)
    posterior = draws([[[]] * 5])
    assert posterior.k_posterior == {0: 1.0}
    assert posterior.encoder.encode(np.zeros((2, D)))[0].shape == (2, 0)


def test_a_finite_prior_has_empty_columns():
    prior = BetaBernoulli(mass=1.0, n_features=6)
    empty = column()
    posterior = draws([[[empty, BASE[0], empty, BASE[1], empty, empty]] * 4], prior=prior)
    c = posterior.consensus
    assert posterior.bits(0, 0).shape == (N, 2)
    assert c.columns.tolist() == [1, 0]
    odds = prior.log_odds(N + 1)
    assert posterior.encoder.rate == pytest.approx(4 * expit(odds[0]))
    np.testing.assert_allclose(posterior.encoder.log_odds, odds[[25, 10]])


def test_what_was_left_out_of_a_codebook_counts_as_unknown():
    posterior = draws([[BASE] * 4])
    whole, part = posterior.predictor(0, 0), posterior.predictor(0, 0, np.array([3, 1]))
    counts = np.array([c.sum() for c in BASE])
    assert whole.rate == PRIOR.new_rate(N + 1)
    assert part.rate == pytest.approx(whole.rate + (counts[0] + counts[2]) / (N + 1))
    np.testing.assert_array_equal(part.codebook.features, whole.codebook.features[[3, 1]])
    np.testing.assert_array_equal(part.codebook.gram_inv, whole.codebook.gram_inv[np.ix_([3, 1], [3, 1])])
    np.testing.assert_array_equal(part.log_odds, whole.log_odds[[3, 1]])


@pytest.mark.parametrize(("n", "limit", "expected"), [(5, 9, [0, 1, 2, 3, 4]), (9, 3, [0, 4, 8]), (1, 7, [0])])
def test_evenly(n, limit, expected):
    assert evenly(n, limit).tolist() == expected


def test_many_draws_are_thinned(rng):
    posterior = draws([[BASE[:2]] * 500] * 2)
    assert len(posterior.spaced(16)) == 16
    assert posterior.spaced(16)[0] == (0, 0)
    assert posterior.spaced(16)[-1] == (1, 499)
    assert len(posterior.consensus.columns) == 2


def found(posterior):
    """A fit that has this posterior."""
    about = About({}, posterior.model, Choice(CollapsedGibbs(), ""), "", D, [])
    return Outcome(about, posterior, HISTORY)


def test_chains_that_differ_have_not_converged():
    m = LatentFeatures(n_chains=2)
    m.n_features_in_ = D
    chain = [BASE[:2]] * 60
    m._adopt(found(draws([chain, chain])))
    assert m.converged_
    assert m.n_components_ == 2
    m._adopt(found(draws([chain, [BASE[:3]] * 60], free_energy=[[0.0] * 60, [-130.0] * 60])))
    assert not m.converged_
    assert m.n_components_ == 2
    assert "chain 1 found 3 features where chain 0 found 2, and its free energy is 130 nats lower" in m.check()
    # as many features, and nothing else amiss but the free energy
    m._adopt(found(draws([chain, chain], free_energy=[[0.0] * 60, [-130.0] * 60])))
    assert not m.converged_
    assert m.check().startswith("not converged: chain 1 found as many features as chain 0 (2), but its free energy")


# ---- how many to report


def with_strangers(rng, n_draws, n_all, low, high):
    """Draws that share one feature and have others, each draw its own."""
    found = []
    for _ in range(n_draws):
        others = (rng.random((n_all, rng.integers(low, high))) < 0.2).T.astype(np.uint8)
        others[:, 0] |= ~others.any(axis=1)
        found.append([(np.arange(n_all) < n_all // 2).astype(np.uint8), *others])
    return found


def test_features_that_no_draw_shares_with_another_are_counted(rng):
    """The worst case: one feature persists, but never are fewer than eleven in use."""
    posterior = draws([with_strangers(rng, 30, N, 10, 20) for _ in range(2)])
    assert len(posterior.consensus.columns) < posterior.k_interval[0]
    assert posterior.k == posterior.k_interval[0] >= 11
    model = LatentFeatures()
    model._adopt(found(posterior))
    many = count(model)
    assert (many.k, many.interval, many.probabilities) == (posterior.k, posterior.k_interval, model.k_posterior_)
    assert f"so that at least {many.k} are in use with a probability of 95 % or more; " in many.reason
