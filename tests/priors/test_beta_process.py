"""The beta process in rounds: what it draws, and its exact probabilities."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import beta as beta_function
from scipy.special import gammaincc
from thinned import thinned

from thali import IBP, CollapsedGibbs, Gamma, InvalidParameterError, LinearGaussian
from thali.core.model import Model
from thali.priors.beta_process import prior as beta_process
from thali.priors.beta_process import round_moments as _rounds
from thali.priors.beta_process.prior import BetaProcess
from thali.priors.beta_process.round_moments import expected_columns, log_column_rates
from thali.priors.truncation_size import enough
from thali.testing import check_inference, check_prior, z_limit
from thali.testing.enumerate import all_classes
from thali.testing.zscores import z_scores

PRIORS = [
    BetaProcess(mass=1.2, concentration=2.5),
    BetaProcess(mass=2.0, concentration=2.5, rounds=3),
    BetaProcess(mass=2.5, concentration=0.6, rounds=1),
]


@pytest.mark.parametrize("prior", thinned(PRIORS, PRIORS[1]), ids=lambda prior: f"rounds={prior.rounds}")
def test_contract(prior, rng):
    check_prior(prior, rng, n_draws=10_000)


class OneRoundMore(BetaProcess):
    def log_prob(self, Z):
        return BetaProcess(self.mass, self.concentration, rounds=self.rounds + 1).log_prob(Z)


class NoMultiplicity(BetaProcess):
    def log_prob(self, Z):
        return self._log_prob_counts(Z.sum(axis=0, dtype=int)[Z.any(axis=0)], len(Z))


class LateByOne(BetaProcess):
    def simulate_weights(self, rng, rounds=None):
        weights, index = super().simulate_weights(rng, rounds)
        return weights * rng.beta(self.concentration, 1.0, size=len(weights)), index


class OddsOfTheWholeProcess(BetaProcess):
    def log_odds(self, n_rows):
        return IBP(self.mass, self.concentration).log_odds(n_rows)


@pytest.mark.parametrize(
    "wrong", thinned([OneRoundMore, NoMultiplicity, LateByOne, OddsOfTheWholeProcess], OneRoundMore, LateByOne)
)
def test_contract_catches_mutants(wrong, rng):
    with pytest.raises(AssertionError):
        check_prior(wrong(mass=2.0, concentration=2.5, rounds=3), rng, n_draws=5000)


def exact_rate(c, n_rows, m, rounds):
    """sum_{r <= rounds} E[w^m (1 - w)^(n_rows - m)] by the alternating sum of moments, in fractions."""
    total = Fraction(0)
    for j in range(n_rows - m + 1):
        p = m + j
        moment = Fraction(math.factorial(p))  # E[V^p] = p! / ((1 + c) ... (p + c)) of V ~ Beta(1, c)
        for i in range(1, p + 1):
            moment /= c + i
        shrink = c / (c + p)
        total += (-1) ** j * math.comb(n_rows - m, j) * moment * sum(shrink**r for r in range(rounds))
    return total


@pytest.mark.parametrize("rounds", [1, 2, 7, 40])
@pytest.mark.parametrize("c", [Fraction(1, 3), Fraction(5, 2)], ids=["c=1/3", "c=5/2"])
def test_rates_equal_the_alternating_sum(c, rounds):
    wanted = [math.log(exact_rate(c, 12, m, rounds)) for m in range(1, 13)]
    np.testing.assert_allclose(log_column_rates(float(c), 12, rounds), wanted, rtol=1e-12)


def test_a_wrong_recursion_fails_the_alternating_sum(monkeypatch):
    right = _rounds._next_round
    monkeypatch.setattr(_rounds, "_next_round", lambda old, scale, kept: right(old, scale, np.roll(kept, 1)))
    wanted = [math.log(exact_rate(Fraction(5, 2), 12, m, 2)) for m in range(1, 13)]
    assert np.abs(log_column_rates(2.5, 12, 2) - wanted).max() > 0.01


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: f"rounds={prior.rounds}")
def test_classes_with_k_columns_have_a_poisson_probability(prior):
    """So all classes together sum to one."""
    rate = prior.mass * expected_columns(log_column_rates(prior.concentration, 2, prior.rounds))
    totals = np.zeros(6)
    for Z in all_classes(2, 5):
        totals[Z.shape[1]] += math.exp(prior.log_prob(Z))
    wanted = [math.exp(-rate) * rate**k / math.factorial(k) for k in range(6)]
    np.testing.assert_allclose(totals, wanted, rtol=1e-12)


@pytest.mark.parametrize("concentration", [0.4, 1.0, 7.0])
def test_the_whole_process_is_the_two_parameter_ibp(concentration, rng):
    process, ibp = BetaProcess(1.7, concentration), IBP(1.7, concentration)
    Z = ibp.simulate(rng, 9)
    assert process.log_prob(Z) == pytest.approx(ibp.log_prob(Z), rel=1e-12)
    assert process.new_rate(9) == pytest.approx(ibp.new_rate(9), rel=1e-12)
    np.testing.assert_allclose(process.log_odds(9), ibp.log_odds(9), rtol=1e-11, atol=1e-12)


def test_many_rounds_approach_the_ibp(rng):
    Z = IBP(1.7, 2.0).simulate(rng, 9)
    gaps = [IBP(1.7, 2.0).log_prob(Z) - BetaProcess(1.7, 2.0, rounds=r).log_prob(Z) for r in (5, 10, 20, 100)]
    assert np.all(np.diff(np.abs(gaps)) < 0)
    assert abs(gaps[-1]) < 1e-12


def test_empty_columns_count_for_nothing(rng):
    prior = BetaProcess(1.0, 1.5, rounds=4)
    Z = prior.simulate(rng, 6)
    assert prior.log_prob(np.hstack([Z, np.zeros((6, 3), dtype=np.uint8)])) == prior.log_prob(Z)


def test_expected_columns_of_the_reference():
    log_rates = log_column_rates(2.0, 5, None)
    assert 1.5 * expected_columns(log_rates) == pytest.approx(4.35, rel=1e-12)
    each = 1.5 * np.exp(log_rates) * [math.comb(5, m) for m in range(1, 6)]
    np.testing.assert_allclose(each, [2.5, 1.0, 0.5, 0.25, 0.1], rtol=1e-12)
    left_out = 1.5 * (expected_columns(log_rates) - expected_columns(log_column_rates(2.0, 5, 5)))
    assert left_out == pytest.approx(0.854108298093, rel=1e-11)


def column_statistics(Z, n_rows):
    """Number of columns and its square, of ones, and of columns with m ones for each m."""
    counts = Z.sum(axis=0, dtype=int)
    return [len(counts), len(counts) ** 2, counts.sum(), *np.bincount(counts, minlength=n_rows + 1)[1:]]


def expected_statistics(mass, c, n_rows, rounds):
    log_rates = log_column_rates(c, n_rows, rounds)
    each = mass * np.exp(log_rates) * [math.comb(n_rows, m) for m in range(1, n_rows + 1)]
    total = each.sum()
    return np.array([total, total + total**2, each @ np.arange(1, n_rows + 1), *each])


@pytest.mark.parametrize("rounds", [None, 2, 60])
def test_moments_of_draws(rounds, rng):
    """24 statistics in all; sixty rounds are not to be told apart from the whole process."""
    prior = BetaProcess(1.5, 2.0, rounds=rounds)
    values = np.array([column_statistics(prior.simulate(rng, 5), 5) for _ in range(4000)], dtype=float)
    z = z_scores(values, expected_statistics(1.5, 2.0, 5, None if rounds == 60 else rounds))
    assert np.abs(z).max() <= z_limit(24), z


def weight_statistics(weights, index):
    """Number of atoms, sum of weights and of their squares, in each of five rounds and in all."""
    sums = [np.bincount(index, weights=weights**p, minlength=61)[1:] for p in range(4)]
    return np.concatenate([[s.sum() for s in sums[1:]], *[s[:5] for s in sums]])


def check_weights(draws, mass, c):
    values = np.array([weight_statistics(*draw) for draw in draws])
    moments = [mass * c * beta_function(p + 1, c) * (c / (c + p)) ** np.arange(5) for p in range(4)]
    # E sum w = mass, E sum w^2 = mass / (1 + c), E sum w^3 = mass c B(3, c), up to rounds that are left out
    wanted = np.concatenate([[mass * c * beta_function(p, c) for p in range(1, 4)], *moments])
    z = z_scores(values, wanted)
    assert np.abs(z).max() <= z_limit(len(z)), z


def in_rounds(prior, rng):
    rounds = prior.simulate_rounds(rng, 60)
    return np.concatenate(rounds), np.repeat(np.arange(1, 61), [len(w) for w in rounds])


def test_weights_in_rounds(rng):
    prior = BetaProcess(1.5, 2.0)
    check_weights([in_rounds(prior, rng) for _ in range(1000)], 1.5, 2.0)


def test_weights_with_a_single_index(rng):
    prior = BetaProcess(1.5, 2.0)
    check_weights([prior.simulate_weights(rng, 60) for _ in range(4000)], 1.5, 2.0)


def test_weights_that_are_late_by_one_round_fail(rng):
    with pytest.raises(AssertionError):
        check_weights([LateByOne(1.5, 2.0).simulate_weights(rng, 60) for _ in range(1000)], 1.5, 2.0)


def test_atoms_are_in_the_order_of_their_rounds(rng):
    """d_k = 1 + number of i with C_1 + ... + C_i < k."""
    _, index = BetaProcess(1.5, 2.0, rounds=20).simulate_weights(rng)
    counts = np.bincount(index, minlength=21)[1:]
    wanted = [1 + int((np.cumsum(counts) < k).sum()) for k in range(1, len(index) + 1)]
    assert index.tolist() == wanted


def resampled(prior, rng):
    """Statistics of (mass, concentration, Z) before and after a step that must leave their law as it is."""
    before = prior.draw(rng)
    Z = before.simulate(rng, 4)
    after = prior.resample(rng, before, Z)
    both = [[p.mass, p.mass**2, p.concentration, p.concentration**2, p.mass * Z.shape[1]] for p in (before, after)]
    return np.subtract(*both)


@pytest.mark.parametrize("rounds", [None, 3])
def test_hyperparameters_keep_their_posterior(rounds, rng):
    prior = BetaProcess(Gamma(3.0, 2.0), Gamma(4.0, 2.0), rounds=rounds)
    z = z_scores(np.array([resampled(prior, rng) for _ in range(1500)]), np.zeros(5))
    assert np.abs(z).max() <= z_limit(5), z


class ForgetsRounds(BetaProcess):
    """Mutant: concentration is drawn as if all rounds were there."""

    def resample(self, rng, current, Z):
        whole = BetaProcess(self.mass, self.concentration)
        drawn = whole.resample(rng, whole.updated(mass=current.mass, concentration=current.concentration), Z)
        return current.updated(mass=drawn.mass, concentration=drawn.concentration)


def test_a_wrong_step_is_seen(rng):
    prior = ForgetsRounds(Gamma(3.0, 2.0), Gamma(4.0, 2.0), rounds=1)
    z = z_scores(np.array([resampled(prior, rng) for _ in range(1500)]), np.zeros(5))
    assert np.abs(z).max() > z_limit(5), z


@pytest.mark.slow
def test_gibbs_sampling_is_right_by_enumeration(rng):
    model = Model(BetaProcess(1.0, 2.0, rounds=2), LinearGaussian(noise_var=0.5, feature_var=1.0))
    check_inference(CollapsedGibbs(), model, 2.0 * rng.normal(size=(3, 2)), rng)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"truncation": 0}, "truncation.*integer from 1 to 10000"),
        ({"truncation": 10**9}, "truncation.*integer from 1 to 10000"),
        ({"truncation": 2.5}, "truncation.*integer"),
        ({"rounds": 0}, "rounds.*integer from 1 to 10000"),
        ({"rounds": -3}, "rounds"),
        ({"mass": 0.0}, "mass.*positive"),
        ({"concentration": math.nan}, "concentration.*positive"),
        ({"round_penalty": "printed"}, "round_penalty.*'none'.*'markov'"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(wrong, words):
    with pytest.raises(InvalidParameterError, match=words):
        BetaProcess(**wrong)


@pytest.mark.parametrize("rounds", [None, 0, 10**9, 1.5])
def test_weights_of_a_wrong_number_of_rounds_are_refused(rounds, rng):
    for draw in (BetaProcess(1.0).simulate_weights, BetaProcess(1.0).simulate_rounds):
        with pytest.raises(InvalidParameterError, match="Give rounds, an integer from 1 to 10000"):
            draw(rng, rounds)


def test_learned_values_are_refused_where_numbers_are_needed():
    for call in (lambda p: p.log_prob(np.ones((2, 1))), lambda p: p.log_odds(3), lambda p: p.new_rate(3)):
        with pytest.raises(InvalidParameterError, match="distribution"):
            call(BetaProcess())


def test_chosen_truncation_leaves_out_little():
    mass, c, n_rows = 3.0, 2.0, 5000
    rounds = enough(mass, c, n_rows, 0.01)
    beyond = [mass * n_rows * (c / (1 + c)) ** r for r in (rounds, rounds - 1)]
    assert 1 - math.exp(-beyond[0]) <= 0.01 < 1 - math.exp(-beyond[1])
    atoms = beta_process._enough_atoms(mass * rounds)
    below = [gammaincc(k + 1, mass * rounds) for k in (atoms, atoms - 1)]  # P(Poisson <= k)
    assert below[0] >= 0.99 > below[1]
    assert BetaProcess(mass, c).init_weights(n_rows).rounds.shape == (atoms, rounds)
    assert BetaProcess(mass, 1e6).init_weights(n_rows).rounds.shape == (500, 500)
    assert BetaProcess(mass, c, truncation=7, rounds=4).init_weights(n_rows).rounds.shape == (7, 4)
