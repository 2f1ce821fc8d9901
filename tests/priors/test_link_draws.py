"""Links that lead to a given Z: their law, their probability, and what is made of a Z that no links lead to."""

import numpy as np
import pytest

from thali import DistanceDependentIBP, ExponentialDecay, Gamma, WindowDecay
from thali.rng import make_generator

STEPS = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
SKEWED = STEPS + np.where(np.triu(np.ones((5, 5)), 1) > 0, 0.7, 0.0)
PRIORS = {
    "symmetric": DistanceDependentIBP(1.0, STEPS, ExponentialDecay(0.7)),
    "skewed": DistanceDependentIBP(1.0, SKEWED, ExponentialDecay(0.7)),
    "ordered": DistanceDependentIBP(1.0, STEPS, ExponentialDecay(0.7), sequential=True),
}
HAS = np.array([[1], [1], [0], [1], [0]], dtype=np.uint8)


def owner_shares(prior, n=1200):
    links = prior.draw_links(make_generator(0), np.repeat(HAS, n, axis=1))
    assert prior.leads_to(links, np.repeat(HAS, n, axis=1))
    return np.bincount(np.nonzero(links == np.arange(5))[1], minlength=5) / n


@pytest.mark.parametrize("name", PRIORS)
def test_owners_have_their_law(name):
    prior = PRIORS[name]
    weight = prior._graph.history_by_owner(HAS[:, 0] == 1)[0] / prior._graph.totals
    share = weight / weight.sum()
    if name == "symmetric":
        assert np.allclose(share[HAS[:, 0] == 1], 1 / 3)
    assert np.abs(owner_shares(prior) - share).max() < 5 * np.sqrt(0.25 / 1200)


def test_a_uniform_owner_would_be_seen():
    prior = PRIORS["skewed"]
    weight = prior._graph.history_by_owner(HAS[:, 0] == 1)[0] / prior._graph.totals
    assert np.abs(weight / weight.sum() - HAS[:, 0] / 3).max() > 0.05


@pytest.mark.parametrize("name", PRIORS)
def test_probabilities_of_links_add_up_to_that_of_z(name):
    """Over all links that lead to one feature."""
    prior = PRIORS[name]
    drawn = {tuple(row) for row in prior.draw_links(make_generator(1), np.repeat(HAS, 500, axis=1)).tolist()}
    if name == "ordered":  # there the links are summed out
        assert prior.log_joint(np.array([next(iter(drawn))])) == pytest.approx(prior.log_prob(HAS))
    else:
        total = np.logaddexp.reduce([prior.log_joint(np.array([links])) for links in drawn])
        assert total == pytest.approx(prior.log_prob(HAS), abs=1e-9)


def test_features_that_no_links_hand_on_are_split():
    prior = DistanceDependentIBP(1.0, STEPS, WindowDecay(1.0))
    Z = np.array([[1, 1], [1, 0], [0, 1], [1, 1], [1, 1]], dtype=np.uint8)
    parts = prior.possible(Z)
    assert parts.T.tolist() == [[1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [1, 0, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert np.isneginf(prior.log_prob(Z))
    assert np.isfinite(prior.log_prob(parts))
    assert np.isfinite(prior.log_joint(prior.draw_links(make_generator(0), parts)))
    assert prior.possible(np.zeros((5, 0), dtype=np.uint8)).shape == (5, 0)


def test_links_that_lead_elsewhere_are_seen():
    prior = PRIORS["symmetric"]
    good = np.array([[0, 0, -1, 1, -1]])
    assert prior.leads_to(good, HAS)
    for bad in ([0, 0, -1, 3, -1], [0, 3, -1, 1, -1], [0, 0, -1, 2, -1], [0, 0, 0, 1, -1], [-1, 0, -1, 1, -1]):
        assert not prior.leads_to(np.array([bad]), HAS), bad


def test_a_learned_decay_is_a_hyperparameter():
    prior = DistanceDependentIBP(1.0, STEPS, ExponentialDecay(Gamma(2.0, 3.0)))
    assert list(prior.learned) == ["decay_rate"]
    drawn = prior.draw(make_generator(0))
    assert not drawn.learned
    assert drawn.decay_rate == drawn.decay.rate
    assert prior.log_hyper(drawn) == pytest.approx(Gamma(2.0, 3.0).log_prob(drawn.decay_rate))
    other = drawn.updated(decay_rate=0.4)
    anew = DistanceDependentIBP(1.0, STEPS, ExponentialDecay(0.4))
    assert other == anew
    assert np.allclose(other.link_probs().toarray(), anew.link_probs().toarray())
    moved = prior.resample_linked(make_generator(1), drawn, drawn.draw_links(make_generator(2), HAS))
    assert moved.decay_rate != drawn.decay_rate
    assert moved.mass == 1.0


def test_a_new_row_is_the_next_one():
    """Without circles the ratio of probabilities with and without the row says how likely its bits are."""
    more, fewer = (DistanceDependentIBP(1.3, STEPS[:n, :n], ExponentialDecay(0.7), sequential=True) for n in (5, 4))
    Z = HAS[:4]
    chance, rate = fewer.new_row_chances(STEPS[4:, :4], Z)
    for bit in (0, 1):
        ratio = more.log_prob(np.vstack([Z, [[bit]]])) - fewer.log_prob(Z)
        assert np.exp(ratio + rate[0]) == pytest.approx(chance[0, 0] if bit else 1 - chance[0, 0])
