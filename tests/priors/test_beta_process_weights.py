"""The variational distribution of a beta process: bound by Monte Carlo, updates against numerical optima."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import digamma, gammaln, polygamma, softmax

from thali import Gamma, InvalidParameterError
from thali.core.distributions import LogNormal
from thali.core.protocols.prior import VariationalWeights
from thali.priors.beta_process import atoms
from thali.priors.beta_process import round_penalties as penalties
from thali.priors.beta_process.prior import BetaProcess
from thali.priors.beta_process.weights import Weights, atom_terms, update_rounds, update_scalars
from thali.priors.gamma_factor import ScalarFactor
from thali.testing import z_limit
from thali.testing.zscores import z_scores

OPTIONS = ["none", "exact", "factorial", "markov"]


def wave(start, n, m):
    return np.sin(start + 1.3 * np.arange(n)[:, None] + 0.7 * np.arange(m))


def golden_state(option="none"):
    """Prior, q and counts of five rows, three atoms and four rounds."""
    prior = BetaProcess(Gamma(1.5, 0.9), Gamma(1.2, 0.7), truncation=3, rounds=4, round_penalty=option)
    k = np.arange(3)
    rounds = softmax(wave(1.4, 3, 4), axis=1)
    mass, concentration = ScalarFactor(4.1, 1.3, prior.mass), ScalarFactor(3.2, 1.7, prior.concentration)
    q = Weights(rounds, 1 + 0.5 * k, 2 + 0.25 * k, 1.5 + 0.2 * k, 2 + 0.5 * k, mass, concentration)
    return prior, q, (0.5 + 0.4 * wave(0.4, 5, 3)).sum(axis=0)


def fixed_state():
    """The same with numbers for mass and concentration."""
    _, q, counts = golden_state()
    prior = BetaProcess(1.4, 2.2, truncation=3, rounds=4)
    return (
        prior,
        q._replace(mass=ScalarFactor.of(prior, "mass"), concentration=ScalarFactor.of(prior, "concentration")),
        counts,
    )


def theta_of(q):
    return np.stack([q.a, q.b, q.u, q.v])


def rounds_pass(q, counts, n_rows, penalty):
    """q(d) of all atoms in turn."""
    terms = atom_terms(q, counts, n_rows)
    return update_rounds(q, terms, atoms.expected_log_rest(*theta_of(q)), penalty)


class TestGolden:
    @pytest.mark.parametrize(
        ("point", "total", "derivatives"),
        [
            (
                (2.0, 3.0, 1.5, 4.0),
                0.369666863272,
                (0.129506412931, -0.0950778476119, -0.105454911152, 0.0335203656653),
            ),
            ((1.0, 1.0, 1.0, 1.0), 0.355065933152, (0.20205690316, -0.240820260529, -0.320198632628, 0.20205690316)),
            (
                (5.0, 40.0, 3.0, 50.0),
                0.11183182226,
                (0.0210079438714, -0.00265678362139, -0.00236790954513, 0.000140481367322),
            ),
        ],
        ids=["2,3", "1,1", "5,40"],
    )
    def test_log_rest(self, point, total, derivatives):
        got = -atoms.log_rest_gradient(*np.array(point)[:, None])[:, 0]
        np.testing.assert_allclose(got, [total, *derivatives], rtol=1e-10)

    @pytest.mark.parametrize(
        ("option", "wanted"),
        [
            ("markov", -18.0948865914),
            ("factorial", -15.7652572145),
            ("exact", -14.3719846338),
            ("none", -15.6597222038),
        ],
    )
    def test_bound(self, option, wanted):
        prior, q, counts = golden_state(option)
        entropy_of_z = 7.76534277998  # belongs to the inference
        assert prior.weights_bound(q, counts, 5) == pytest.approx(wanted - entropy_of_z, rel=1e-10)

    @pytest.mark.parametrize(
        ("option", "wanted"),
        [
            ("markov", [0.718534003632, 0.199104108708, 0.0776831160137, 0.00467877164629]),
            ("exact", [0.746845915588, 0.184591325788, 0.0643226017733, 0.00424015685021]),
            ("none", [0.759924347005, 0.177677338149, 0.0583365308498, 0.00406178399622]),
        ],
    )
    def test_rounds(self, option, wanted):
        prior, q, counts = golden_state(option)
        np.testing.assert_allclose(update_only(1, prior, q, counts), wanted, rtol=1e-9)

    def test_printed_rounds(self, monkeypatch):
        """The printed update is that of half the penalty: another table, and not the optimum of the bound."""
        prior, q, counts = golden_state("markov")
        right = update_only(1, prior, q, counts)
        monkeypatch.setitem(penalties.PENALTIES, "markov", PrintedPull)
        wanted = [0.739899055014, 0.188330110503, 0.0674057971026, 0.00436503738097]
        printed = update_only(1, prior, q, counts)
        np.testing.assert_allclose(printed, wanted, rtol=1e-9)
        bounds = [with_rounds(prior, q, counts, 1, row) for row in (printed, right)]
        assert bounds[0] < bounds[1] - 1e-4

    def test_gradient(self):
        _, q, counts = golden_state()
        by = atoms.log_rest_gradient(*theta_of(q))[1:]
        gradient = atoms.atom_gradient(theta_of(q), atom_terms(q, counts, 5), by)
        first = [2.52898050322, -0.633790401118, -0.494389777096, 0.416459277044]
        last = [0.443827490217, -0.237175820955, 0.0473800995878, 0.0254555347911]
        np.testing.assert_allclose(gradient[:, [0, 2]].T, [first, last], rtol=1e-9)

    def test_scalars(self):
        _, q, _ = golden_state()
        q = update_scalars(q)
        got = [q.concentration.shape, q.concentration.rate, q.mass.shape, q.mass.rate]
        np.testing.assert_allclose(got, [7.88270910895, 3.8043847481, 4.5, 4.17022010497], rtol=1e-10)

    def test_log_factorials(self):
        chances = np.array([[0.2], [0.5], [0.9], [0.4]])
        costs = [penalties.PENALTIES[option](chances).cost() for option in ("exact", "markov", "factorial")]
        np.testing.assert_allclose(costs, [0.845833451015, 4.44397872546, 3.44622647023], rtol=1e-10)


class PrintedPull(penalties.Markov):
    """Mutant: the printed derivative, which counts each pair of atoms once."""

    def pull(self, k):
        return super().pull(k) / 2


def update_only(k, prior, q, counts):
    """q(d_k) at its optimum while the other tables stay as they are: atom k is put first."""
    order = [k, *(i for i in range(len(q.a)) if i != k)]
    moved = Weights(*(field[order] for field in q[:5]), *q[5:])
    return rounds_pass(moved, counts[order], 5, penalties.PENALTIES[prior.round_penalty](moved.rounds))[0]


def with_rounds(prior, q, counts, k, row):
    rounds = q.rounds.copy()
    rounds[k] = row
    return prior.weights_bound(q._replace(rounds=rounds), counts, 5)


def log_ratio(prior, q, counts, n_rows, rng, size):
    """log p(Z, d, V, T, mass, concentration) - log q(the same but Z) at draws of q; Z enters by its expected counts."""
    n_atoms, n_rounds = q.rounds.shape
    d = np.stack([rng.choice(n_rounds, size, p=row) + 1 for row in q.rounds], axis=1)
    V, T = rng.beta(q.a, q.b, (size, n_atoms)), rng.gamma(q.u, 1 / q.v, (size, n_atoms))
    log_scalars = np.zeros(size)
    mass, c = (draw_scalar(factor, rng, size, log_scalars) for factor in (q.mass, q.concentration))
    late = d > 1
    weight = V * np.exp(-T * late)
    log_p = (counts * np.log(weight) + (n_rows - counts) * np.log1p(-weight)).sum(axis=1)
    log_p += (np.log(c)[:, None] + (c[:, None] - 1) * np.log1p(-V)).sum(axis=1)
    log_t = (d - 1) * np.log(c)[:, None] - gammaln(np.maximum(d - 1, 1)) + (d - 2) * np.log(T) - c[:, None] * T
    log_p += (late * log_t).sum(axis=1)
    in_round = np.stack([(d == r).sum(axis=1) for r in range(1, n_rounds + 1)], axis=1)
    log_factorials = {"none": gammaln(n_atoms + 1), "exact": gammaln(in_round + 1).sum(axis=1)}
    log_p += n_atoms * np.log(mass) - mass * d.max(axis=1) - log_factorials[prior.round_penalty]
    log_q = np.log(q.rounds[np.arange(n_atoms), d - 1]).sum(axis=1)
    log_q += ((q.a - 1) * np.log(V) + (q.b - 1) * np.log1p(-V) + gammaln(q.a + q.b)).sum(axis=1)
    log_q -= (gammaln(q.a) + gammaln(q.b)).sum()
    log_q += (late * log_gamma(T, q.u, q.v)).sum(axis=1)
    return log_p + log_scalars - log_q


def log_gamma(x, shape, rate):
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(x) - rate * x


def draw_scalar(factor, rng, size, log_ratios):
    """Draws of a scalar factor; adds log prior - log q to `log_ratios`."""
    if factor.prior is None:
        return np.full(size, factor.mean)
    x = rng.gamma(factor.shape, 1 / factor.rate, size)
    log_ratios += log_gamma(x, factor.prior.shape, factor.prior.rate) - log_gamma(x, factor.shape, factor.rate)
    return x


class TestBound:
    @pytest.mark.parametrize("state", [golden_state("none"), golden_state("exact"), fixed_state()], ids="abc")
    def test_equals_monte_carlo(self, state, rng):
        prior, q, counts = state
        values = log_ratio(prior, q, counts, 5, rng, 200_000)
        z = z_scores(values[:, None], np.array([prior.weights_bound(q, counts, 5)]))
        assert abs(z[0]) <= z_limit(1), z

    def test_monte_carlo_sees_a_mutant(self, rng):
        """The entropy of q(T) counts only where there is a T."""
        prior, q, counts = golden_state()
        values = log_ratio(prior, q, counts, 5, rng, 200_000)
        wrong = prior.weights_bound(q, counts, 5) + ((1 - q.later) * atoms.gamma_entropy(q.u, q.v)).sum()
        assert abs(z_scores(values[:, None], np.array([wrong]))[0]) > z_limit(1)

    @pytest.mark.parametrize("state", [golden_state(), fixed_state()], ids="ab")
    def test_is_linear_in_the_counts_with_the_expected_log_odds(self, state):
        prior, q, counts = state
        step = np.eye(3)
        slopes = [prior.weights_bound(q, counts + e, 5) - prior.weights_bound(q, counts, 5) for e in step]
        np.testing.assert_allclose(prior.expected_log_odds(q), slopes, rtol=1e-10)

    def test_expectations_equal_monte_carlo(self, rng):
        prior, q, _ = golden_state()
        size = 200_000
        late = rng.random((size, 3)) >= q.rounds[:, 0]
        weights = rng.beta(q.a, q.b, (size, 3)) * np.exp(-rng.gamma(q.u, 1 / q.v, (size, 3)) * late)
        draws = np.hstack([weights, np.log(weights) - np.log1p(-weights)])
        z = z_scores(draws, np.concatenate([prior.expected_weights(q), prior.expected_log_odds(q)]))
        assert np.abs(z).max() <= z_limit(6), z

    def test_exact_penalty_is_the_smallest(self, rng):
        for n_atoms in (1, 4, 12, 60):
            rounds = rng.dirichlet(np.full(6, 0.3), size=n_atoms)
            exact, factorial, markov = (
                penalties.PENALTIES[option](rounds).cost() for option in ("exact", "factorial", "markov")
            )
            assert exact <= min(factorial, markov) + 1e-12
            assert factorial < markov or n_atoms > 12  # few atoms in a round


class TestUpdates:
    @pytest.mark.parametrize("option", OPTIONS)
    def test_rounds_are_at_the_numerical_optimum(self, option):
        prior, q, counts = golden_state(option)
        for k in range(3):
            best = minimize(
                lambda x, k=k: -with_rounds(prior, q, counts, k, softmax(x)), np.zeros(4), options={"gtol": 1e-8}
            )
            np.testing.assert_allclose(update_only(k, prior, q, counts), softmax(best.x), atol=1e-6)

    @pytest.mark.parametrize("option", OPTIONS)
    def test_a_pass_over_rounds_is_that_of_one_atom_after_the_other(self, option):
        prior, q, counts = golden_state(option)
        wanted = q
        for k in range(3):
            rounds = wanted.rounds.copy()
            rounds[k] = update_only(k, prior, wanted, counts)
            wanted = wanted._replace(rounds=rounds)
        got = rounds_pass(q, counts, 5, penalties.PENALTIES[option](q.rounds))
        np.testing.assert_allclose(got, wanted.rounds, rtol=1e-12)

    def test_gradient_equals_finite_differences(self):
        prior, q, counts = golden_state()
        by = atoms.log_rest_gradient(*theta_of(q))[1:]
        got = atoms.atom_gradient(theta_of(q), atom_terms(q, counts, 5), by)
        np.testing.assert_allclose(got, finite_differences(prior, q, counts), atol=1e-7)

    @pytest.mark.parametrize("wrong", ["logs", "number"])
    def test_printed_gradient_fails(self, wrong):
        """E log V and E log(1 - V) where trigammas belong; a number where E[concentration] belongs."""
        prior, q, counts = golden_state()
        terms = atom_terms(q, counts, 5)
        by = atoms.log_rest_gradient(*theta_of(q))[1:]
        if wrong == "number":
            terms = terms._replace(concentration=np.full(3, q.concentration.shape))
            printed = atoms.atom_gradient(theta_of(q), terms, by)[:2]
        else:
            both = polygamma(1, q.a + q.b)
            on = terms.n_on + 1 - q.a
            off = terms.n_off * terms.first + terms.concentration - q.b
            rest = terms.n_off * terms.later
            log_v, log_rest_v = digamma(q.a) - digamma(q.a + q.b), digamma(q.b) - digamma(q.a + q.b)
            printed = np.stack([on * log_v - off * both + rest * by[0], -on * both + off * log_rest_v + rest * by[1]])
        assert np.abs(printed - finite_differences(prior, q, counts)[:2]).max() > 0.01

    @pytest.mark.parametrize("n_rows", [5, 400])
    def test_sticks_reach_the_numerical_optimum(self, n_rows):
        _, q, counts = golden_state()
        terms = atom_terms(q, counts, n_rows)
        theta = theta_of(q)
        for _ in range(60):
            theta = atoms.ascend(theta, terms, atoms.log_rest_gradient(*theta))

        def cost(x):
            point = np.exp(x).reshape(4, 3)
            rest = atoms.log_rest_gradient(*point)
            gradient = atoms.atom_gradient(point, terms, rest[1:])
            return -atoms.atom_bound(point, terms, rest[0]).sum(), -(gradient * point).ravel()

        best = minimize(cost, np.log(theta_of(q)).ravel(), jac=True, options={"gtol": 1e-9})
        np.testing.assert_allclose(theta, np.exp(best.x).reshape(4, 3), rtol=1e-4)
        assert atoms.atom_bound(theta, terms, atoms.expected_log_rest(*theta)).sum() >= -best.fun - 1e-8

    def test_scalars_are_at_the_numerical_optimum(self):
        prior, q, counts = golden_state()
        q = update_scalars(q)

        def cost(x):
            a, b, c, d = np.exp(x)
            moved = q._replace(
                mass=q.mass._replace(shape=a, rate=b), concentration=ScalarFactor(c, d, prior.concentration)
            )
            return -prior.weights_bound(moved, counts, 5)

        best = minimize(cost, np.zeros(4), options={"gtol": 1e-8})
        np.testing.assert_allclose([*q.mass[:2], *q.concentration[:2]], np.exp(best.x), rtol=1e-4)

    @pytest.mark.parametrize("option", OPTIONS)
    @pytest.mark.parametrize("n_rows", [8, 3000])
    def test_the_bound_never_falls(self, option, n_rows, rng):
        prior = BetaProcess(Gamma(1.0, 0.1), Gamma(1.0, 0.1), truncation=15, rounds=12, round_penalty=option)
        counts = n_rows * rng.random(15) ** 5
        q = prior.init_weights(n_rows)
        bounds = [prior.weights_bound(q, counts, n_rows)]
        for _ in range(80):
            q = prior.update_weights(q, counts, n_rows)
            bounds.append(prior.weights_bound(q, counts, n_rows))
        assert np.diff(bounds).min() >= -1e-11 * abs(bounds[-1])
        assert bounds[-1] - bounds[-20] < 0.01 * (bounds[-1] - bounds[0])
        np.testing.assert_allclose(prior.expected_weights(q), counts / n_rows, atol=3 / math.sqrt(n_rows))

    def test_fixed_numbers_stay(self):
        prior, q, counts = fixed_state()
        after = prior.update_weights(q, counts, 5)
        assert (after.mass, after.concentration) == (q.mass, q.concentration)

    def test_one_round(self):
        """No T at all: q(V) is the exact posterior after one pass."""
        prior = BetaProcess(1.0, 2.5, truncation=2, rounds=1)
        q = prior.update_weights(prior.init_weights(10), np.array([3.0, 6.5]), 10)
        np.testing.assert_allclose(q.a, [4.0, 7.5], rtol=1e-12)
        np.testing.assert_allclose(q.b, [9.5, 6.0], rtol=1e-12)


def finite_differences(prior, q, counts, step=1e-5):
    result = np.zeros((4, 3))
    for i, name in enumerate("abuv"):
        for k in range(3):
            moved = [getattr(q, name) + sign * step * np.eye(3)[k] for sign in (1, -1)]
            up, down = (prior.weights_bound(q._replace(**{name: x}), counts, 5) for x in moved)
            result[i, k] = (up - down) / (2 * step)
    return result


class TestStart:
    def test_capability(self):
        assert isinstance(BetaProcess(), VariationalWeights)

    def test_start_is_the_prior_of_atoms_in_order(self, rng):
        """q(d_k) against draws of the construction; later atoms have smaller weights."""
        prior = BetaProcess(2.0, 1.5, truncation=6, rounds=40)
        q = prior.init_weights(100)
        rounds = np.arange(1, 41)
        draws = np.array([prior.simulate_weights(rng)[1][:6] for _ in range(3000)], dtype=float)
        z = z_scores(np.hstack([draws, draws == 1]), np.concatenate([q.rounds @ rounds, q.rounds[:, 0]]))
        assert np.abs(z).max() <= z_limit(12), z
        assert np.all(np.diff(prior.expected_weights(q)) < 0)

    def test_more_atoms_than_the_rounds_hold(self):
        q = BetaProcess(0.01, 1.0, truncation=50, rounds=3).init_weights(10)
        np.testing.assert_allclose(q.rounds.sum(axis=1), 1.0)

    def test_many_atoms_are_summed_in_blocks(self):
        prior = BetaProcess(3.0, 1.0, truncation=600, rounds=5)
        q = prior.init_weights(50)
        whole = prior.expected_log_odds(q)
        half = prior.expected_log_odds(Weights(*(field[300:] for field in q[:5]), *q[5:]))
        np.testing.assert_allclose(whole[300:], half, rtol=1e-13)

    @pytest.mark.parametrize(
        ("prior", "words"),
        [
            (BetaProcess(LogNormal()), "mass.*number or a Gamma"),
            (BetaProcess(1.0, LogNormal()), "concentration.*number or a Gamma"),
            (BetaProcess(1.0, truncation=501, round_penalty="exact"), "at most 500 atoms"),
        ],
        ids=["mass", "concentration", "exact"],
    )
    def test_what_cannot_be_done_is_refused(self, prior, words):
        with pytest.raises(InvalidParameterError, match=words):
            prior.init_weights(100)
