"""The distance-dependent IBP: against enumeration of all links, golden values, its special cases and its draws."""

import copy
import itertools
import math
from functools import cached_property

import numpy as np
import pytest
from decay_cases import DECAY_NAMES, DECAYS, LINE
from scipy.stats import poisson
from thinned import thinned

from thali import IBP, Gamma, InvalidDataError, InvalidParameterError
from thali.core.distributions import LogNormal
from thali.core.protocols.prior import Links
from thali.priors.proximity.decays import ExponentialDecay, LogisticDecay, WindowDecay
from thali.priors.proximity.distance_dependent import DistanceDependentIBP
from thali.priors.proximity.distances import Times, proximities
from thali.priors.proximity.link_graph import LinkGraph, tree_weights
from thali.testing import check_prior, z_limit
from thali.testing.enumerate import all_classes
from thali.testing.zscores import z_scores

INF = math.inf
ODD = np.array([[0, 1, INF, 0.5], [2, 0, 0.3, INF], [0.7, INF, 0, 1], [INF, INF, 2, 0]])  # no symmetry, some never link
SPLIT = np.array([[0, 1, INF, INF], [1, 0, INF, INF], [INF, INF, 0, 1], [INF, INF, 1, 0]])  # two worlds

CASES = {
    "line": DistanceDependentIBP(1.1, LINE, ExponentialDecay(0.5)),
    "window": DistanceDependentIBP(1.1, LINE, WindowDecay(1.0)),
    "logistic": DistanceDependentIBP(0.8, ODD, LogisticDecay(1.5, 0.5)),
    "two worlds": DistanceDependentIBP(0.9, SPLIT, "constant"),
    "constant": DistanceDependentIBP(1.3, LINE, "constant"),
    "sequential": DistanceDependentIBP(1.1, LINE, ExponentialDecay(0.5), sequential=True),
    "sequential odd": DistanceDependentIBP(1.1, ODD, ExponentialDecay(1.0), sequential=True),
}


# --- enumeration of all links, from the definition ------------------------------------------------


def proximity_matrix(prior):
    d = np.array(prior.distances)
    if prior.sequential:
        d[np.triu_indices(len(d), 1)] = INF
    return np.where(np.isfinite(d), prior.decay(np.where(np.isfinite(d), d, 0.0)), 0.0)


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


# --- golden values --------------------------------------------------------------------------------


def test_golden_general():
    """G16."""
    prior = DistanceDependentIBP(2.5, LINE, ExponentialDecay(0.5))
    np.testing.assert_allclose(2.5 / prior.owner_rates()[:2], [2.197540261, 2.5809407606], rtol=1e-9)
    np.testing.assert_allclose(
        prior.link_probs().toarray()[:2],
        [
            [0.45505423392, 0.27600434471, 0.16740509728, 0.10153632409],
            [0.2350037122, 0.387455619, 0.2350037122, 0.1425369566],
        ],
        rtol=1e-9,
    )
    reach = [
        [1.0, 0.34551456958, 0.27514436869, 0.20106830484],
        [0.29418814605, 1.0, 0.32269400466, 0.23427148621],
        [0.23427148621, 0.32269400466, 1.0, 0.29418814605],
        [0.20106830484, 0.27514436869, 0.34551456958, 1.0],
    ]
    shared = [
        [1.9675725262, 0.99788994038, 0.86156329166, 0.75698319516],
        [0.99788994038, 1.8824075436, 0.98271401503, 0.86156329166],
        [0.86156329166, 0.98271401503, 1.8824075436, 0.99788994038],
        [0.75698319516, 0.86156329166, 0.99788994038, 1.9675725262],
    ]
    np.testing.assert_allclose(prior.reach_probs(), reach, rtol=1e-9)
    np.testing.assert_allclose(prior.expected_shared(), shared, rtol=1e-9)


def test_golden_sequential():
    """G17."""
    prior = DistanceDependentIBP.from_times(np.arange(5), ExponentialDecay(0.5), mass=2.5, sequential=True)
    reach = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.3775406688, 1.0, 0.0, 0.0, 0.0],
        [0.30230266337, 0.30719588572, 1.0, 0.0, 0.0],
        [0.24817540499, 0.25219249641, 0.27600434471, 1.0, 0.0],
        [0.20631744427, 0.20965700178, 0.22945267688, 0.25999272066, 1.0],
    ]
    shared = [
        [2.5, 0.943851672, 0.75575665843, 0.62043851246, 0.51579361069],
        [0.943851672, 2.5, 0.943851672, 0.77485513469, 0.64416589179],
        [0.75575665843, 0.943851672, 2.5, 0.92475319574, 0.76878172493],
        [0.62043851246, 0.77485513469, 0.92475319574, 2.5, 0.90591421195],
        [0.51579361069, 0.64416589179, 0.76878172493, 0.90591421195, 2.5],
    ]
    np.testing.assert_allclose(2.5 / prior.owner_rates()[1:3], [1.6065306597, 1.9744101009], rtol=1e-9)
    np.testing.assert_allclose(prior.reach_probs(), reach, rtol=1e-9)
    np.testing.assert_allclose(prior.expected_shared(), shared, rtol=1e-9)


