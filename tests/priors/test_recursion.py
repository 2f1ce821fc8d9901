"""Marginals of the IBP row by row: exact without data, and what a filter makes of them with data."""

import numpy as np
import pytest
from scipy.special import digamma, pdtr
from thinned import thinned

from thali import IBP, BetaBernoulli, InvalidDataError, InvalidParameterError
from thali.core.protocols.prior import Recursive
from thali.priors import recursion
from thali.priors.recursion import BIRTHS, Running
from thali.testing import z_limit
from thali.testing.zscores import z_scores

SETTINGS = [(1.1, 2.3), (3.0, 1.0), (10.78, 5.6), (2.0, 0.5)]


def test_golden_marginals():
    wanted = [
        [0.86466471676, 0.59399415029, 0.32332358382, 0.1428765395, 0.052653017344, 0.016563608481],
        [0.44043896596, 0.47240225312, 0.42610210863, 0.31175435189, 0.18779567853, 0.095469940381],
        [0.39635059797, 0.38840560248, 0.36417589063, 0.31002748029, 0.23163751332, 0.15046472125],
        [0.38651804319, 0.35993491724, 0.32739161813, 0.28635837416, 0.23236899435, 0.17017308284],
    ]
    assert IBP(mass=2.0, concentration=1.5).marginals(4, 6) == pytest.approx(np.array(wanted), rel=1e-9)


@pytest.mark.parametrize(("mass", "concentration"), SETTINGS)
def test_every_row_expects_mass_features(mass, concentration):
    P = IBP(mass=mass, concentration=concentration).marginals(300)
    assert P.sum(axis=1) == pytest.approx(np.full(300, mass), rel=1e-10)
    assert (P >= 0).all()
    assert (P <= 1).all()


@pytest.mark.parametrize(("mass", "concentration"), thinned(SETTINGS, SETTINGS[0]))
def test_marginals_are_those_of_draws(mass, concentration, rng):
    prior = IBP(mass=mass, concentration=concentration)
    P = prior.marginals(6, 12)
    draws = np.zeros((20_000, 6, 12))
    for draw in draws:
        Z = prior.simulate(rng, 6)[:, :12]
        # labels of features that begin in the same row are exchangeable: give them in the order of the columns
        draw[:, : Z.shape[1]] = Z
    chosen = (P > 0.003) & (P < 0.997)
    z = z_scores(draws[:, chosen], P[chosen])
    assert len(z) >= 20
    assert np.abs(z).max() <= z_limit(len(z)), z


def test_a_wrong_denominator_is_seen(rng, monkeypatch):
    """Old features taken with m/(c + n) instead of m/(c + n - 1)."""
    right = recursion.marginals

    def wrong(mass, concentration, n_rows, n_features):
        P = right(mass, concentration, n_rows, n_features)
        counts = np.cumsum(P, axis=0) - P
        n = np.arange(n_rows)[:, None]
        return P - counts / (concentration + n) + counts / (concentration + n + 1)

    monkeypatch.setattr(recursion, "marginals", wrong)
    with pytest.raises(AssertionError):
        test_every_row_expects_mass_features(3.0, 1.0)
    with pytest.raises(AssertionError):
        test_marginals_are_those_of_draws(3.0, 1.0, rng)


def test_expected_features():
    for mass, c, n, wanted in ((2, 1, 10, 5.8579365079), (3, 2.5, 100, 29.413651331), (10.78, 5.6, 50, 143.5751172)):
        prior = IBP(mass=float(mass), concentration=float(c))
        assert prior.expected_features(n) == pytest.approx(wanted, rel=1e-9)
        assert mass * c * (digamma(c + n) - digamma(c)) == pytest.approx(wanted, rel=1e-9)


def test_golden_births():
    running = Running(0, np.zeros(3), np.array([0.9, 0.5, 0.2]))
    wanted = {
        "independent": [0.010367271173, 0.10774198205, 0.13451148659, 0.041803488824, 0.005089649034, 0.00045273073937],
        "poisson": [0.052327898772, 0.09118195104, 0.079638136377, 0.046484299453, 0.020399125193, 0.0071788864234],
    }
    for how, births in wanted.items():
        assert recursion.birth_probs(running, 0.3, how, 6) == pytest.approx(births, rel=1e-9)


def test_golden_distance_of_the_poisson_approximation():
    """A sum of six Bernoulli variables against Poisson with its mean: far off once features are certain."""
    for p, wanted in ((0.05, 0.0098888150455), (0.3, 0.085888282931), (0.9, 0.55737446716), (0.99, 0.78090551165)):
        exact = recursion._poisson_binomial(np.full(6, p), 40)
        poisson = np.diff(np.concatenate([[0.0], pdtr(np.arange(40), 6 * p)]))
        assert 0.5 * np.abs(exact - poisson).sum() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("rate", [1e-9, 0.03, 0.4, 6.0])
