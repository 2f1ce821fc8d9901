"""Every prior keeps its contract, and wrong ones do not."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from thinned import thinned

from thali import IBP, BetaBernoulli, BetaProcess, DistanceDependentIBP, Gamma, InvalidParameterError, StickBreakingIBP
from thali.testing import check_prior, z_limit
from thali.testing.zscores import z_scores

PRIORS = [
    IBP(mass=1.2),
    IBP(mass=1.2, concentration=2.5),
    IBP(mass=1.0, concentration=0.7, discount=0.4),
    BetaBernoulli(mass=1.3, n_features=2),
]


@pytest.mark.parametrize("prior", thinned(PRIORS, PRIORS[2]), ids=str)
def test_contract(prior, rng):
    check_prior(prior, rng)


EXCHANGEABLE = {
    "one parameter": IBP(mass=1.2),
    "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4),
    "finite": BetaBernoulli(mass=1.3, n_features=4),
    "sticks": StickBreakingIBP(mass=1.3, truncation=4),
    "beta process": BetaProcess(mass=1.1, concentration=2.0),
    "rounds": BetaProcess(mass=1.1, concentration=2.0, rounds=3),
}


def is_exchangeable(prior, rng):
    """The order of rows does not matter to the probability, for matrices of all sorts."""
    for _ in range(20):
        Z = (rng.random((5, 4)) < rng.random(4)).astype(np.uint8)
        for _ in range(5):
            if abs(prior.log_prob(Z[rng.permutation(5)]) - prior.log_prob(Z)) > 1e-10:
                return False
    return True


@pytest.mark.parametrize("name", EXCHANGEABLE)
def test_rows_are_exchangeable(name, rng):
    assert is_exchangeable(EXCHANGEABLE[name], rng)


def test_rows_with_distances_are_not(rng):
    assert not is_exchangeable(DistanceDependentIBP.from_times(np.arange(5.0), mass=1.2, sequential=True), rng)


@pytest.mark.parametrize(
    ("prior", "wanted"),
    [
        (IBP(mass=1.3), -9.19406133294),
        (IBP(mass=1.3, concentration=2.5), -9.95668230707),
        (BetaProcess(mass=1.3, concentration=2.5), -9.95668230707),
        (StickBreakingIBP(mass=1.3), -9.19406133294),
    ],
    ids=["one parameter", "two parameters", "beta process", "sticks"],
)
def test_golden_classes(prior, wanted):
    """Cases G1 and G2 of the reference on the beta process."""
    Z = np.array([[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 1]])
    assert prior.log_prob(Z) == pytest.approx(wanted, rel=1e-10)


def test_golden_concentration():
    """log p(Z, log concentration), the mass integrated out, but for a constant."""
    Z = np.zeros((5, 5), dtype=int)
    for k, m in enumerate((2, 2, 1, 4, 1)):
        Z[:m, k] = 1

    def log_target(concentration):
        top = IBP(mass=1.0, concentration=concentration).log_prob(Z)

        def of_mass(mass):
            return math.exp(IBP(mass=mass, concentration=concentration).log_prob(Z) - top - mass)

        return 2 * math.log(concentration) - concentration + top + math.log(quad(of_mass, 1e-12, 100)[0])

    found = [log_target(value) for value in (0.5, 1.0, 3.0)]
    assert np.diff(found) == pytest.approx(np.diff([-22.3111462529, -20.3392276446, -20.3402309896]), abs=1e-8)


@pytest.mark.parametrize(("n_features", "wanted"), [(20, -9.20586405719), (1000, -9.19372243338)])
def test_golden_finite_classes(n_features, wanted):
    """Case G3: the finite prior tends to the IBP."""
    Z = np.zeros((3, n_features), dtype=int)
    Z[:, :4] = [[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 1]]
    found = BetaBernoulli(mass=1.3, n_features=n_features).log_prob_class(Z)
    assert found == pytest.approx(wanted, rel=1e-10)


class NoConcentrationInRate(IBP):
    def new_rate(self, n_rows):
        return self.mass / n_rows


class CountPlusOne(IBP):
    def log_odds(self, n_rows):
        table = super().log_odds(n_rows)
        table[1:] += np.log((np.arange(1, n_rows) + 1) / np.arange(1, n_rows))
        return table


class NoMultiplicity(IBP):
    def log_prob(self, Z):
        return self._log_prob_counts(Z.sum(axis=0, dtype=int)[Z.any(axis=0)], len(Z))


class PrintedFinite(BetaBernoulli):
    def log_odds(self, n_rows):
        a = self.mass / self.n_features
        others = np.arange(n_rows)
        return np.log(others + a) - np.log(n_rows - 1 + self.mass - others - a)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(NoConcentrationInRate(mass=1.2, concentration=2.5), marks=pytest.mark.slow),
        pytest.param(CountPlusOne(mass=1.2), marks=pytest.mark.slow),
        NoMultiplicity(mass=1.2),
        PrintedFinite(mass=1.3, n_features=2),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_contract_catches_mutants(wrong, rng):
    with pytest.raises(AssertionError):
        check_prior(wrong, rng)


@pytest.mark.parametrize(("concentration", "discount"), [(1.0, 0.0), (2.5, 0.0), (0.7, 0.4), (3.0, 0.9), (1.0, 1e-5)])
def test_expected_features(concentration, discount):
    """The closed forms equal the sum of the rates of all rows."""
    prior = IBP(mass=1.0, concentration=concentration, discount=discount)
    total = sum(prior.new_rate(n) for n in range(1, 51))
    assert prior._features_per_mass(50) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("name", [*EXCHANGEABLE, "all sticks", "in time"])
def test_expected_features_are_those_of_draws(name, rng):
    more = {
        "all sticks": StickBreakingIBP(mass=1.3),
        "in time": DistanceDependentIBP.from_times(np.arange(7.0), mass=1.2, sequential=True),
    }
    prior = (EXCHANGEABLE | more)[name]
    sizes = [float(prior.simulate(rng, 7).any(axis=0).sum()) for _ in range(3000)]
    z = z_scores(np.array(sizes)[:, None], np.array([prior.expected_features(7)]))
    assert abs(z[0]) <= z_limit(1), z


def test_moments_of_many_rows(rng):
    """K ~ Poisson(mass H_N) and E[ones] = N mass, for N = 30."""
    draws = [IBP(mass=2.0).simulate(rng, 30) for _ in range(3000)]
    values = np.array([[Z.shape[1], Z.sum(), Z[-1].sum(), Z.shape[1] ** 2] for Z in draws], dtype=float)
    rate = 2.0 * sum(1 / i for i in range(1, 31))
    z = z_scores(values, np.array([rate, 60.0, 2.0, rate + rate**2]))
    assert np.abs(z).max() <= z_limit(len(z)), z


def test_power_law_has_more_features(rng):
    few = np.mean([IBP(mass=2.0).simulate(rng, 200).shape[1] for _ in range(50)])
    many = np.mean([IBP(mass=2.0, discount=0.6).simulate(rng, 200).shape[1] for _ in range(50)])
    assert many > 2 * few


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_weights_predict_the_next_rows(prior, rng):
    """E[weight] is the chance that the next row has the feature, E[weight^2] that the next two have it."""
    n_rows, counts = 6, np.array([1, 2, 6])
    one, two = (1 / (1 + np.exp(-prior.log_odds(n))) for n in (n_rows + 1, n_rows + 2))
    weights = np.array([prior.draw_weights(rng, counts, n_rows) for _ in range(20_000)])
    z = z_scores(np.hstack([weights, weights**2]), np.concatenate([one[counts], one[counts] * two[counts + 1]]))
    assert np.abs(z).max() <= z_limit(len(z)), z
    wrong = z_scores(weights, two[counts])  # as if there were one row more
    assert np.abs(wrong).max() > z_limit(len(wrong))


def test_learned_values_are_refused_where_numbers_are_needed():
    with pytest.raises(InvalidParameterError, match=r"mass.*distribution.*\.draw"):
        IBP(mass=Gamma(1.0, 1.0)).log_prob(np.ones((2, 1), dtype=int))


def test_simulate_draws_learned_hyperparameters(rng):
    sizes = [IBP(mass=Gamma(2.0, 1.0)).simulate(rng, 5).shape[1] for _ in range(4000)]
    rate = sum(1 / i for i in range(1, 6))
    z = z_scores(np.array(sizes, dtype=float)[:, None], np.array([2.0 * rate]))
    assert abs(z[0]) <= z_limit(1)


def test_mass_posterior_is_the_conjugate_one(rng):
    Z = IBP(mass=1.0).simulate(rng, 10)
    spec = IBP(mass=Gamma(2.0, 3.0))
    draws = np.array([spec.resample(rng, spec.replace(mass=1.0), Z).mass for _ in range(4000)])
    harmonic = sum(1 / i for i in range(1, 11))
    expected = (2.0 + Z.shape[1]) / (3.0 + harmonic)
    assert abs(z_scores(draws[:, None], np.array([expected]))[0]) <= z_limit(1)
    assert math.isfinite(spec.log_hyper(spec.replace(mass=1.0)))