def test_golden_mass_posterior(rng):
    """G23: Gamma(7.5, 3.2667) for owners 2, 0, 1, 3 and totals 1, 1.5, 2, 2.5."""
    f = np.diag([1.0, 1.0, 1.0, 1.0]) + np.array([[0, 0, 0, 0], [0.5, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0.5, 0]])
    with np.errstate(divide="ignore"):
        prior = DistanceDependentIBP(Gamma(1.5, 0.7), -np.log(f) + 0.0)
    Z = np.repeat(np.eye(4, dtype=np.uint8), [2, 0, 1, 3], axis=1)
    current = prior.replace(mass=1.0)
    draws = np.array([prior.resample(rng, current, Z).mass for _ in range(4000)])
    wanted = 7.5 / 3.2666666667
    z = z_scores(np.stack([draws, (draws - wanted) ** 2], axis=1), np.array([wanted, 7.5 / 3.2666666667**2]))
    assert np.abs(z).max() <= z_limit(2), z


def test_mass_of_another_distribution(rng):
    """Against quadrature of LogNormal prior x Poisson number of features."""
    prior = DistanceDependentIBP(LogNormal(0.0, 1.0), LINE)
    rows = float((1 / proximity_matrix(prior).sum(axis=1)).sum())
    grid = np.linspace(1e-3, 60, 60_000)
    log_density = -0.5 * np.log(grid) ** 2 - np.log(grid) + 3 * np.log(grid) - grid * rows
    weight = np.exp(log_density - log_density.max())
    current, draws = prior.replace(mass=1.0), []
    for _ in range(4000):
        current = prior.resample(rng, current, np.eye(4, 3, dtype=np.uint8))
        draws.append(current.mass)
    batches = np.array(draws).reshape(100, 40).mean(axis=1)[:, None]
    assert abs(z_scores(batches, np.array([weight @ grid / weight.sum()]))[0]) <= z_limit(1)


# --- special cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [1, 3, 30])
def test_sequential_constant_is_the_ibp(n_rows, rng):
    prior = DistanceDependentIBP.from_times(np.arange(n_rows), "constant", mass=1.7, sequential=True)
    for _ in range(30):
        Z = IBP(mass=1.7).simulate(rng, n_rows)
        assert prior.log_prob(Z) == pytest.approx(IBP(mass=1.7).log_prob(Z), abs=1e-9)


@pytest.mark.parametrize("concentration", [1.0, 2.5, 40.0])
def test_self_proximity_makes_the_ibp_of_two_parameters(concentration, rng):
    def decay(d):
        return np.where(d > 0, 1.0, concentration)

    prior = DistanceDependentIBP.from_times(np.arange(12), decay, mass=1.7 * concentration, sequential=True)
    ibp = IBP(mass=1.7, concentration=concentration)
    for _ in range(30):
        Z = ibp.simulate(rng, 12)
        assert prior.log_prob(Z) == pytest.approx(ibp.log_prob(Z), abs=1e-9)


def test_ibp_case_sees_a_mutant(rng):
    """Without the own link in h, or with distances that are not sequential, it is not the IBP."""
    general = DistanceDependentIBP.from_times(np.arange(6), "constant", mass=1.7)
    Z = IBP(mass=1.7).simulate(rng, 6)
    assert abs(general.log_prob(Z) - IBP(mass=1.7).log_prob(Z)) > 0.1


@pytest.mark.parametrize("decay", DECAYS, ids=DECAY_NAMES)
def test_sequential_rows_have_mass_over_f0_features(decay, rng):
    times = np.sort(rng.uniform(0, 6, 25))
    prior = DistanceDependentIBP.from_times(times, decay, mass=1.8, sequential=True)
    wanted = 1.8 / float(decay(np.zeros(1))[0])
    np.testing.assert_allclose(np.diagonal(prior.expected_shared()), wanted, rtol=1e-12)
    np.testing.assert_allclose(prior.reach_probs() @ prior.owner_rates(), wanted, rtol=1e-12)
    draws = np.array([prior.simulate(rng, 25).sum(axis=1) for _ in range(3000)], dtype=float)
    z = z_scores(draws, np.full(25, wanted))
    assert np.abs(z).max() <= z_limit(25), z


def test_the_general_form_holds_without_circles_too(rng):
    """Trees and determinants on sequential distances give the product of the sequential form."""
    times = np.sort(rng.uniform(0, 4, 15))
    prior = DistanceDependentIBP.from_times(times, ExponentialDecay(0.7), mass=1.4, sequential=True)
    general = copy.deepcopy(prior)
    general._graph.__dict__["has_order"] = False
    for _ in range(20):
        Z = prior.simulate(rng, 15)
        assert general.log_prob(Z) == pytest.approx(prior.log_prob(Z), abs=1e-9)


def test_infinite_upper_distances_are_sequential():
    upper = np.where(np.triu(np.ones((4, 4)), 1) > 0, INF, LINE)
    given, flagged = DistanceDependentIBP(1.1, upper), DistanceDependentIBP(1.1, LINE, sequential=True)
    assert given._graph.has_order
    np.testing.assert_array_equal(given.expected_shared(), flagged.expected_shared())


