"""The distance-dependent IBP: against enumeration of all links, the sum over all classes, and its draws."""

import itertools
import math
from functools import cached_property

import numpy as np
import pytest
from decay_cases import LINE
from distance_cases import CASES, INF, proximity_matrix
from scipy.stats import poisson
from thinned import thinned

from thali import Gamma
from thali.core.protocols.prior import Links
from thali.priors.proximity.decays import ExponentialDecay
from thali.priors.proximity.distance_dependent import DistanceDependentIBP
from thali.priors.proximity.distances import proximities
from thali.priors.proximity.link_graph import LinkGraph
from thali.testing import check_prior, z_limit
from thali.testing.enumerate import all_classes
from thali.testing.zscores import z_scores


def enumerated(prior):
    """(rates, reach): rates[history] of the Poisson number of features with it, and P(i reaches n)."""
    f = proximity_matrix(prior)
    n_rows, h = len(f), f.sum(axis=1)
    rates, reach = {}, np.zeros(f.shape)
    for links in itertools.product(range(n_rows), repeat=n_rows):
        probability = math.prod(f[i, j] / h[i] for i, j in enumerate(links))
        for owner in range(n_rows):
            has = []
            for i in range(n_rows):
                at = i
                for _ in range(n_rows):
                    at = at if at == owner else links[at]
                has.append(int(at == owner))
            reach[:, owner] += probability * np.array(has)
            rates[tuple(has)] = rates.get(tuple(has), 0.0) + prior.mass * probability / h[owner]
    return rates, reach