@pytest.mark.parametrize("how", BIRTHS)
def test_births_sum_to_the_rate(how, rate):
    running = Running(5, np.array([2.0, 1.0, 0.3]), np.array([1.0, 0.7, 0.3]))
    births = recursion.birth_probs(running, rate, how)
    assert births.sum() == pytest.approx(rate, rel=1e-6)
    assert (births >= 0).all()


def test_golden_filter_prior():
    rows = [[0.9, 0.1, 0.0], [0.8, 0.3, 0.05], [0.2, 0.95, 0.1]]
    wanted = {
        "poisson": [0.44300780833, 0.42214298263, 0.21501385412, 0.15107351582, 0.093181225566, 0.046301975717],
        "independent": [0.38022116872, 0.29050959251, 0.45816222578, 0.20612303749, 0.052833027293, 0.010304552675],
    }
    prior = IBP(mass=1.8, concentration=2.0)
    for how, q in wanted.items():
        running = prior.start_running()
        for row in rows:
            running = prior.absorb(running, np.array(row), how)
        assert running.exists.sum() == pytest.approx(2.0975)
        assert prior.next_row(running, how)[:6] == pytest.approx(q, rel=1e-9)


def test_golden_comonotone():
    prior = IBP(mass=2.0, concentration=1.0)
    counts, exists = np.array([1.5, 0.6, 0.1, 0, 0, 0]), np.array([0.95, 0.5, 0.1, 0, 0, 0])
    running = Running(2, counts, exists)
    wanted = [0.52432914405, 0.42617753652, 0.29441425187, 0.1202185664, 0.028733129139, 0.0052525711846]
    assert prior.next_row(running)[:6] == pytest.approx(wanted, rel=1e-9)
    after = prior.absorb(running, np.array([0.97, 0.3, 0.05, 0.4, 0.0, 0.0]))
    assert after.exists == pytest.approx([0.99838096938, 0.66596685101, 0.13975993846, 0.4, 0.0, 0.0], rel=1e-9)
    # the order of the slots does not matter
    order = np.array([3, 1, 0, 2, 4, 5])
    shuffled = prior.next_row(Running(2, counts[order], exists[order]))
    assert shuffled[np.argsort(order)] == pytest.approx(wanted, rel=1e-9)


def drift(how, n_rows=100):
    """How far the filter is from the exact marginals when the data say nothing (posterior = prior)."""
    prior = IBP(mass=2.0, concentration=1.0)
    P, running, worst = prior.marginals(n_rows), prior.start_running(), 0.0
    for exact in P:
        q = prior.next_row(running, how)
        size = min(len(q), len(exact))
        worst = max(worst, float(np.abs(q[:size] - exact[:size]).max()))
        running = prior.absorb(running, q, how)
        keep = int((running.exists > 1e-14).sum())
        running = Running(running.n_rows, running.counts[:keep], running.exists[:keep])
    return worst


def test_without_data_only_the_comonotone_filter_is_exact():
    assert drift("comonotone") < 1e-12
    assert drift("poisson") > 0.01


def test_certain_features_are_the_ibp_conditional():
    prior = IBP(mass=2.0, concentration=1.5)
    counts = np.array([3.0, 1.0])
    q = prior.next_row(Running(4, counts, np.ones(2)), "comonotone")
    rate = 2.0 * 1.5 / 5.5
    assert q[:2] == pytest.approx(counts / 5.5)
    assert q[2] == pytest.approx(1 - np.exp(-rate))
    assert prior.next_row(Running(4, counts, np.ones(2)), "anchored") == pytest.approx(q)


def test_capability_and_bad_input():
    assert isinstance(IBP(), Recursive)
    assert not isinstance(BetaBernoulli(), Recursive)
    prior = IBP(mass=1.0)
    with pytest.raises(InvalidParameterError, match="'poisson', 'independent', 'comonotone', 'anchored'"):
        prior.next_row(prior.start_running(), "exact")
    running = prior.absorb(prior.start_running(), np.array([0.5, 0.2]))
    for wrong in (np.array([0.5]), np.array([[0.5, 0.2]]), np.array([0.5, 1.5]), np.array([np.nan, 0.5])):
        with pytest.raises(InvalidDataError, match="2 known features"):
            prior.absorb(running, wrong)
    with pytest.raises(InvalidParameterError, match=r"discount=0\.3; use 0"):
        IBP(mass=1.0, discount=0.3).marginals(5)