@pytest.mark.parametrize("name", ["logistic", "line"])
def test_rows_have_no_names(name, rng):
    """General distances: permuting the rows of Z and of the distances together changes nothing."""
    prior = CASES[name]
    for _ in range(10):
        Z, order = prior.simulate(rng, 4), rng.permutation(4)
        moved = prior.replace(distances=prior.distances[np.ix_(order, order)])
        assert moved.log_prob(Z[order]) == pytest.approx(prior.log_prob(Z), abs=1e-10)


# --- trees ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5, 30])
def test_tree_weights_are_determinants(size, rng):
    a = rng.uniform(0, 1, (size, size)) * (rng.random((size, size)) < 0.6)
    a[np.arange(size), (np.arange(size) + 1) % size] = 0.5
    laplacian = np.diag(a.sum(axis=1)) - a
    for n in range(size):
        rest = np.delete(np.arange(size), n)
        w, log_scale = tree_weights(a.copy())
        assert w[n] * math.exp(log_scale) == pytest.approx(np.linalg.det(laplacian[np.ix_(rest, rest)]), rel=1e-9)


def test_impossible_trees_have_no_weight():
    two_ends = np.array([[0, 0, 0], [0.5, 0, 0.5], [0, 0, 0]])
    assert tree_weights(two_ends.copy()) == (pytest.approx(np.zeros(3)), -INF)
    w, log_scale = tree_weights(np.array([[0.0, 0, 0], [1e-200, 0, 0], [0, 1e-200, 0]]))
    assert w.tolist() == [1.0, 0.0, 0.0]  # a determinant of 1e-400 has no double
    assert log_scale == pytest.approx(2 * math.log(1e-200))


# --- reach by simulation --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["line", "logistic", "sequential"])
def test_simulated_reach_and_shared(name, rng):
    prior = CASES[name]
    blocks = [prior.reach_probs(n_draws=50, rng=rng).ravel() for _ in range(60)]
    z = z_scores(np.array(blocks), prior.reach_probs().ravel())
    assert np.abs(z).max() <= z_limit(16), z
    blocks = [prior.expected_shared(n_draws=50, rng=rng).ravel() for _ in range(60)]
    z = z_scores(np.array(blocks), prior.expected_shared().ravel())
    assert np.abs(z).max() <= z_limit(16), z


def test_reach_without_an_exact_value_asks_for_draws(rng):
    prior = DistanceDependentIBP.from_times(np.arange(13), mass=1.0)
    for method in (prior.reach_probs, prior.expected_shared):
        with pytest.raises(InvalidParameterError, match="n_draws"):
            method()
        with pytest.raises(InvalidParameterError, match="n_draws"):
            method(n_draws=10)
        assert method(n_draws=10, rng=rng).shape == (13, 13)
    assert DistanceDependentIBP.from_times(np.arange(12), mass=1.0)._graph.is_exact


# --- the rest --------------------------------------------------------------------------------------


def test_a_new_mass_keeps_the_links():
    prior = CASES["line"]
    assert prior.updated(mass=3.0)._graph is prior._graph
    np.testing.assert_allclose(prior.updated(mass=3.0).owner_rates(), prior.owner_rates() * 3.0 / prior.mass)
    assert prior.updated(sequential=True)._graph.has_order
    assert prior.replace(decay__rate=2.0).decay == ExponentialDecay(2.0)


def test_a_large_draw(rng):
    """10^4 rows, mass 5, window."""
    prior = DistanceDependentIBP.from_times(np.arange(10_000.0), WindowDecay(10.0), mass=5.0)
    Z = prior.simulate(rng, 10_000)
    assert Z.any(axis=0).all()
    sequential = prior.replace(sequential=True).simulate(rng, 10_000)
    fewer = prior.replace(sequential=True, distances=Times(np.arange(2000.0)))
    var = fewer.expected_shared()[1000].sum() / 10_000  # of a mean over rows whose covariances are E R_ij
    assert abs(sequential.sum(axis=1).mean() - 5.0) <= z_limit(1) * math.sqrt(var)


def test_wrong_rows_are_refused(rng):
    prior = CASES["line"]
    with pytest.raises(InvalidParameterError, match=r"those of 4 rows.*Got 3"):
        prior.simulate(rng, 3)
    with pytest.raises(InvalidDataError, match=r"those of 4 rows.*Got 3"):
        prior.log_prob(np.ones((3, 1), dtype=int))
    with pytest.raises(InvalidParameterError, match="distribution"):
        prior.replace(mass=Gamma(1.0, 1.0)).log_prob(np.ones((4, 1), dtype=int))


def test_empty_columns_count_for_nothing():
    prior = CASES["line"]
    Z = np.array([[1, 0], [1, 0], [0, 0], [0, 0]])
    assert prior.log_prob(Z) == prior.log_prob(Z[:, :1])
    assert prior.log_prob(np.zeros((4, 0), dtype=int)) == pytest.approx(-prior.owner_rates().sum())