def check_enumeration(prior, max_features=2):
    rates, reach = enumerated(prior)
    for Z in all_classes(prior.n_rows, max_features):
        columns, counts = np.unique(Z, axis=1, return_counts=True)
        of_columns = [rates.get(tuple(int(bit) for bit in column), 0.0) for column in columns.T]
        if min(of_columns, default=1.0) == 0.0:
            assert prior.log_prob(Z) == -INF
            continue
        wanted = sum(n * math.log(r) - math.lgamma(n + 1) for n, r in zip(counts, of_columns, strict=True))
        assert prior.log_prob(Z) == pytest.approx(wanted - sum(rates.values()), abs=1e-10)
    shared = sum(rate * np.outer(has, has) for has, rate in rates.items())
    np.testing.assert_allclose(prior.reach_probs(), reach, atol=1e-12)
    np.testing.assert_allclose(prior.expected_shared(), shared, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_log_prob_and_reach_equal_enumeration(name):
    check_enumeration(CASES[name])


@pytest.mark.parametrize("name", thinned(["line", "sequential"], "sequential"))
def test_few_rows_too(name):
    for n_rows in (1, 2, 3):
        check_enumeration(CASES[name].replace(distances=LINE[:n_rows, :n_rows]), max_features=3)


class TotalsWithoutSelf(LinkGraph):
    def __init__(self, proximities):
        super().__init__(proximities)
        self.totals = self.totals - proximities.diagonal()


class OwnerLinkNotFree(LinkGraph):
    def history_by_owner(self, has):
        by_owner, log_scale = super().history_by_owner(has)
        return by_owner * (self.probs @ has.astype(float)), log_scale


class OthersLinkAnywhere(LinkGraph):
    def history_by_owner(self, has):
        by_owner, log_scale = super().history_by_owner(has)
        return by_owner, log_scale - float(np.log((self.probs @ (~has).astype(float))[~has]).sum())


class HittingProbability(LinkGraph):
    """The Markov chain with these transitions comes to n sooner or later."""

    def reach(self):
        a = self.probs.toarray()
        reach = np.eye(self.n_rows)
        for n in range(self.n_rows):
            rest = np.arange(self.n_rows) != n
            reach[rest, n] = np.linalg.solve(np.eye(self.n_rows - 1) - a[np.ix_(rest, rest)], a[rest, n])
        return reach


@pytest.mark.parametrize(
    "wrong",
    [TotalsWithoutSelf, OwnerLinkNotFree, OthersLinkAnywhere, HittingProbability],
    ids=lambda w: w.__name__,
)
def test_enumeration_sees_mutants(wrong):
    class Mutant(DistanceDependentIBP):
        @cached_property
        def _graph(self):
            return wrong(proximities(self.distances, self.decay, self.sequential))

    with pytest.raises(AssertionError):
        check_enumeration(Mutant(1.1, LINE, ExponentialDecay(0.5)))


def test_sequential_mutant_is_seen():
    class OwnerMayBeAnyHolder(LinkGraph):
        def _log_ordered_rates(self, Z):
            return super()._log_ordered_rates(Z) + np.log(Z.sum(axis=0))

    class Mutant(DistanceDependentIBP):
        @cached_property
        def _graph(self):
            return OwnerMayBeAnyHolder(proximities(self.distances, self.decay, self.sequential))

    with pytest.raises(AssertionError):
        check_enumeration(Mutant(1.1, LINE, ExponentialDecay(0.5), sequential=True))


# --- the sum over all classes, and draws ----------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_classes_sum_to_one_within_the_poisson_tail(name):
    """All classes with at most 4 features: P(Poisson(sum of the owners' rates) <= 4), exactly."""
    prior = CASES[name].replace(distances=np.asarray(CASES[name].distances)[:3, :3])
    total = sum(math.exp(prior.log_prob(Z)) for Z in all_classes(3, 4))
    assert total == pytest.approx(poisson.cdf(4, prior.owner_rates().sum()), abs=1e-12)


@pytest.mark.parametrize("name", ["line", "sequential", pytest.param("logistic", marks=pytest.mark.slow)])
def test_contract(name, rng):
    prior = CASES[name].replace(distances=np.asarray(CASES[name].distances)[:3, :3])
    assert isinstance(prior, Links)
    check_prior(prior, rng, n_draws=10_000)


def test_contract_sees_a_mutant(rng):
    class NoMultiplicity(DistanceDependentIBP):
        def log_prob(self, Z):
            histories, counts = np.unique(Z, axis=1, return_counts=True)
            rates = math.log(self.mass) + self._graph.log_history_rates(histories)
            return float((counts * rates).sum() - self.owner_rates().sum())

    with pytest.raises(AssertionError):
        check_prior(NoMultiplicity(1.1, LINE[:3, :3], "constant", sequential=True), rng, n_draws=3000)


def moments(draws):
    """R_i, R_ij (i > j) of each draw."""
    shared = np.array([Z.astype(float) @ Z.T for Z in draws])
    i, j = np.tril_indices(shared.shape[1])
    return shared[:, i, j]


def proposition_1(draws, shared):
    """z-scores: every R_ij has E = Var = shared_ij, and Cov(R_i, R_j) = E R_ij. 26 statistics for 4 rows."""
    i, j = np.tril_indices(len(shared))
    mean = shared[i, j]
    R = moments(draws)
    own = R[:, i == j] - np.diagonal(shared)
    pairs = np.array([own[:, a] * own[:, b] for a, b in zip(i, j, strict=True) if a != b]).T
    return z_scores(np.hstack([R, (R - mean) ** 2, pairs]), np.concatenate([mean, mean, mean[i != j]]))


@pytest.mark.parametrize("name", ["line", "logistic", "sequential"])
def test_numbers_of_features_are_poisson(name, rng):
    prior = CASES[name]
    draws = [prior.simulate(rng, 4) for _ in range(10_000)]
    z = proposition_1(draws, prior.expected_shared())
    assert len(z) == 26
    assert np.abs(z).max() <= z_limit(len(z)), z


def test_proposition_1_sees_a_mutant(rng):
    """Shared features if every row that has a feature had it independently of the others."""
    prior = CASES["line"]
    draws = [prior.simulate(rng, 4) for _ in range(10_000)]
    reach = prior.reach_probs()
    independent = (reach * prior.owner_rates()) @ reach.T
    np.fill_diagonal(independent, np.diagonal(prior.expected_shared()))
    z = proposition_1(draws, independent)
    assert np.abs(z).max() > z_limit(len(z))


@pytest.mark.parametrize("mass", [10.0, 100.0, 1000.0])
def test_shares_settle_as_the_mass_grows(mass, rng):
    """Given R_i, R_ij is Binomial(R_i, p), p = E R_ij / E R_i: so R_ij / R_i -> p, by the square root of the mass."""
    prior = CASES["line"].replace(mass=mass)
    shared = prior.expected_shared()
    p = shared[3, 0] / shared[3, 3]
    draws = [prior.simulate(rng, 4) for _ in range(2000)]
    own = np.array([float(Z[3].sum()) for Z in draws])
    both = np.array([float((Z[3] & Z[0]).sum()) for Z in draws])
    some = own > 0
    scaled = (both - p * own)[some] / np.sqrt(p * (1 - p) * own[some])
    z = z_scores(np.stack([scaled, scaled**2], axis=1), np.array([0.0, 1.0]))
    assert np.abs(z).max() <= z_limit(2), z
    spread = np.std(both[some] / own[some]) * math.sqrt(mass * shared[3, 3] / prior.mass / (p * (1 - p)))
    assert spread == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("name", ["line", "sequential"])
def test_draws_with_links_are_the_same_in_distribution(name, rng):
    prior = CASES[name]
    drawn = [prior.simulate_links(rng) for _ in range(6000)]
    for owners, links, Z in drawn[:50]:
        assert links.shape == (len(owners), 4)
        assert Z[owners, np.arange(len(owners))].all()
        assert (proximity_matrix(prior)[np.arange(4), links] > 0).all()
    z = proposition_1([draw.Z for draw in drawn], prior.expected_shared())
    assert np.abs(z).max() <= z_limit(len(z)), z


def test_learned_mass_is_drawn(rng):
    prior = CASES["line"].replace(mass=Gamma(2.0, 1.0))
    rows = float((1 / proximity_matrix(prior).sum(axis=1)).sum())
    sizes = np.array([prior.simulate(rng, 4).shape[1] for _ in range(4000)], dtype=float)
    wanted = np.array([2.0 * rows, 2.0 * rows + 2.0 * rows**2])  # a gamma mixture of Poissons
    z = z_scores(np.stack([sizes, (sizes - wanted[0]) ** 2], axis=1), wanted)
    assert np.abs(z).max() <= z_limit(2), z
