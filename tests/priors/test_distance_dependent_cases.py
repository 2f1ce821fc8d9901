"""The distance-dependent IBP: golden values, special cases, trees, reach, and what it refuses."""

import copy
import math

import numpy as np
import pytest
from decay_cases import DECAY_NAMES, DECAYS, LINE
from distance_cases import CASES, INF, proximity_matrix

from thali import IBP, Gamma, InvalidDataError, InvalidParameterError
from thali.core.distributions import LogNormal
from thali.priors.proximity.decays import ExponentialDecay, WindowDecay
from thali.priors.proximity.distance_dependent import DistanceDependentIBP
from thali.priors.proximity.distances import Times
from thali.priors.proximity.link_graph import tree_weights
from thali.testing import z_limit
from thali.testing.zscores import z_scores


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
